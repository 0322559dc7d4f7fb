"""Which unacknowledged leaves can be claimed together, and which call a claim under way needs next. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from troth.node.earning.books import Books, Ledger
from troth.node.earning.claims_record import Filed
from troth.node.earning.leaf import Leaf
from troth.node.earning.policy import EarningPolicy
from troth.protocol.market import claims, leaves
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.claims import SumTree, claim_of
from troth.protocol.market.leaves import kind_of
from troth.protocol.market.messages import Signed
from troth.protocol.market.parts import Part
from troth.protocol.market.state import ClaimRecord, TabRecord
from troth.protocol.market.tabs import WINDOW
from troth.protocol.market.types import Claim, Contracts, LeafKind, Parameters, Tab, Voucher
from troth.protocol.types import Hash32

SAFETY = 2
"""Blocks before a deadline in which nothing is begun any more: a transaction needs to be included."""


def together(amounts: Mapping[int, int], voucher: Voucher) -> dict[int, int]:
    """The oldest numbers that one claim can hold under a voucher.

    Only the first 256 numbers of a range can be left out; and what is acknowledged inside of it is left out, too. What
    lies beyond, or above what is authorised, is claimed later.
    """
    chosen: dict[int, int] = {}
    room, before = voucher.authorised - voucher.spent, 0
    for number in sorted(amounts):
        first = min(chosen, default=number)
        is_far = number - first >= WINDOW and number != before + 1
        if number > voucher.sequence or amounts[number] > room or (chosen and is_far):
            break
        chosen[number], room, before = amounts[number], room - amounts[number], number
    return chosen


@dataclass(frozen=True, slots=True)
class Due:
    """What is known when a tab's claim is thought about."""

    ledger: Ledger
    parameters: Parameters
    contracts: Contracts
    policy: EarningPolicy


def is_pressing(record: TabRecord, due: Due) -> bool:
    """Whether a claim must be filed now whatever it costs to wait: the tab closes, or its payer leaves."""
    payer = due.ledger.state.parties.get(record.tab.payer)
    return bool(record.closes_at) or payer is None or bool(payer.exit_block)


def claimed(books: Books, tab: Hash32, record: TabRecord, due: Due) -> dict[int, int]:
    """The numbers that are due to be claimed on a tab now; nothing while a claim is under way or the tab is closed."""
    signed = books.voucher(tab)
    if signed is None or record.claim is not None or not record.known:
        return {}
    if record.closes_at and due.ledger.block + SAFETY >= record.closes_at:
        return {}
    amounts = books.claimable(tab, due.ledger)
    if not is_pressing(record, due):
        oldest = due.ledger.block - due.policy.claim_lags * due.parameters.lag
        late = {leaf.number for leaf in books.open_leaves(tab) if leaf.done_block <= oldest}
        if not late & amounts.keys():
            return {}
    return together(amounts, signed.message)


def claim_call(tab: Tab, signed: Signed[Voucher], amounts: Mapping[int, int], contracts: Contracts) -> _Claiming:
    """The call that files a claim, with its tree."""
    made, tree = claim_of(signed.message, amounts)
    call = build(contracts, Part.BANK, "claim", tab, signed.message, signed.signature, made)
    return _Claiming(call, made, tree)


@dataclass(frozen=True, slots=True)
class _Claiming:
    call: PartCall
    claim: Claim
    tree: SumTree


def answer_call(
    record: TabRecord, under_way: ClaimRecord, number: int, filed: Filed, books: Books, contracts: Contracts
) -> PartCall:
    """The answer to an objection: the path, and the leaf where there is one."""
    claim = under_way.state.claim
    path = filed.tree(claim).path(number)
    amount = filed.amounts.get(number, 0)
    kind, data = LeafKind.PROMISE, b""
    if amount:
        shown = _leaf(books, filed.tab, number).shown()
        kind, data = kind_of(shown), leaves.encode(shown)
    claims.verify_path(claim, number, amount, path)
    words = (number, kind, amount, list(path.siblings), list(path.sums), data)
    return build(contracts, Part.BANK, "answer", record.tab, under_way.state, *words)


def _leaf(books: Books, tab: Hash32, number: int) -> Leaf:
    found = books.numbered(tab, number)
    assert found is not None  # a claimed leaf is never forgotten while its claim is under way
    return found


def settle_call(record: TabRecord, under_way: ClaimRecord, contracts: Contracts) -> PartCall:
    """The call that pays a claim that stood."""
    return build(contracts, Part.BANK, "settle", record.tab, under_way.state)


def is_settled(record: TabRecord, filed: Filed, voucher: Voucher | None) -> bool:
    """Whether a claim that is gone was paid: what it showed counts as redeemed, or as short."""
    spent = 0 if voucher is None else voucher.spent
    return max(record.redeemed, record.shown) >= min(sum(filed.amounts.values()) + spent, record.shown or 1 << 96)
