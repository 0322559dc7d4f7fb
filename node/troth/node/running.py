"""A running node: chain follower, engine, channel server, watchdog; started together, stopped in order."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from contextlib import AsyncExitStack
from dataclasses import replace

import numpy as np
from fastapi import FastAPI

from troth.chain.adapter import Chain
from troth.chain.follower import EventFollower
from troth.chain.keystore import Key
from troth.node.configuration import Configuration
from troth.node.direct.assembly import Direct
from troth.node.engine.interface import SessionKey, WholeEngine
from troth.node.engine.probe import require_class
from troth.node.errors import Busy, ModelError
from troth.node.followed_view import FollowedView
from troth.node.margin_pool import MarginPool
from troth.node.metrics import Metrics
from troth.node.moving import Moving
from troth.node.parts import Parts
from troth.node.pool.assembly import resident_of
from troth.node.pool.resident import Resident
from troth.node.pool.task_contacts import TaskContacts
from troth.node.service.bench import Bench, Limits
from troth.node.service.node_service import Answer, NodeService
from troth.node.signing_record import SigningRecord
from troth.overlay.channel_server import ChannelServer
from troth.overlay.health import health_routes
from troth.overlay.identity import load_identity
from troth.overlay.operator import Operator
from troth.overlay.server import TlsServer, serving
from troth.protocol.calls import views
from troth.protocol.contract_types import Role
from troth.protocol.dtype import Dtype
from troth.protocol.types import Address, ExecutionClass
from troth.protocol.wire import NodeRequest

log = logging.getLogger(__name__)

WARM_UP = SessionKey(bytes(32), 0, 0)
WARM_UP_POSITIONS = 4


def _raise_failure(working: asyncio.Task[None]) -> None:
    """Raise what a finished task failed with: of several jobs side by side, what the first did."""
    try:
        working.result()
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed


class RunningNode:
    """One node of one configuration. `run` returns when it was told to stop."""

    def __init__(
        self,
        configuration: Configuration,
        key: Key,
        *,
        verify_weights: bool,
        parts: Parts | None = None,
        auto: bool = False,
    ) -> None:
        """`auto`: carry out what the scheduler of the configuration's [auto] would have this node host."""
        self._parts = parts or Parts()
        self._configuration = configuration
        self._key = key
        self._verify_weights = verify_weights
        self._metrics = Metrics()
        self._service: NodeService | None = None
        self._bench: Bench | None = None
        self._resident: Resident | None = None
        self._auto = auto
        self._moving: Moving | None = None
        self._direct: Direct | None = None
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Serve until SIGINT or SIGTERM.

        Raises:
            ModelError: the folder is not the registered model, or the class is not registered.
            ChainError, OverlayError: chain or port cannot be used.
        """
        for name in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, self._stop.set)
        configuration = self._configuration
        async with AsyncExitStack() as stack:
            connected = await Chain.connect(configuration.rpc, configuration.contract, chain_id=configuration.chain_id)
            chain = await stack.enter_async_context(connected)
            follower = await stack.enter_async_context(self._follower(chain))
            view = FollowedView(chain, follower, await chain.read(views.parameters_of()))
            # Left in reverse: the server answers what it has begun before engine and records are closed.
            stack.push_async_callback(self._close_bench)
            server = await stack.enter_async_context(serving(self._server(chain, follower, view)))
            log.info("listening on %s:%d as %s", configuration.host, server.port, self._key.address)
            await self._serve(chain, follower, view)

    def _follower(self, chain: Chain) -> EventFollower:
        configuration = self._configuration
        return EventFollower(
            chain,
            configuration.folder / "events.sqlite",
            start_block=configuration.start_block,
            poll_interval=configuration.poll_seconds,
        )

    def _server(self, chain: Chain, follower: EventFollower, view: FollowedView) -> TlsServer:
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

        def authorise(sender: Address) -> bool:
            account = view.account(sender)
            return account is not None and account.role is Role.SCHEDULER and account.exit_block == 0

        operator = Operator(self._key.secret, chain.domain)
        channel = ChannelServer(operator, self._handle, authorise)
        channel.mount(app)
        self._direct = Direct(self._configuration, operator, self._parts.group, self._metrics.registry)
        self._direct.mount(app)
        app.include_router(health_routes(lambda: self._reasons(follower, view), self._metrics.registry))
        identity = load_identity(self._configuration.tls_folder)
        return TlsServer(
            app, identity, self._configuration.host, self._configuration.port, drain=lambda: self._drain(channel)
        )

    async def _drain(self, channel: ChannelServer) -> None:
        """Take no new work, and see what is under way through: another node would have to repeat it."""
        if self._service is not None:
            await self._service.leave()
        await channel.drain()
        if self._direct is not None:
            await self._direct.drain()

    async def _handle(self, sender: Address, header: NodeRequest, payload: memoryview) -> Answer:
        if self._service is None:
            raise Busy("the model is still loading", None, "Retry in a few seconds; /readyz tells when.")
        return await self._service.handle(sender, header, payload)

    def _reasons(self, follower: EventFollower, view: FollowedView) -> list[str]:
        """Why this node is not ready; empty when it is."""
        found = [] if self._service else ["the model is loading"]
        engine = self._bench.engine if self._bench else None
        if isinstance(engine, WholeEngine):
            self._metrics.note_load(engine.load)
            found += [engine.failure] if engine.failure else []
        if follower.failure is not None:
            found.append(f"the chain node does not answer: {follower.failure.what}")
        account = view.account(self._key.address)
        if account is None or account.role is not Role.NODE:
            found.append(f"operator {self._key.address} is not registered; run `troth node register`")
        elif account.exit_block:
            found.append(f"deregistered, stake is bound until block {account.exit_block}")
        if self._moving is not None and self._moving.lacking:
            found.append(self._moving.lacking)
        found += self._direct.reasons() if self._direct is not None else []
        self._metrics.block.set(view.head)
        self._metrics.stake.set(account.stake if account else 0)
        return found

    async def _serve(self, chain: Chain, follower: EventFollower, view: FollowedView) -> None:
        """Load the model, then serve until stopped; whichever part fails first ends the node with its error."""
        working = asyncio.create_task(self._work(chain, follower, view))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                _raise_failure(working)
        finally:
            for task in (working, stopping):
                task.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)
            if self._resident is not None:
                await self._resident.leave()

    async def _work(self, chain: Chain, follower: EventFollower, view: FollowedView) -> None:
        await follower.catch_up()
        self._bench = bench = await self._load(chain, view)
        await _warm_up(bench)
        await require_class(bench.engine, _class_of(view, self._configuration))
        self._service = service = self._parts.service(bench, self._metrics)
        self._moving = Moving(bench, self._service, chain, self._key)
        self._metrics.follow_slice(lambda: bench.engine.slice)
        gc.enable()
        gc.freeze()
        log.info("ready: layers %s", bench.engine.slice)
        for reason in self._reasons(follower, view):
            log.warning("no work will come: %s", reason)
        self._resident = resident_of(
            self._configuration,
            bench,
            contacts=TaskContacts(lambda: follower.state),
            sessions=lambda: service.sessions,
            move=self._moving.move,
            auto=self._auto,
        )
        async with asyncio.TaskGroup() as jobs:
            jobs.create_task(self._moving.run())
            jobs.create_task(self._resident.run())
            if self._direct is not None:
                jobs.create_task(self._direct.run(bench, service, lambda: follower.state))
            jobs.create_task(self._parts.watchdog(bench, chain, self._key, self._metrics).run())

    def _registered(self, view: FollowedView) -> Configuration:
        """The configuration with the slice that is on chain: what this node is drawn for, whatever the file says."""
        configuration = self._configuration
        hosted = view.slice_of(self._key.address, configuration.execution_class)
        if hosted is None or hosted == configuration.slice:
            return configuration
        log.warning("on chain this node hosts %s, not %s as node.toml says: loading that", hosted, configuration.slice)
        return replace(configuration, slice=hosted)

    async def _close_bench(self) -> None:
        if self._bench is not None:
            await self._bench.close()

    async def _load(self, chain: Chain, view: FollowedView) -> Bench:
        configuration = self._configuration
        execution_class = view.execution_class(configuration.execution_class)
        descriptor = view.descriptor(execution_class.model) if execution_class else None
        if execution_class is None or descriptor is None:
            shown = "0x" + configuration.execution_class.hex()
            raise ModelError("the execution class is not registered", shown, "Register it: `troth model add`.")
        configuration = self._registered(view)
        engine = await asyncio.to_thread(
            self._parts.engine, configuration, execution_class, descriptor, verify=self._verify_weights
        )
        return Bench(
            engine=engine,
            view=view,
            operator=Operator(self._key.secret, chain.domain),
            execution_class=configuration.execution_class,
            record=SigningRecord(configuration.folder / "signed.sqlite"),
            traces=self._parts.traces(configuration.folder / "traces", limit=configuration.trace_bytes),
            margins=MarginPool(configuration.folder / "margins.sqlite"),
            limits=Limits(configuration.sessions, configuration.positions),
            disputes=configuration.disputes,
        )


def _class_of(view: FollowedView, configuration: Configuration) -> ExecutionClass:
    execution_class = view.execution_class(configuration.execution_class)
    assert execution_class is not None  # it was there when the engine was loaded, and classes are never removed
    return execution_class


async def _warm_up(bench: Bench) -> None:
    """A few positions through every layer: the first call of a process is many times slower than the next ones, which
    are the first that is known of this machine's speed."""
    engine = bench.engine
    tokens, dtype = np.zeros(1, np.int64), np.dtype(Dtype(engine.dtype).storage)
    inputs = tokens if engine.slice.first == 0 else np.zeros((1, engine.hidden_size), dtype)
    rows = (await engine.forward(WARM_UP, engine.slice, 0, inputs)).rows
    for position in range(1, WARM_UP_POSITIONS):
        computed = await engine.forward(WARM_UP, engine.slice, position, inputs)
        bench.meter.note(engine.slice.end - engine.slice.first, 1, computed.seconds)
    if engine.slice.end == engine.layers:
        await engine.logits(rows)
    await engine.forget(WARM_UP)
