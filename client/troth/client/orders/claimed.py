"""What a scheduler claims on chain, held against this client's own journal.

A claim shows a sum over numbers of a tab; which number stands for how much, only the payee knows. So the sum is
compared with all that may be owed. Where it is more, some number stands for more than it is worth: those that are worth
least by the journal are asked for first, since what was refunded, voided or never answered cannot be shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from troth.client.orders.following import fell
from troth.client.orders.journal import RUNNING, OrderJournal, OrderRecord, Phase
from troth.client.tabs.books import OwnTab, is_newer
from troth.protocol.market import claims
from troth.protocol.market.state import ClaimRecord, State
from troth.protocol.market.types import Claim, Parameters

VOID_AGAIN = 2
"""Times a number is asked for that fell after it was shown: its leaf was worth something then, and is not any more."""


@dataclass(frozen=True, slots=True)
class Overclaim:
    """A claim that shows ``excess`` more than may be owed.

    ``known`` is what each claimed number is worth by the journal, ``bounds`` the most that it could cost while nobody
    has decided on it. ``fallen`` are void on chain; ``asked_after``: what became of some of them is still found out.
    """

    record: OwnTab
    claim: ClaimRecord
    excess: int
    known: Mapping[int, int]
    bounds: Mapping[int, int]
    fallen: frozenset[int]
    asked_after: bool

    def number(self) -> int | None:
        """Which number is asked for next; None where all were shown, or are asked for."""
        return next((number for number in self._places() if self._may_be_asked(number)), None)

    def count(self) -> int:
        """How many objections to this claim there were so far."""
        return len(self.claim.objections) + sum(leaf.times for leaf in self.claim.answered.values())

    def last(self, parameters: Parameters) -> int:
        """The last block in which it can be objected to."""
        return self.claim.state.settles_at - parameters.answer_window - 1

    def first(self, parameters: Parameters) -> int:
        """From which block on: orders that are still asked after have half of the time to be found out."""
        filed = self.claim.state.settles_at - parameters.claim_delay
        return (filed + self.last(parameters)) // 2 if self.asked_after else filed

    def _places(self) -> Iterator[int]:
        """Every place of the tree: a sum can be hidden beside the claimed numbers, too, so those come last."""
        claim = self.claim.state.claim
        size = 1 << claims.depth_of(claim.first, claim.last)
        beside = (one for one in range(claim.first, claim.first + size) if one not in self.known)
        return chain(sorted(self.known, key=lambda one: (self.known[one], -self.bounds.get(one, 0))), beside)

    def _may_be_asked(self, number: int) -> bool:
        leaf = self.claim.answered.get(number)
        shown_before_it_fell = leaf is not None and number in self.fallen and leaf.times < VOID_AGAIN
        return number not in self.claim.objections and (leaf is None or shown_before_it_fell)


def overclaim(state: State, journal: OrderJournal, record: OwnTab) -> Overclaim | None:
    """The claim under way on a tab, if it shows more than may be owed; None: there is none, or it does not."""
    standing = state.tabs.get(record.identifier)
    claim = None if standing is None else standing.claim
    if standing is None or claim is None:
        return None
    book, shown = record.book, claim.state
    entries = {entry.sequence: entry for entry in journal.between(record.identifier, *_range(shown.claim))}
    known = dict.fromkeys(_claimed(shown.claim), 0)
    fallen = frozenset(number for number, entry in entries.items() if fell(state, entry))
    for number in known:
        known[number] = _worth(number, entries.get(number), record, claim, fallen)
    # What is acknowledged is in what was spent, whatever an older word leaves open.
    open_numbers = sum(worth for number, worth in known.items() if number in book.bounds)
    decided = [number for number in known if number not in book.bounds and number not in fallen]
    paid_before = sum(_above(number, entries.get(number), claim) for number in decided)
    owed = max(book.spent, shown.voucher.spent) + open_numbers + paid_before
    excess = shown.owed - max(owed, standing.redeemed)
    if excess <= 0:
        return None
    running = any(entry.phase in RUNNING and number in known for number, entry in entries.items())
    return Overclaim(record, claim, excess, known, book.bounds, fallen, running or is_newer(shown.voucher, book))


def _range(claim: Claim) -> tuple[int, int]:
    return claim.first, claim.last


def _claimed(claim: Claim) -> Iterator[int]:
    return (number for number in range(claim.first, claim.last + 1) if claims.is_claimed(claim, number))


def _worth(number: int, entry: OrderRecord | None, record: OwnTab, claim: ClaimRecord, fallen: frozenset[int]) -> int:
    """What a number is worth: nothing where the chain voids it, what was shown for it on chain, else its fee."""
    leaf = claim.answered.get(number)
    if entry is not None and entry.paid is not None:
        return entry.paid
    if number in fallen:
        return 0
    if leaf is not None:
        return min(leaf.amount, record.book.bounds.get(number, leaf.amount))
    if entry is None or entry.phase in {Phase.CONTRADICTED, Phase.FAILED}:
        return 0
    if entry.phase is Phase.RECOVERED:
        return entry.most
    return entry.fee or 0


def _above(number: int, entry: OrderRecord | None, claim: ClaimRecord) -> int:
    """What was shown for a number above what this client paid for it: the chain takes it for owed."""
    leaf, paid = claim.answered.get(number), (entry.paid or 0) if entry is not None else 0
    return 0 if leaf is None else max(leaf.amount - paid, 0)
