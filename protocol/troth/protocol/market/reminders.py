"""What a node holds of its tab with a scheduler, for a scheduler that lost its records or has an old copy of them.

A node believes none of a scheduler's words that goes backwards, and takes on nothing under a number that it knows. So a
scheduler that began anew would be refused by every node that it ever paid. All that is shown here was signed by the
scheduler itself, and owed is the largest sum that was ever shown, never the sum of two. A node that hides a promise
loses it. One that shows old promises, and signs results for them only now, is paid what they bound: records that could
contradict it are lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.errors import InvalidSignature
from troth.protocol.market import prices, tabs
from troth.protocol.market.errors import InvalidVoucher
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Opinion, Promise, Result, Verdict, Work
from troth.protocol.market.tabs import PayerBook
from troth.protocol.market.types import Voucher
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32

PROMISES_SHOWN = 128
"""In one page."""
REMINDER_LIMIT = 1 << 20
"""Bytes of a page; a promise with its result has 3 kB."""


@dataclass(frozen=True, slots=True)
class OpenPromise:
    """A promise that the best voucher does not pay, and what its node signed for it, if it did."""

    promise: Signed[Promise]
    result: Signed[Result] | None = None
    verdict: Signed[Verdict] | None = None

    @property
    def number(self) -> int:
        """On the tab."""
        return self.promise.message.sequence


@dataclass(frozen=True, slots=True)
class Reminder:
    """The best voucher, None before the first, and what it leaves open, ascending."""

    voucher: Signed[Voucher] | None
    promises: tuple[OpenPromise, ...]


def require_own(reminder: Reminder, tab: Hash32, operator: Address, domain: Domain) -> None:
    """Raise InvalidVoucher or InvalidSignature unless the scheduler signed all of it, for this tab."""
    words: list[Signed[Voucher] | Signed[Promise]] = [one.promise for one in reminder.promises]
    if reminder.voucher is not None:
        words.append(reminder.voucher)
        tabs.require_sound(reminder.voucher.message)
    for word in words:
        if word.require(domain, operator).tab != tab:
            raise InvalidVoucher("This word is for another tab", word.message.tab, "Show words of this tab.")


def worth(shown: OpenPromise, node: Address, domain: Domain) -> int:
    """What a promise is worth by what its node signed: nothing without a result, or without a verdict that accepts."""
    promised = shown.promise.message
    place = (promised.order, promised.segment)
    word = shown.result if promised.work == Work.INFERENCE else shown.verdict
    if word is None or (word.message.order, word.message.segment) != place:
        return 0
    try:
        word.require(domain, node)
    except InvalidSignature:
        return 0
    if isinstance(word.message, Result):
        return prices.promise_worth(promised, word.message)
    return promised.price if word.message.opinion == Opinion.ACCEPT else 0


def _newer(book: PayerBook, reminder: Reminder) -> Voucher | None:
    """The node's best voucher, if it says more than the book does in any point."""
    if reminder.voucher is None:
        return None
    said = reminder.voucher.message
    pairs = (
        (said.spent, book.spent),
        (said.sequence, book.sequence),
        (said.acknowledged_through, book.acknowledged),
    )
    return said if any(theirs > own for theirs, own in pairs) else None


def is_behind(book: PayerBook, reminder: Reminder) -> bool:
    """Whether a node holds words that the scheduler's own book does not know: it is lost, or an old copy."""
    return _newer(book, reminder) is not None or any(one.number > book.sequence for one in reminder.promises)


def caught_up(book: PayerBook, reminder: Reminder) -> PayerBook:
    """The book that goes on from a node's best voucher. What that authorises and the node does not show, it never took;
    what is open by the own book stays so."""
    base = _newer(book, reminder) or book.voucher
    shown = {one.number: one.promise.message.price for one in reminder.promises}
    both = {**book.bounds, **shown}
    left = {number: bound for number, bound in both.items() if not tabs.is_acknowledged(base, number)}
    newest = max([base.sequence, book.sequence, *shown])
    return PayerBook(book.tab, base.spent, newest, base.acknowledged_through, left)
