"""Bringing answers to the court from a wallet: within the bond that its user allowed, and carried on to the end.

What is wanted is in the journal of cases before anything is sent, so that a client that is killed opens it after the
restart, or finds that it stands. Every process of a client that has the wallet carries all cases of its home on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakValueDictionary

from troth.cases.assessing import Bring
from troth.cases.carrying import CaseProgress
from troth.cases.courtroom import AWAY
from troth.cases.evidence import Evidence as CaseFile
from troth.cases.office import CaseSettings, Office, make_office
from troth.cases.opening import WantedCase, case_id_of
from troth.cases.supervising import each, watch_blocks
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.chain.market_follower import MarketFollower
from troth.chain.tokens import approvals_beside
from troth.client.errors import ReceiptNotFound
from troth.client.home import Home
from troth.client.orders.journal import OrderJournal
from troth.client.orders.judging import case_command
from troth.client.orders.resuming import Report
from troth.client.orders.seams import OrderEvidence
from troth.client.tabs.spending import spending
from troth.protocol.amounts import Asset
from troth.protocol.market import messages
from troth.protocol.types import Hash32

Approve = Callable[[int], Awaitable[None]]
"""Lets the Bank take a bond from the wallet."""
Tell = Callable[[Hash32, CaseProgress], None]
"""Hears of each step of the case over an order."""
BLOCK_SECONDS = 15.0
"""After which a case is looked at again, though no block came."""


async def nothing_to_approve(_bond: int) -> None:
    """The chain's coin goes with the call."""


def untold(_order: Hash32, _progress: CaseProgress) -> None:
    """Nobody listens."""


@dataclass
class Court:
    """A CaseOpener over one account's office.

    ``most``: the largest bond that is put up without asking; ``together``: the most that bonds of all cases that go on
    may be, None where the user asked for this case.
    """

    office: Office
    asset: Asset
    most: int
    approve: Approve = nothing_to_approve
    tell: Tell = untold
    together: int | None = None
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _locks: WeakValueDictionary[Hash32, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _told: dict[Hash32, str] = field(default_factory=dict)

    async def open(self, evidence: OrderEvidence) -> str:
        """Open a case over each segment, or say why not and how."""
        return "; ".join([await self._bring(evidence.file, segment) for segment in evidence.segments])

    async def _bring(self, file: CaseFile, segment: int) -> str:
        standing = await self._standing(file, segment)
        if standing is not None:
            self.office.journal.follow(standing, file)
            return f"case 0x{standing.hex()} over segment {segment} stands already"
        found = await self.office.opener.assess(file)
        bring = next((one for one in found.cases if one.segment == segment), None)
        if bring is None:
            return f"no case over segment {segment} can be opened: {' '.join(found.against) or 'nothing to judge'}"
        async with self._opening:
            # One at a time, or two would each find room for one more bond.
            refusal = self._refusal(file, bring) or await self._crowded(file, bring)
            if refusal:
                return refusal
            case_id = await self._wanted(file, bring)
        bond = self.asset.show(bring.bond)
        return f"case 0x{case_id.hex()} over segment {bring.segment}, bond {bond}: {await self._first_look(case_id)}"

    async def _standing(self, file: CaseFile, segment: int) -> Hash32 | None:
        """The case that goes on over a segment already, or that this client wants."""
        seen = await self.office.courtroom.seen()
        for place in (segment, messages.DOUBTS + segment):
            case_id = messages.case_id(file.order_id, place)
            record = seen.state.cases.get(case_id)
            if record is not None and record.live:
                return case_id
        return None

    def _refusal(self, file: CaseFile, bring: Bring) -> str:
        """Why this wallet does not open it, with the command that does; empty: it does."""
        account = self.office.courtroom.account
        if bring.openers and account not in bring.openers:
            return f"only {' or '.join(bring.openers)} opens a case over segment {bring.segment}, not {account}"
        if bring.lacks:
            return f"no case over segment {bring.segment}: reviewers would miss {', '.join(bring.lacks)}"
        if bring.bond > self.most:
            command = case_command(file.order_id, segment=bring.segment, bond=f"{bring.bond}units")
            bond, most = self.asset.show(bring.bond), self.asset.show(self.most)
            return f"the bond over segment {bring.segment} is {bond}, and at most {most} is allowed: `{command}`"
        return ""

    async def _crowded(self, file: CaseFile, bring: Bring) -> str:
        """Why no more is put at stake beside the cases that go on; empty: it is."""
        at_stake = await self.at_stake()
        if self.together is None or at_stake + bring.bond <= self.together:
            return ""
        command = case_command(file.order_id, segment=bring.segment, bond=f"{bring.bond}units")
        shown, most = self.asset.show(at_stake), self.asset.show(self.together)
        return f"{shown} are at stake in open cases, and at most {most} may be: `{command}`"

    async def at_stake(self) -> int:
        """Bonds of this account's cases that go on, and of those that are wanted and not opened yet."""
        seen, total = await self.office.courtroom.seen(), 0
        for case_id in self.office.journal.cases():
            record, followed = seen.state.cases.get(case_id), self.office.journal.case(case_id)
            wanted = WantedCase.decode(followed.wanted) if followed is not None and followed.wanted else None
            if record is not None and record.live:
                total += record.state.bond if record.state.opener == self.office.courtroom.account else 0
            elif wanted is not None and not wanted.is_met_by(record):
                total += wanted.most_bond or 0
        return total

    async def _wanted(self, file: CaseFile, bring: Bring) -> Hash32:
        seen = await self.office.courtroom.seen()
        case_id = case_id_of(file, bring)
        followed = self.office.journal.case(case_id)
        if followed is None or not followed.wanted:
            await self.approve(bring.bond)
        wanted = WantedCase(bring.segment, suspend=bring.may_suspend, most_bond=self.most, after=seen.block)
        self.office.journal.follow(case_id, file, wanted=wanted.encode())
        return case_id

    async def _first_look(self, case_id: Hash32) -> str:
        """Open it now, since a command may end before the next block; else the background task does."""
        try:
            progress = await self._tick(case_id)
        except AWAY:
            return "opened once the chain answers"
        if progress.over or (progress.move is None and progress.outcome is None):
            return progress.words
        return "opened"

    # ---- carrying on

    async def run(self) -> None:
        """Carry on every case of the journal until cancelled."""
        await watch_blocks(self.look, self.office.courtroom, "carrying cases on")

    async def look(self) -> None:
        """One look at each case."""
        await each(self.office.journal.cases(), self._tick)

    async def carry(self, case_id: Hash32) -> CaseProgress:
        """Carry one case to its end."""
        self.office.journal.follow(case_id)
        while not (progress := await self._tick(case_id)).over:
            seen = await self.office.courtroom.seen()
            await self.office.courtroom.after(seen.block, BLOCK_SECONDS)
        return progress

    async def _tick(self, case_id: Hash32) -> CaseProgress:
        async with self._locks.setdefault(case_id, asyncio.Lock()):
            followed = self.office.journal.case(case_id)
            progress = await self.office.carrier.tick(case_id)
        order = None if followed is None or followed.evidence is None else followed.evidence.order_id
        if order is not None and self._told.get(case_id) != progress.words:
            self._told[case_id] = progress.words
            self.tell(order, progress)
        if progress.over:
            self._told.pop(case_id, None)
        return progress


@dataclass(frozen=True, slots=True)
class ClientDeployment:
    """A deployment as a client follows it, and where the client's own files are."""

    market: Market
    follower: MarketFollower
    orders: OrderJournal
    home: Home


@asynccontextmanager
async def open_court(  # noqa: PLR0917
    place: ClientDeployment, wallet: Key, asset: Asset, most: int, report: Report, together: int | None = None
) -> AsyncIterator[Court]:
    """A court for a wallet; its journal of cases lies in the client's home."""
    market = place.market
    settings = CaseSettings("", market.place.factory, place.home.cases, wallet)
    office = make_office(market, place.follower, settings)

    async def approve(bond: int) -> None:
        if asset.is_coin:
            return
        # Cases that are wanted and not opened yet need what was approved for them.
        async with spending(market, asset, place.home):
            for call in await approvals_beside(market, asset.token, wallet.address, bond):
                await market.execute(call, wallet)

    try:
        tell = partial(note, place.orders, report)
        yield Court(office, asset, most, approve, tell, together)
    finally:
        await office.close()


def note(orders: OrderJournal, report: Report, order: Hash32, progress: CaseProgress) -> None:
    """Write down how a case ended that was never opened, and tell what was done; waiting is not told."""
    try:
        entry = orders.entry(order)
    except ReceiptNotFound:
        # Another client's evidence, carried on here.
        return
    if progress.over and progress.outcome is None:
        orders.step(order, court=progress.words.encode())
    if progress.over or (progress.move is not None and progress.move.is_call):
        report(entry, f"case 0x{progress.case_id.hex()[:10]}: {progress.words}")
