"""Which unacknowledged leaves can be claimed together, and which call a claim under way needs next. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from troth.node.earning.books import NodeBooks, NodeLedger
from troth.node.earning.claims_record import Filed
from troth.node.earning.leaf import Leaf
from troth.node.earning.policy import EarningPolicy
from troth.protocol.market import claims, leaves
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.claims import LeafPath, claim_of
from troth.protocol.market.leaves import kind_of
from troth.protocol.market.messages import Signed
from troth.protocol.market.parts import Part
from troth.protocol.market.state import ClaimRecord, TabRecord
from troth.protocol.market.types import Claim, Contracts, LeafKind, Parameters, Voucher
from troth.protocol.types import Hash32

SAFETY = 2
"""Blocks before a deadline in which nothing is begun any more: a transaction needs to be included."""


@dataclass(frozen=True, slots=True)
class ClaimContext:
    """What is known when a tab's claim is thought about."""

    ledger: NodeLedger
    parameters: Parameters
    contracts: Contracts
    policy: EarningPolicy


@dataclass(frozen=True, slots=True)
class Claiming:
    """A claim to be filed, and what it brings above what redeeming would."""

    call: PartCall
    filed: Filed
    gain: int


def is_pressing(record: TabRecord, ledger: NodeLedger) -> bool:
    """Whether waiting may lose the money: the tab closes, or its payer leaves."""
    payer = ledger.state.parties.get(record.tab.payer)
    return bool(record.closes_at) or payer is None or bool(payer.exit_block)


def claim_due(books: NodeBooks, tab: Hash32, record: TabRecord, due: ClaimContext) -> Claiming | None:
    """The claim that a tab needs now: work was not acknowledged for too long, or cannot wait any longer.

    None while one is under way, and once the tab is closed or about to be.
    """
    signed, ledger = books.voucher(tab), due.ledger
    is_over = not record.known or (record.closes_at and ledger.block + SAFETY >= record.closes_at)
    if signed is None or record.claim is not None or is_over:
        return None
    amounts = books.claimable(tab, ledger)
    oldest = ledger.block - due.policy.claim_lags * due.parameters.lag
    late = {leaf.number for leaf in books.open_leaves(tab) if leaf.done_block <= oldest}
    if not is_pressing(record, ledger) and not late & amounts.keys():
        return None
    return claim_of_all(tab, record, signed, amounts, due)


def claim_of_all(
    tab: Hash32, record: TabRecord, signed: Signed[Voucher], amounts: Mapping[int, int], due: ClaimContext
) -> Claiming | None:
    """The claim of what can be claimed together; None where it would bring nothing.

    Owed is the largest sum that was ever shown: numbers that an earlier claim showed are shown again, and only what is
    above what was redeemed is gained.
    """
    chosen = claims.together(amounts, signed.message)
    if not chosen:
        return None
    made, _ = claim_of(signed.message, chosen)
    owed = claims.owed(signed.message, made)
    balance = due.ledger.state.tab_state(tab).balance
    gain = min(owed - max(record.redeemed, signed.message.spent), balance)
    call = build(due.contracts, Part.BANK, "claim", record.tab, signed.message, signed.signature, made)
    return Claiming(call, Filed(tab, made.root, chosen, (), owed), gain) if gain > 0 else None


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """What is shown for one place of a claim's tree: its path, and the leaf where there is one."""

    number: int
    amount: int
    path: LeafPath
    kind: LeafKind
    data: bytes


def answer_to(claim: Claim, filed: Filed, number: int, leaf: Leaf | None) -> ClaimAnswer:
    """The answer to an objection; an empty place has its path alone. Raises InvalidClaim outside of the tree."""
    path, amount = filed.tree(claim).path(number), filed.amounts.get(number, 0)
    claims.verify_path(claim, number, amount, path)
    if not amount or leaf is None:
        return ClaimAnswer(number, amount, path, LeafKind.PROMISE, b"")
    shown = leaf.shown()
    return ClaimAnswer(number, amount, path, kind_of(shown), leaves.encode(shown))


def answer_call(record: TabRecord, under_way: ClaimRecord, answer: ClaimAnswer, contracts: Contracts) -> PartCall:
    """The call that shows it."""
    path = answer.path
    words = (answer.number, answer.kind, answer.amount, list(path.siblings), list(path.sums), answer.data)
    return build(contracts, Part.BANK, "answer", record.tab, under_way.state, *words)


def settle_call(record: TabRecord, under_way: ClaimRecord, contracts: Contracts) -> PartCall:
    """The call that pays a claim that stood."""
    return build(contracts, Part.BANK, "settle", record.tab, under_way.state)


def was_struck(record: TabRecord, filed: Filed) -> bool:
    """Whether a claim that is gone fell: a settled one's sum is redeemed, or shown and short."""
    return max(record.redeemed, record.shown) < filed.owed
