"""What evidence allows: who may act, until when, at what price, and why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.cases_scene import evidence_of, state_of, without, without_prompt
from support.market_case import CaseScene
from support.market_logs import META
from support.market_record import PARAMETERS
from support.market_scene import BLOCK, DOMAIN, SCHEDULER_KEY, TAB, TAB_KEY, Scene, hash_of, key_of

from troth.cases.assessing import assess
from troth.cases.errors import EvidenceRefused
from troth.cases.standing import view_of
from troth.protocol.market import court, court_money, draws
from troth.protocol.market import events as on
from troth.protocol.market.errors import InvalidDrawRequest
from troth.protocol.market.messages import sign
from troth.protocol.market.proceedings import CaseKind, Fault, Outcome, SummonsKind
from troth.protocol.market.signed import Opinion

SCENE = Scene()
STATE = state_of(SCENE)
REJECTED = evidence_of(SCENE, opinion=Opinion.REJECT)
LAST = court.last_opening_block(BLOCK, PARAMETERS)


def at(evidence: Any, block: int = BLOCK, state: Any = STATE) -> Any:
    return assess(evidence, state, block)


def test_a_rejection_is_anybodys_at_the_bond_of_the_contract() -> None:
    (bring,) = at(REJECTED).cases
    rules = SCENE.view.rules
    assert (bring.kind, bring.openers, bring.node) == (CaseKind.REJECTION, (), REJECTED.nodes[0])
    assert bring.bond == court_money.bond_of(rules, 41, PARAMETERS.gas_price)
    assert bring.may_suspend
    assert bring.lacks == ()
    assert f"bond of {bring.bond}" in bring.words
    assert str(rules.penalty) in bring.words
    assert bring.last_block == LAST


def test_what_nobody_rejected_only_its_client_brings() -> None:
    (accepted,) = at(evidence_of(SCENE)).cases
    assert (accepted.kind, accepted.openers) == (CaseKind.ACCEPTANCE, (TAB.payer, TAB.key))
    (doubt,) = at(without(REJECTED, "secret", "verdicts")).cases
    assert (doubt.kind, doubt.verdicts, doubt.openers) == (CaseKind.DOUBT, (), (TAB.payer, TAB.key))
    assert "nobody is slashed" in doubt.words
    (unproven,) = at(replace(REJECTED, draw_proof=REJECTED.infer_proof)).cases
    assert unproven.kind is CaseKind.DOUBT


def test_a_lock_that_one_rejecter_lacks_suspends_nobody() -> None:
    signed = REJECTED.verdicts[0]
    drawn = SCENE.verifiers(SCENE.checked())[0]
    verifier = next(iter(drawn.seats))
    unlocked = sign(replace(signed.message, locks=False), DOMAIN, key_of(verifier))
    (bring,) = at(replace(REJECTED, verdicts=(unlocked, *REJECTED.verdicts[1:]))).cases
    assert not bring.may_suspend
    # Who added its lock later says it: the locking word is shown.
    (bring,) = at(replace(REJECTED, verdicts=(unlocked, *REJECTED.verdicts))).cases
    assert bring.may_suspend
    assert at(replace(REJECTED, verdicts=(unlocked, *REJECTED.verdicts))).convictions == ()


def test_a_case_has_its_time() -> None:
    assert at(REJECTED, LAST - 1).cases
    late = at(REJECTED, LAST)
    assert late.cases == ()
    assert any(f"until block {LAST}" in one for one in late.against)


def test_strangers_verdicts_and_verdicts_over_other_results_count_for_nothing() -> None:
    first = REJECTED.verdicts[0].message
    stranger = sign(first, DOMAIN, TAB_KEY)
    (bring,) = at(replace(REJECTED, verdicts=(stranger,))).cases
    assert (bring.kind, bring.verdicts) == (CaseKind.ACCEPTANCE, ())


@pytest.mark.parametrize("outcome", [None, *(one for one in Outcome if one)])
def test_a_leaf_is_brought_again_only_where_its_case_was_lost_for_lack_of_data(outcome: Outcome | None) -> None:
    scene = CaseScene(SCENE)
    opened = on.CaseOpened(scene.case_id, SCENE.order_id, scene.node, scene.opening, META)
    later: list[Any] = [opened]
    if outcome is not None:
        decided = on.CaseDecided(scene.case_id, SCENE.order_id, outcome, 0, 0, 0, replace(META, block=BLOCK + 40))
        later.append(decided)
    found = at(REJECTED, BLOCK + 50, state_of(SCENE, *later))
    open_again = outcome in {Outcome.OPENER_MISSING, Outcome.LAPSED}
    assert bool(found.cases) is open_again
    if open_again:
        assert found.cases[0].last_block == LAST + 40
    else:
        assert any("case over segment 0" in one.lower() for one in found.against)


def test_what_the_opener_owes_is_named() -> None:
    (bring,) = at(without_prompt(REJECTED)).cases
    assert len(bring.lacks) == 3
    assert "would be lost" in bring.words


def test_a_draw_over_other_results_brings_nothing() -> None:
    other = sign(replace(REJECTED.draws[0].message, results=hash_of("x")), DOMAIN, SCHEDULER_KEY)
    foreign = sign(REJECTED.draws[0].message, DOMAIN, TAB_KEY)
    for words in ((other,), (foreign,), ()):
        assert at(replace(REJECTED, draws=words)).cases == ()


def test_missing_checks_and_results_are_summoned_in_their_time() -> None:
    unchecked = without(REJECTED, "verdicts", "commitments")
    (summon,) = at(unchecked).summons
    assert (summon.kind, summon.last_block) == (SummonsKind.CHECK, BLOCK + PARAMETERS.lag // 2)
    assert at(unchecked, summon.last_block).summons == ()
    assert at(REJECTED).summons == ()
    half = replace(REJECTED, verdicts=REJECTED.verdicts[:1])
    assert len(at(half).summons) == 1
    unserved = without(REJECTED, "results", "draws", "verdicts", "commitments", "secret")
    (results,) = at(unserved).summons
    assert (results.kind, results.first_block) == (SummonsKind.RESULTS, BLOCK + PARAMETERS.summons_window)


def test_convictions_are_found_beside_the_case() -> None:
    node = key_of(REJECTED.nodes[0])
    twice = sign(replace(REJECTED.results[0].message, written=3), DOMAIN, node)
    found = at(replace(REJECTED, other_results=(twice,)))
    assert [one.conviction.fault for one in found.convictions] == [Fault.TWO_RESULTS]
    assert found.cases
    assert found.words[0].startswith(f"Convict: {REJECTED.nodes[0]}")


def test_evidence_of_elsewhere_is_refused() -> None:
    for other in (
        replace(REJECTED, bank=TAB.payer),
        replace(REJECTED, tab=replace(TAB, payee=TAB.payer)),
        replace(REJECTED, order=sign(REJECTED.signed_order.order, DOMAIN, SCHEDULER_KEY)),
    ):
        with pytest.raises(EvidenceRefused):
            at(other)


def test_a_scheduler_that_is_leaving_is_still_brought_to_court() -> None:
    leaving = state_of(SCENE, on.Deregistered(TAB.payee, BLOCK + 900, META))
    assert leaving.parties[TAB.payee].exit_block
    assert at(REJECTED, state=leaving).cases
    assert view_of(REJECTED, leaving, BLOCK).vrf_key == SCENE.view.vrf_key


def test_a_group_that_cannot_seat_a_committee_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = draws.draw

    def short(request: Any, group: Any, **named: Any) -> Any:
        if request.count == SCENE.view.rules.reviewers:
            raise InvalidDrawRequest("Too few", 1, "Wait.")
        return draw(request, group, **named)

    assert "lapse" not in at(REJECTED).cases[0].words
    monkeypatch.setattr(draws, "draw", short)
    assert "lapse" in at(REJECTED).cases[0].words
