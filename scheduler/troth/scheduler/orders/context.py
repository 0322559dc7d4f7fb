"""What every order of one scheduler shares, and the order as it is worked on."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from troth.protocol.market import views
from troth.protocol.market.calls import PartCall
from troth.protocol.market.checks import OrderView
from troth.protocol.market.messages import KeyCheck, Signed, signed_by_account
from troth.protocol.market.signed import Order
from troth.protocol.market.state import State
from troth.protocol.market.suspicion import SuspectList
from troth.protocol.market.types import NO_ADDRESS, Tab
from troth.protocol.organisation_events import OrganisationsState
from troth.protocol.reputation import Reputation, everybody_trusted
from troth.protocol.request import Request
from troth.protocol.types import Address, Hash32, Segment
from troth.scheduler.nodes.patience import GenerationPatience
from troth.scheduler.nodes.peers import Peers
from troth.scheduler.orders.history import OrderHistory
from troth.scheduler.orders.offers import ClassOffer, Offers
from troth.scheduler.orders.rows_kept import KeptRows
from troth.scheduler.orders.store import OrderStore
from troth.scheduler.tabs.client_tabs import ClientTabs
from troth.scheduler.tabs.database import SchedulerDatabase
from troth.scheduler.tabs.money import FollowedChain
from troth.scheduler.tabs.node_tabs import NodeTabs
from troth.transport.identity import Operator

EnsurePaid = Callable[[Address, int], Awaitable[None]]
"""Opens or tops up the tab with a node that was drawn to check, so that it covers so much; raises ChainError."""


class Ledger(FollowedChain, Protocol):
    """The chain, as far as a scheduler reads and writes it."""

    async def catch_up(self) -> None:
        """Follow to the newest block; raises ChainError."""

    async def execute(self, call: PartCall, spends: int = 0) -> int:
        """Send as the operator, wait until it is followed; the block. Raises ChainError.

        ``spends``: what the call takes of the asset; where that is a token, it is approved first.
        """

    async def pass_deposit(self) -> int:
        """What Summons asks for now of a scheduler that passes a summons on."""

    async def objection_deposit(self) -> int:
        """The most that the Bank takes now of who objects to a claim on a tab that does not hold it."""


class RoutedOrder(Protocol):
    """What a chooser of chains needs to know of an order."""

    @property
    def order_id(self) -> Hash32:
        """Its id."""

    @property
    def execution_class(self) -> Hash32:
        """Its class."""

    @property
    def spans(self) -> tuple[Segment, ...]:
        """Its segments."""

    @property
    def positions(self) -> int:
        """Its longest trace."""


class Routes(Protocol):
    """Chooses chains by measured times; see ``assembly.PoolRoutes``."""

    def choose(self, wanted: RoutedOrder, allowed: Sequence[Sequence[Address]]) -> tuple[Address, ...] | None:
        """One of the allowed for each segment, or None where measured times say nothing."""

    def note_answer(self, wanted: RoutedOrder, node: Address, layers: int, seconds: float) -> None:
        """One position through so many layers took so long."""

    def release(self, wanted: RoutedOrder) -> None:
        """The order is over."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds: for one answer of an inferencer, for one verifier's whole work, and for a verifier that is away."""

    generation: GenerationPatience = field(default_factory=GenerationPatience)
    check: float = 120.0
    absent: float = 20.0


async def _nothing(_node: Address, _price: int) -> None:
    """Tabs are as they are."""


@dataclass(slots=True)
class StandingOrders:
    """Numbers of open orders, by tab, of which nothing fell, for as long as what the chain voids is what it was.

    Without it each order would read all others of its tab from disk.
    """

    voids: tuple[object, ...] = ()
    numbers: dict[Hash32, set[int]] = field(default_factory=dict)

    def of(self, state: State, tab: Hash32) -> set[int]:
        """Those of a tab, to be added to; none after the chain voided anything, or took it back."""
        voids = (state.voided, state.summons, state.convictions)
        if len(self.voids) != len(voids) or any(one is not other for one, other in zip(self.voids, voids, strict=True)):
            self.voids, self.numbers = voids, {}
        return self.numbers.setdefault(tab, set())


@dataclass(frozen=True, slots=True)
class SchedulerContext:
    """Keys, stores and connections."""

    operator: Operator
    vrf_secret: bytes = field(repr=False)
    ledger: Ledger
    database: SchedulerDatabase
    store: OrderStore
    client_tabs: ClientTabs
    node_tabs: NodeTabs
    rows: KeptRows
    peers: Peers
    offers: Offers
    waits: Waits = field(default_factory=Waits)
    routes: Routes | None = None
    ensure_paid: EnsurePaid = _nothing
    factory: Address = NO_ADDRESS
    asset_decimals: int = 18
    clock: Callable[[], float] = time.time
    key_check: KeyCheck = signed_by_account
    standing: StandingOrders = field(default_factory=StandingOrders)
    reputation: Reputation = everybody_trusted
    keys: dict[Address, bytes] = field(default_factory=dict)
    """Compressed keys of nodes that told theirs (``orders.veiling``)."""
    organisations: Callable[[], OrganisationsState] = OrganisationsState
    settled: int = 0
    """How many blocks follow an order's reference block, beside the newest: who is drawn depends on what stood there,
    and an admission that a reorganisation has made wrong convicts its scheduler."""
    first: int = 0
    """The oldest reference block of an order that is taken: whoever lost its disk does not know what it admitted."""
    suspects: SuspectList | None = None
    """By verifiers' notes, where the operator put them together: prices advise more checks of their groups."""

    def signed(self, message: Any) -> Signed[Any]:
        """A message with the operator's signature."""
        return Signed(message, self.operator.sign(message))

    def view(self, order: Order, tab: Tab) -> OrderView:
        """The chain as this scheduler sees it for an order that it took, perhaps before it began to leave.

        Raises what ``views.view_of`` does.
        """
        return views.view_of(
            self.ledger.state,
            order,
            tab,
            chain_id=self.operator.domain.chain_id,
            block=self.ledger.block,
            time=int(self.clock()),
            key_check=self.key_check,
            leaving=True,
        )


async def first_block(database: SchedulerDatabase, chain: FollowedChain, operator: Address) -> int:
    """The oldest reference block of an order that is taken; 0: any."""
    begun = await database.beginning(chain.block, views.parameters_of(chain.state).reference_age)
    return views.first_reference_block(chain.state, operator, begun, chain.block)


@dataclass(frozen=True, slots=True)
class OrderSession:
    """One order as it is worked on: what was signed, what it asks for, and the class that it is of."""

    history: OrderHistory
    request: Request
    salt: Hash32
    offer: ClassOffer
    alternatives: int

    @property
    def order_id(self) -> Hash32:
        return self.history.order_id

    @property
    def execution_class(self) -> Hash32:
        return self.history.order.execution_class

    @property
    def spans(self) -> tuple[Segment, ...]:
        return self.offer.spans

    @property
    def positions(self) -> int:
        return self.request.position_limit

    @property
    def nodes(self) -> tuple[Address, ...]:
        return self.history.admitted.nodes
