"""One-way payment channels: what a word of the payer says, and the books that payer and payee keep of one tab.

A voucher says which numbers it pays (``spent``, payable at once) and how much may be owed with all numbers up to
``sequence`` (``authorised``). Numbers up to ``acknowledged_through`` are acknowledged, less a window of 256
exceptions; what is older than the window counts as acknowledged. Owed is the largest sum that was ever shown, never a
sum of two: a number that was claimed and is paid by a later voucher is in both, so adding them would pay it twice.

Books are values: each step takes one and gives the next, so that a program stores them where it likes. The payee's book
refuses a word that forgets; what it accepted before stays payable whatever comes later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field, replace

from troth.protocol.market.errors import InvalidVoucher
from troth.protocol.market.signed import Order
from troth.protocol.market.types import TabState, Voucher
from troth.protocol.types import Hash32

WINDOW = 256
"""Exceptions are one word: how many numbers may follow one that is not acknowledged before its payer must decide."""
ROOM = 32
"""Of the window: kept for orders that run while an older number fills it."""
SPAN = 1 << 32
"""Numbers that one claim covers. Whatever is open is claimed together: a later claim pays only what it shows more."""
AMOUNT_LIMIT = 1 << 96


def is_acknowledged(voucher: Voucher, number: int) -> bool:
    """Whether ``spent`` pays for this number."""
    distance = voucher.acknowledged_through - number
    if distance < 0:
        return False
    return distance >= WINDOW or not voucher.exceptions >> distance & 1


def acknowledges_alike(voucher: Voucher, other: Voucher) -> bool:
    """Whether both pay for the same numbers."""
    mine, others = (voucher.acknowledged_through, voucher.exceptions), (other.acknowledged_through, other.exceptions)
    return mine == others


def exceptions_of(voucher: Voucher) -> tuple[int, ...]:
    """Numbers up to ``acknowledged_through`` that are not acknowledged, ascending."""
    through = voucher.acknowledged_through
    numbers = (through - distance for distance in range(min(WINDOW, through) - 1, -1, -1))
    return tuple(number for number in numbers if not is_acknowledged(voucher, number))


def outstanding(voucher: Voucher) -> tuple[int, ...]:
    """Numbers up to ``sequence`` that the voucher authorises and does not pay, ascending."""
    excepted = (number for number in exceptions_of(voucher) if number <= voucher.sequence)
    return (*excepted, *range(voucher.acknowledged_through + 1, voucher.sequence + 1))


def first_voucher(tab: Hash32) -> Voucher:
    """What a tab starts from: nothing spent, nothing authorised."""
    return Voucher(tab, 0, 0, 0, 0, 0)


def require_sound(voucher: Voucher) -> None:
    """Raise InvalidVoucher where a voucher contradicts itself."""
    if voucher.spent > voucher.authorised:
        what = f"A voucher that authorises {voucher.authorised} cannot have spent more"
        raise InvalidVoucher(what, voucher.spent, "Sign a voucher that authorises what it spends.")
    if voucher.acknowledged_through > voucher.sequence:
        what = f"A voucher up to number {voucher.sequence} acknowledges later ones, which would then never be paid"
        raise InvalidVoucher(what, voucher.acknowledged_through, "Acknowledge only what was ordered.")


# ----------------------------------------------------------------------------------------------------- the Bank's rule


def redeem(state: TabState, owed: int) -> tuple[TabState, int]:
    """The tab after ``owed`` (cumulative) was shown, and what is paid: at most the balance, and nothing twice."""
    paid = min(max(owed - state.redeemed, 0), state.balance)
    return replace(state, balance=state.balance - paid, redeemed=state.redeemed + paid), paid


# -------------------------------------------------------------------------------------------------------- payer's book


@dataclass(frozen=True, slots=True)
class PayerBook:
    """What a payer has ordered on one tab; ``bounds`` holds the most that each unacknowledged number can cost.

    ``authorised`` is the most that may be owed with all that was ordered; added up once a book, since an order asks the
    books of all nodes that were drawn.
    """

    tab: Hash32
    spent: int = 0
    sequence: int = 0
    acknowledged: int = 0
    bounds: Mapping[int, int] = field(default_factory=dict)
    authorised: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "authorised", self.spent + sum(self.bounds.values()))

    @property
    def voucher(self) -> Voucher:
        """The payer's word on all this, to be signed with the tab key."""
        exceptions = sum(1 << self.acknowledged - number for number in self.bounds if number <= self.acknowledged)
        return Voucher(self.tab, self.spent, self.authorised, self.sequence, self.acknowledged, exceptions)


def order_next(book: PayerBook, most: int, state: TabState) -> tuple[PayerBook, int]:
    """The book with one more order of at most ``most``, and its number.

    Raises InvalidVoucher if the tab closes, or its deposits do not cover all that would be authorised.
    """
    if not state.known or state.closes_at:
        raise InvalidVoucher("The tab is not open", state.closes_at, "Open the tab, or use another one.")
    number = book.sequence + 1
    after = PayerBook(book.tab, book.spent, number, book.acknowledged, {**book.bounds, number: most})
    if not covers_next(book, most, state):
        what = f"The tab covers {state.balance + state.redeemed}, less than would be authorised"
        raise InvalidVoucher(what, after.authorised, "Top the tab up, or wait for acknowledgements.")
    return after, number


def covers_next(book: PayerBook, most: int, state: TabState) -> bool:
    """Whether ``order_next`` would take one more order of at most ``most``."""
    if not state.known or state.closes_at:
        return False
    return book.authorised + most <= min(state.balance + state.redeemed, AMOUNT_LIMIT - 1)


def blocking(book: PayerBook) -> int | None:
    """The number that keeps later ones from being acknowledged soon, since it leaves the window; None: there is none.

    A payer that neither pays it nor has it decided orders on another tab: here, later work would only be claimed, and
    claims cost the payer their gas.
    """
    oldest = min(book.bounds, default=None)
    return oldest if oldest is not None and book.acknowledged - oldest >= WINDOW - ROOM else None


def acknowledge(book: PayerBook, number: int, fee: int) -> PayerBook:
    """The book with ``number`` paid; a number that never became work, or whose leaf is void, costs 0.

    Raises InvalidVoucher if it is not open, costs more than was ordered, or if an older number would leave the window
    unpaid: the payee would refuse such a voucher, rightly.
    """
    if number not in book.bounds:
        raise InvalidVoucher("This number was never ordered, or is acknowledged already", number, "Check the book.")
    if not 0 <= fee <= book.bounds[number]:
        what = f"Number {number} costs at most {book.bounds[number]}"
        raise InvalidVoucher(what, fee, "Pay what the results say, at most the order's bound.")
    left = {one: bound for one, bound in book.bounds.items() if one != number}
    through = max(book.acknowledged, number)
    oldest = min(left, default=through)
    if through - oldest >= WINDOW:
        what = f"Number {oldest} would leave the window of {WINDOW} without being paid"
        raise InvalidVoucher(what, number, "Decide on the older number first, or order on another tab.")
    return replace(book, spent=book.spent + fee, acknowledged=through, bounds=left)


def resume(voucher: Voucher, orders: Iterable[Order]) -> PayerBook:
    """The book of a payer that lost its own, from the newest voucher that its key signed and its orders still open.

    A payer that goes on from an old backup would only be refused, since its words would go backwards. What the voucher
    authorises and the payee does not show, it never took: it may have refused one of two orders that came together. A
    payee that hides an order gains nothing, since owed is the largest sum that was shown, and never the sum of two.
    """
    require_sound(voucher)
    bounds = {order.sequence: order.max_fee for order in orders if order.tab == voucher.tab}
    ordered = sorted(number for number in bounds if number <= voucher.sequence)
    left = {number: bounds[number] for number in ordered if not is_acknowledged(voucher, number)}
    return PayerBook(voucher.tab, voucher.spent, voucher.sequence, voucher.acknowledged_through, left)


# -------------------------------------------------------------------------------------------------------- payee's book


@dataclass(frozen=True, slots=True)
class PayeeBook:
    """What a payee holds of one tab: the best voucher it was given, and the worth of what is not acknowledged yet.

    ``worth`` holds the most that a running order can cost, then the fee of its results. ``exposure`` is work that only
    a claim would pay: what a payee risks with this payer. It is the sum of ``worth``; who knows it gives it as
    ``total``, since a busy tab has thousands of open numbers, and each order makes three books.
    """

    best: Voucher
    worth: Mapping[int, int] = field(default_factory=dict)
    exposure: int = field(init=False, repr=False, compare=False)
    total: InitVar[int | None] = None

    def __post_init__(self, total: int | None) -> None:
        object.__setattr__(self, "exposure", sum(self.worth.values()) if total is None else total)

    def left_by(self, voucher: Voucher) -> int:
        """Worth of what a voucher would leave open."""
        if acknowledges_alike(voucher, self.best):
            return self.exposure
        return sum(worth for number, worth in self.worth.items() if not is_acknowledged(voucher, number))

    @property
    def payable(self) -> int:
        """Cumulative: what redeeming the best voucher shows."""
        return self.best.spent

    @property
    def unpaid(self) -> tuple[int, ...]:
        """Numbers that were admitted and are not acknowledged, ascending.

        What a voucher authorises may be any number of numbers: the payer chooses them, and signs for a leap at no cost.
        """
        return tuple(sorted(number for number in self.worth if not is_acknowledged(self.best, number)))


def accept(book: PayeeBook, voucher: Voucher) -> PayeeBook:
    """The book with a newer word of the payer; raises InvalidVoucher where it says less than the one before.

    (1) It is for this tab and does not contradict itself. (2) ``spent``, ``sequence`` and ``acknowledged_through``
    never go back. (3) No number is unacknowledged again. (4) What is newly acknowledged, by falling out of the window
    too, is paid: ``spent`` grew by its worth. (5) What is left is authorised, so that it can be claimed under this
    voucher.
    """
    best = book.best
    require_sound(voucher)
    if voucher.tab != best.tab:
        raise InvalidVoucher("The voucher is for another tab", voucher.tab, "Sign one for this tab.")
    for name in ("spent", "sequence", "acknowledged_through"):
        if getattr(voucher, name) < getattr(best, name):
            what = f"The voucher goes backwards: {name} was {getattr(best, name)}"
            raise InvalidVoucher(what, getattr(voucher, name), "Go on from the newest voucher that was signed.")
    if acknowledges_alike(voucher, best):
        # Orders are many, acknowledgements few: nothing is paid by this word that was not paid before.
        _require_authorised(voucher, book.exposure)
        return PayeeBook(voucher, book.worth, book.exposure)
    again = [number for number in exceptions_of(voucher) if number <= best.sequence and is_acknowledged(best, number)]
    if again:
        what = "Numbers that were acknowledged are exceptions now"
        raise InvalidVoucher(what, again, "Go on from the newest voucher that was signed.")
    paid = {number: worth for number, worth in book.worth.items() if is_acknowledged(voucher, number)}
    if voucher.spent - best.spent < sum(paid.values()):
        what = f"The voucher acknowledges numbers worth {sum(paid.values())} and pays less"
        raise InvalidVoucher(what, voucher.spent - best.spent, "Pay what was acknowledged, or leave it excepted.")
    after = PayeeBook(voucher, {number: worth for number, worth in book.worth.items() if number not in paid})
    _require_authorised(voucher, after.exposure)
    return after


def _require_authorised(voucher: Voucher, outstanding_worth: int) -> None:
    """Rule (5) of ``accept``."""
    if voucher.authorised - voucher.spent < outstanding_worth:
        what = f"Numbers worth {outstanding_worth} are outstanding, more than the voucher authorises"
        raise InvalidVoucher(what, voucher.authorised - voucher.spent, "Authorise what is outstanding.")


def admit(book: PayeeBook, number: int, most: int, state: TabState) -> PayeeBook:
    """The book with a running order; ``accept`` its voucher first.

    Raises InvalidVoucher unless the number is new, can be claimed with all that is open, and is authorised with all
    that is outstanding, and the tab, which must not be closing, covers it: what is authorised beyond the deposits is
    worth nothing.
    """
    voucher = book.best
    if number in book.worth or number > voucher.sequence or is_acknowledged(voucher, number):
        raise InvalidVoucher("The voucher does not authorise this number", number, "Order with the next number.")
    if number - voucher.acknowledged_through > SPAN - WINDOW:
        what = f"This number is too far from what is acknowledged: no claim covers more than {SPAN}"
        raise InvalidVoucher(what, number, "Order with the next number.")
    after = PayeeBook(voucher, {**book.worth, number: most}, book.exposure + most)
    if voucher.authorised - voucher.spent < after.exposure:
        what = f"With this order {after.exposure} would be outstanding, more than the voucher authorises"
        raise InvalidVoucher(what, voucher.authorised - voucher.spent, "Authorise each order in full.")
    if not state.known or state.closes_at:
        raise InvalidVoucher("The tab is not open", state.closes_at, "Open a tab first.")
    if state.balance + state.redeemed < voucher.spent + after.exposure:
        what = f"The tab covers {state.balance + state.redeemed}, less than would be owed"
        raise InvalidVoucher(what, voucher.spent + after.exposure, "Top the tab up.")
    return after


def served(book: PayeeBook, number: int, fee: int) -> PayeeBook:
    """The book with an order's fee in place of its bound, 0 if it failed; raises InvalidVoucher if not admitted."""
    if not 0 <= fee <= book.worth.get(number, -1):
        raise InvalidVoucher("This number was not admitted at such a price", (number, fee), "Check the book.")
    return PayeeBook(book.best, {**book.worth, number: fee}, book.exposure - book.worth[number] + fee)
