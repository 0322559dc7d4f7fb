"""What signatures prove by themselves, and what they do not: nobody honest is convicted by these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.market_scene import BLOCK, DOMAIN, SCHEDULER_KEY, TAB_KEY, Scene, hash_of, key_of, owner_of
from support.movements import fine_movements

from troth.protocol.market import checks, convictions, messages
from troth.protocol.market.convictions import Conviction
from troth.protocol.market.court_money import BURNT, apply_movements, pot_of
from troth.protocol.market.errors import NotEvidence
from troth.protocol.market.messages import Signed, sign
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.signed import Admission, Draw, Opinion, Row
from troth.protocol.market.types import PotKind
from troth.protocol.types import ZERO_HASH

SCENE = Scene(parts=(6, 12))
VIEW, ORDER, ID = SCENE.view, SCENE.order, SCENE.order_id
JOURNEY = SCENE.checked()
assert JOURNEY.results
assert JOURNEY.checks
assert JOURNEY.draw
RESULTS = [signed.message for signed in JOURNEY.results]
NODE = JOURNEY.nodes[0]
SCHEDULER = VIEW.tab.payee


def _again(signed: Signed[Any], key: bytes, **changes: Any) -> Signed[Any]:
    return sign(replace(signed.message, **changes), DOMAIN, key)


def test_two_results_convict_their_node() -> None:
    first = JOURNEY.results[0] if JOURNEY.results else None
    assert first
    second = _again(first, key_of(NODE), written=13)
    assert convictions.two_results(first, second, DOMAIN) == Conviction(Fault.TWO_RESULTS, NODE, ID)
    for other, words in (
        (first, "same"),
        (_again(first, TAB_KEY, written=13), "Two parties"),
        (_again(first, key_of(NODE), written=13, segment=1), "segment"),
        (_again(first, key_of(NODE), written=13, order=hash_of("x")), "order"),
    ):
        with pytest.raises(NotEvidence, match=words):
            convictions.two_results(first, other, DOMAIN)


def test_two_rows_convict_their_node() -> None:
    row = sign(Row(ID, 0, 7, hash_of("row"), ZERO_HASH), DOMAIN, key_of(NODE))
    other = _again(row, key_of(NODE), row_hash=hash_of("other"))
    assert convictions.two_rows(row, other, DOMAIN) == Conviction(Fault.TWO_ROWS, NODE, ID)
    with pytest.raises(NotEvidence, match="position"):
        convictions.two_rows(row, _again(row, key_of(NODE), position=8), DOMAIN)


def test_two_verdicts_convict_a_verifier_only_over_one_result() -> None:
    assert JOURNEY.checks
    verifier, said = next(iter(JOURNEY.checks[0].verdicts.items()))
    key = key_of(verifier)
    for changes in ({"opinion": Opinion.REJECT}, {"commitment": hash_of("x")}):
        proven = convictions.two_verdicts(said, _again(said, key, **changes), DOMAIN)
        assert proven == Conviction(Fault.TWO_VERDICTS, verifier, ID)
    # Who adds its lock later says nothing else.
    with pytest.raises(NotEvidence, match="same"):
        convictions.two_verdicts(said, _again(said, key, locks=True), DOMAIN)
    # A dishonest node signs two results; its verifier judges both, as it must.
    with pytest.raises(NotEvidence, match="result"):
        convictions.two_verdicts(said, _again(said, key, opinion=Opinion.REJECT, result=hash_of("x")), DOMAIN)


def test_a_verdict_over_another_trace_than_was_committed_to_convicts_its_verifier() -> None:
    assert JOURNEY.checks
    check = JOURNEY.checks[0]
    verifier, said = next(iter(check.verdicts.items()))
    before, key = check.commitments[verifier], key_of(verifier)
    proven = convictions.other_commitment(before, _again(said, key, commitment=hash_of("x")), DOMAIN)
    assert proven == Conviction(Fault.TWO_VERDICTS, verifier, ID)
    for verdict, words in (
        (said, "same"),
        (_again(said, TAB_KEY, commitment=hash_of("x")), "Two parties"),
        (_again(said, key, commitment=hash_of("x"), segment=1), "segment"),
        (_again(said, key, commitment=hash_of("x"), order=hash_of("x")), "order"),
        # A dishonest scheduler shows another result after the commitment: its verifier judges that one, as it must.
        (_again(said, key, commitment=hash_of("x"), result=hash_of("x")), "result"),
    ):
        with pytest.raises(NotEvidence, match=words):
            convictions.other_commitment(before, verdict, DOMAIN)


def test_a_conviction_by_two_words_voids_from_its_order_on_once_that_is_shown() -> None:
    assert convictions.void_from(1_000, 50, reference_age=30) == 920
    assert convictions.void_from(1_000, 50, reference_age=30, reference_block=500) == 450
    # A younger order takes nothing back: the words could be older.
    assert convictions.void_from(1_000, 50, reference_age=30, reference_block=990) == 920
    assert convictions.void_from(60, 50, reference_age=30, reference_block=20) == 0


def test_two_words_of_a_scheduler_convict_it() -> None:
    assert JOURNEY.draw
    admitted = _again(JOURNEY.admission, SCHEDULER_KEY, nodes=hash_of("x"))
    proven = convictions.two_admissions(ORDER, JOURNEY.admission, admitted, VIEW)
    assert proven == Conviction(Fault.TWO_ADMISSIONS, SCHEDULER, ID)
    for changes in ({"results": hash_of("x")}, {"beta": hash_of("x")}):
        other = _again(JOURNEY.draw, SCHEDULER_KEY, **changes)
        assert convictions.two_draws(ORDER, JOURNEY.draw, other, VIEW).fault is Fault.TWO_DRAWS
    # A newer block says nothing new: the same words were signed again, for a client that came back.
    with pytest.raises(NotEvidence, match="same"):
        convictions.two_draws(ORDER, JOURNEY.draw, _again(JOURNEY.draw, SCHEDULER_KEY, block_number=BLOCK + 1), VIEW)
    newer = _again(JOURNEY.admission, SCHEDULER_KEY, block_number=BLOCK + 1)
    with pytest.raises(NotEvidence, match="same"):
        convictions.two_admissions(ORDER, JOURNEY.admission, newer, VIEW)


def test_words_of_others_or_over_other_orders_convict_nobody() -> None:
    assert JOURNEY.draw
    other = replace(ORDER, sequence=2)
    foreign = replace(VIEW, tab=replace(VIEW.tab, payer=NODE))
    changed = _again(JOURNEY.draw, SCHEDULER_KEY, beta=hash_of("x"))
    for order, view in ((other, VIEW), (ORDER, foreign)):
        with pytest.raises(NotEvidence, match="not about this order"):
            convictions.two_draws(order, JOURNEY.draw, changed, view)
    with pytest.raises(NotEvidence, match="did not sign"):
        convictions.two_draws(ORDER, JOURNEY.draw, _again(JOURNEY.draw, TAB_KEY, beta=hash_of("x")), VIEW)


def test_an_admission_of_a_node_that_was_not_drawn_convicts() -> None:
    drawn = checks.candidates(ORDER, JOURNEY.infer_proof, VIEW)[1]
    stranger = next(one for one in VIEW.groups[1].owners if one not in drawn)
    nodes = (JOURNEY.nodes[0], stranger)
    admission = sign(Admission(ID, messages.nodes_hash(nodes), BLOCK), DOMAIN, SCHEDULER_KEY)
    prove: Callable[..., Conviction] = convictions.wrong_nodes
    proof = JOURNEY.infer_proof
    assert prove(ORDER, admission, nodes, segment=1, proof=proof, view=VIEW).fault is Fault.WRONG_NODES
    with pytest.raises(NotEvidence, match="was drawn"):
        prove(ORDER, admission, nodes, segment=0, proof=proof, view=VIEW)
    with pytest.raises(NotEvidence, match="other nodes"):
        prove(ORDER, JOURNEY.admission, nodes, segment=1, proof=proof, view=VIEW)
    with pytest.raises(NotEvidence, match="does not hold"):
        prove(ORDER, admission, nodes, segment=1, proof=JOURNEY.draw_proof, view=VIEW)


def test_a_lottery_of_its_own_choice_convicts() -> None:
    assert JOURNEY.draw
    chosen = _again(JOURNEY.draw, SCHEDULER_KEY, beta=hash_of("x"))
    assert convictions.wrong_beta(ORDER, chosen, JOURNEY.draw_proof, VIEW).fault is Fault.WRONG_BETA
    with pytest.raises(NotEvidence, match="is that of the proof"):
        convictions.wrong_beta(ORDER, JOURNEY.draw, JOURNEY.draw_proof, VIEW)
    with pytest.raises(NotEvidence, match="does not hold"):
        convictions.wrong_beta(ORDER, chosen, JOURNEY.infer_proof, VIEW)


@pytest.mark.parametrize(
    "changes", [{"input_head": hash_of("x")}, {"written": 11}, {"prompt": 31}, {"segment": 0}, {"order": hash_of("x")}]
)
def test_a_draw_over_results_that_do_not_meet_convicts(changes: dict[str, Any]) -> None:
    results = (RESULTS[0], replace(RESULTS[1], **changes))
    draw = sign(Draw(ID, messages.results_hash(results), hash_of("beta"), BLOCK), DOMAIN, SCHEDULER_KEY)
    assert convictions.heads_apart(ORDER, draw, results, VIEW).fault is Fault.HEADS_APART
    assert JOURNEY.draw
    with pytest.raises(NotEvidence, match="other results"):
        convictions.heads_apart(ORDER, JOURNEY.draw, results, VIEW)
    with pytest.raises(NotEvidence, match="meet"):
        convictions.heads_apart(ORDER, JOURNEY.draw, RESULTS, VIEW)


def test_a_draw_over_results_of_another_request_convicts() -> None:
    results = (replace(RESULTS[0], input_head=hash_of("x")), RESULTS[1])
    draw = sign(Draw(ID, messages.results_hash(results), hash_of("beta"), BLOCK), DOMAIN, SCHEDULER_KEY)
    assert convictions.heads_apart(ORDER, draw, results, VIEW).fault is Fault.HEADS_APART


def test_each_node_may_have_a_cache_of_its_own() -> None:
    checks.require_meeting((RESULTS[0], replace(RESULTS[1], prompt=10, cached=20)))


def test_fines_are_shares_of_what_was_taken() -> None:
    assert convictions.fine(1_000_000, 400) == (400, 40)
    assert convictions.fine(100, 400) == (100, 10)
    assert convictions.broken_promise(1_000, 500, scheduler_stake=100) == (500, 50)
    assert convictions.broken_promise(300, 500, scheduler_stake=100) == (200, 100)
    assert convictions.broken_promise(90, 500, scheduler_stake=100) == (0, 90)


@pytest.mark.parametrize(("stake", "locked", "taken"), [(400, 300, 400), (100, 300, 400), (0, 300, 300), (0, 0, 0)])
def test_fines_take_free_stake_first_and_pay_in_order(stake: int, locked: int, taken: int) -> None:
    first, second = (owner_of(number) for number in (1, 2))
    pots = {pot_of(PotKind.STAKE, NODE): stake, pot_of(PotKind.LOCKED, NODE): locked}
    movements = fine_movements(NODE, stake, taken, [(first, 250), (second, 500)])
    after = apply_movements(pots, movements)
    assert after.get(pot_of(PotKind.CREDIT, first), 0) == min(taken, 250)
    assert after.get(pot_of(PotKind.CREDIT, second), 0) == min(max(taken - 250, 0), 500)
    assert after.get(BURNT, 0) == max(taken - 750, 0)
    assert after[pot_of(PotKind.STAKE, NODE)] == max(stake - taken, 0)
    assert after[pot_of(PotKind.LOCKED, NODE)] == locked - max(taken - stake, 0)
