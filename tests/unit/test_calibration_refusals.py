"""What a calibration cannot measure is refused before it measures for an hour, and one folder is of one model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.byte_language import tokenizer  # noqa: E402
from support.tiny_llama import model_folder, tiny_llama  # noqa: E402

from troth.node.calibration import calibrating, running  # noqa: E402
from troth.node.calibration.conditions import all_conditions  # noqa: E402
from troth.node.calibration.measurements import MeasurementFiles  # noqa: E402
from troth.node.errors import NodeError, NodeStorageError  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.protocol.types import Hash32  # noqa: E402

pytestmark = pytest.mark.torch

LAYERS, POSITIONS = 5, 400
MODEL, OTHER = (Hash32(bytes([number]) * 32) for number in (7, 8))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    shape = {"vocab_size": 300, "num_hidden_layers": LAYERS, "max_position_embeddings": POSITIONS}
    return model_folder(tiny_llama(**shape), tmp_path_factory.mktemp("tiny"), tokenizer().to_str())


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"engine": "vlm"}, "no such engine"),
        ({"device": "tpu"}, "no such device"),
        ({"device": "cuda:x"}, "no such device"),
        ({"prompts": 1}, "each half of the prompts"),
        ({"tokens": POSITIONS}, f"the model knows {POSITIONS} positions"),
        ({"segments": LAYERS + 1}, f"the model has {LAYERS} layers"),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(
    folder: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], what: str
) -> None:
    def computing(*_: Any, **__: Any) -> None:
        raise AssertionError("it measures")

    monkeypatch.setattr(calibrating, "VerifierRun", computing)
    options = {"prompts": 2, "tokens": 16, "segments": 2, "threads": 1} | changed
    with pytest.raises(NodeError, match=what):
        running.run(str(folder.path), "float32", tmp_path / "out", home=tmp_path, **options)


def test_a_device_that_this_machine_lacks_is_refused(
    folder: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    options = {"prompts": 2, "tokens": 16, "segments": 2, "threads": 1, "device": "cuda"}
    with pytest.raises(NodeError, match="torch finds 0 CUDA cards here"):
        running.run(str(folder.path), "float32", tmp_path / "out", home=tmp_path, **options)


def measure(folder: ModelFolder, kept: MeasurementFiles, model: Hash32) -> list[str]:
    seen: list[str] = []
    calibrating.measure(
        folder,
        calibrating.plan_for(LAYERS, 0, 16, 2),
        kept,
        prompts=2,
        threads=1,
        model=model,
        report=lambda progress: seen.append(progress.condition),
    )
    return seen


def test_measurements_of_one_model_are_not_anothers(
    folder: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a model that was converted anew, under the old one's name, is registered with the old one's thresholds."""
    (first, *_) = all_conditions(LAYERS, 0)
    monkeypatch.setattr(calibrating, "all_conditions", lambda layers, dtype: [first])
    kept = MeasurementFiles(tmp_path)
    assert measure(folder, kept, MODEL) == [first.name]
    digest = kept.digest()
    with pytest.raises(NodeStorageError, match="of another model") as refused:
        measure(folder, kept, OTHER)
    assert "0x0707" in str(refused.value.value)
    assert "--out" in str(refused.value)
    assert measure(folder, MeasurementFiles(tmp_path), MODEL) == []
    assert kept.digest() == digest, "what a class refers to are the measurements alone"


def test_measurements_of_an_earlier_version_are_gone_on_with(
    folder: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, *_) = all_conditions(LAYERS, 0)
    monkeypatch.setattr(calibrating, "all_conditions", lambda layers, dtype: [first])
    measure(folder, MeasurementFiles(tmp_path), MODEL)
    (tmp_path / "model").unlink()
    assert measure(folder, MeasurementFiles(tmp_path), MODEL) == []
    with pytest.raises(NodeStorageError, match="of another model"):
        measure(folder, MeasurementFiles(tmp_path), OTHER)
