"""A receipt: one file that proves offline what was ordered, who served it, what it cost and whether it was checked.

It holds class and model (whose hashes the order names), the order with its signature, the scheduler's words and
proofs, the nodes' results, the secrets that were shown, and the check. It holds no token of prompt or answer and no
salt, so whoever gets it learns counts and prices alone. The form is canonical JSON: sorted keys, no spaces, numbers
as decimal strings, bytes as 0x and lower-case digits; bytes that are not their own canonical form are refused.

What needs the chain is said, not assumed: that the VRF key is the scheduler's, that parties were drawn (pass the
groups of the order's block), and that deposits stood behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from troth.protocol import typed_data, vrf
from troth.protocol.errors import InvalidField
from troth.protocol.market import canonical, checks, lottery, messages, prices
from troth.protocol.market.checks import OrderView
from troth.protocol.market.draws import DrawnSeats, GroupHistory
from troth.protocol.market.errors import InvalidReceipt
from troth.protocol.market.messages import Signed, market_domain
from troth.protocol.market.prices import rules_of
from troth.protocol.market.signed import Admission, Draw, Opinion, Order, Result, TraceCommitment, Verdict
from troth.protocol.market.types import ExecutionClass, Tab
from troth.protocol.types import Address, Hash32, ModelDescriptor

VERSION = 1
"""Another value is another form, and an old program refuses it instead of misreading."""
SIZE_LIMIT = 1 << 20
"""Bytes of a receipt; one of 32 segments with 7 verifiers has 300 kB."""


@dataclass(frozen=True, slots=True)
class CheckedSegment:
    """The check of one segment: drawn operators, one per seat, and what each distinct one signed, in that order.

    ``silent``: nodes that a summons proved silent, so that others were drawn.
    """

    drawn: tuple[Address, ...]
    commitments: tuple[Signed[TraceCommitment], ...]
    verdicts: tuple[Signed[Verdict], ...]
    silent: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class Receipt:
    """All that is shown of one order. ``secret`` None: never revealed; ``checks`` empty: not checked."""

    version: int
    chain_id: int
    bank: Address
    model: ModelDescriptor
    execution_class: ExecutionClass
    tab: Tab
    vrf_x: int
    vrf_y: int
    order: Signed[Order]
    admission: Signed[Admission]
    nodes: tuple[Address, ...]
    infer_proof: bytes
    results: tuple[Signed[Result], ...]
    draw: Signed[Draw]
    draw_proof: bytes
    secret: Hash32 | None = None
    checks: tuple[CheckedSegment, ...] = ()


@dataclass(frozen=True, slots=True)
class Proven:
    """What a receipt proves: the fee, whether the answer was drawn, what the check of each segment says.

    ``unproven`` names what only the chain can say.
    """

    fee: int
    drawn: bool
    opinions: tuple[Opinion, ...]
    unproven: tuple[str, ...]

    @property
    def checked(self) -> bool:
        """Whether every segment was accepted by a majority of its seats."""
        return bool(self.opinions) and all(opinion is Opinion.ACCEPT for opinion in self.opinions)


def verify(receipt: Receipt, groups: Sequence[GroupHistory] = (), seasoning: int = 0) -> Proven:
    """What a receipt proves; raises InvalidReceipt, or the error of the rule that it breaks.

    (1) Class and model are those that the order names. (2) The tab key signed the order, the scheduler its words,
    each node its result; results meet. (3) The scheduler's proofs hold under its VRF key, and beta is that of the
    lottery. (4) The secret is the order's, and hits. (5) Verdicts are over these results, by the operators named. (6)
    With ``groups``: nodes and verifiers are those that the proofs draw.
    """
    view = _view(receipt, groups, seasoning)
    order = _require_order(receipt, view)
    results = checks.require_results(order, receipt.results, receipt.nodes, view)
    _require_proof(view, messages.infer_alpha(messages.order_id(order, view.domain)), receipt.infer_proof)
    if groups:
        checks.require_admission(order, receipt.admission, receipt.nodes, receipt.infer_proof, view)
    seen = receipt.draw.message.block_number
    beta = checks.require_draw(order, receipt.draw, results, receipt.draw_proof, seen_at=seen, view=view)
    drawn = receipt.secret is not None and lottery.is_drawn(order, receipt.secret, beta)
    opinions = _opinions(receipt, order, results, beta, view) if drawn and receipt.checks else ()
    fee = prices.fee(order, view.rules, len(results), results[-1])
    unproven = ["the VRF key is the scheduler's", "the tab's deposits covered it"]
    if opinions and any(check.silent for check in receipt.checks):
        unproven.append("a summons proved nodes silent")
    return Proven(fee, drawn, opinions, tuple(unproven if groups else [*unproven, "nodes and verifiers were drawn"]))


def _view(receipt: Receipt, groups: Sequence[GroupHistory], seasoning: int) -> OrderView:
    if receipt.version != VERSION:
        raise InvalidReceipt(f"Only version {VERSION} is known", receipt.version, "Verify it with a newer program.")
    model, execution_class = messages.state_hash(receipt.model), messages.state_hash(receipt.execution_class)
    if receipt.execution_class.model != model:
        raise InvalidReceipt("The class is of another model", model, "Ask for a receipt of this order.")
    hidden_size, layers = receipt.model.hidden_size, receipt.model.layers
    return OrderView(
        domain=market_domain(receipt.chain_id, receipt.bank),
        seasoning=seasoning,
        lag=0,
        reference_age=0,
        execution_class=execution_class,
        rules=rules_of(receipt.execution_class, hidden_size=hidden_size, layers=layers),
        vrf_key=(receipt.vrf_x, receipt.vrf_y),
        tab=receipt.tab,
        groups=tuple(groups),
        block=receipt.admission.message.block_number,
        time=0,
    )


def _require_order(receipt: Receipt, view: OrderView) -> Order:
    order, digest = receipt.order.message, messages.order_id(receipt.order.message, view.domain)
    if order.execution_class != view.execution_class or order.tab != messages.tab_id(view.tab):
        raise InvalidReceipt("The order is for another class or tab", order.tab, "Ask for a receipt of this order.")
    if not view.key_check(view.tab.key, digest, receipt.order.signature):
        raise InvalidReceipt(
            "The tab key did not sign the order", receipt.order.signature, "Ask for the whole receipt."
        )
    admitted = receipt.admission.require(view.domain, view.tab.payee)
    if admitted.order != digest or admitted.nodes != messages.nodes_hash(receipt.nodes):
        raise InvalidReceipt("The admission is of other nodes", receipt.nodes, "Ask for the admission of this order.")
    return order


def _require_proof(view: OrderView, alpha: Hash32, proof: bytes) -> Hash32:
    return Hash32(vrf.verify(view.vrf_key, alpha, proof))


def _opinions(
    receipt: Receipt, order: Order, results: Sequence[Result], beta: Hash32, view: OrderView
) -> tuple[Opinion, ...]:
    if receipt.secret is None or len(receipt.checks) != len(results):
        raise InvalidReceipt(
            "Each segment of a checked answer has a check", len(receipt.checks), "Add what is missing."
        )
    named = tuple(DrawnSeats(check.drawn, b"") for check in receipt.checks)
    if view.groups:
        silent = {segment: check.silent for segment, check in enumerate(receipt.checks)}
        expected = checks.verifiers(order, results, receipt.secret, beta, nodes=receipt.nodes, view=view, silent=silent)
        if [one.operators for one in expected] != [one.operators for one in named]:
            raise InvalidReceipt("Other verifiers were drawn", named, "Leave who made this receipt.")
    return tuple(
        _opinion(check, drawn, result, view)
        for check, drawn, result in zip(receipt.checks, named, results, strict=True)
    )


def _opinion(check: CheckedSegment, drawn: DrawnSeats, result: Result, view: OrderView) -> Opinion:
    if len(drawn.operators) != view.rules.verifiers:
        what = f"{view.rules.verifiers} seats check a segment of this class"
        raise InvalidReceipt(what, len(drawn.operators), "Name every seat that was drawn.")
    verdicts = {typed_data.recover(one.message, view.domain, one.signature): one for one in check.verdicts}
    commitments = {typed_data.recover(one.message, view.domain, one.signature): one for one in check.commitments}
    return checks.majority(drawn, checks.require_verdicts(result, verdicts, commitments, drawn, view))


# --------------------------------------------------------------------------------------------------- canonical JSON


def encode(receipt: Receipt) -> bytes:
    """The canonical bytes of a receipt; equal receipts have equal bytes."""
    return canonical.encode(receipt)


def decode(data: bytes) -> Receipt:
    """Inverse of ``encode``; raises InvalidReceipt unless ``data`` is exactly what it returns for some receipt."""
    try:
        return canonical.decode(Receipt, data, SIZE_LIMIT)
    except InvalidField as error:
        raise InvalidReceipt(error.what, error.value, "Use the file as it was written.") from error
