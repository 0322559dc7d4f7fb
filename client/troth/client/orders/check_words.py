"""What the verifiers of one order's check say, as its lines come: each word is checked before it counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from troth.client.errors import ClientError
from troth.client.orders.evidence import CheckWords, ServedOrder
from troth.client.orders.session import PayerSession
from troth.protocol import typed_data
from troth.protocol.errors import ProtocolError
from troth.protocol.market import bodies, checks
from troth.protocol.market.bodies import Checking, Committed, Verdicts
from troth.protocol.market.checks import OrderView
from troth.protocol.market.draws import DrawnSeats
from troth.protocol.market.errors import InvalidCheck
from troth.protocol.market.messages import Signed
from troth.protocol.market.receipt import CheckedSegment
from troth.protocol.market.signed import Result, TraceCommitment, Verdict
from troth.protocol.types import Address

CHECK_LINES = 1024


class CheckLate(ClientError):
    """The check did not come, or not whole; it can be summoned. ``away``: nobody answered who could refuse it."""

    def __init__(self, what: str, *, away: bool = False) -> None:
        super().__init__(what, None, "Summon the check: `troth client summon`.")
        self.away = away


class CheckForged(ClientError):
    """The scheduler leads the check otherwise than the rules do."""

    def __init__(self, what: str) -> None:
        super().__init__(what, None, "Order on no tab with that scheduler: the evidence is kept.")


class CheckReading:
    """Commitments and verdicts of all segments, as they come; each signature is checked when it does."""

    def __init__(
        self, session: PayerSession, served: ServedOrder, seats: Sequence[DrawnSeats], view: OrderView
    ) -> None:
        self._session = session
        self._served = served
        self._seats = seats
        self._view = view
        self._commitments: dict[int, dict[Address, Signed[TraceCommitment]]] = {}
        self._verdicts: dict[int, dict[Address, Signed[Verdict]]] = {}
        self._left_out: list[str] = []

    @property
    def whole(self) -> bool:
        """Whether every distinct drawn verifier of every segment has spoken."""
        return all(
            set(self._verdicts.get(segment, ())) == set(seats.seats) for segment, seats in enumerate(self._seats)
        )

    @property
    def decided(self) -> bool:
        """Whether, in every segment, more than half of the seats have spoken: who is silent counts as nothing."""
        return all(
            2 * sum(count for one, count in seats.seats.items() if one in self._verdicts.get(segment, ()))
            > len(seats.operators)
            for segment, seats in enumerate(self._seats)
        )

    @property
    def lacking(self) -> str:
        """Whose verdicts the check ended without, and whose fault that may be."""
        drawn = [(segment, one) for segment, seats in enumerate(self._seats) for one in seats.seats]
        silent = [one for segment, one in drawn if one not in self._verdicts.get(segment, ())]
        named = ", ".join(one[:10] for one in silent)
        who = "the only verifier" if len(drawn) == 1 else f"{len(silent)} of {len(drawn)} verifiers"
        return f"The check ended without a verdict of {who} ({named}): away, or kept back by the scheduler"

    async def read(self, lines: AsyncGenerator[dict[str, Any], None], patience: float | None = None) -> None:
        """Read until the check is whole, or the stream ends; TimeoutError where it is silent for too long."""
        for _ in range(CHECK_LINES):
            async with asyncio.timeout(patience):
                line = await anext(lines, None)
            if line is None:
                return
            try:
                self._take(line)
            except ProtocolError as error:
                raise CheckForged(error.what) from error
            self._session.journal.hold(self._served.entry.identifier)
            if self.whole:
                return

    def words(self, silent: dict[int, tuple[Address, ...]]) -> CheckWords:
        """What was signed, in the order of first seats."""
        return CheckWords(
            tuple(
                CheckedSegment(
                    drawn=seats.operators,
                    commitments=_in_order(self._commitments[segment], seats),
                    verdicts=_in_order(self._verdicts[segment], seats),
                    silent=silent.get(segment, ()),
                )
                for segment, seats in enumerate(self._seats)
            )
        )

    def _take(self, line: dict[str, Any]) -> None:
        match line.get("type"):
            case "undrawn":
                raise CheckForged("The scheduler says that the secret misses, and it hits")
            case "checking":
                said = bodies.read_part(Checking, line)
                if said.segments != tuple(seats.operators for seats in self._seats):
                    raise CheckForged("The scheduler lets other verifiers check than were drawn")
            case "committed":
                self._commit(bodies.read_part(Committed, line))
            case "verdicts":
                self._judge(bodies.read_part(Verdicts, line))
            case "failed":
                raise CheckLate("The scheduler gave the check up")

    def _commit(self, said: Committed) -> None:
        if said.segment not in range(len(self._seats)) or said.segment in self._commitments:
            raise CheckForged("The scheduler sent the commitments of a segment twice, or of none")
        result = typed_data.struct_hash(self._result(said.segment))
        wanted = (self._served.entry.identifier, said.segment, result)
        found = {}
        for signed in said.commitments:
            signer = typed_data.recover(signed.message, self._view.domain, signed.signature)
            word = signed.message
            if signer in self._seats[said.segment].seats and (word.order, word.segment, word.result) == wanted:
                found[signer] = signed
        self._commitments[said.segment] = found

    def _judge(self, said: Verdicts) -> None:
        """Verdicts that make no check are left out: whoever passed them on still owes them."""
        if said.segment not in self._commitments:
            raise CheckForged("The scheduler sent verdicts before the verifiers had committed")
        result, known = self._result(said.segment), self._verdicts.setdefault(said.segment, {})
        for signed in said.verdicts:
            signer = typed_data.recover(signed.message, self._view.domain, signed.signature)
            try:
                seats, commitments = self._seats[said.segment], self._commitments[said.segment]
                checks.require_verdicts(result, {signer: signed}, commitments, seats, self._view)
            except InvalidCheck as error:
                self._left_out.append(error.what)
                continue
            known.setdefault(signer, signed)

    def _result(self, segment: int) -> Result:
        return self._served.given[segment]


def _in_order(found: Mapping[Address, Signed[Any]], seats: DrawnSeats) -> tuple[Signed[Any], ...]:
    """By first seat: the order in which commitments pick the tiles."""
    return tuple(found[one] for one in seats.seats if one in found)
