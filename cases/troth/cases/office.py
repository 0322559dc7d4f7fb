"""Everything that a program needs to act on evidence: chain, follower, journal, opener and carrier for one account."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from troth.cases.carrying import Carrier, CaseProgress
from troth.cases.courtroom import Courtroom, LiveCourtroom
from troth.cases.evidence import Evidence
from troth.cases.journal import CaseJournal
from troth.cases.opening import Opener, WantedCase, case_id_of
from troth.cases.parties import ChannelParties
from troth.chain.keystore import Key
from troth.chain.market import Market, find_place
from troth.chain.market_follower import MarketFollower
from troth.protocol.market import messages
from troth.protocol.types import Address
from troth.transport.identity import Operator


@dataclass(frozen=True, slots=True)
class CaseSettings:
    """Where the deployment is, where state is kept, who acts. ``share``: see ``carrying``."""

    rpc: str
    factory: Address
    folder: Path
    key: Key
    bank: Address | None = None
    start: int = 0
    share: float = 0.5


@dataclass(frozen=True, slots=True)
class Office:
    """One account's court business; nodes and clients bring rejections through it."""

    courtroom: Courtroom
    journal: CaseJournal
    opener: Opener
    carrier: Carrier
    most_bond: int | None = None
    parties: ChannelParties | None = None

    async def close(self) -> None:
        """Close the journal and the connections to parties."""
        await self.carrier.close()
        if self.parties is not None:
            await self.parties.close()
        self.journal.close()

    async def rejected(self, evidence: Evidence, segment: int) -> None:
        """Bring a rejection: it is in the journal when this returns, and the carrier opens it and carries it on."""
        seen, case_id = await self.courtroom.seen(), messages.case_id(evidence.order_id, segment)
        standing = seen.state.cases.get(case_id)
        if standing is not None and standing.live:
            self.journal.follow(case_id, evidence)
            return
        found = await self.opener.assess(evidence)
        bring = next((one for one in found.cases if one.segment == segment and not one.openers), None)
        if bring is not None:
            wanted = WantedCase(segment, suspend=bring.may_suspend, most_bond=self.most_bond, after=seen.block)
            self.journal.follow(case_id_of(evidence, bring), evidence, wanted=wanted.encode())


def make_office(
    market: Market,
    follower: MarketFollower,
    settings: CaseSettings,
    report: Callable[[CaseProgress], None] | None = None,
    *,
    most_bond: int | None = None,
) -> Office:
    """An office over a chain that is followed already."""
    courtroom = LiveCourtroom(market, follower, settings.key)
    journal = CaseJournal(settings.folder / "cases.sqlite")
    opener = Opener(courtroom, journal)
    parties = ChannelParties(Operator(settings.key.secret, market.domain), lambda: follower.state)
    carrier = Carrier(courtroom, parties, journal, opener=opener, share=settings.share, report=report)
    return Office(courtroom, journal, opener, carrier, most_bond, parties)


@asynccontextmanager
async def open_office(
    settings: CaseSettings, report: Callable[[CaseProgress], None] | None = None
) -> AsyncIterator[Office]:
    """An office with a chain of its own."""
    settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = await find_place(settings.rpc, settings.factory, settings.bank, settings.start)
    async with (
        await Market.connect(settings.rpc, place) as market,
        MarketFollower(market, settings.folder / "chain.sqlite") as follower,
    ):
        await follower.catch_up()
        made = make_office(market, follower, settings, report)
        try:
            yield made
        finally:
            await made.close()
