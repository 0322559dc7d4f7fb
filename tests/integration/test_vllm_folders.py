"""vLLM over folders that a stranger made, or that somebody exchanges between two looks of the running node."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed: troth node engine install vllm", allow_module_level=True)

import psutil
import torch
from safetensors.torch import load_file, save_file

from troth.node.engine.loading import load_engine
from troth.node.engine.vllm.engine import VllmEngine
from troth.node.engine.vllm.trial import trial, write_model
from troth.node.errors import EngineError, ModelError, NodeBusy
from troth.node.models.descriptor import describe
from troth.node.models.folder import ModelFolder
from troth.protocol.types import Segment

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(600)]

WEIGHTS, CONFIG = "model.safetensors", "config.json"
TOKENS = [*range(20)]
Exchange = Callable[[Path], object]


@pytest.fixture
def folder(tmp_path: Path) -> ModelFolder:
    path = tmp_path / "tiny"
    path.mkdir()
    write_model(path)
    return ModelFolder(path)


async def test_what_an_installation_is_tried_with_runs() -> None:
    """The command that installs vLLM ends with it."""
    assert len(await trial("cpu")) == 32


def load(folder: ModelFolder) -> Any:
    place: Any = SimpleNamespace(
        folder=folder.path, model=str(folder.path), engine="vllm", slice=Segment(0, folder.layers), device="cpu",
        cache_bytes=1 << 27, threads=1, positions=128, graphs=False, cards=1,
    )  # fmt: skip
    return load_engine(place, SimpleNamespace(dtype=1, exact=False, name="tiny"), describe(folder, 1), verify=True)


def other_weights(path: Path) -> None:
    tensors = {name: tensor + 0.5 for name, tensor in load_file(path / WEIGHTS).items()}
    save_file(tensors, path / "other", metadata={"format": "pt"})
    (path / "other").rename(path / WEIGHTS)


def other_settings(path: Path) -> None:
    config = json.loads((path / CONFIG).read_text())
    (path / CONFIG).write_text(json.dumps({**config, "rms_norm_eps": 0.5}))


def nan_weights(path: Path) -> None:
    tensors = load_file(path / WEIGHTS)
    tensors["model.norm.weight"][0] = torch.nan
    save_file(tensors, path / WEIGHTS, metadata={"format": "pt"})


def test_a_registered_model_that_holds_nan_is_not_started(folder: ModelFolder) -> None:
    nan_weights(folder.path)
    with pytest.raises(ModelError, match=r"hold NaN or infinity: model\.norm\.weight"):
        load(folder)


@pytest.mark.parametrize("exchange", [other_weights, other_settings, nan_weights])
async def test_what_is_exchanged_before_the_first_request_is_not_read(exchange: Exchange, folder: ModelFolder) -> None:
    """vLLM is started by the first request, and the files were checked before."""
    engine: VllmEngine = load(folder)
    exchange(folder.path)
    with pytest.raises(EngineError, match=r"not started: files of the model below .* were changed"):
        await engine.prefill(TOKENS)
    await engine.close()


@pytest.mark.parametrize("exchange", [other_weights, other_settings])
async def test_what_is_exchanged_before_a_restart_is_not_served(exchange: Exchange, folder: ModelFolder) -> None:
    """Whoever can kill vLLM and write below the folder has ten seconds until the node looks again."""
    engine: VllmEngine = load(folder)
    assert (await engine.prefill(TOKENS)).rows.any()
    exchange(folder.path)
    kill_workers()
    # Nothing is answered by what lies there now, whenever it is asked.
    while "were changed" not in (engine.failure or ""):
        with pytest.raises(NodeBusy):
            await engine.prefill(TOKENS, fresh=True)
        await asyncio.sleep(0.05)
    await engine.close()


def kill_workers() -> None:
    processes = [(one.pid, one.name(), one.cmdline()) for one in psutil.Process().children(recursive=True)]
    for number, name, words in processes:
        if "Worker" in f"{name} {' '.join(words)}":
            os.kill(number, signal.SIGKILL)
