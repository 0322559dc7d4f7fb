"""Real node services with the torch engine and a small random Llama, in the test's own process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI
from support.scheduler_stage import ENDS, Cast, Stage, stage, texts
from support.tiny_llama import HIDDEN, LAYERS, VOCABULARY, tiny_model

from troth.chain.adapter import Chain
from troth.chain.follower import EventFollower
from troth.chain.keystore import Key
from troth.node.dispute_policy import DisputePolicy
from troth.node.engine.exact_layers import ExactSlice
from troth.node.engine.interface import Computed, SessionKey
from troth.node.engine.layers import LayerSlice
from troth.node.engine.torch_engine import TorchEngine
from troth.node.errors import Busy
from troth.node.followed_view import FollowedView
from troth.node.margin_pool import MarginPool
from troth.node.metrics import Metrics
from troth.node.models.classes import default_class
from troth.node.service.bench import Bench
from troth.node.service.node_service import NodeService
from troth.node.signing_record import SigningRecord
from troth.node.traces import TraceStore
from troth.node.watchdog import Watchdog
from troth.overlay.channel_server import ChannelServer
from troth.overlay.identity import create_identity
from troth.overlay.operator import Operator
from troth.overlay.server import TlsServer
from troth.protocol.calls.views import parameters_of
from troth.protocol.identifiers import class_id, model_id
from troth.protocol.types import Address, Hash32, ModelDescriptor, Segment
from troth.protocol.wire import NodeReply, NodeRequest


class SwayedEngine(TorchEngine):
    """Computes states of one segment, if any, that are `sway` times what they should be: the same for all swayed."""

    wrong_segment: int | None = None
    sway = 1.3

    async def forward(self, key: SessionKey, *arguments: Any) -> Computed:
        computed = await super().forward(key, *arguments)
        swayed = key.segment == self.wrong_segment
        return computed._replace(rows=computed.rows * np.float32(self.sway)) if swayed else computed


class RealNode:
    """The node service behind a channel, on a view of the real chain that the test lends it."""

    def __init__(self, bench: Bench, folder: Path, scheduler: Address) -> None:
        self.bench = bench
        self.operator = bench.operator
        self.identity = create_identity(folder / "tls")
        self.refuses_from: tuple[type, int] | None = None
        self._service = NodeService(bench, Metrics())
        self._app = FastAPI()
        ChannelServer(bench.operator, self._handle, lambda sender: sender == scheduler).mount(self._app)
        self.server = TlsServer(self._app, self.identity, "127.0.0.1", 0)

    @property
    def engine(self) -> SwayedEngine:
        assert isinstance(self.bench.engine, SwayedEngine)
        return self.bench.engine

    @property
    def key(self) -> Key:
        return Key.from_secret(self.operator.secret)

    def watchdog(self, chain: Chain) -> Watchdog:
        """What looks after this node's commitments and disputes."""
        return Watchdog(self.bench, chain, self.key, Metrics(), interval=0.05)

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
async def real_stage(
    deployed: Any,
    tmp_path: Path,
    *,
    nodes: int = 5,
    reviewers: int = 15,
    disputes: DisputePolicy | None = None,
    hosted: Callable[[int], Segment] = lambda _: Segment(0, LAYERS),
    ends: tuple[int, ...] = ENDS,
    dtype: int = 0,
    exact: bool = False,
) -> AsyncIterator[Stage]:
    """Real nodes with a tiny random Llama, their class and a scheduler's registration on a fresh contract."""
    model_folder = tiny_model(tmp_path / "tiny")
    chain: Chain = deployed.chain
    shown = texts(tmp_path / "model")
    descriptor = ModelDescriptor(shown.architecture, LAYERS, HIDDEN, VOCABULARY, dtype, Hash32(b"w" * 32))
    rules = default_class(model_id(descriptor), dtype, "tiny", 10**9, reviewers=reviewers)
    if exact:
        rules = replace(rules, exact=True, tiles=0, state_cut=0)
    async with EventFollower(chain, None, poll_interval=0.02) as follower:
        view = FollowedView(chain, follower, await chain.read(parameters_of()))

        def make(secret: bytes, chain: Chain, folder: Path, scheduler: Address) -> RealNode:
            layers = ExactSlice if exact else LayerSlice
            bench = Bench(
                SwayedEngine(model_folder, Segment(0, LAYERS), dtype, layers=layers), view,
                Operator(secret, chain.domain), class_id(rules),
                SigningRecord(folder / "signed.sqlite"), TraceStore(folder / "traces"),
                MarginPool(folder / "margins.sqlite"), disputes=disputes or DisputePolicy(),
            )  # fmt: skip
            deployed.anvil.fund(Key.from_secret(secret))
            return RealNode(bench, folder, scheduler)

        cast = Cast(descriptor, rules, make, ends)
        async with stage(deployed, tmp_path, nodes=nodes, cast=cast, hosted=hosted) as scene:
            yield scene
