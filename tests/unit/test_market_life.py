"""The life of a request: the honest way, each way that it may end, and each step that does not hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from support.market_scene import (
    BLOCK,
    DOMAIN,
    LAG,
    SCHEDULER_KEY,
    TAB_KEY,
    TIME,
    Scene,
    hash_of,
    key_of,
)

from troth.protocol.errors import InvalidSignature, ProtocolError
from troth.protocol.market import court, court_money, messages, prices
from troth.protocol.market.checks import candidates
from troth.protocol.market.errors import (
    InvalidAdmission,
    InvalidCase,
    InvalidCheck,
    InvalidOrder,
    InvalidPromise,
    InvalidResults,
    InvalidSecret,
    InvalidVoucher,
)
from troth.protocol.market.life import Acknowledged, CaseFile, Check, Decided, Journey, Rejected, SummonsNeeded, live
from troth.protocol.market.messages import Signed, sign
from troth.protocol.market.proceedings import CaseKind, CasePhase, CaseState, Outcome, SummonsKind
from troth.protocol.market.signed import Opinion, Work
from troth.protocol.market.types import PotKind, TabState
from troth.protocol.types import Hash32

SCENE = Scene()
TWO = Scene(parts=(6, 12))


@cache
def _honest() -> Journey:
    return SCENE.checked()


def _fee(scene: Scene, journey: Journey) -> int:
    assert journey.results is not None
    return prices.fee(scene.order, scene.view.rules, len(scene.parts), journey.results[-1].message)


@pytest.mark.parametrize("scene", [SCENE, TWO, Scene({"exact": True, "tiles": 0})])
def test_a_checked_answer_is_acknowledged_at_once(scene: Scene) -> None:
    journey = scene.checked()
    if scene.view.rules.exact:
        # In an exact class only equal roots agree, and these verifiers computed with noise.
        assert live(journey, scene.view) == Acknowledged(_fee(scene, journey), BLOCK + LAG, checked=False)
    else:
        assert live(journey, scene.view) == Acknowledged(_fee(scene, journey), BLOCK, checked=True)


def test_an_answer_that_is_not_drawn_is_acknowledged_after_the_lag() -> None:
    scene = Scene(check_rate=50_000)
    journey = scene.served()
    assert live(journey, scene.view) == Acknowledged(_fee(scene, journey), BLOCK + LAG, checked=False)
    assert live(replace(journey, secret=None), scene.view) == live(journey, scene.view)


def test_what_is_owed_and_does_not_come_is_summoned() -> None:
    assert live(SCENE.admitted(), SCENE.view) == SummonsNeeded(SummonsKind.RESULTS)
    assert live(SCENE.served(), SCENE.view) == SummonsNeeded(SummonsKind.CHECK)


def test_a_rejection_is_due_in_court() -> None:
    cheat = SCENE.trace(0.5, 77)
    assert live(SCENE.checked(node=cheat, opinion=Opinion.REJECT), SCENE.view) == Rejected((0,))


def test_verifiers_that_accept_what_their_own_traces_contradict_count_for_nothing() -> None:
    cheat = SCENE.trace(0.5, 77)
    ending = live(SCENE.checked(node=cheat), SCENE.view)
    assert isinstance(ending, Acknowledged)
    assert not ending.checked


def test_a_silent_minority_changes_nothing_and_a_silent_majority_checks_nothing() -> None:
    journey = SCENE.checked()
    assert journey.checks is not None
    check = journey.checks[0]
    # Who has most seats is paid most, and a majority is one of seats.
    names = sorted(check.verdicts, key=lambda name: check.promises[name].message.price)
    assert len(names) > 1
    for kept, checked in ((names[1:], True), (names[:1], False)):
        fewer = replace(check, verdicts={name: check.verdicts[name] for name in kept})
        ending = live(replace(journey, checks=(fewer,)), SCENE.view)
        assert isinstance(ending, Acknowledged)
        assert ending.checked is checked


def _reorder(**changes: Any) -> Callable[[Journey], Journey]:
    return lambda journey: replace(journey, order=sign(replace(journey.order.message, **changes), DOMAIN, TAB_KEY))


def _again(name: str, key: bytes, **changes: Any) -> Callable[[Journey], Journey]:
    def change(journey: Journey) -> Journey:
        signed = getattr(journey, name)
        return replace(journey, **{name: sign(replace(signed.message, **changes), DOMAIN, key)})

    return change


def _first(name: str, key: Callable[[Journey], bytes], **changes: Any) -> Callable[[Journey], Journey]:
    def change(journey: Journey) -> Journey:
        signed = getattr(journey, name)
        changed = sign(replace(signed[0].message, **changes), DOMAIN, key(journey))
        return replace(journey, **{name: (changed, *signed[1:])})

    return change


def _checks(change: Callable[[Check], Check]) -> Callable[[Journey], Journey]:
    def changed(journey: Journey) -> Journey:
        assert journey.checks is not None
        return replace(journey, checks=(change(journey.checks[0]), *journey.checks[1:]))

    return changed


def _verdicts(**changes: Any) -> Callable[[Journey], Journey]:
    def change(check: Check) -> Check:
        signed = {n: sign(replace(one.message, **changes), DOMAIN, key_of(n)) for n, one in check.verdicts.items()}
        return replace(check, verdicts=signed)

    return _checks(change)


def _stranger(check: Check) -> Check:
    name, verdict = next(iter(check.verdicts.items()))
    stranger = next(one for one in SCENE.view.groups[0].owners if one not in check.verdicts)
    assert name != stranger
    return replace(check, verdicts={**check.verdicts, stranger: sign(verdict.message, DOMAIN, key_of(stranger))})


def _node(journey: Journey) -> bytes:
    return key_of(journey.nodes[0])


def _scheduler(journey: Journey) -> bytes:
    return SCHEDULER_KEY


FAULTS: dict[str, tuple[Callable[[Journey], Journey], type[ProtocolError], str]] = {
    "1 another tab": (_reorder(tab=hash_of("x")), InvalidOrder, "another tab"),
    "1 another class": (_reorder(execution_class=hash_of("x")), InvalidOrder, "another tab or class"),
    "1 layers left out": (_reorder(ends=messages.Hash32(b"\x06".ljust(32, b"\0"))), InvalidOrder, "split"),
    "1 checked too rarely": (_reorder(check_rate=49_999), InvalidOrder, "check rate"),
    "1 rate above one": (_reorder(check_rate=1_000_001), InvalidOrder, "check rate"),
    "1 no bound": (_reorder(max_fee=0), InvalidOrder, "costs 1 to"),
    "1 bound above the cap": (_reorder(max_fee=100_001), InvalidOrder, "costs 1 to"),
    "1 share above the whole": (_reorder(node_share=10_001), InvalidOrder, "basis points"),
    "1 one secret twice": (_reorder(tiles_hash=SCENE.secrets.draw_hash), InvalidOrder, "secrets"),
    "1 late": (_reorder(deadline=TIME - 1), InvalidOrder, "deadline"),
    "1 old block": (_reorder(reference_block=BLOCK - 201), InvalidOrder, "reference block"),
    "1 block to come": (_reorder(reference_block=BLOCK), InvalidOrder, "reference block"),
    "1 number zero": (_reorder(sequence=0), InvalidOrder, "numbered from 1"),
    "1 wallet signs": (
        lambda journey: replace(journey, order=sign(journey.order.message, DOMAIN, SCHEDULER_KEY)),
        InvalidSignature,
        "tab key",
    ),
    "2 voucher of another tab": (_again("voucher", TAB_KEY, tab=hash_of("x")), InvalidVoucher, "another tab"),
    "2 voucher not signed": (_again("voucher", SCHEDULER_KEY), InvalidSignature, "voucher"),
    "2 order not authorised": (_again("voucher", TAB_KEY, authorised=9_999), InvalidVoucher, "outstanding"),
    "2 order after the voucher": (_again("voucher", TAB_KEY, sequence=0), InvalidVoucher, "does not authorise"),
    "2 acknowledged in advance": (
        _again("voucher", TAB_KEY, sequence=9, acknowledged_through=9),
        InvalidVoucher,
        "does not authorise",
    ),
    "3 another order admitted": (_again("admission", SCHEDULER_KEY, order=hash_of("x")), InvalidAdmission, "Another"),
    "3 other nodes admitted": (_again("admission", SCHEDULER_KEY, nodes=hash_of("x")), InvalidAdmission, "other nodes"),
    "3 not the scheduler's": (_again("admission", TAB_KEY), InvalidSignature, "Admission"),
    "3 block to come": (_again("admission", SCHEDULER_KEY, block_number=BLOCK + 1), InvalidAdmission, "between"),
    "3 proof over another order": (
        lambda journey: replace(journey, infer_proof=journey.infer_proof[:-1] + b"\0"),
        InvalidAdmission,
        "does not hold",
    ),
    "4 promise of another segment": (_first("promises", _scheduler, segment=1), InvalidPromise, "other work"),
    "4 promise of nothing": (_first("promises", _scheduler, price=0), InvalidPromise, "pays less"),
    "4 promise above the bound": (
        _first("promises", _scheduler, prompt_ask=800_000_001),
        InvalidPromise,
        "asks more",
    ),
    "4 promise by a stranger": (_first("promises", _node), InvalidSignature, "Promise"),
    "5 other request read": (_first("results", _node, input_head=hash_of("x")), InvalidResults, "another request"),
    "5 result of another order": (_first("results", _node, order=hash_of("x")), InvalidResults, "another place"),
    "5 result by a stranger": (_first("results", _scheduler), InvalidSignature, "Result"),
    "5 another answer": (_first("results", _node, output_hash=hash_of("x")), InvalidResults, "another answer"),
    "5 positions nobody saw": (_first("results", _node, written=4_000), InvalidResults, "received"),
    "5 nothing written": (_first("results", _node, prompt=0, written=0), InvalidResults, "prompt and a token"),
    "6 draw over other results": (_again("draw", SCHEDULER_KEY, results=hash_of("x")), InvalidResults, "other results"),
    "6 beta of its own": (_again("draw", SCHEDULER_KEY, beta=hash_of("x")), InvalidCheck, "output of the proof"),
    "6 stale draw": (_again("draw", SCHEDULER_KEY, block_number=BLOCK - 4), InvalidCheck, "not within"),
    "6 draw by a stranger": (_again("draw", TAB_KEY), InvalidSignature, "Draw"),
    "7 another secret": (lambda journey: replace(journey, secret=hash_of("x")), InvalidSecret, "first"),
    "8 a verifier that a summons proved silent": (
        lambda journey: replace(journey, silent={0: tuple(journey.checks[0].verdicts)}),
        InvalidCheck,
        "not drawn",
    ),
    "8 another second secret": (
        lambda journey: replace(journey, second_secret=hash_of("x")),
        InvalidSecret,
        "second",
    ),
    "9 verdict over another result": (_verdicts(result=hash_of("x")), InvalidCheck, "another result"),
    "9 verdict without commitment": (_verdicts(commitment=hash_of("x")), InvalidCheck, "another commitment"),
    "9 opinion of a reviewer": (_verdicts(opinion=Opinion.MISSING_TRACE), InvalidCheck, "accepts, rejects"),
    "9 verdict of a stranger": (_checks(_stranger), InvalidCheck, "not drawn"),
    "9 cheap promise": (
        _checks(lambda check: replace(check, promises={n: SCENE.promise(0, Work.CHECK, 1) for n in check.promises})),
        InvalidPromise,
        "pays less",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_step_refuses_what_does_not_hold(name: str) -> None:
    change, error, words = FAULTS[name]
    with pytest.raises(error, match=words) as caught:
        live(change(_honest()), SCENE.view)
    assert caught.value.remedy


def test_a_node_that_was_not_drawn_is_refused() -> None:
    journey = SCENE.admitted()
    drawn = candidates(SCENE.order, journey.infer_proof, SCENE.view)[0]
    for name in SCENE.view.groups[0].owners:
        admission = replace(journey.admission.message, nodes=messages.nodes_hash((name,)))
        changed = replace(journey, nodes=(name,), admission=sign(admission, DOMAIN, SCHEDULER_KEY))
        if name in drawn:
            assert live(changed, SCENE.view) == SummonsNeeded(SummonsKind.RESULTS)
            continue
        with pytest.raises(InvalidAdmission, match="was not drawn"):
            live(changed, SCENE.view)
    assert len(drawn) == 2


@pytest.mark.slow
def test_segments_that_do_not_meet_are_refused() -> None:
    journey = TWO.checked()
    assert journey.results is not None
    for changes, words in (({"input_head": hash_of("x")}, "other rows"), ({"written": 11}, "other positions")):
        last = replace(journey.results[1].message, **changes)
        changed = sign(last, DOMAIN, key_of(journey.nodes[1]))
        with pytest.raises(InvalidResults, match=words):
            live(replace(journey, results=(journey.results[0], changed)), TWO.view)
    middle = sign(replace(journey.results[0].message, output_hash=hash_of("x")), DOMAIN, key_of(journey.nodes[0]))
    with pytest.raises(InvalidResults, match="Only the last"):
        live(replace(journey, results=(middle, journey.results[1])), TWO.view)


def test_a_tab_that_closes_or_holds_too_little_takes_no_order() -> None:
    journey = SCENE.admitted()
    for state in (TabState(1_000_000, 0, 5_000, True), TabState(9_999, 0, 0, True), TabState()):
        with pytest.raises(InvalidVoucher):
            live(journey, replace(SCENE.view, tab_state=state))


def test_a_key_that_is_a_contract_is_asked_by_the_view() -> None:
    admitted = SCENE.admitted()
    journey = replace(admitted, order=Signed(SCENE.order, b"any"), voucher=Signed(admitted.voucher.message, b""))
    asked: list[bytes] = []

    def contract(key: str, digest: bytes, signature: bytes) -> bool:
        asked.append(digest)
        return key == SCENE.view.tab.key

    assert live(journey, replace(SCENE.view, key_check=contract)) == SummonsNeeded(SummonsKind.RESULTS)
    assert SCENE.order_id in asked
    assert len(asked) == 2


# ----------------------------------------------------------------------------------------------------------- the court


def _case(scene: Scene, journey: Journey, kind: CaseKind, said: Opinion, round_: int = 0) -> CaseFile:
    """A case over segment 0 that all reviewers decide with ``said``, by the true trace."""
    assert journey.results
    view = scene.view
    state = CaseState(
        kind=kind,
        phase=CasePhase.SEEDED,
        round=round_,
        order=scene.order_id,
        client=view.tab.payer,
        scheduler=view.tab.payee,
        node=journey.nodes[0],
        opener=view.tab.key,
        fee=130,
        unit=5,
        bond=1_000,
        locked=0 if kind is CaseKind.DOUBT else view.rules.penalty,
        excluded=(view.groups[0].owners[journey.nodes[0]],),
    )
    drawn = court.reviewers(scene.order, state, hash_of("randao"), view)
    state = replace(state, reviewers=tuple(drawn.seats), seats=bytes(drawn.seats.values()))
    true, cheat = scene.trace(), scene.trace(0.5, 77)
    shown = court.Showing(Hash32(true.root), true.open((0, 3)).tiles, said, 9_000_000, 1)
    node = court.Showing(Hash32(cheat.root), cheat.open((0, 3)).tiles)
    hearing = court.Hearing(kind, state.seats, (shown,) * len(state.seats), node)
    pots = {(PotKind.BOND, court.case_of(state)): 1_000}
    pots[court_money.pot_of(PotKind.LOCKED, journey.nodes[0])] = state.locked
    around = court_money.Circumstances(pots, gas_price=10**6, decider=view.tab.payee)
    return CaseFile(state, hash_of("randao"), hearing, around)


def test_the_court_convicts_what_verifiers_rejected() -> None:
    journey = SCENE.checked(node=SCENE.trace(0.5, 77), opinion=Opinion.REJECT)
    case = _case(SCENE, journey, CaseKind.REJECTION, Opinion.REJECT)
    ending = live(replace(journey, case=case), SCENE.view)
    assert isinstance(ending, Decided)
    assert (ending.segment, ending.finding.outcome) == (0, Outcome.CONVICTED)
    after = court_money.apply_movements(case.around.balances, ending.movements)
    assert after[court_money.pot_of(PotKind.CREDIT, SCENE.view.tab.payer)] == 130


def test_a_client_may_doubt_what_was_not_drawn_but_nobody_is_slashed_for_it() -> None:
    scene = Scene(check_rate=50_000)
    journey = scene.served(scene.trace(0.5, 77))
    ending = live(replace(journey, case=_case(scene, journey, CaseKind.DOUBT, Opinion.REJECT)), scene.view)
    assert isinstance(ending, Decided)
    assert ending.finding.outcome is Outcome.REFUNDED
    assert ending.finding.pooled
    taken = [one for one in ending.movements if one.from_kind in {PotKind.LOCKED, PotKind.STAKE}]
    assert not taken


def test_a_case_is_of_its_kind_by_the_committee_that_was_drawn() -> None:
    journey = SCENE.checked(node=SCENE.trace(0.5, 77), opinion=Opinion.REJECT)
    case = _case(SCENE, journey, CaseKind.REJECTION, Opinion.REJECT)
    doubt = _case(SCENE, journey, CaseKind.DOUBT, Opinion.REJECT)
    stranger = replace(doubt, state=replace(doubt.state, opener=journey.nodes[0]))
    for wrong, words in (
        (doubt, "no doubt"),
        (stranger, "Only the client"),
        (replace(case, randao=hash_of("another")), "other reviewers"),
        (replace(case, state=replace(case.state, round=1)), "other reviewers"),
        (replace(case, hearing=replace(case.hearing, seats=(15,))), "15 seats"),
    ):
        with pytest.raises(InvalidCase, match=words):
            live(replace(journey, case=wrong), SCENE.view)


@pytest.mark.slow
def test_where_no_majority_rejects_the_client_alone_calls_a_drawn_leaf_into_question() -> None:
    for opinion in (Opinion.ACCEPT, Opinion.CANNOT_TELL):
        journey = SCENE.checked(opinion=opinion)
        case = _case(SCENE, journey, CaseKind.ACCEPTANCE, Opinion.REJECT)
        assert isinstance(live(replace(journey, case=case), SCENE.view), Decided)
        stranger = replace(case, state=replace(case.state, opener=journey.nodes[0]))
        with pytest.raises(InvalidCase, match="Only the client"):
            live(replace(journey, case=stranger), SCENE.view)
        doubt = _case(SCENE, journey, CaseKind.DOUBT, Opinion.REJECT)
        with pytest.raises(InvalidCase, match="no doubt"):
            live(replace(journey, case=doubt), SCENE.view)


def test_without_a_proper_cluster_the_case_is_drawn_once_more_and_then_undecided() -> None:
    journey = SCENE.checked(node=SCENE.trace(0.5, 77), opinion=Opinion.REJECT)
    for round_, outcome in ((0, Outcome.NONE), (1, Outcome.UNDECIDED)):
        case = _case(SCENE, journey, CaseKind.REJECTION, Opinion.ACCEPT, round_)
        ending = live(replace(journey, case=case), SCENE.view)
        assert isinstance(ending, Decided)
        assert ending.finding.outcome is outcome
