"""What an operator sees of its earnings: today, this week, what is unpaid, per 1,000 tokens, and why no work came."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from troth.node.earning.books import NodeBooks, NodeLedger
from troth.node.earning.leaf import Leaf
from troth.node.earning.policy import EarningPolicy
from troth.protocol.market.draws import seasoned_seats
from troth.protocol.market.signed import Work
from troth.protocol.market.state import State, TabRecord
from troth.protocol.market.types import PotKind, Role
from troth.protocol.market.views import class_of, parameters_of
from troth.protocol.types import Address, Hash32

DAY, WEEK = 86_400.0, 7 * 86_400.0
OPEN = "open"


@dataclass(frozen=True, slots=True)
class Earned:
    """Work finished in a span of time; money in asset units, what was voided since left out."""

    amount: int
    answers: int
    checks: int
    tokens: int

    @property
    def per_thousand(self) -> str:
        """Asset units per 1,000 positions of inference and checks; empty before the first."""
        return str(self.amount * 1000 // self.tokens) if self.tokens else ""


@dataclass(frozen=True, slots=True)
class TabView:
    """One tab with a scheduler. Payable: acknowledged and not redeemed; unpaid: not acknowledged yet.

    Forfeited: computed within five weeks under numbers whose result nobody asked for, and never paid.
    """

    tab: str
    scheduler: Address
    balance_units: int
    redeemed_units: int
    payable_units: int
    unpaid_units: int
    forfeited_units: int
    orders: int
    state: str
    claim: str

    @property
    def is_open(self) -> bool:
        """Whether work can come on it."""
        return self.state == OPEN

    def shown(self) -> dict[str, Any]:
        """As JSON; amounts as text, and no claim where none is filed."""
        words = {name: str(value) if isinstance(value, int) else value for name, value in asdict(self).items()}
        return words if self.claim else {name: value for name, value in words.items() if name != "claim"}


def earned(leaves: Iterable[Leaf], ledger: NodeLedger) -> Earned:
    """The sum of some finished leaves."""
    amount = answers = checked = tokens = 0
    for leaf in leaves:
        amount += leaf.value(ledger.state, ledger.me)
        answers += leaf.work is Work.INFERENCE
        checked += leaf.work is Work.CHECK
        tokens += leaf.prompt + leaf.cached + leaf.written
    return Earned(amount, answers, checked, tokens)


def tabs_view(books: NodeBooks, ledger: NodeLedger) -> tuple[TabView, ...]:
    """Every tab of which this node is the payee."""
    found = []
    for tab, record in ledger.state.tabs.items():
        if record.tab.payee != ledger.me:
            continue
        book, claim = books.book(tab, ledger), record.claim
        found.append(
            TabView(
                tab="0x" + tab.hex(),
                scheduler=record.tab.payer,
                balance_units=ledger.state.tab_state(tab).balance,
                redeemed_units=record.redeemed,
                payable_units=max(book.payable - record.redeemed, 0),
                unpaid_units=book.exposure,
                forfeited_units=books.forfeited(tab),
                orders=len(book.worth),
                state=_state(record),
                claim="" if claim is None else f"settles at block {claim.state.settles_at}",
            )
        )
    return tuple(sorted(found, key=lambda one: -one.unpaid_units - one.payable_units))


def _state(record: TabRecord) -> str:
    if not record.known:
        return "closed"
    return f"closes at block {record.closes_at}" if record.closes_at else OPEN


def earnings(books: NodeBooks, ledger: NodeLedger, now: float, policy: EarningPolicy) -> dict[str, Any]:
    """All of it as JSON; amounts as text in asset units."""
    week = books.done_since(now - WEEK)
    today = [leaf for leaf in week if leaf.done_at >= now - DAY]
    views = tabs_view(books, ledger)
    told = {"operator": ledger.me, "block": ledger.block}
    for name, leaves in (("today", today), ("week", week)):
        sums = earned(leaves, ledger)
        told[name] = {
            "earned_units": str(sums.amount),
            "answers": sums.answers,
            "checks": sums.checks,
            "tokens": sums.tokens,
            "per_1000_tokens_units": sums.per_thousand,
        }
    told["unpaid_units"] = str(sum(view.unpaid_units for view in views))
    told["forfeited_units"] = str(sum(view.forfeited_units for view in views))
    told["payable_units"] = str(sum(view.payable_units for view in views))
    told["credit_units"] = str(ledger.state.pot(PotKind.CREDIT, ledger.me))
    told["why"] = unpaid_too_long(books, ledger, policy) if today else why_no_work(books, ledger, policy)
    return told


def unpaid_too_long(books: NodeBooks, ledger: NodeLedger, policy: EarningPolicy) -> list[str]:
    """Schedulers for which no more is worked until they pay: with one order more, too much would be unpaid."""
    party = ledger.state.parties.get(ledger.me)
    known = None if party is None else ledger.state.classes.get(party.execution_class)
    if known is None:
        return []
    limit, found = policy.limit(known.fee_cap), []
    for one in tabs_view(books, ledger):
        lost = books.lost(Hash32(bytes.fromhex(one.tab[2:])))
        if one.unpaid_units + lost + known.fee_cap > limit:
            found.append(_refused(one, lost, limit))
    return found


def _refused(tab: TabView, lost: int, limit: int) -> str:
    bound = f"[earning] unpaid allows {limit}: orders of its may be refused"
    unpaid = f"{tab.scheduler} has {tab.unpaid_units} units of work unpaid"
    if not lost:
        return f"{unpaid}, and {bound} until it pays, which a claim makes it do (`troth node claim`)"
    told = f"and never asked for the result of work worth {tab.forfeited_units} units, of which {lost} count as unpaid"
    return f"{unpaid}, {told}; {bound} until it pays for more, or that is five weeks old"


def why_no_work(books: NodeBooks, ledger: NodeLedger, policy: EarningPolicy) -> list[str]:
    """What keeps work from coming, in words; the likely causes first."""
    state, me = ledger.state, ledger.me
    party = state.parties.get(me)
    if party is None or party.role is not Role.NODE:
        return [f"operator {me} is not registered as a node: run `troth node register`"]
    if party.exit_block:
        return [f"this node is leaving; its stake is bound until block {party.exit_block}"]
    found = _seats(state, me, ledger.block)
    views = tabs_view(books, ledger)
    found += unpaid_too_long(books, ledger, policy)
    if not any(view.is_open and view.balance_units for view in views):
        found.append("no scheduler has an open tab with this node: work comes once one does")
    if not found:
        found.append("nothing is wrong on chain: orders are drawn by seats, or other nodes ask less (`troth node ask`)")
    return found


def _why_in_no_group(state: State, me: Address) -> str:
    penalty = class_of(state, state.parties[me].execution_class)[0].penalty
    left = state.pot(PotKind.STAKE, me) + state.pot(PotKind.LOCKED, me)
    if left < penalty:
        return f"its stake of {left} is below the penalty of {penalty} and takes no more: register another operator key"
    return "in no group: the stake covers no seat any more; run `troth node top-up`"


def _seats(state: State, me: Address, block: int) -> list[str]:
    groups, parameters = state.groups_of(me), parameters_of(state)
    suspension = state.suspensions.get(me)
    if suspension is not None and not suspension.restored:
        return [f"suspended since block {suspension.block} by case 0x{suspension.case_id.hex()}"]
    if not groups:
        return [_why_in_no_group(state, me)]
    found = []
    for group in groups:
        members = state.members_at(group, block)
        own = next((entry for entry in members if entry.operator == me), None)
        if own is None or not own.seats:
            found.append("no seats: the stake covers none; run `troth node top-up`")
        elif not seasoned_seats(own, block, parameters.seasoning):
            left = own.since + parameters.seasoning - block
            found.append(f"no seasoned seats for checks and reviews yet: {left} blocks to go")
        asks = sorted(state.ask_at(group, entry.operator, block).written for entry in members)
        mine = state.ask_at(group, me, block).written
        lower = sum(one < mine for one in asks)
        if 2 * lower > len(asks):
            found.append(f"{lower} of {len(asks)} nodes of a group ask less for written tokens than {mine}")
    return found
