"""Which engine a node starts with, and what it says where that cannot be."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.tiny_llama import model_folder, tiny_llama
from unit.test_node_configuration import written

from troth.node.configuration import NodeConfiguration, load
from troth.node.engine.interface import EngineLoad, SessionKey, WholeEngine
from troth.node.engine.loading import load_engine, require_engine
from troth.node.engine.vllm import installing
from troth.node.engine.vllm.engine import VllmEngine
from troth.node.engine.vllm.machine import cpu_label
from troth.node.engine.vllm.settings import ENVIRONMENT, EngineSettings
from troth.node.engine.vllm.supervision import Supervisor
from troth.node.errors import BadInput, ConfigError, EngineError, ModelError, OutOfOrder
from troth.node.models.descriptor import describe
from troth.node.models.execution_class import rough_class
from troth.node.models.folder import open_folder
from troth.protocol.market.types import ExecutionClass
from troth.protocol.types import Hash32, Segment

pytestmark = pytest.mark.torch

EXACT = replace(rough_class(Hash32(bytes(32)), 1, f"tiny/vllm/{cpu_label()}", candidates=2), exact=True)
SIZES = {"num_hidden_layers": 4, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 50}
TOKENIZER = json.dumps({"model": {"type": "BPE", "vocab": {str(number): number for number in range(50)}}})


@pytest.fixture
def configuration(tmp_path: Path) -> NodeConfiguration:
    model_folder(tiny_llama(**SIZES), tmp_path / "models" / "tiny", TOKENIZER)
    found = load(written(tmp_path))
    return replace(found, engine="vllm", model="tiny", slice=Segment(0, 4), segments=(Segment(0, 4),))


def start(configuration: NodeConfiguration, execution_class: ExecutionClass = EXACT) -> object:
    descriptor = describe(open_folder(configuration.folder / "models" / "tiny"), execution_class.dtype)
    return load_engine(configuration, execution_class, descriptor, verify=False)


@pytest.fixture
def no_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installing.importlib.util, "find_spec", lambda name: None)


@pytest.fixture
def with_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installing.importlib.util, "find_spec", lambda name: object())


@pytest.mark.usefixtures("no_vllm")
def test_a_missing_engine_names_the_command(configuration: NodeConfiguration) -> None:
    for call in (lambda: require_engine(configuration), lambda: start(configuration)):
        with pytest.raises(ConfigError, match="troth node engine install vllm"):
            call()
    require_engine(replace(configuration, engine="torch"))


@pytest.mark.usefixtures("with_vllm")
def test_vllm_hosts_whole_models(configuration: NodeConfiguration) -> None:
    assert isinstance(start(configuration), WholeEngine)
    with pytest.raises(ConfigError, match="0:4"):
        start(replace(configuration, slice=Segment(0, 2)))


@pytest.mark.usefixtures("with_vllm")
@pytest.mark.parametrize(
    ("name", "said"), [("tiny/vllm/cpu-l2-1k/probe-00", "cache of 1 kB"), ("tiny/vllm/cpu", "does not say which cache")]
)
def test_another_cache_than_the_exact_class_names_is_refused(
    configuration: NodeConfiguration, name: str, said: str
) -> None:
    """vLLM cuts the keys of a long text by it: such a node would be convicted for honest work."""
    with pytest.raises(ConfigError, match=said):
        start(configuration, replace(EXACT, name=name))


@pytest.mark.usefixtures("with_vllm")
def test_vllm_serves_tolerant_classes_too(configuration: NodeConfiguration) -> None:
    for dtype in (0, 1):
        assert isinstance(start(configuration, replace(EXACT, exact=False, dtype=dtype)), WholeEngine)
    with pytest.raises(ConfigError, match="CUDA_VISIBLE_DEVICES"):
        start(replace(configuration, device="cuda:1"))


@pytest.mark.usefixtures("with_vllm")
async def test_an_engine_that_was_not_started_refuses_before_it_starts(configuration: NodeConfiguration) -> None:
    async def never() -> Any:
        raise EngineError("it was started")

    engine = VllmEngine(
        open_folder(configuration.folder / "models" / "tiny"), EngineSettings(Path(), 1, positions=20),
        supervisor=Supervisor(never),
    )  # fmt: skip
    key = SessionKey(bytes(32), 0, 0)
    assert engine.load == EngineLoad(0, 0, 0.0, 0, 32, 0, 0)
    assert (engine.cache_bytes, engine.failure, engine.holds(Segment(1, 3))) == (0, None, True)
    with pytest.raises(BadInput, match="longer"):
        await engine.prefill([1] * 21)
    with pytest.raises(BadInput, match="vocabulary"):
        await engine.prefill([50])
    with pytest.raises(BadInput, match="whole model"):
        await engine.forward(key, Segment(0, 2), 0, np_tokens(1))
    with pytest.raises(OutOfOrder):
        await engine.forward(key, Segment(0, 4), 1, np_tokens(1))
    with pytest.raises(BadInput, match="longer"):
        await engine.reference(Segment(0, 4), np.ones(21, np.int64))
    with pytest.raises(ModelError, match="slices"):
        await engine.rehost(Segment(0, 2))
    with pytest.raises(EngineError, match="it was started"):
        await engine.prefill([1])
    await engine.close()


def np_tokens(*tokens: int) -> NDArray[np.int64]:
    return np.array(tokens)


ADDED = ("VLLM_BATCH_INVARIANT", "VLLM_USE_V2_MODEL_RUNNER", "VLLM_RPC_BASE_PATH")


def test_what_belongs_to_the_class_is_set_for_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*ENVIRONMENT, *ADDED, "OMP_NUM_THREADS", "VLLM_LOGGING_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    EngineSettings(tmp_path, 1, threads=1).prepare_environment(tmp_path)
    assert os.environ["VLLM_USE_V2_MODEL_RUNNER"] == "0"
    assert os.environ["VLLM_NO_USAGE_STATS"] == "1"
    assert os.environ["VLLM_RPC_BASE_PATH"] == str(tmp_path)
    assert os.environ["VLLM_BATCH_INVARIANT"] == "0"
    EngineSettings(tmp_path, 1, "cuda").prepare_environment(tmp_path)
    assert os.environ["VLLM_BATCH_INVARIANT"] == os.environ["VLLM_USE_V2_MODEL_RUNNER"] == "1"
    arguments = EngineSettings(tmp_path, 1, positions=99).arguments(tmp_path)
    assert (arguments["enforce_eager"], arguments["seed"], arguments["max_model_len"]) == (True, 0, 100)
    for name in (*ENVIRONMENT, *ADDED, "OMP_NUM_THREADS", "VLLM_LOGGING_LEVEL"):
        os.environ.pop(name, None)
