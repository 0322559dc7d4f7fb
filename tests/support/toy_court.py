"""The court as a client on a toy market sees it: a Courtroom over the toy world, whose Court opens and draws cases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from support.toy_market import CONTRACTS, DOMAIN, META, PARAMETERS, PAYER, World
from support.toy_tab_stage import Stage

from troth.cases.carrying import Carrier
from troth.cases.courtroom import CallRefused, ChainView, Mined
from troth.cases.journal import CaseJournal
from troth.cases.office import Office
from troth.cases.opening import Opener
from troth.chain.errors import ChainUnavailable
from troth.chain.headers import RawHeader
from troth.client.orders.court import Court, note
from troth.client.orders.journal import OrderJournal
from troth.client.orders.keeping import unheard
from troth.client.orders.resuming import Report
from troth.protocol import typed_data
from troth.protocol.amounts import Asset
from troth.protocol.hashing import keccak256
from troth.protocol.market import events as on
from troth.protocol.market import messages
from troth.protocol.market.calls import argument, read_call
from troth.protocol.market.fold import apply
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import CaseKind, CasePhase, CaseState, Outcome
from troth.protocol.market.signed import Result, SignedOrder, Verdict
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.types import ZERO_HASH, Address, Hash32

USDC = Asset(NO_ADDRESS, "usdc", 6)
REVIEWER = Address("0x" + "ab" * 20)


@dataclass
class ToyCourtroom:
    """A Courtroom; what is sent is judged by hand: ``decide``. ``away``: the chain does not answer."""

    world: World
    account: Address = PAYER.address
    away: bool = False
    refusing: bool = False
    sent: list[str] = field(default_factory=list)
    until: Callable[[], None] = lambda: None
    contracts: Any = CONTRACTS
    domain: Any = DOMAIN

    async def seen(self) -> ChainView:
        if self.away:
            raise ChainUnavailable("away", "here", "Wait.")
        return ChainView(self.world.state, self.world.block)

    async def header(self, number: int) -> RawHeader:
        return RawHeader(number, ZERO_HASH, ZERO_HASH, 0, Hash32(keccak256(b"%d" % number)), b"header")

    async def hints(self, _request: Any) -> bytes:
        return b""

    async def drawn(self, _request: Any) -> tuple[Address, ...]:
        raise CallRefused("draw", "TooFewSeats", "nobody can tell who will be drawn")

    async def input_of(self, transaction: Hash32) -> bytes:
        raise AssertionError(transaction)

    async def read(self, view: Any) -> Any:
        raise AssertionError(view)

    async def base_fee(self) -> int:
        return 1

    async def simulate(self, call: Any) -> Any:
        raise AssertionError(call)

    async def after(self, _block: int, _timeout: float) -> None:
        self.world.block += 1
        self.until()

    async def send(self, call: Any) -> Mined:
        await self.seen()
        if self.refusing:
            raise CallRefused("open", "TooFewFunds", "the wallet is empty")
        decoded = read_call(Part.COURT, call.call.data)
        self.sent.append(decoded.entry.name)
        self.world.block += 1
        place = replace(META, block=self.world.block)
        event = {"open": self._open, "draw": self._draw}[decoded.entry.name](decoded, place)
        self.world.state = apply(event, self.world.state)
        return Mined(Hash32(keccak256(call.call.data)), self.world.block)

    def _open(self, decoded: Any, place: Any) -> Any:
        signed, results = argument(decoded, "order", SignedOrder), argument(decoded, "results", tuple[Result, ...])
        segment, verdicts = argument(decoded, "segment", int), argument(decoded, "verdicts", tuple[Verdict, ...])
        order = messages.order_id(signed.order, DOMAIN)
        kind = CaseKind.REJECTION if verdicts else CaseKind.DOUBT
        state = CaseState(
            kind=kind,
            phase=CasePhase.OPENED,
            phase_block=place.block,
            reference_block=signed.order.reference_block,
            order=order,
            execution_class=signed.order.execution_class,
            ends=signed.order.ends,
            segment=segment,
            result=typed_data.struct_hash(results[segment]),
            opener=self.account,
            client=signed.client,
            bond=77,
        )
        name = messages.case_id(order, segment + (0 if verdicts else messages.DOUBTS))
        return on.CaseOpened(name, order, NO_ADDRESS, state, place)

    def _draw(self, decoded: Any, place: Any) -> Any:
        (case_id,) = (one for one, record in self.world.state.cases.items() if record.live)
        return on.ReviewersDrawn(case_id, self.account, 0, ZERO_HASH, (REVIEWER,), bytes([PARAMETERS.lag]), place)

    def decide(self, case_id: Hash32, outcome: Outcome) -> None:
        """The court says so; a leaf that fell is void."""
        record = self.world.state.cases[case_id]
        place, order = replace(META, block=self.world.block), record.state.order
        self.world.state = apply(on.CaseDecided(case_id, order, outcome, 0, 0, 0, place), self.world.state)
        if outcome is not Outcome.UPHELD:
            fallen = on.LeafVoided(order, record.state.segment, case_id, place)
            self.world.state = apply(fallen, self.world.state)


class SilentParties:
    """Nobody of the committee answers."""

    async def furnish(self, *_named: Any) -> bool:
        return False

    async def pledge(self, *_named: Any) -> None:
        return None

    async def show(self, *_named: Any) -> None:
        return None

    async def show_node(self, *_named: Any) -> None:
        return None


def court_of(
    stage: Stage,
    courtroom: ToyCourtroom,
    folder: Path,
    most: int,
    report: Report = unheard,
    together: int | None = None,
) -> Court:
    """A Court over the toy market with its journal in ``folder``; a second one is the same client after a restart."""
    return court_over(stage.session.journal, courtroom, folder, most, report, together)


def court_over(
    orders: OrderJournal, courtroom: ToyCourtroom, folder: Path, most: int, report: Report, together: int | None = None
) -> Court:
    """The same for a journal of orders."""
    journal = CaseJournal(folder / "cases.sqlite")
    opener = Opener(courtroom, journal)
    carrier = Carrier(courtroom, SilentParties(), journal, opener=opener)
    office = Office(courtroom, journal, opener, carrier)
    tell = partial(note, orders, report)
    return Court(office, USDC, most, tell=tell, together=together)
