"""The scheduler with the real node service and torch engine, a small random Llama in two segments."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fastapi import FastAPI  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from support.scheduler_stage import Cast, Stage, stage, texts  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from troth.chain.adapter import Chain  # noqa: E402
from troth.chain.follower import EventFollower  # noqa: E402
from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.errors import Busy  # noqa: E402
from troth.node.followed_view import FollowedView  # noqa: E402
from troth.node.margin_pool import MarginPool  # noqa: E402
from troth.node.metrics import Metrics  # noqa: E402
from troth.node.models.classes import default_class  # noqa: E402
from troth.node.models.folder import ModelFolder, open_folder  # noqa: E402
from troth.node.service.bench import Bench  # noqa: E402
from troth.node.service.node_service import NodeService  # noqa: E402
from troth.node.signing_record import SigningRecord  # noqa: E402
from troth.node.traces import TraceStore  # noqa: E402
from troth.overlay.channel_server import ChannelServer  # noqa: E402
from troth.overlay.identity import create_identity  # noqa: E402
from troth.overlay.operator import Operator  # noqa: E402
from troth.overlay.server import TlsServer  # noqa: E402
from troth.protocol.calls.views import parameters_of  # noqa: E402
from troth.protocol.identifiers import class_id, model_id  # noqa: E402
from troth.protocol.types import Address, Hash32, ModelDescriptor, Segment  # noqa: E402
from troth.protocol.wire import Commit, Forward, NodeReply, NodeRequest  # noqa: E402
from troth.scheduler.assembly import assembled  # noqa: E402

pytestmark = [pytest.mark.chain, pytest.mark.slow]
HIDDEN, VOCABULARY, LAYERS = 32, 48, 2


def tiny_model(path: Path) -> ModelFolder:
    torch.set_num_threads(1)
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, max_position_embeddings=256,
        initializer_range=0.3,
    )  # fmt: skip
    state = {name: value.contiguous() for name, value in LlamaForCausalLM(config).state_dict().items()}
    path.mkdir()
    save_file({name: value for name, value in state.items() if "lm_head" not in name}, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(config.to_dict()))
    (path / "tokenizer.json").write_text("{}")
    return open_folder(path)


class RealNode:
    """The node service behind a channel, on a view of the real chain that the test lends it."""

    def __init__(self, bench: Bench, folder: Path, scheduler: Address) -> None:
        self.operator = bench.operator
        self.identity = create_identity(folder / "tls")
        self.refuses_from: tuple[type, int] | None = None
        self._service = NodeService(bench, Metrics())
        self._app = FastAPI()
        ChannelServer(bench.operator, self._handle, lambda sender: sender == scheduler).mount(self._app)
        self.server = TlsServer(self._app, self.identity, "127.0.0.1", 0)

    @property
    def address(self) -> Address:
        return self.operator.address

    @property
    def endpoint(self) -> str:
        return f"https://127.0.0.1:{self.server.port}"

    async def _handle(self, sender: Address, header: NodeRequest, payload: memoryview) -> tuple[NodeReply, bytes]:
        if self.refuses_from is not None:
            kind, position = self.refuses_from
            if isinstance(header, kind) and getattr(header, "start", position) >= position:
                raise Busy("this node refuses", position, "Ask another.")
        return await self._service.handle(sender, header, payload)


@asynccontextmanager
async def real_stage(deployed: Any, tmp_path: Path) -> AsyncIterator[Stage]:
    model_folder = tiny_model(tmp_path / "tiny")
    chain: Chain = deployed.chain
    shown = texts(tmp_path / "model")
    descriptor = ModelDescriptor(shown.architecture, LAYERS, HIDDEN, VOCABULARY, 0, Hash32(b"w" * 32))
    rules = default_class(model_id(descriptor), 0, "tiny", 10**9)
    async with EventFollower(chain, None, poll_interval=0.02) as follower:
        view = FollowedView(chain, follower, await chain.read(parameters_of()))

        def make(secret: bytes, chain: Chain, folder: Path, scheduler: Address) -> RealNode:
            bench = Bench(
                TorchEngine(model_folder, Segment(0, LAYERS), 0), view, Operator(secret, chain.domain),
                class_id(rules), SigningRecord(folder / "signed.sqlite"), TraceStore(folder / "traces"),
                MarginPool(folder / "margins.sqlite"),
            )  # fmt: skip
            return RealNode(bench, folder, scheduler)

        async with stage(deployed, tmp_path, nodes=5, cast=Cast(descriptor, rules, make)) as scene:
            yield scene


async def collected(lifecycle: Any) -> list[dict[str, Any]]:
    return [line async for line in lifecycle.stream.lines()]


def tokens(lines: list[dict[str, Any]]) -> list[int]:
    return [line["id"] for line in lines if line["type"] == "token"]


async def test_real_nodes_serve_verify_and_are_paid(deployed: Any, tmp_path: Path) -> None:
    async with real_stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lines = await collected(await scheduler.submit(await scene.order(max_tokens=12)))
        assert lines[-1].get("outcome") == "accepted", lines[-1]
        assert len(tokens(lines)) == 12
        state = scheduler.desk.ledger.state
        assert state.account(scene.scheduler.address).credit == 6 * scene.execution_class.unit
        assert sum(state.account(node.address).credit for node in scene.nodes) == 48 * scene.execution_class.unit


@pytest.mark.parametrize("segment", [0, 1])
async def test_a_real_node_that_fails_in_the_middle_is_replaced(deployed: Any, tmp_path: Path, segment: int) -> None:
    async with real_stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lifecycle = await scheduler.submit(await scene.order(max_tokens=12))
        failing = scene.node(lifecycle.task.assignment.candidates(segment)[0])
        failing.refuses_from = (Forward, 6)
        lines = await collected(lifecycle)
        assert lines[-1].get("outcome") == "accepted", lines[-1]
        assert lifecycle.story.generated.attempt >= 1
        failing.refuses_from = None
        whole = await collected(await scheduler.submit(await scene.order(max_tokens=12)))
        assert tokens(lines) == tokens(whole)


async def test_a_real_node_that_is_gone_before_it_commits_is_replaced(deployed: Any, tmp_path: Path) -> None:
    async with real_stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lifecycle = await scheduler.submit(await scene.order(max_tokens=6))
        scene.node(lifecycle.task.assignment.candidates(1)[0]).refuses_from = (Commit, 0)
        lines = await collected(lifecycle)
        assert lines[-1].get("outcome") == "accepted", lines[-1]
        assert lifecycle.story.generated.attempt >= 1
