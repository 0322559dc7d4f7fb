"""What signatures prove by themselves: each of these takes L from somebody in one transaction, without a committee.

Whoever holds the evidence acts alone. A conviction pays first who is owed, then gas and a tenth of what was taken to
the caller, and burns the rest. A subject convicts once, so the same fault is never paid for twice.

===================  ===================================================================  ========================
fault                two words of one party, or one word that its own proof contradicts   convict
===================  ===================================================================  ========================
TWO_RESULTS          two results for one segment of one order                             node
TWO_ROWS             two rows for one position                                            node
TWO_VERDICTS         two verdicts over one result, of other opinions or traces            verifier
TWO_VERDICTS         a verdict over another trace than it had committed to                verifier
TWO_ADMISSIONS       one order, other nodes                                               scheduler
TWO_DRAWS            one order, other results or output                                   scheduler
WRONG_NODES          an admission of a node that the VRF did not draw                     scheduler
WRONG_BETA           a draw with another output than the VRF's                            scheduler
HEADS_APART          a draw over results that do not meet, or read another request        scheduler
PROMISE_BROKEN       a settled claim that its tab did not cover                           scheduler that pays the tab
===================  ===================================================================  ========================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from troth.protocol import typed_data, vrf
from troth.protocol.errors import InvalidProof
from troth.protocol.market import checks, messages
from troth.protocol.market.checks import OrderView
from troth.protocol.market.economy import REWARD_SHARE
from troth.protocol.market.errors import InvalidAdmission, InvalidResults, NotEvidence
from troth.protocol.market.messages import Signed
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.signed import Admission, Draw, Order, Result, Row, TraceCommitment, Verdict
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32


@dataclass(frozen=True, slots=True)
class Conviction:
    """Who is convicted of what; ``order`` is the digest of the order, from whose block on leaves are void."""

    fault: Fault
    convict: Address
    order: Hash32


def two_results(one: Signed[Result], other: Signed[Result], domain: Domain) -> Conviction:
    """Two results of one node for one segment of an order: it tells each reader what that one wants to hear."""
    _require_same(one.message, other.message, ("order", "segment"))
    _require_differing(one.message, other.message, ())
    return Conviction(Fault.TWO_RESULTS, _one_signer(one, other, domain), one.message.order)


def two_rows(one: Signed[Row], other: Signed[Row], domain: Domain) -> Conviction:
    """Two rows of one node for one position: other rows for the verifiers than for the client."""
    _require_same(one.message, other.message, ("order", "segment", "position"))
    _require_differing(one.message, other.message, ())
    return Conviction(Fault.TWO_ROWS, _one_signer(one, other, domain), one.message.order)


def two_verdicts(one: Signed[Verdict], other: Signed[Verdict], domain: Domain) -> Conviction:
    """Two verdicts over one result that differ in opinion or commitment.

    A verifier that adds its lock later says nothing else. The result must be the same: whoever is shown two results of
    a dishonest node judges each, honestly.
    """
    _require_same(one.message, other.message, ("order", "segment", "result"))
    _require_differing(one.message, other.message, ("opinion", "commitment"))
    return Conviction(Fault.TWO_VERDICTS, _one_signer(one, other, domain), one.message.order)


def other_commitment(before: Signed[TraceCommitment], verdict: Signed[Verdict], domain: Domain) -> Conviction:
    """A verdict over another trace than the one that its verifier had committed to before it saw the node's rows.

    Both name the same result: whoever is shown two results of a dishonest node commits for each. It is the offence of
    two verdicts, so that one place convicts once, by either.
    """
    _require_same(before.message, verdict.message, ("order", "segment", "result"))
    _require_differing(before.message, verdict.message, ("commitment",))
    return Conviction(Fault.TWO_VERDICTS, _one_signer(before, verdict, domain), before.message.order)


def two_admissions(order: Order, one: Signed[Admission], other: Signed[Admission], view: OrderView) -> Conviction:
    """Two admissions of one order with other nodes: parties are not shopped for."""
    _require_order(order, one.message.order, other.message.order, view)
    _require_differing(one.message, other.message, ("nodes",))
    return _of_scheduler(Fault.TWO_ADMISSIONS, (one, other), view)


def two_draws(order: Order, one: Signed[Draw], other: Signed[Draw], view: OrderView) -> Conviction:
    """Two draws over one order that differ in results or output; a newer block alone is no fault."""
    _require_order(order, one.message.order, other.message.order, view)
    _require_differing(one.message, other.message, ("results", "beta"))
    return _of_scheduler(Fault.TWO_DRAWS, (one, other), view)


def wrong_nodes(
    order: Order, admission: Signed[Admission], nodes: Sequence[Address], *, segment: int, proof: bytes, view: OrderView
) -> Conviction:
    """An admission that names a node for ``segment`` which the scheduler's own proof did not draw."""
    _require_order(order, admission.message.order, admission.message.order, view)
    if messages.nodes_hash(nodes) != admission.message.nodes:
        raise NotEvidence("The admission names other nodes", nodes, "Pass the nodes that were admitted.")
    try:
        drawn = checks.candidates(order, proof, view)[segment]
    except InvalidAdmission as error:
        raise NotEvidence(error.what, error.value, "Pass the scheduler's proof over this order.") from error
    if nodes[segment] in drawn:
        raise NotEvidence("This node was drawn", nodes[segment], "Name the segment whose node was not.")
    return _of_scheduler(Fault.WRONG_NODES, (admission,), view)


def wrong_beta(order: Order, draw: Signed[Draw], proof: bytes, view: OrderView) -> Conviction:
    """A draw with another output than that of the scheduler's VRF over the order: a lottery of its own choice."""
    _require_order(order, draw.message.order, draw.message.order, view)
    try:
        beta = vrf.verify(view.vrf_key, messages.draw_alpha(draw.message.order), proof)
    except InvalidProof as error:
        raise NotEvidence(error.what, error.value, "Pass the scheduler's proof over this order.") from error
    if beta == draw.message.beta:
        raise NotEvidence("The output is that of the proof", beta, "There is nothing wrong with it.")
    return _of_scheduler(Fault.WRONG_BETA, (draw,), view)


def heads_apart(order: Order, draw: Signed[Draw], results: Sequence[Result], view: OrderView) -> Conviction:
    """A draw over results that do not meet, or that read another request.

    The scheduler gave a node other rows than the one before had made, or the first other tokens than the client's.
    """
    _require_order(order, draw.message.order, draw.message.order, view)
    if messages.results_hash(results) != draw.message.results:
        raise NotEvidence("The draw is over other results", draw.message.results, "Pass the results that it names.")
    if _meet(results, draw.message.order, order):
        raise NotEvidence("These results meet", len(results), "There is nothing wrong with them.")
    return _of_scheduler(Fault.HEADS_APART, (draw,), view)


def _meet(results: Sequence[Result], digest: Hash32, order: Order) -> bool:
    """Whether these are the results of an order's segments, in order; each read what the one before gave.

    The first read the request.
    """
    places = [(result.order, result.segment) for result in results]
    if places != [(digest, segment) for segment in range(messages.segment_count(order.ends))]:
        return False
    if results[0].input_head != order.request_hash:
        return False
    try:
        checks.require_meeting(results)
    except InvalidResults:
        return False
    return True


def void_from(conviction_block: int, lag: int, *, reference_age: int, reference_block: int | None = None) -> int:
    """The earliest reference block whose leaves a node's conviction by two words voids.

    The words do not tell how old they are: without their order it is the oldest that could have been served on
    (``reference_age``), less the lag. Anyone who shows an older order (Evidence.date) has it void from there on.
    """
    oldest = max(conviction_block - reference_age, 0)
    offence = oldest if reference_block is None else min(oldest, reference_block)
    return max(offence - lag, 0)


def fine(bonded: int, penalty: int) -> tuple[int, int]:
    """What a conviction takes of what an operator has at stake, and the reporter's reward: a share of what was taken.

    ``bonded``: stake and what is locked for cases; else a convict's friends saved it by sham cases. A share of what
    should have been taken would return all of it to who convicts itself with a stake that is nearly gone.
    """
    taken = min(bonded, penalty)
    return taken, taken // REWARD_SHARE


def broken_promise(bonded: int, short: int, scheduler_stake: int) -> tuple[int, int]:
    """What a scheduler pays the payee of a tab that did not cover a settled claim, and its fine beside that.

    ``bonded``: as in ``fine``. The payee gets what it has above the least that a scheduler must have: that part is for
    convictions, and a scheduler could claim it away to a friend before one. What is short beyond is fined, with a tenth
    on top, so that leaving a tab short never costs less than filling it.
    """
    paid = min(max(bonded - scheduler_stake, 0), short)
    return paid, min(short - paid + short // REWARD_SHARE, bonded - paid)


def _require_same(one: Any, other: Any, names: Sequence[str]) -> None:
    for name in names:
        if getattr(one, name) != getattr(other, name):
            what = f"The two differ in their {name}, so that both may be right"
            raise NotEvidence(what, (getattr(one, name), getattr(other, name)), "Find two words about one place.")


def _require_differing(one: Any, other: Any, names: Sequence[str]) -> None:
    differing = one != other if not names else any(getattr(one, name) != getattr(other, name) for name in names)
    if not differing:
        raise NotEvidence("Both say the same", type(one).__name__, "There is nothing wrong with saying it twice.")


def _one_signer(one: Signed[Any], other: Signed[Any], domain: Domain) -> Address:
    first, second = (typed_data.recover(signed.message, domain, signed.signature) for signed in (one, other))
    if first != second:
        raise NotEvidence("Two parties signed these", (first, second), "Find two words of one party.")
    return first


def _require_order(order: Order, one: Hash32, other: Hash32, view: OrderView) -> None:
    digest = messages.order_id(order, view.domain)
    if not one == other == digest or order.tab != messages.tab_id(view.tab):
        raise NotEvidence("The words are not about this order of this tab", (one, other), "Pass the order they name.")


def _of_scheduler(fault: Fault, signed: Sequence[Signed[Any]], view: OrderView) -> Conviction:
    for one in signed:
        signer = typed_data.recover(one.message, view.domain, one.signature)
        if signer != view.tab.payee:
            raise NotEvidence("The scheduler of this tab did not sign it", signer, "Find a word of the scheduler.")
    return Conviction(fault, view.tab.payee, signed[0].message.order)
