"""Which classes quantised models have, and what a node of them refuses at its start."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.quantised_checkpoints import FORMS, write_quantised  # noqa: E402

from troth.node.calibration.running import run as calibrate  # noqa: E402
from troth.node.engine.loading import torch_engine, vllm_settings  # noqa: E402
from troth.node.errors import ConfigError, ModelError  # noqa: E402
from troth.node.models.activations import require_judged  # noqa: E402
from troth.node.models.execution_class import ClassOptions  # noqa: E402
from troth.node.models.folder import ModelFolder, open_folder  # noqa: E402
from troth.node.models.report import describe_with_progress, report_of  # noqa: E402
from troth.protocol.types import Segment  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    room, known = tmp_path_factory.mktemp("quantised"), dict[str, Path]()

    def folder(form: str) -> Path:
        if form not in known:
            torch.set_num_threads(1)
            known[form] = write_quantised(form, room / str(len(known)))
        return known[form]

    return folder


@pytest.fixture
def source(request: pytest.FixtureRequest, made: Callable[[str], Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made(request.param), tmp_path / "source"))


def configure(source: Path, changed: Callable[[dict[str, Any]], Any]) -> None:
    config = json.loads((source / "config.json").read_text())
    changed(config["quantization_config"])
    (source / "config.json").write_text(json.dumps(config))


def in_group(**said: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda told: told["config_groups"]["group_0"].update(said)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "changed", "named"), [
    ("fp8", lambda told: None, "fp8"),
    ("fp8 in blocks", lambda told: None, "fp8"),
    ("int-quantized", in_group(input_activations={"num_bits": 8, "dynamic": True}), "input_activations"),
    ("nvfp4", in_group(input_activations={"num_bits": 4, "dynamic": "local"}), "input_activations"),
    ("pack-quantized", in_group(output_activations={"num_bits": 8}), "output_activations"),
    ("pack-quantized", lambda told: told.update(kv_cache_scheme={"num_bits": 8, "type": "float"}), "kv_cache_scheme"),
], indirect=["source"])  # fmt: skip
def test_a_class_that_no_verifier_could_judge_is_refused(source: Path, changed: Any, named: str) -> None:
    """Where more than weights is rounded: at registering, by every engine, and before a calibration."""
    configure(source, changed)
    folder = open_folder(source)
    report = report_of(folder, describe_with_progress(folder, "bfloat16"))
    refused = pytest.raises(ModelError, match=f"no float32 states show how: no tolerant class: {named}")
    with refused:
        ClassOptions().measured(report, "tiny", "bfloat16", None, None)
    tolerant: Any = SimpleNamespace(name="tiny", dtype=1, exact=False)
    with refused:
        torch_engine(folder, Segment(0, folder.layers), tolerant)
    with refused:
        vllm_settings(SimpleNamespace(slice=Segment(0, folder.layers)), tolerant, folder)  # type: ignore[arg-type]
    with refused:
        calibrate(str(source), "bfloat16", source / "out", home=source, prompts=4, tokens=8, segments=1, threads=1)


@pytest.mark.parametrize("family", ["gpt_oss", "qwen3"])
def test_mxfp4_is_judged_in_the_family_for_which_engines_leave_activations_alone(
    family: str, made: Callable[[str], Path], tmp_path: Path
) -> None:
    source = Path(shutil.copytree(made("mxfp4"), tmp_path / "source"))
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "model_type": family}))
    if family == "gpt_oss":
        require_judged(ModelFolder(source))
        return
    with pytest.raises(ModelError, match="no tolerant class: mxfp4"):
        require_judged(ModelFolder(source))


@pytest.mark.slow
@pytest.mark.parametrize("source", FORMS, indirect=True)
def test_a_tolerant_class_of_rounded_weights_is_registered(source: Path) -> None:
    folder = open_folder(source)
    if folder.quantisation and folder.quantisation["quant_method"] == "fp8":
        return
    report = report_of(folder, describe_with_progress(folder, "bfloat16"))
    assert not ClassOptions().measured(report, "tiny", "bfloat16", None, None).exact


@pytest.mark.slow
@pytest.mark.parametrize(("source", "said"), [
    ("int-quantized", "vLLM does not read such weights"),
    ("float-quantized", "on a graphics card alone"),
    ("awq of experts", "rounds what enters quantised experts"),
    ("gptq", "AVX-512"),
    ("mxfp4", "AMX"),
], indirect=["source"])  # fmt: skip
def test_what_vllm_would_compute_otherwise_or_not_at_all_is_refused_at_the_start(
    source: Path, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an x86 processor without and with what kernels need; torch has no such needs."""
    folder = open_folder(source)
    set_up: Any = SimpleNamespace(
        slice=Segment(0, folder.layers),
        device="cpu",
        positions=64,
        cache_bytes=1 << 20,
        threads=1,
        graphs=True,
        cards=1,
    )
    tolerant: Any = SimpleNamespace(name="tiny", dtype=1, exact=False)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for able in (False, True):
        for name in ("avx512", "amx_tile"):
            monkeypatch.setattr(f"torch.cpu._is_{name}_supported", lambda able=able: able)
        if able and said.startswith("A"):
            vllm_settings(set_up, tolerant, folder)
        elif able or "A" in said[:1]:
            with pytest.raises((ConfigError, ModelError), match=said):
                vllm_settings(set_up, tolerant, folder)
    engine = torch_engine(folder, set_up.slice, tolerant, threads=1)
    asyncio.run(engine.close())
