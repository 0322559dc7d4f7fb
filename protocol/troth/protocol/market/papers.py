"""What a scheduler shows a node before it works: everything that lets the node check for itself that it was drawn, that
it is paid, and for what.

Papers travel as canonical JSON (``canonical``) in front of a message's payload. Whoever reads the text of an order,
the parties of its first and last segment, gets the request and its salt beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from troth.protocol.hashing import keccak256
from troth.protocol.market import checks, lottery, messages
from troth.protocol.market.checks import NOBODY, OrderView
from troth.protocol.market.draws import DrawnSeats
from troth.protocol.market.errors import InvalidCheck
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Admission, Draw, Order, Promise, Result, TraceCommitment, Verdict
from troth.protocol.market.types import Tab, Voucher
from troth.protocol.types import Address, Hash32, address_to_bytes, to_hash32

PAPERS_LIMIT = 1 << 18
"""Bytes of papers; those of a check of 32 segments have 60 kB."""
TRACE_SALT_TAG = keccak256(b"troth/market/trace-salt/1")


def trace_salt(order: Hash32, segment: int, node: Address, head_salt: Hash32) -> Hash32:
    """The salt of an inferencer's trace commitment: as secret as the heads' salt, and known to who was given the rows.

    So a verifier sees before its verdict that the node committed to the very rows that it was shown, and can show the
    node's trace where its own pay is objected to.
    """
    place = to_hash32(order) + segment.to_bytes(1) + address_to_bytes(node)
    return Hash32(keccak256(TRACE_SALT_TAG + place + to_hash32(head_salt)))


@dataclass(frozen=True, slots=True)
class Pay:
    """How a node is paid for one piece of work: the promise, on the tab of scheduler and node, and the scheduler's
    newest voucher there, which authorises it."""

    tab: Tab
    promise: Signed[Promise]
    voucher: Signed[Voucher]


@dataclass(frozen=True, slots=True)
class InferencePapers:
    """For who infers a segment. ``tab`` is the client's; ``head_salt`` salts the heads of this order's results.

    In a pipeline of a veiled class ``nodes`` name the receiver alone, and NO_ADDRESS for every other segment.

    ``salt`` is the request's, None where the node is not shown the request.
    """

    order: Signed[Order]
    tab: Tab
    admission: Signed[Admission]
    nodes: tuple[Address, ...]
    infer_proof: bytes
    pay: Pay
    head_salt: Hash32
    salt: Hash32 | None = None


@dataclass(frozen=True, slots=True)
class CheckPapers:
    """For who was drawn to check a segment: the order as it was served, the draw, and the client's first secret.

    ``pay`` is None for an inferencer, which opens its trace and is paid for its inference alone.
    """

    order: Signed[Order]
    tab: Tab
    admission: Signed[Admission]
    nodes: tuple[Address, ...]
    infer_proof: bytes
    results: tuple[Signed[Result], ...]
    draw: Signed[Draw]
    draw_proof: bytes
    secret: Hash32
    pay: Pay | None
    head_salt: Hash32
    salt: Hash32 | None = None


@dataclass(frozen=True, slots=True)
class Commitments:
    """What a party sees before it opens: the client's second secret, and what every drawn verifier of the segment
    committed to, in the order of their first seats. ``check`` is None for a verifier, which has seen it already."""

    second_secret: Hash32
    commitments: tuple[Signed[TraceCommitment], ...]
    check: CheckPapers | None = None


@dataclass(frozen=True, slots=True)
class CourtText:
    """The text of an order that goes to court, for verifiers of its inner segments, who were not shown it.

    ``answer``: tokens as uint32 words.
    """

    request: bytes
    salt: Hash32
    answer: bytes


@dataclass(frozen=True, slots=True)
class Spoken:
    """What the verifiers of one segment signed. ``text`` only where a majority of seats rejects: the court's reviewers
    are shown it anyway."""

    commitments: tuple[Signed[TraceCommitment], ...]
    verdicts: tuple[Signed[Verdict], ...]
    text: CourtText | None = None


def drawn_seats(
    papers: CheckPapers, view: OrderView, silent: Mapping[int, Sequence[Address]] = NOBODY
) -> tuple[tuple[Result, ...], tuple[DrawnSeats, ...]]:
    """The results that check papers show, and the seats that were drawn over them; raises a MarketError or
    InvalidSignature unless everything up to that draw holds.

    That the order was valid when it was admitted is `life.validate_order`'s to say.
    """
    order = papers.order.message
    digest = messages.order_id(order, view.domain)
    if (order.tab, order.execution_class) != (messages.tab_id(view.tab), view.execution_class):
        raise InvalidCheck("The order is on another tab, or of another class", order.tab, "Show this order's papers.")
    if not view.key_check(view.tab.key, digest, papers.order.signature):
        raise InvalidCheck("The tab key did not sign the order", papers.order.signature, "Show the order as signed.")
    checks.require_admission(order, papers.admission, papers.nodes, papers.infer_proof, view)
    results = checks.require_results(order, papers.results, papers.nodes, view)
    seen = papers.draw.message.block_number
    beta = checks.require_draw(order, papers.draw, results, papers.draw_proof, seen_at=seen, view=view)
    if not lottery.is_drawn(order, papers.secret, beta):
        raise InvalidCheck("The client's secret does not hit", order.check_rate, "This answer is not checked.")
    return results, checks.verifiers(order, results, papers.secret, beta, nodes=papers.nodes, view=view, silent=silent)
