"""What is written down of one order, read back as the protocol's own types."""

from __future__ import annotations

from dataclasses import dataclass

from troth.client.orders.journal import OrderRecord
from troth.protocol.market.bodies import Admitted, Lottery, Results, Submission
from troth.protocol.market.life import Check
from troth.protocol.market.receipt import CheckedSegment
from troth.protocol.market.signed import Draw, Order, Result
from troth.protocol.types import Address, Hash32

__all__ = ["Check", "CheckWords", "Openings", "SealedOpenings", "ServedOrder", "served_of"]


@dataclass(frozen=True, slots=True)
class CheckWords:
    """What was signed in the check of every segment, as a receipt shows it."""

    segments: tuple[CheckedSegment, ...]


@dataclass(frozen=True, slots=True)
class SealedOpenings:
    """The openings of one segment as they came, sealed; operators and bytes in the same order."""

    node: bytes
    operators: tuple[Address, ...]
    sealed: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Openings:
    """The openings of every segment."""

    segments: tuple[SealedOpenings, ...]


@dataclass(frozen=True, slots=True)
class ServedOrder:
    """An order whose results and draw are stored: everything that its end follows from."""

    entry: OrderRecord
    submission: Submission
    admitted: Admitted
    results: Results
    lottery: Lottery

    @property
    def order(self) -> Order:
        """The order."""
        return self.submission.order.message

    @property
    def draw(self) -> Draw:
        """The scheduler's word."""
        return self.lottery.draw.message

    @property
    def given(self) -> tuple[Result, ...]:
        """The results."""
        return tuple(one.message for one in self.results.results)

    @property
    def words(self) -> CheckWords | None:
        """The check, once all verdicts are stored."""
        return self.entry.read("check", CheckWords)

    @property
    def openings(self) -> Openings | None:
        """The openings, once they came."""
        return self.entry.read("openings", Openings)

    @property
    def shown(self) -> bool:
        """Whether the first secret may have been shown."""
        return "secret" in self.entry.evidence

    @property
    def secret(self) -> Hash32 | None:
        """The first secret, once it may have been shown."""
        body = self.entry.evidence.get("secret")
        return None if body is None else Hash32(body)


def served_of(entry: OrderRecord) -> ServedOrder | None:
    """The order with its results and draw; None before they are stored."""
    submission, admitted = entry.submission, entry.read("admitted", Admitted)
    results, lottery = entry.read("results", Results), entry.read("lottery", Lottery)
    if submission is None or admitted is None or results is None or lottery is None:
        return None
    return ServedOrder(entry, submission, admitted, results, lottery)
