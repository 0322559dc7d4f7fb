"""Putting a scheduler of a market together from its configuration and keys, and taking it apart again.

Here are the parts that are nothing but a seam between others: keys, gauges of Prometheus (never content), what is read
of the chain beside events, and the pools as those who choose chains of machines among drawn nodes see them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from eth_abi.exceptions import DecodingError
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Gauge

from troth.cases.context import CaseContext
from troth.cases.courtroom import ChainView
from troth.chain.adapter import Chain
from troth.chain.errors import ChainError
from troth.chain.keystore import Key
from troth.chain.market import Market, find_place
from troth.chain.market_follower import MarketFollower
from troth.chain.organisations import deployments_of
from troth.chain.reputation import word_of_the_committee
from troth.chain.tokens import read_asset
from troth.overlay.directory.vouched import VouchedMachines
from troth.overlay.sessions.entry import vouched_machines
from troth.protocol import vrf
from troth.protocol.errors import InvalidField
from troth.protocol.market.suspicion import SuspectList, read_list
from troth.protocol.market.types import Parameters, PotKind, Role
from troth.protocol.organisation_events import OrganisationsState
from troth.protocol.reputation import Reputation
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address
from troth.scheduler.checks.summons import stuck
from troth.scheduler.configuration import SchedulerConfiguration
from troth.scheduler.court.holding import OrderHoldings
from troth.scheduler.court.informing import Inquiries
from troth.scheduler.duties import DutyPace, SchedulerDuties
from troth.scheduler.errors import ConfigurationInvalid
from troth.scheduler.ledger import MarketLedger
from troth.scheduler.log.entries import LogBook
from troth.scheduler.nodes.peers import NodeContact, Peers
from troth.scheduler.nodes.tunnels import LentEndpoints
from troth.scheduler.orders.context import RoutedOrder, SchedulerContext, first_block
from troth.scheduler.orders.http import mount_orders, refuse_with_words, ticket_routes
from troth.scheduler.orders.offers import Offers
from troth.scheduler.orders.rows_kept import KeptRows
from troth.scheduler.orders.service import Orders
from troth.scheduler.orders.store import OrderStore
from troth.scheduler.pool.coordinator import Coordinator, Gauges, RouteRequest
from troth.scheduler.pool.pace import PlacementPace
from troth.scheduler.pool.showing import placement_routes
from troth.scheduler.pool.sides import MarketSides
from troth.scheduler.tabs.client_tabs import ClientTabs
from troth.scheduler.tabs.database import SchedulerDatabase
from troth.scheduler.tabs.node_tabs import NodeTabs
from troth.scheduler.tabs.opening import TabOpener
from troth.scheduler.tabs.reminding import reminded
from troth.scheduler.tabs.tickets import TicketDesk
from troth.transport.alone import Alone
from troth.transport.health import health_routes
from troth.transport.identity import Operator

BLOCK_SECONDS = 12.0


def placing_pace(parameters: Parameters) -> PlacementPace:
    """How often nodes are moved: for mere improvement not before the seats of the last move have seasoned.

    A seat in a new group checks and judges nothing until then, so that a pool which is always improved checks nothing.
    """
    plain = PlacementPace()
    return PlacementPace(plain.settle_seconds, max(plain.calm_seconds, parameters.seasoning * BLOCK_SECONDS))


class PoolRoutes:
    """``orders.context.Routes`` over a Coordinator."""

    def __init__(self, pools: Coordinator) -> None:
        self._pools = pools

    def choose(self, wanted: RoutedOrder, allowed: Sequence[Sequence[Address]]) -> tuple[Address, ...] | None:
        """The fastest chain with room for the order; None where measured times say nothing."""
        asked = RouteRequest(wanted.order_id, wanted.execution_class, wanted.spans, wanted.positions)
        return self._pools.choose_for(asked, allowed)

    def note_answer(self, wanted: RoutedOrder, node: Address, layers: int, seconds: float) -> None:
        """One position through so many layers took so long."""
        self._pools.note_answer_for(wanted.execution_class, node, layers, seconds)

    def release(self, wanted: RoutedOrder) -> None:
        """The order is over."""
        self._pools.release_for(wanted.execution_class, wanted.order_id)


async def asset_decimals(market: Market, asset: Address) -> int:
    """How many decimals the asset's whole unit has; a token that does not say so is taken to count whole units."""
    try:
        return (await read_asset(market, asset)).decimals
    except (ChainError, DecodingError):
        return 0


class SchedulerMarketMetrics:
    """One registry per scheduler; every gauge is computed at the scrape, so that none shows what was once."""

    def __init__(self, age: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self._gauge("follower_age_seconds", "Since the chain's newest block was followed", age)

    def show(self, orders: Orders) -> None:
        """Compute from these orders, and from what they stand on."""
        context = orders.context
        self._gauge("running_orders", "Orders under way", lambda: orders.running)
        self._gauge("block", "Newest block that was followed", lambda: context.ledger.block)
        self._gauge(
            "exposure", "What running and unacknowledged orders are worth", lambda: context.client_tabs.exposure
        )
        me = context.operator.address
        self._gauge("stake", "Own stake", lambda: context.ledger.state.pot(PotKind.STAKE, me))
        self._gauge("summons", "Summons that are not answered", lambda: len(stuck(context)))
        self._gauge("log_overdue", "Closed entries of the log that are not posted", lambda: len(orders.book.overdue()))

    def show_tunnels(self, lent: LentEndpoints) -> None:
        """Nodes that are reached through this scheduler, and what they cost it."""
        self._gauge("tunnels", "Nodes that are reached through an endpoint lent here", lambda: lent.server.nodes)
        self._gauge("tunnel_visitors", "Connections that pass through tunnels now", lambda: lent.server.visitors)
        self._gauge("tunnel_bytes", "Bytes that passed through tunnels", lambda: lent.server.passed)

    def _gauge(self, name: str, words: str, value: Callable[[], float]) -> None:
        Gauge(f"troth_scheduler_{name}", words, registry=self.registry).set_function(lambda: float(value()))


@dataclass(frozen=True, slots=True)
class SchedulerKeys:
    """The operator's account and the VRF secret, out of their keystores."""

    operator: Key
    vrf_secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class MarketScheduler:
    """A running scheduler of a market."""

    orders: Orders
    duties: SchedulerDuties
    ledger: MarketLedger
    metrics: SchedulerMarketMetrics
    pools: Coordinator
    lent: LentEndpoints | None = None
    tickets: TicketDesk | None = None

    def reasons(self) -> list[str]:
        """Why it is not ready; empty when it is."""
        context, ledger = self.orders.context, self.ledger
        found = context.offers.problems(ledger.state) + self.duties.reasons() + stuck(context)
        if self.orders.draining:
            found.append("draining: no orders are taken any more")
        if ledger.trouble:
            found.append(ledger.trouble)
        first = max(context.first, context.node_tabs.fence)
        if ledger.block - 1 - context.settled < first:
            found.append(f"its records are new or old, and words may be lost: it takes orders from block {first} on")
        if context.database.failure is not None:
            found.append(f"the disk takes nothing: {context.database.failure}")
        return found + _standing(ledger, context.operator.address, context.vrf_secret)

    def app(self) -> FastAPI:
        """Its HTTP side."""
        app = FastAPI(title="Troth scheduler", docs_url=None, redoc_url=None, openapi_url=None)
        app.include_router(health_routes(self.reasons, self.metrics.registry))
        mount_orders(app, self.orders)
        app.include_router(placement_routes(self.pools))
        if self.tickets is not None:
            app.include_router(ticket_routes(self.tickets))
        operator, context, ledger = self.orders.context.operator, self.orders.context, self.ledger
        self.pools.server(operator).mount(app)
        Inquiries(context).server(operator).mount(app)
        seen, holdings = (lambda: ChainView(ledger.state, ledger.block)), OrderHoldings(context)
        cases = CaseContext(seen, holdings=holdings, courtroom=ledger.courtroom)
        cases.server(operator).mount(app)
        if self.lent is not None:
            app.include_router(self.lent.routes())
            self.lent.server.mount(app)
        refuse_with_words(app)
        return app


@asynccontextmanager
async def assembled_market(
    configuration: SchedulerConfiguration, keys: SchedulerKeys, pace: DutyPace | None = None, *, looks: bool = False
) -> AsyncIterator[MarketScheduler]:
    """A scheduler that follows the chain and has taken up what a crash cut off. With ``looks`` it looks for a copy of
    itself before, see ``alone``: raises KeyInUse."""
    async with AsyncExitStack() as stack:
        market, follower = await _followed(stack, configuration, keys.operator.address, looks=looks)
        operator = Operator(keys.operator.secret, market.domain)
        ledger = MarketLedger(market, follower, keys.operator)
        stack.push_async_callback(ledger.close)
        database = SchedulerDatabase(configuration.folder / "market.sqlite")
        stack.push_async_callback(database.close)
        lent = await _lending(stack, configuration, follower, database, operator)
        kept = configuration.folder / "directory"
        machines = await stack.enter_async_context(vouched_machines(configuration.overlay, configuration.rpc, kept))
        peers = Peers(operator, lambda node: _contact(follower, node, lent, machines))
        stack.push_async_callback(peers.close)
        node_tabs, store = NodeTabs(database, operator), OrderStore(database)
        reminders = await reminded(database, node_tabs, ledger, operator, peers)
        opener = TabOpener(database, node_tabs, ledger, operator, deposits=configuration.deposits)
        metrics = SchedulerMarketMetrics(lambda: ledger.age)
        pools = _placing(configuration, ledger, peers, metrics)
        context = SchedulerContext(
            operator=operator,
            vrf_secret=keys.vrf_secret,
            ledger=ledger,
            database=database,
            store=store,
            client_tabs=ClientTabs(database),
            node_tabs=node_tabs,
            rows=KeptRows(configuration.folder / "rows", database),
            peers=peers,
            offers=Offers(configuration.served, configuration.prices, pools.ends),
            waits=configuration.waits,
            routes=PoolRoutes(pools),
            ensure_paid=opener.ensure,
            factory=configuration.market.factory,
            asset_decimals=await asset_decimals(market, ledger.parameters.asset),
            reputation=await stack.enter_async_context(_word(configuration)),
            organisations=await stack.enter_async_context(_organisations(configuration)),
            settled=configuration.settled_blocks,
            first=await first_block(database, ledger, operator.address),
            suspects=_suspects(configuration, operator.domain),
        )
        seconds, most = configuration.log_seconds, configuration.log_orders
        book = LogBook(database, store, ledger, operator.address, seconds=seconds, orders=most)
        orders = Orders(context, book, concurrent=configuration.concurrent)
        stack.push_async_callback(orders.abandon)
        await orders.resume()
        duties = SchedulerDuties(orders, opener, times=configuration.redeem_times, pace=pace, reminders=reminders)
        duties.start()
        stack.push_async_callback(duties.stop)
        for duty in pools.duties():
            stack.push_async_callback(duty.start().stop)
        metrics.show(orders)
        if lent is not None:
            metrics.show_tunnels(lent)
        tickets = await _taking_tickets(stack, configuration, ledger, operator)
        yield MarketScheduler(orders, duties, ledger, metrics, pools, lent, tickets)


def _placing(
    configuration: SchedulerConfiguration, ledger: MarketLedger, peers: Peers, metrics: SchedulerMarketMetrics
) -> Coordinator:
    """Who places nodes of all classes."""
    sides = MarketSides(lambda: (ledger.state, ledger.block))
    return Coordinator(
        configuration.served, sides, peers, Gauges(metrics.registry), lambda: placing_pace(ledger.parameters)
    )


async def _followed(
    stack: AsyncExitStack, configuration: SchedulerConfiguration, operator: Address, *, looks: bool
) -> tuple[Market, MarketFollower]:
    """The deployment, and all of its events so far; raises KeyInUse where another process serves with these keys."""
    named = configuration.market
    place = await find_place(configuration.rpc, named.factory, named.bank, named.start_block)
    connecting = await Market.connect(configuration.rpc, place, chain_id=configuration.chain_id)
    market = await stack.enter_async_context(connecting)
    events = configuration.folder / "market-events.sqlite"
    follower = MarketFollower(market, events, poll_interval=configuration.poll_seconds)
    await stack.enter_async_context(follower)
    await follower.catch_up()
    if looks:
        await Alone(lambda: follower.state, operator).require()
    return market, follower


async def _lending(
    stack: AsyncExitStack,
    configuration: SchedulerConfiguration,
    follower: MarketFollower,
    database: SchedulerDatabase,
    operator: Operator,
) -> LentEndpoints | None:
    """The endpoints for nodes that nobody can connect to, where the configuration names any."""
    if configuration.tunnels is None:
        return None
    lent = LentEndpoints(configuration.tunnels, lambda: follower.state, database, operator)
    await stack.enter_async_context(lent.server)
    return lent


async def _taking_tickets(
    stack: AsyncExitStack, configuration: SchedulerConfiguration, ledger: MarketLedger, operator: Operator
) -> TicketDesk | None:
    """Where tickets are taken, if the configuration names their contract."""
    terms = configuration.tickets
    if terms is None:
        return None
    connecting = await Chain.connect(configuration.rpc, terms.contract, chain_id=configuration.chain_id)
    return TicketDesk(terms, await stack.enter_async_context(connecting), ledger, operator)


def _word(configuration: SchedulerConfiguration) -> AbstractAsyncContextManager[Reputation]:
    place, folder = configuration.reputation, configuration.folder
    return word_of_the_committee(configuration.rpc, place, folder, chain_id=configuration.chain_id)


def _suspects(configuration: SchedulerConfiguration, domain: Domain) -> SuspectList | None:
    """Who is suspected, as the operator's file says; raises ConfigurationInvalid where it is none of this market."""
    path = configuration.suspects
    if path is None:
        return None
    remedy = "Write it with `troth audit notes … --suspects FILE`, or remove [suspicion]."
    try:
        return read_list(path.read_bytes(), chain_id=domain.chain_id, bank=domain.contract)
    except OSError as error:
        raise ConfigurationInvalid("The list of suspects cannot be read", str(path), remedy) from error
    except InvalidField as error:
        raise ConfigurationInvalid(error.what, error.value, remedy) from error


def _organisations(
    configuration: SchedulerConfiguration,
) -> AbstractAsyncContextManager[Callable[[], OrganisationsState]]:
    place, folder = configuration.organisations, configuration.folder
    return deployments_of(configuration.rpc, place, folder, chain_id=configuration.chain_id)


def _contact(
    follower: MarketFollower, operator: Address, lent: LentEndpoints | None, machines: VouchedMachines | None
) -> NodeContact | None:
    """Where a node is reached; None for one without an endpoint, and for one that a confidential scheduler may not
    speak to: it asks with every message, since an owner may register another TLS key at any block."""
    party = follower.state.parties.get(operator)
    if party is None or party.role is not Role.NODE or not party.endpoint:
        return None
    if machines is not None and machines.entry(operator, "node", party.tls_key_hash) is None:
        return None
    contact = NodeContact(party.endpoint, party.tls_key_hash)
    return contact if lent is None else lent.near(contact)


def _standing(ledger: MarketLedger, operator: Address, vrf_secret: bytes) -> list[str]:
    """What the registry says that keeps orders from being taken."""
    party = ledger.state.parties.get(operator)
    if party is None or party.role is not Role.SCHEDULER:
        return ["not registered: troth scheduler register --owner-keystore FILE --broadcast"]
    found = []
    if party.exit_block:
        found.append(f"leaving: withdraw after block {party.exit_block}")
    if party.vrf_key != vrf.public_key(vrf_secret):
        found.append("the VRF key is not the registered one: restore its keystore")
    missing = ledger.parameters.scheduler_stake - ledger.state.pot(PotKind.STAKE, operator)
    if missing > 0:
        found.append(f"{missing} of stake are missing")
    return found
