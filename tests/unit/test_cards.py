"""Graphics cards without one: what a class' name says of them, how vLLM is started for it, one process a card, and a
card that is full or gone."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.tiny_llama import tiny_model  # noqa: E402

from troth.node.configuration import NodeConfiguration  # noqa: E402
from troth.node.engine.card import CardLock, card_is_gone, cards_of  # noqa: E402
from troth.node.engine.interface import SessionKey  # noqa: E402
from troth.node.engine.loading import vllm_settings, watch_card  # noqa: E402
from troth.node.engine.stressing import FILE, stress_key  # noqa: E402
from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.engine.vllm import machine as machines  # noqa: E402
from troth.node.engine.vllm.machine import CardMachine, backend_for, found_machine, require_guarded, require_machine  # noqa: E402
from troth.node.engine.vllm.settings import CARD_BATCH, ROUNDING, EngineSettings  # noqa: E402
from troth.node.errors import ConfigError, EngineError, NodeBusy  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.node.registration import membership  # noqa: E402
from troth.protocol.types import Segment  # noqa: E402

pytestmark = pytest.mark.torch

HOPPER = CardMachine(90, "TRITON_ATTN", 2)
NAME = f"llama/vllm-0.32.0/bfloat16/{HOPPER.label}/probe-0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return tiny_model(tmp_path_factory.mktemp("llama"), num_hidden_layers=2)


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have torch see cards of these capabilities."""

    def see(*capabilities: int) -> None:
        monkeypatch.setattr(machines, "capabilities", lambda: list(capabilities))
        monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(capabilities))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(capabilities))
        seen = SimpleNamespace(total_memory=80 << 30)
        named = lambda index: SimpleNamespace(uuid=f"card-{index}", total_memory=seen.total_memory)  # noqa: E731
        monkeypatch.setattr(torch.cuda, "get_device_properties", named)

    return see


def arithmetic(name: str = NAME, *, exact: bool = True, dtype: int = 1) -> Any:
    return SimpleNamespace(name=name, dtype=dtype, exact=exact)


def configuration(home: Path) -> NodeConfiguration:
    limits = {"positions": 8192, "cache_bytes": 0, "threads": None, "graphs": True, "cards": 1}
    plain: Any = SimpleNamespace(folder=home, slice=Segment(0, 2), device="cuda", **limits)
    return plain


def passed(home: Path, folder: ModelFolder, *, whole: bool = True) -> None:
    key = stress_key(folder, 1, HOPPER, ["card-0", "card-1"])
    (home / FILE).write_text(json.dumps({key: {"whole": whole, "left_out": "contexts of 20,000"}}))


def test_a_class_name_says_which_cards_compute_it() -> None:
    assert HOPPER.label == "cuda-sm90-TRITON_ATTN-tp2"
    assert CardMachine.named(NAME) == HOPPER
    assert CardMachine.named("llama/vllm-0.32.0/bfloat16/cuda/probe-00") is None
    assert CardMachine.named("llama/cuda-sm90-FLASHINFER-tp2/probe-00") is None


def test_a_node_of_a_class_starts_vllm_as_the_class_says(tmp_path: Path, folder: ModelFolder, cards: Any) -> None:
    cards(90, 90)
    passed(tmp_path, folder)
    settings = vllm_settings(configuration(tmp_path), arithmetic(), folder)
    said = settings.arguments(tmp_path)
    assert said["attention_config"] == {"backend": "TRITON_ATTN"}
    assert said["tensor_parallel_size"] == 2
    assert said["compilation_config"] == {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
    assert "kv_cache_memory_bytes" not in said, "the cache is what the card has left"
    assert (said["max_num_seqs"], said["gpu_memory_utilization"]) == (CARD_BATCH, 0.9)
    assert "enforce_eager" not in said
    environment = settings.environment()
    assert environment["VLLM_BATCH_INVARIANT"] == environment["VLLM_USE_V2_MODEL_RUNNER"] == "1"
    assert environment["VLLM_USE_FLASHINFER_SAMPLER"] == "0"
    eager = replace(settings, graphs=False).arguments(tmp_path)
    assert eager["enforce_eager"]
    assert "compilation_config" not in eager


def test_flash_attention_is_of_version_two(folder: ModelFolder) -> None:
    assert CardMachine(80, "FLASH_ATTN").attention == {"backend": "FLASH_ATTN", "flash_attn_version": 2}
    assert backend_for(folder) == "TRITON_ATTN"
    assert backend_for(folder, "flash_attn") == "FLASH_ATTN"
    with pytest.raises(ConfigError, match="no exact class"):
        backend_for(folder, "FLASHINFER")


def test_a_cpu_is_started_as_before(tmp_path: Path) -> None:
    settings = EngineSettings(tmp_path, 1)
    said = settings.arguments(tmp_path)
    assert said["enforce_eager"]
    assert said["kv_cache_memory_bytes"] == 2 << 30
    assert not {"attention_config", "gpu_memory_utilization", "compilation_config"} & said.keys()
    assert settings.environment()["VLLM_BATCH_INVARIANT"] == settings.environment()["VLLM_USE_V2_MODEL_RUNNER"] == "0"


def test_a_tolerant_class_leaves_room_for_its_reference(tmp_path: Path, folder: ModelFolder, cards: Any) -> None:
    cards(89)
    settings = vllm_settings(configuration(tmp_path), arithmetic("llama/vllm", exact=False), folder)
    assert settings.machine is None
    assert settings.environment()["VLLM_BATCH_INVARIANT"] == "0", "which would cost a third of the speed for nothing"
    share = settings.arguments(tmp_path)["gpu_memory_utilization"]
    assert 0.9 - (1.1 * 2**30) / (80 << 30) < share < 0.9


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ((80, 80), "the class is of cuda-sm90"),
        ((90,), "finds 1"),
        ((90, 80), "different architectures"),
        ((), "finds 0"),
    ],
)
def test_other_cards_than_the_class_are_refused_before_the_model_is_read(
    tmp_path: Path, folder: ModelFolder, cards: Any, seen: tuple[int, ...], said: str
) -> None:
    cards(*seen)
    passed(tmp_path, folder)
    with pytest.raises(ConfigError, match=said):
        vllm_settings(configuration(tmp_path), arithmetic(), folder)


def test_cards_before_ampere_have_no_exact_class(cards: Any) -> None:
    cards(75)
    with pytest.raises(ConfigError, match="before compute capability"):
        found_machine("TRITON_ATTN")


def test_a_class_that_names_no_cards_is_refused_on_them(cards: Any) -> None:
    cards(90)
    with pytest.raises(ConfigError, match="does not say which cards"):
        require_machine("llama/vllm-0.32.0/bfloat16/cuda/probe-00")


def test_a_machine_that_did_not_pass_the_stress_probe_does_not_serve(
    tmp_path: Path, folder: ModelFolder, cards: Any
) -> None:
    cards(90, 90)
    with pytest.raises(ConfigError, match="has not shown yet"):
        vllm_settings(configuration(tmp_path), arithmetic(), folder)
    passed(tmp_path, folder, whole=False)
    with pytest.raises(ConfigError, match=r"left out contexts of 20,000"):
        vllm_settings(configuration(tmp_path), arithmetic(), folder)


async def test_nor_does_it_register(
    tmp_path: Path, folder: ModelFolder, cards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards(90, 90)

    class Follower:
        def __init__(self, market: Any) -> None:
            assert market == "market"

        async def __aenter__(self) -> Any:
            return SimpleNamespace(catch_up=self.catch_up)

        async def __aexit__(self, *_: object) -> None:
            pass

        async def catch_up(self) -> str:
            return "state"

    monkeypatch.setattr(membership, "MarketFollower", Follower)
    monkeypatch.setattr(membership, "_class_in", lambda state, configuration: (arithmetic(), None))
    own: Any = configuration(tmp_path)
    vars(own).update(engine="vllm", model=str(folder.path))
    market: Any = "market"
    with pytest.raises(ConfigError, match="has not shown yet"):
        await membership.require_card(market, own)
    passed(tmp_path, folder)
    await membership.require_card(market, own)
    for changed in ({"engine": "torch"}, {"device": "cpu"}):
        vars(own).update(engine="vllm", device="cuda")
        vars(own).update(changed)
        await membership.require_card("nobody is asked", own)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "quantisation",
    [
        {"quant_method": "gptq", "bits": 4},
        {"quant_method": "compressed-tensors", "format": "pack-quantized"},
        {"quant_method": "mxfp4"},
        {"bits": 4},
    ],
    ids=["gptq", "W4A16", "mxfp4", "unnamed"],
)
def test_weights_whose_products_depend_on_the_batch_have_no_exact_class(quantisation: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="give no exact class"):
        require_guarded(quantisation)


def test_other_weights_have_one(tmp_path: Path, folder: ModelFolder, cards: Any) -> None:
    for quantisation in (None, {"quant_method": "awq"}, {"quant_method": "FP8"}):
        require_guarded(quantisation)


def _hold(folder: Path, ready: Any, enough: Any) -> None:
    CardLock(["card-0"], folder).take()
    ready.set()
    enough.wait(60)


def test_two_processes_do_not_share_a_card(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready, enough = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(tmp_path, ready, enough))
    other.start()
    try:
        assert ready.wait(60)
        both = CardLock(["card-1", "card-0"], tmp_path)
        with pytest.raises(ConfigError, match=f"another process has this graphics card .process {other.pid}"):
            both.take()
        CardLock(["card-1"], tmp_path).take()  # what was free was let go again
        other.kill()
        other.join()
        CardLock(["card-0"], tmp_path).take()  # however it ended
    finally:
        other.kill()
        other.join()


def test_a_lock_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "troth-card-0.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(ConfigError, match="another user's process"):
        CardLock(["0"], tmp_path).take()
    assert (tmp_path / "victim").read_text() == "precious"


def test_cards_are_known_by_their_own_ids(cards: Any) -> None:
    cards(90, 90)
    assert cards_of("cpu") == cards_of("mps") == []
    assert cards_of("cuda:1") == ["card-1"]
    assert cards_of("cuda", 2) == ["card-0", "card-1"]
    with pytest.raises(ConfigError, match="finds 2 CUDA cards"):
        cards_of("cuda:2")


# ------------------------------------------------------------------------------------------------- a card that fails


class Failing:
    """A layer that raises once, in the middle of a batch, and works before and after."""

    def __init__(self, engine: TorchEngine, error: Exception) -> None:
        self._layers, self._error, self.raised = engine._layers, error, 0
        self._plain = self._layers.held[1]
        self._layers.held[1] = self

    def __call__(self, *given: Any, **named: Any) -> Any:
        if self._error is not None and self.raised < 2:
            self.raised += 1
            raise self._error
        return self._plain(*given, **named)


def key(number: int) -> SessionKey:
    return SessionKey(bytes([number]) * 32, 0, 0)


async def test_a_card_that_is_full_refuses_a_request_and_the_node_goes_on(folder: ModelFolder) -> None:
    engine = TorchEngine(folder, Segment(0, 2), 0, threads=1)
    texts = [np.arange(5 + number, 15 + number) for number in range(3)]
    expected = [(await engine.forward(key(number), engine.slice, 0, text)).rows for number, text in enumerate(texts)]
    for number in range(3):
        await engine.forget(key(number))
    # Once for all three, and once more for the first of them alone.
    Failing(engine, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    asked = (engine.forward(key(number), engine.slice, 0, text) for number, text in enumerate(texts))
    found = await asyncio.gather(*asked, return_exceptions=True)
    refused = [one for one in found if isinstance(one, BaseException)]
    assert [type(one) for one in refused] == [NodeBusy]
    assert "memory is used up" in str(refused[0])
    assert engine.lost is None
    for number, text in enumerate(texts):
        rows = (await engine.forward(key(number), engine.slice, 0, text)).rows
        assert np.allclose(rows, expected[number], atol=1e-6), "its cache is clean"
    await engine.close()


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError("CUDA error: launch failure"),
        RuntimeError("CUDA error: device is lost\nmore"),
    ],
    ids=["accelerator", "runtime"],
)
async def test_a_card_that_is_gone_ends_the_node(
    folder: ModelFolder, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = TorchEngine(folder, Segment(0, 2), 0, threads=1)
    await engine.forward(key(0), engine.slice, 0, np.arange(5))
    monkeypatch.setattr("troth.node.engine.loading.CARD_SECONDS", 0.01)
    watching = asyncio.create_task(watch_card(engine))
    await asyncio.sleep(0.03)
    assert not watching.done()
    engine._device = SimpleNamespace(type="cuda")
    Failing(engine, error)
    with pytest.raises(NodeBusy, match="card is gone"):
        await _step(engine)
    with pytest.raises(EngineError, match="the graphics card is gone: CUDA error"):
        await asyncio.wait_for(watching, 5)
    with pytest.raises(NodeBusy, match="card is gone"):
        await engine.forward(key(1), engine.slice, 0, np.arange(5))
    await engine.close()


async def _step(engine: TorchEngine) -> None:
    rows = torch.zeros((1, engine.hidden_size))
    monkey = engine._enter
    engine._enter = lambda layers, segment, inputs: rows[: len(inputs)]  # type: ignore[method-assign]
    try:
        await engine.forward(key(0), engine.slice, 5, np.arange(1))
    finally:
        engine._enter = monkey  # type: ignore[method-assign]


def test_what_is_no_end_of_a_card() -> None:
    assert not card_is_gone(torch.OutOfMemoryError("CUDA out of memory"))
    assert not card_is_gone(RuntimeError("shapes do not fit"))
    assert not card_is_gone(ValueError("CUDA error"))


def test_products_are_whole_whatever_the_environment_asks_for(folder: ModelFolder) -> None:
    program = "import torch; print(torch.get_float32_matmul_precision());"
    program += "from troth.node.engine.layers import LayerSlice; from troth.node.models.folder import open_folder;"
    program += "from troth.protocol.types import Segment; from pathlib import Path;"
    program += (
        f"LayerSlice(open_folder(Path({str(folder.path)!r})), Segment(0, 1), torch.float32, torch.device('cpu'));"
    )
    program += "print(torch.get_float32_matmul_precision());"
    program += "print(torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction)"
    asked = os.environ | {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=asked, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["high", "highest", "False"]


def test_vllm_gets_no_variable_that_rounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ROUNDING:
        monkeypatch.setenv(name, "1")
    with monkeypatch.context() as here:
        here.setattr(os, "environ", dict(os.environ))
        EngineSettings(tmp_path, 0).prepare_environment(tmp_path)
        assert not {*ROUNDING} & os.environ.keys()
