"""One client on one deployment: its view of the chain, its tabs, and the schedulers at their other ends."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from troth.chain.errors import ChainError
from troth.chain.market import Market, find_place
from troth.chain.market_follower import MarketFollower
from troth.chain.retries import attempts_of
from troth.chain.waiting import slowness, waiting_limit
from troth.client.configuration import ClientConfiguration
from troth.client.direct.confidential import ConfidentialTier
from troth.client.direct.entrance import Entrance
from troth.client.errors import ClientError, ConfigurationError, ModelUnavailable, OverlayFailed, SchedulerUnreachable
from troth.client.home import Home
from troth.client.language import Language, LanguageCache, check_files
from troth.client.market_table import MarketTable
from troth.client.orders.calls import PRICES_SECONDS, MarketCalls
from troth.client.orders.journal import OrderJournal
from troth.client.orders.policy import require_worth, with_suspicion
from troth.client.orders.seams import CaseOpener, OwnModel
from troth.client.orders.terms import CheckedOffer, offer_of, read_quotes, require_served
from troth.client.reaching import Reach, reaching
from troth.client.tabs.books import OwnTab, TabBooks
from troth.client.tabs.errors import NoTab
from troth.client.tabs.keys import Keyring
from troth.client.tabs.recovery import recover
from troth.client.tabs.store import opened
from troth.client.terminal import printable_line
from troth.overlay.paths.pool import CircuitPool
from troth.protocol.errors import ProtocolError
from troth.protocol.market import tabs
from troth.protocol.market.checks import OrderView
from troth.protocol.market.layers import without_layers
from troth.protocol.market.signed import Order
from troth.protocol.market.state import Party, State
from troth.protocol.market.types import Parameters, Role, Tab
from troth.protocol.market.views import parameters_of, registered_scheduler, view_of
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32, to_address
from troth.transport.errors import CircuitFailed, OverlayError

log = logging.getLogger(__name__)

QUOTE_SECONDS = 60.0
"""How long a price list is believed."""
AWAY_SECONDS = 30.0
"""How long a scheduler that failed is asked last."""
SEEN_SECONDS = 30.0
"""How far the client's chain node may lag behind the scheduler's."""
SLOW_ANSWERS = 3
"""How many of its longest answers a chain node may lag that is known to be slow: it is asked for the newest block, then
for headers, then for logs."""
REBUILT_ATTEMPTS, REBUILT_PAUSE = 3, 1.0
"""How often prices are asked for over the overlay, and seconds between."""
REBUILT_WITHIN = 5.0
"""Seconds after the first attempt in which another one is begun."""
FAILURES = (ClientError, ChainError, OverlayError, ProtocolError, TimeoutError)
SHOWN_SCHEDULERS = 5


@dataclass
class TabContext:
    """One scheduler with which there is a tab, as far as it was reached."""

    tab: Tab
    identifier: Hash32
    calls: MarketCalls | None = None
    offer: CheckedOffer | None = None
    offered: float = 0.0
    recovered: bool = False
    away_until: float = 0.0
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def scheduler(self) -> Address:
        """The operator's address."""
        return self.tab.payee

    def gone(self) -> None:
        """It failed: others are asked first for a while, and its price list is read anew."""
        self.away_until, self.offered = time.monotonic() + AWAY_SECONDS, 0.0


class Connect(Protocol):
    """Makes the calls to a scheduler."""

    async def __call__(self, party: Party) -> MarketCalls:
        """Calls to this scheduler and to nobody else."""


@dataclass
class PayerSession:
    """Everything that asking needs. ``connect`` makes the calls to a scheduler; ``opener`` brings cases to court,
    ``own_model`` computes answers again.

    In ``mode`` "direct" orders and checks go by way of nodes, through ``entrance``; in "confidential" as well, and only
    to machines that the ``tier`` lets read them.
    """

    domain: Domain
    follower: MarketFollower
    books: TabBooks
    journal: OrderJournal
    keyring: Keyring
    connect: Connect
    table: MarketTable
    class_id: Hash32 | None = None
    named: bool = False
    scheduler: Address | None = None
    languages: LanguageCache | None = None
    language: Language | None = None
    market: Market | None = None
    opener: CaseOpener | None = None
    own_model: OwnModel | None = None
    pool: CircuitPool | None = None
    mode: str = "scheduler"
    entrance: Entrance | None = None
    tier: ConfidentialTier | None = None
    tab_contexts: dict[Hash32, TabContext] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def state(self) -> State:
        """The chain's state up to the followed block."""
        return self.follower.state

    @property
    def block(self) -> int:
        """The followed block."""
        return self.follower.block

    @property
    def parameters(self) -> Parameters:
        """The deployment's."""
        return parameters_of(self.state)

    def view(self, order: Order, tab: Tab) -> OrderView:
        """This client's view of the chain for an order; raises InvalidOrder where class or scheduler are unknown."""
        now = int(time.time())
        chain_id = self.domain.chain_id
        return view_of(self.state, order, tab, chain_id=chain_id, block=self.block, time=now, leaving=True)

    async def seen(self, block: int) -> None:
        """Wait until a block that a scheduler names was followed, as far as the chain can be asked."""
        if block > self.block:
            seconds = max(SEEN_SECONDS, SLOW_ANSWERS * waiting_limit()) if slowness() else SEEN_SECONDS
            try:
                await self.follower.reach(block, seconds)
            except ChainError:
                # Whoever asked looks whether it was seen.
                return

    async def refreshed(self) -> None:
        """Follow the chain up to its newest block now, as far as it can be asked: an order names one just before it."""
        with suppress(ChainError):
            await self.follower.catch_up()

    def require_tier(self, scheduler: Address, offer: CheckedOffer) -> None:
        """Raise NotAttested where a machine that is not vouched for could read a confidential order placed now."""
        if self.tier is not None:
            self.tier.require(self.state, offer.class_id, scheduler, offer.reference_block(self.block))

    # ---- tabs

    def usable(self) -> list[TabContext]:
        """Tabs on which may be ordered: those that answered last time first, then by age."""
        found = [self._tab_context(record) for record in self.books.all(self.domain) if self._is_usable(record)]
        return sorted(found, key=lambda tab_context: tab_context.away_until > time.monotonic())

    def tab_context_of(self, identifier: Hash32) -> TabContext:
        """The context of a tab, whether or not more may be ordered there."""
        return self._tab_context(self.books.record(identifier))

    async def open_tab_context(self, tab_context: TabContext, *, patient: bool = False) -> CheckedOffer:
        """Connect, read its prices, and go on from the newest word of its tab; what the chain does not bear out is
        refused.

        Where there is another tab, all of it together may take a few seconds, unless ``patient``: a machine that is
        stopped, or whose packets are dropped, refuses nothing and answers nothing. Raises SchedulerUnreachable then.
        """
        asked, hurry = time.monotonic(), not patient and len(self.usable()) > 1
        async with tab_context.opening:
            if hurry and tab_context.away_until > asked + AWAY_SECONDS:
                # Whoever was before this one has just waited for it: many questions at once wait once.
                raise _said_nothing(tab_context.scheduler)
            if tab_context.offer is not None and time.monotonic() < tab_context.offered + QUOTE_SECONDS:
                return tab_context.offer
            try:
                async with asyncio.timeout(PRICES_SECONDS if hurry else None):
                    calls = await self._connected(tab_context)
                    if not tab_context.recovered:
                        await recover(self, tab_context, calls)
                        tab_context.recovered = True
                    tab_context.offer = await self._offer(calls)
            except TimeoutError as error:
                raise _said_nothing(tab_context.scheduler) from error
            tab_context.offered, tab_context.away_until = time.monotonic(), 0.0
            if self.language is None:
                await self._load_language(calls, tab_context.offer)
            return tab_context.offer

    async def calls(self, tab_context: TabContext) -> MarketCalls:
        """The calls to a tab's scheduler; where there is another tab, TimeoutError if connecting takes long."""
        async with asyncio.timeout(PRICES_SECONDS if len(self.usable()) > 1 else None):
            return await self._connected(tab_context)

    async def _connected(self, tab_context: TabContext) -> MarketCalls:
        if tab_context.calls is None:
            party = registered_scheduler(self.state, tab_context.scheduler)
            tab_context.calls = await self.connect(party)
        return tab_context.calls

    def _tab_context(self, record: OwnTab) -> TabContext:
        return self.tab_contexts.setdefault(record.identifier, TabContext(record.tab, record.identifier))

    def has_tab(self, scheduler: Address) -> bool:
        """Whether there is a tab with a scheduler on which may be ordered, whichever is asked now."""
        records = (one for one in self.books.all(self.domain) if one.tab.payee == scheduler)
        return any(self._is_open(one) for one in records)

    def _is_usable(self, record: OwnTab) -> bool:
        return self.scheduler in {None, record.tab.payee} and self._is_open(record)

    def _is_open(self, record: OwnTab) -> bool:
        state = self.state.tab_state(record.identifier)
        party = self.state.parties.get(record.tab.payee)
        serves = party is not None and not party.exit_block
        takes = not record.doubt and tabs.blocking(record.book) is None
        return state.known and not state.closes_at and serves and takes

    async def _offer(self, calls: MarketCalls) -> CheckedOffer:
        quotes = read_quotes(await calls.prices())
        known = [one for one in quotes if one.execution_class in self.state.classes]
        if self.class_id is not None:
            known = [one for one in known if one.execution_class == self.class_id]
        if len(known) != 1:
            names = ", ".join("0x" + one.execution_class.hex() for one in (known or quotes)) or "none"
            what = "The scheduler serves several classes" if known else "The scheduler serves no such execution class"
            raise ModelUnavailable(what, names, "Name one with --execution-class.")
        offer = offer_of(self.state, known[0])
        block = offer.reference_block(self.block)
        require_served(offer, self.state, block)
        if self.entrance is not None:
            _require_whole(offer)
        require_worth(offer, self.state, block, self.parameters.seasoning, self.table, named=self.named)
        return with_suspicion(offer, self.state, block, self.domain, self.table)

    async def _load_language(self, calls: MarketCalls, offer: CheckedOffer) -> None:
        architecture = offer.model.architecture
        files = None if self.languages is None else self.languages.get(architecture)
        if files is None:
            files = await calls.language(offer.class_id)
            check_files(files, architecture)
            if self.languages is not None:
                self.languages.put(architecture, files)
        self.language = Language.load(files)
        self.class_id = offer.class_id

    async def ready(self) -> CheckedOffer:
        """The first offer that can be had, with the model's language; raises what the last tab was refused for.

        Reading prices orders nothing, so that a broken circuit is no reason to give up: the pool builds others. Where
        it takes long to find out that there is no way, it is not tried again.
        """
        attempts = attempts_of(
            lambda error: isinstance(error, OverlayFailed | CircuitFailed),
            most=REBUILT_ATTEMPTS,
            seconds=REBUILT_WITHIN,
            pause=REBUILT_PAUSE,
        )
        async for attempt in attempts:
            with attempt:
                if attempt.num > 1:
                    log.info("no way to a scheduler was found; it is tried again")
                return await self._first_offer()
        raise AssertionError("the last failure is raised")

    async def _first_offer(self) -> CheckedOffer:
        failure: Exception | None = None
        tab_contexts = self.usable()
        # Where nobody was quick, it is this machine or its line that is slow: then they are waited for.
        for tab_context, patient in (*((one, False) for one in tab_contexts), *((one, True) for one in tab_contexts)):
            if patient and not isinstance(failure, SchedulerUnreachable):
                break
            try:
                return await self.open_tab_context(tab_context, patient=patient)
            except FAILURES as error:
                tab_context.gone()
                failure = error
        if failure is not None:
            raise failure
        raise self.no_tab()

    def _left(self, record: OwnTab) -> str:
        """Why the chain lets nobody order on a tab; empty if it does."""
        state, party = self.state.tab_state(record.identifier), self.state.parties.get(record.tab.payee)
        if not state.known:
            return "the tab is not open yet"
        if state.closes_at:
            return f"the tab is closed, and what is left of it is free from block {state.closes_at} on"
        if party is None or party.exit_block:
            return "the scheduler has left: `troth client close` brings the money back"
        return ""

    def _blocked(self, record: OwnTab) -> str:
        """What keeps a tab from going on: an answer that is not paid, with so many later ones that are."""
        number, name = tabs.blocking(record.book), f"0x{record.identifier.hex()[:8]}"
        if number is None:
            return ""
        closes, known = f"`troth client close {name}` closes the tab", self.journal.of(record.identifier, number)
        if not known:
            return f"{name}: order {number} is not settled, and too many later ones are: {closes}"
        order = known[0].name[:12]
        ways = f"`troth client pay {order}` pays it by hand, {closes}"
        return f"{name}: order {order} is not settled, and too many later ones are: {ways}"

    def no_tab(self) -> NoTab:
        """Why there is none, in words."""
        records = self.books.all(self.domain)
        if self.scheduler is not None and records and all(one.tab.payee != self.scheduler for one in records):
            opens = f"`troth client open AMOUNT --scheduler {self.scheduler} --broadcast` opens one"
            remedy = f"{opens}; `troth client tabs` lists yours."
            return NoTab("This client has no tab with this scheduler", self.scheduler, remedy)
        doubts = [f"{record.tab.payee}: {record.doubt}" for record in records if record.doubt]
        doubts += [blocked for record in records if (blocked := self._blocked(record))]
        doubts += [f"{record.tab.payee}: {why}" for record in records if (why := self._left(record))]
        what = "No tab of this client can be used" if records else "This client has no tab"
        shown = "; ".join(doubts) or f"{len(records)} tabs"
        whom = "--scheduler ADDRESS " if self.scheduler is None else ""
        return NoTab(what, shown, f"`troth client open AMOUNT {whom}--broadcast` opens one.")


def _said_nothing(scheduler: Address) -> SchedulerUnreachable:
    what = f"The scheduler did not answer within {PRICES_SECONDS:g} s"
    return SchedulerUnreachable(what, scheduler, "Ask again; `troth client tabs` shows which schedulers there are.")


class Connector:
    """A Connect over whatever ways the configuration names."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def __call__(self, party: Party) -> MarketCalls:
        """Calls to this scheduler and to nobody else."""
        return MarketCalls(await self._reach.to(party))


def _require_whole(offer: CheckedOffer) -> None:
    """ModelUnavailable where no one node serves the whole model: in direct mode there is no relay between."""
    if len(offer.segments) != 1:
        what = "The scheduler splits the model over several nodes, and direct mode needs one that hosts all of it"
        shown = f"segments end at {offer.quote.ends}"
        raise ModelUnavailable(what, shown, "Go through the scheduler with --no-direct, or use another class.")


@asynccontextmanager
async def following(home: Home, configuration: ClientConfiguration) -> AsyncIterator[tuple[Market, MarketFollower]]:
    """The deployment, and its state up to now and from then on."""
    home.create()
    named = configuration.market.place(ConfigurationError)
    place = await find_place(configuration.rpc, named.factory, named.bank, named.start_block)
    async with await Market.connect(configuration.rpc, place) as market:
        with home.chain_view(market.chain.chain_id, market.chain.contract) as path:
            async with MarketFollower(market, path) as follower:
                await follower.catch_up()
                yield market, follower


@asynccontextmanager
async def market_session(home: Home, configuration: ClientConfiguration, password: str) -> AsyncIterator[PayerSession]:
    """Connect to the chain and, as they are needed, to the schedulers of all tabs."""
    async with AsyncExitStack() as stack:
        market, follower = await stack.enter_async_context(following(home, configuration))
        with opened(home.tabs) as store:
            books = TabBooks(store)
            scheduler = _scheduler(configuration.scheduler, books, market.domain, follower.state)
            reach = await stack.enter_async_context(reaching(home, configuration))
            entrance = reach.entrance(lambda: follower.state) if configuration.direct else None
            yield PayerSession(
                domain=market.domain,
                follower=follower,
                books=books,
                journal=OrderJournal(store),
                keyring=Keyring(home, password),
                connect=Connector(reach),
                table=configuration.market,
                class_id=_class_id(configuration.execution_class, follower.state),
                named=configuration.execution_class.startswith("0x"),
                scheduler=scheduler,
                languages=LanguageCache(home.languages),
                market=market,
                pool=reach.pool,
                mode=configuration.mode,
                entrance=entrance,
                tier=None if reach.machines is None else ConfidentialTier(reach.machines),
            )


def _scheduler(named: str, books: TabBooks, domain: Domain, state: State) -> Address | None:
    """The configured scheduler. ConfigurationError, before any way to it is looked for, where nobody registered it.

    One with which this client has a tab is taken all the same: it may have left, and owe an answer or a case.
    """
    if not named:
        return None
    scheduler = to_address(named)
    known = [one.operator for one in state.parties.values() if one.role is Role.SCHEDULER]
    if scheduler not in known and all(one.tab.payee != scheduler for one in books.all(domain)):
        names = ", ".join(known[:SHOWN_SCHEDULERS]) or "nobody yet"
        what = "No scheduler is registered with this address"
        raise ConfigurationError(what, scheduler, f"Name another with --scheduler; registered here: {names}.")
    return scheduler


def _class_id(named: str, state: State) -> Hash32 | None:
    """The class of an id, or of a name on chain, whole or as it is listed. Anybody may register a name: two classes of
    one are refused."""
    if not named or named.startswith("0x"):
        return Hash32(bytes.fromhex(named[2:])) if named else None
    wanted = named.lower()
    found = [one for one, known in state.classes.items() if known.name.lower() == wanted]
    found = found or [one for one, known in state.classes.items() if without_layers(known.name).lower() == wanted]
    if len(found) == 1:
        return found[0]
    what = "Several classes have this name" if found else "No class has this name"
    names = ", ".join("0x" + one.hex() for one in found) or printable_line(named)
    raise ModelUnavailable(what, names, "`troth client models` lists what is on offer; name a class by its id.")
