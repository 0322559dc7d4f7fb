"""A running node: follower, engine, channel server, and every task that looks after its money."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

from troth.cases.context import CaseContext
from troth.cases.courtroom import ChainView
from troth.chain.deployment import submit
from troth.chain.duty import Duty
from troth.chain.keystore import Key
from troth.chain.market import Market, find_place
from troth.chain.market_follower import MarketFollower
from troth.node.configuration import NodeConfiguration
from troth.node.court.assembly import FollowedDeployment, NodeCourt, make_court
from troth.node.court.dispute_chain import LiveDisputes, find_disputes
from troth.node.court.measuring import require_rows
from troth.node.direct.assembly import Direct
from troth.node.earning.claims_record import ClaimsRecord
from troth.node.earning.keeper import EarningContext, EarningKeeper
from troth.node.engine.interface import BoundedEngine, Engine, WholeEngine, writes_alone
from troth.node.engine.loading import load_engine, watch_card, watch_weights
from troth.node.errors import ConfigError, NodeBusy
from troth.node.orders.context import LendingLimits, NodeContext, begins_later, open_stores, with_first_block
from troth.node.orders.duties import NodeDuties
from troth.node.orders.engine_start import EngineStart, MarketEngineLoader
from troth.node.orders.ground import FollowedGround
from troth.node.orders.hosting import SliceHosting
from troth.node.orders.metrics import NodeMarketMetrics, NodeMetrics
from troth.node.orders.moving import Moving, resident_of
from troth.node.orders.service import Answer, OrderService
from troth.node.organisations.credits import Contributing
from troth.node.pool.contacts import lender_of
from troth.node.pool.resident import Resident
from troth.node.registration.configured_slice import text_of
from troth.protocol.calls import Call
from troth.protocol.market.errors import InvalidOrder
from troth.protocol.market.layers import layers_of
from troth.protocol.market.state import Party
from troth.protocol.market.types import ExecutionClass, PotKind, Role
from troth.protocol.market.views import registered_scheduler
from troth.protocol.types import Address
from troth.protocol.wire import ORDER_REQUESTS, OrderRequest
from troth.transport.alone import Alone
from troth.transport.channel_server import ChannelServer
from troth.transport.health import health_routes
from troth.transport.identity import Operator, load_identity
from troth.transport.router_port import RouterPort, routers
from troth.transport.server import TlsServer, serving
from troth.transport.tunnel_client import Tunnel

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MarketParts:
    """One factory per part; the defaults are the node as it is shipped."""

    engine: MarketEngineLoader = load_engine
    service: type[OrderService] = OrderService


async def connect(configuration: NodeConfiguration) -> Market:
    """The configured deployment; WrongChain where the factory made none, or several of which none is named."""
    place = configuration.market
    if place is None:
        raise ConfigError("this node serves no market", "no [market]", "Name its factory in node.toml.")
    found = await find_place(configuration.rpc, place.factory, place.bank, place.start_block)
    return await Market.connect(configuration.rpc, found, chain_id=configuration.chain_id)


class RunningNode:
    """One node of one configuration with [market]. ``run`` returns when it was told to stop."""

    def __init__(
        self,
        configuration: NodeConfiguration,
        key: Key,
        *,
        verify_weights: bool,
        parts: MarketParts | None = None,
        auto: bool = False,
    ) -> None:
        """``auto``: carry out what the scheduler of the configuration's [auto] would have this node host."""
        self._configuration = configuration
        self._key = key
        self._parts = parts or MarketParts()
        self._engine_start = EngineStart(configuration, self._parts.engine, verify_weights=verify_weights)
        self._metrics = NodeMetrics()
        self._money = NodeMarketMetrics(self._metrics.registry)
        self._service: OrderService | None = None
        self._context: NodeContext | None = None
        self._hosting: SliceHosting | None = None
        self._court: NodeCourt | None = None
        self._direct: Direct | None = None
        self._tunnel: Tunnel | None = None
        self._router: RouterPort | None = None
        self._auto = auto
        self._resident: Resident | None = None
        self._tasks: tuple[Duty, ...] = ()
        self._stop = asyncio.Event()
        self._listening: TlsServer | None = None

    async def run(self) -> None:
        """Serve until SIGINT or SIGTERM.

        Raises:
            ModelError: the folder is not the registered model, or the class is not registered.
            ChainError, OverlayError: chain or port cannot be used.
        """
        starting = asyncio.current_task()
        for name in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, self._signalled, starting)
        try:
            await self._run()
        except asyncio.CancelledError:
            if not self._stop.is_set():
                raise
            log.info("stopped before it served")

    def _signalled(self, starting: asyncio.Task[Any] | None) -> None:
        """Before it listens nothing is under way; then what is gets its end, unless a second signal comes."""
        if self._listening is None and starting is not None:
            starting.cancel()
        elif self._listening is not None and self._stop.is_set():
            self._listening.hurry()
        else:
            log.info("stopping once what is under way is done; a second signal stops at once, and nothing is lost")
        self._stop.set()

    async def _run(self) -> None:
        configuration = self._configuration
        async with AsyncExitStack() as stack:
            market = await stack.enter_async_context(await connect(configuration))
            follower = await stack.enter_async_context(
                MarketFollower(
                    market, configuration.folder / "market-events.sqlite", poll_interval=configuration.poll_seconds
                )
            )
            # Left in reverse: the server answers what it has begun before engine and records are closed.
            stack.push_async_callback(self._close_context)
            self._tunnel = tunnel = self._tunnel_through(market, follower)
            if tunnel is not None:
                stack.push_async_callback(tunnel.close)
            server = await stack.enter_async_context(serving(self._server(market, follower)))
            self._listening = server
            log.info("listening on %s:%d as %s", configuration.host, server.port, self._key.address)
            if (asked := configuration.router) is not None:
                ways = routers(self._key.secret, asked.by, asked.gateway)
                self._router = RouterPort(ways, configuration.endpoint)
                self._metrics.follow_router(self._router)
                # Left before the server: nobody is led to a port where nothing listens.
                stack.push_async_callback(self._router.close)
            await self._serve(market, follower)

    def stop(self) -> None:
        """End ``run``, as a signal does."""
        self._stop.set()

    # -------------------------------------------------------------------------------------------------------- endpoint

    def _server(self, market: Market, follower: MarketFollower) -> TlsServer:
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        self._case_context = CaseContext(lambda: ChainView(follower.state, follower.block))

        def authorise(sender: Address) -> bool:
            try:
                registered_scheduler(follower.state, sender)
            except InvalidOrder:
                return False
            return True

        operator = Operator(self._key.secret, market.domain)
        channel = ChannelServer(operator, self._handle, authorise, requests=ORDER_REQUESTS)
        channel.mount(app)
        self._case_context.server(operator).mount(app)
        self._direct = Direct(
            self._configuration,
            operator,
            self._metrics.registry,
            lambda: self._reasons(follower),
            lambda: follower.state,
        )
        self._direct.mount(app)
        app.include_router(health_routes(lambda: self._reasons(follower), self._metrics.registry))
        self._metrics.block.set_function(lambda: follower.block)
        self._metrics.follower_age.set_function(lambda: follower.age)
        self._metrics.stake.set_function(lambda: follower.state.pot(PotKind.STAKE, self._key.address))
        identity = load_identity(self._configuration.tls_folder)
        return TlsServer(
            app,
            identity,
            self._configuration.host,
            self._configuration.port,
            drain=lambda: self._drain(channel),
            shared=self._direct.shared_port,
            tunnelled=self._configuration.tunnel is not None,
        )

    def _tunnel_through(self, market: Market, follower: MarketFollower) -> Tunnel | None:
        """To the scheduler that lends this node its endpoint, where one does."""
        scheduler = self._configuration.tunnel
        if scheduler is None:
            return None
        operator, host = Operator(self._key.secret, market.domain), self._configuration.own_host
        tunnel = Tunnel(operator, lambda: lender_of(follower.state, scheduler), host)
        self._metrics.follow_tunnel(tunnel)
        return tunnel

    async def _drain(self, channel: ChannelServer) -> None:
        """Take no new work, and see what is under way through: a broken order is worth nothing."""
        if self._service is not None:
            await self._service.leave()
        await channel.drain()
        if self._direct is not None:
            await self._direct.drain()

    async def _handle(self, sender: Address, header: OrderRequest, payload: memoryview) -> Answer:
        if self._service is None:
            raise NodeBusy("the model is still loading", None, "Retry in a few seconds; /readyz tells when.")
        return await self._service.handle(sender, header, payload)

    def _reasons(self, follower: MarketFollower) -> list[str]:
        """Why this node is not ready; empty when it is."""
        found = [] if self._service else ["the model is loading"]
        engine = self._context.engine if self._context else None
        if engine is not None and writes_alone(engine) and engine.failure:
            found.append(engine.failure)
        found += [trouble for trouble in (getattr(engine, "lost", None), follower.trouble) if trouble]
        party = follower.state.parties.get(self._key.address)
        found += [*_standing(self._key.address, party), *begins_later(self._context, follower.block)]
        found += [self._hosting.lacking] if self._hosting is not None and self._hosting.lacking else []
        found += self._direct.reasons() if self._direct is not None else []
        found += [way.trouble for way in (self._tunnel, self._router) if way is not None and way.trouble]
        return found + [task.reason for task in self._tasks if task.reason]

    # ------------------------------------------------------------------------------------------------------------ work

    async def _serve(self, market: Market, follower: MarketFollower) -> None:
        """Load the model, then serve until stopped; whichever part fails first ends the node with its error."""
        working, stopping = asyncio.create_task(self._work(market, follower)), asyncio.create_task(self._stop.wait())
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

    async def _work(self, market: Market, follower: MarketFollower) -> None:
        await follower.catch_up()
        alone = Alone(lambda: follower.state, self._key.address)
        await alone.require()
        # Not before: they lead the registered endpoint here, and away from a process that serves with these keys.
        for way in (self._tunnel, self._router):
            if way is not None and self._listening is not None:
                way.start(self._listening.port)
        execution_class, context = await self._with_engine(market, follower)
        service = self._parts.service(context, self._metrics)
        await service.start()
        self._hosting = SliceHosting(context, service)
        moving = Moving(context, self._hosting, market, self._key, self._configuration.auto.ask)
        self._resident = resident_of(self._configuration, context, moving, lambda: service.sessions, auto=self._auto)
        self._court = await self._court_of(market, follower, context, execution_class)
        self._tasks = self._all_duties(market, follower, context)
        self._service = service
        self._say_ready(follower, context)
        assert self._direct is not None
        async with asyncio.TaskGroup() as jobs:
            jobs.create_task(self._direct.run(context, service), name="direct mode")
            jobs.create_task(alone.watch(), name="looking for a copy of this node")
            jobs.create_task(watch_weights(self._configuration, self._engine_start.stamps), name="watching the weights")
            jobs.create_task(watch_card(context.engine), name="watching the graphics card")
            for task in self._tasks:
                jobs.create_task(task.run(), name=task.name)

    async def _with_engine(self, market: Market, follower: MarketFollower) -> tuple[ExecutionClass, NodeContext]:
        """The class that this node serves, and the engine of it that was proved, with the node's records."""
        ground = FollowedGround(follower, market.chain.chain_id)
        execution_class, descriptor = self._engine_start.class_in(follower.state)
        party = follower.state.parties.get(self._key.address)
        engine = await self._engine_start.load(party, execution_class, descriptor)
        made = self._context_of(ground, Operator(self._key.secret, market.domain), engine, execution_class)
        self._context = made
        self._context = context = await with_first_block(made)
        await self._engine_start.prove(context, execution_class)
        return execution_class, context

    async def _court_of(
        self, market: Market, follower: MarketFollower, context: NodeContext, execution_class: ExecutionClass
    ) -> NodeCourt:
        """What this node says and judges in court."""
        return make_court(
            context,
            FollowedDeployment(market, follower, self._key, await self._disputes(market, follower, execution_class)),
            self._configuration.folder / "court",
            self._case_context,
            most_bond=self._configuration.most_bond,
            accuse_wei=self._configuration.accuse_wei,
            model=self._engine_start.model,
        )

    def _say_ready(self, follower: MarketFollower, context: NodeContext) -> None:
        """All that stays for good is there: show it, and look through it for garbage no more."""
        self._metrics.follow_slice(lambda: context.engine.slice)
        engine = context.engine
        if isinstance(engine, WholeEngine):
            self._metrics.follow_load(lambda: engine.load)
        gc.enable()
        gc.freeze()
        log.info("ready: layers %s", text_of(context.engine.slice))
        for reason in self._reasons(follower):
            log.warning("no work will come: %s", reason)

    def _all_duties(self, market: Market, follower: MarketFollower, context: NodeContext) -> tuple[Duty, ...]:
        """What this node does for as long as it runs."""
        assert self._hosting is not None
        assert self._court is not None
        assert self._resident is not None

        async def reached(block: int) -> None:
            await follower.reach(block, timeout=30.0)

        async def follow() -> None:
            # Beside the follower's own loop: this one shows its age where that hangs.
            await follower.catch_up()

        keeper = self._keeper(market, context, reached)
        court = self._court
        duties = NodeDuties(context, market, self._key, court.bringer, reached, disputes=court.disputes_over)
        self._money.follow(context, keeper, duties)
        return (
            Duty("following the chain", follow, every=5.0),
            Duty("answering summons", duties.answer_summons),
            Duty("redeeming and claiming", _at_new_blocks(follower, context, keeper)),
            Duty("handing rejections on", duties.hand_on),
            Duty("holding layers", self._hosting.step, every=1.0),
            Duty("reporting to schedulers", self._resident.run, stale_after=float("inf")),
            Duty("freeing old traces", duties.free, every=60.0, stale_after=3600.0),
            *self._court.tasks(),
            *self._contributing(market, follower),
        )

    def _keeper(self, market: Market, context: NodeContext, reached: Callable[[int], Awaitable[None]]) -> EarningKeeper:
        """What redeems and claims this node's pay."""
        return EarningKeeper(
            EarningContext(
                market,
                self._key,
                context.ledger,
                context.stores.books,
                ClaimsRecord(context.stores.database),
                self._configuration.earning,
                context.write,
                reached,
                context.clock,
            )
        )

    def _contributing(self, market: Market, follower: MarketFollower) -> tuple[Duty, ...]:
        """What credits this node's service, where its file names the contract."""
        consent, rpc = self._configuration.organisations, self._configuration.rpc
        if consent is None:
            return ()

        async def send(call: Call) -> object:
            return await submit(rpc, call, self._key, consent.place.contract)

        contributing = Contributing(
            self._configuration,
            self._key.address,
            lambda: follower.state,
            market.contracts,
            lambda: follower.block,
            send,
            self._auto,
        )
        return (Duty("crediting what was served", contributing.step, stale_after=float("inf")),)

    async def _disputes(
        self, market: Market, follower: MarketFollower, execution_class: ExecutionClass
    ) -> LiveDisputes | None:
        """The deployment's Disputes, where its class says how rows are computed, and after this engine is measured."""
        if layers_of(execution_class.name) is None:
            return None
        assert self._context is not None
        await require_rows(self._context.engine, execution_class, self._engine_start.model())
        return await find_disputes(self._configuration.rpc, market, follower, self._key)

    def _context_of(
        self, ground: FollowedGround, operator: Operator, engine: Engine, execution_class: ExecutionClass
    ) -> NodeContext:
        configuration = self._configuration
        known = engine.positions if isinstance(engine, BoundedEngine) else configuration.positions
        return NodeContext(
            engine=engine,
            ground=ground,
            operator=operator,
            execution_class=configuration.execution_class,
            stores=open_stores(configuration.folder),
            limits=LendingLimits(
                works=configuration.sessions,
                positions=min(configuration.positions, known),
                unpaid=configuration.earning.limit(execution_class.fee_cap),
                trace_bytes=configuration.trace_bytes,
            ),
            locks=configuration.earning.locks,
        )

    async def _close_context(self) -> None:
        if self._court is not None:
            await self._court.close()
        if self._context is not None:
            await self._context.close()


def _raise_failure(working: asyncio.Task[None]) -> None:
    """Raise what a finished task failed with: of several jobs side by side, what the first did."""
    try:
        working.result()
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed


def _standing(operator: Address, party: Party | None) -> list[str]:
    if party is None or party.role is not Role.NODE:
        return [f"operator {operator} is not registered; run `troth node register`"]
    if party.exit_block:
        return [f"deregistered, stake is bound until block {party.exit_block}"]
    return []


def _at_new_blocks(
    follower: MarketFollower, context: NodeContext, keeper: EarningKeeper
) -> Callable[[], Awaitable[None]]:
    """Redeems and claims once for each block."""
    seen = -1

    async def turn() -> None:
        nonlocal seen
        block = follower.block
        if block != seen:
            await keeper.step()
            await context.write(lambda: context.stores.words.note_block(block))
            seen = block

    return turn
