"""Audits of a deployment: an honest record is clean, and each change of it is found by the check that is for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.market_case import OPENED, CaseScene, receipt_of, recorded
from support.market_logs import META, address
from support.market_record import PARAMETERS, PLACE, STAKE, joining, record
from support.market_scene import BLOCK, DOMAIN, KEYS, TAB, TAB_KEY, Scene, execution_class, hash_of, key_of
from support.movements import pack_movements

from troth.audit import receipts
from troth.audit.checks import CHAIN, NUMBERS
from troth.audit.errors import BundleRefused
from troth.audit.report import ExitCode, Finding, FindingKind
from troth.audit.subject import AuditSubject
from troth.audit.watching.findings import name_of
from troth.protocol import typed_data
from troth.protocol.identifiers import group_id
from troth.protocol.market import court_money, messages, receipt
from troth.protocol.market import events as on
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.claims import claim_of
from troth.protocol.market.messages import sign
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import CaseKind, Fault, Outcome
from troth.protocol.market.signed import Opinion
from troth.protocol.market.types import ClaimState, GroupEntry, Movement, PotKind, Voucher
from troth.protocol.types import ZERO_HASH, Address, Hash32, Segment

CASE = CaseScene()
NO_CHAIN = {"M18"}
"""The stage has made-up addresses."""

Events = list[tuple[Any, PartCall]]


@cache
def honest() -> tuple[tuple[Any, PartCall], ...]:
    return tuple(CASE.events())


def findings(subject: AuditSubject) -> list[Finding]:
    reports = [check.report(subject) for check in CHAIN if check.number not in NO_CHAIN]
    return [found for report in reports for result in report.results for found in result.findings]


def numbers(subject: AuditSubject) -> set[str]:
    return {found.check for found in findings(subject)}


def test_numbers_are_in_order_and_each_once() -> None:
    assert [f"M{number}" for number in range(1, len(NUMBERS) + 1)] == list(NUMBERS)


def test_an_honest_case_is_clean() -> None:
    subject = CASE.subject()
    assert not subject.history.contradictions
    assert findings(subject) == []
    outcomes = [event.outcome for event, _ in subject.history.of(on.CaseDecided)]
    assert outcomes == [Outcome.CONVICTED]


def with_event(kind: type[Any], change: Callable[[Any], Any]) -> AuditSubject:
    """The honest record with one event changed."""
    return CASE.subject([(change(event) if isinstance(event, kind) else event, call) for event, call in honest()])


def with_state(kind: type[Any], /, **changes: Any) -> AuditSubject:
    return with_event(kind, lambda event: replace(event, state=replace(event.state, **changes)))


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"fee": 1}, "M6"),
        ({"unit": 99}, "M6"),
        ({"rows": 3}, "M6"),
        ({"client": address(9)}, "M6"),
        ({"result": hash_of("another")}, "M6"),
        ({"reference_block": 5}, "M6"),
        ({"locked": 1}, "M6"),
        ({"verifiers": (address(9),) * 3}, "M6"),
        ({"opinions": b"\x01\x01\x01"}, "M6"),
        ({"kind": CaseKind.ACCEPTANCE}, "M6"),
        ({"kind": CaseKind.DOUBT, "locked": 0}, "M6"),
    ],
)
def test_a_case_that_says_other_than_its_evidence_is_found(changes: dict[str, Any], check: str) -> None:
    assert check in numbers(with_state(on.CaseOpened, **changes))


def test_reviewers_of_another_draw_are_found() -> None:
    assert "M7" in numbers(CASE.subject(randao=hash_of("another block")))
    swapped = with_event(on.ReviewersDrawn, lambda event: replace(event, reviewers=event.reviewers[::-1]))
    assert "M7" in numbers(swapped)
    headless = CASE.subject()
    headless = AuditSubject(replace(headless.evidence, headers={}), headless.history)
    assert {found.kind for found in findings(headless) if found.check == "M7"} == {FindingKind.INCOMPLETE}


def test_commitments_that_nobody_signed_are_found() -> None:
    other = (hash_of("x"), *CASE.committed.commitments[1:])
    assert "M8" in numbers(with_event(on.ReviewsCommitted, lambda event: replace(event, commitments=other)))


@pytest.mark.parametrize(
    "change",
    [{"outcome": Outcome.UPHELD}, {"cluster": 1}, {"score": 7}, {"spread": 7}],
    ids=lambda one: next(iter(one)),
)
def test_an_outcome_that_does_not_follow_is_found(change: dict[str, Any]) -> None:
    assert "M9" in numbers(with_event(on.CaseDecided, lambda event: replace(event, **change)))


def test_money_that_an_outcome_does_not_move_is_found() -> None:
    (paid,) = [event for event, _ in honest()[-2:] if isinstance(event, on.MovedMany)]
    movements = court_money.unpack_movements(paid.subject, paid.movements)
    kept = [one for one in movements if one.from_kind is not PotKind.LOCKED]
    assert len(kept) < len(movements)
    fewer = replace(paid, movements=pack_movements(paid.subject, kept))
    without = [(fewer if event is paid else event, call) for event, call in honest()]
    assert numbers(CASE.subject(without)) & {"M1", "M9"}
    assert numbers(CASE.subject([(event, call) for event, call in honest() if event is not paid])) & {"M1", "M9"}


def test_calls_that_cannot_be_read_are_inconclusive() -> None:
    subject = CASE.subject()
    subject = AuditSubject(replace(subject.evidence, transactions={}), subject.history)
    kinds = {found.check: found.kind for found in findings(subject)}
    assert kinds == dict.fromkeys(("M6", "M8", "M9"), FindingKind.INCONCLUSIVE)


# ----------------------------------------------------------------------------------------- the stream, stakes and names


def test_contradictions_and_wrong_names_are_found() -> None:
    assert "M1" in numbers(record(on.Withdrawn(address(1), address(1), 5, META)))
    model = on.ModelRegistered(hash_of("no hash"), record().history.state.models[execution_class().model], META)
    assert numbers(record(model)) == {"M3"}


def test_more_seats_than_stake_are_found_with_the_call_that_ends_them() -> None:
    class_id, node = messages.state_hash(execution_class()), next(iter(KEYS))
    pot = Hash32(bytes(12) + bytes.fromhex(node[2:]))
    lost = STAKE - execution_class().seat
    taken = on.Moved(ZERO_HASH, PotKind.STAKE, pot, PotKind.BURNT, ZERO_HASH, lost, STAKE - lost, lost, META)
    (found,) = findings(record(taken))
    assert (found.check, found.party, found.action) == ("M4", node, f"Registry.evict({node})")
    assert found.kind is FindingKind.MISMATCH
    stranger = on.EntryChanged(group_id(class_id, Segment(0, 12)), 24, GroupEntry(address(70), 7, 7, 1, 0), 25, META)
    assert "M4" in numbers(record(stranger))


@pytest.mark.parametrize(
    ("left", "kind"),
    [(10 * execution_class().seat - 1, FindingKind.OBSERVED), (9 * execution_class().seat, FindingKind.INCONCLUSIVE)],
    ids=["a part of a seat", "a whole seat"],
)
def test_a_reviewer_that_missed_its_window_is_named_as_late_and_not_as_a_cheat(left: int, kind: FindingKind) -> None:
    """Its fine leaves it with seats that its stake does not quite cover; the audit called that a violation."""
    late = CASE.drawn.reviewers[0]
    before = replace(CASE.committed, commitments=(ZERO_HASH, *CASE.committed.commitments[1:]))
    silent = Movement(*court_money.pot_of(PotKind.STAKE, late), PotKind.BURNT, ZERO_HASH, STAKE - left)
    made: Events = []
    for event, call in honest():
        if isinstance(event, on.ReviewsCommitted):
            made.append((replace(event, commitments=before.commitments), call))
            continue
        if isinstance(event, on.CaseDecided):
            made.append((on.MovedMany(CASE.case_id, pack_movements(CASE.case_id, (silent,)), META), call))
        made.append((event, call))
    (found,) = [one for one in findings(CASE.subject(made)) if one.check == "M4"]
    assert (found.kind, found.party, found.action) == (kind, late, f"Registry.evict({late})")
    assert "windows that it missed" in found.message
    assert "no cheat is proven" in found.message
    assert found.evidence == (("fine 1", f"it missed a window: {STAKE - left} in case 0x{CASE.case_id.hex()}"),)


# -------------------------------------------------------------------------------------------------------------- owners

CLASS = messages.state_hash(execution_class())


def owned(*seats: int, owner: Address = address(80), others: int = 9, block: int = META.block) -> AuditSubject:
    """A group of nodes with ten seats and an owner each, and beside them one owner's nodes with these seats."""
    later = [
        event
        for number, count in enumerate(seats)
        for event in joining(
            address(81 + number), owner, others + number,
            class_id=CLASS, seats=count, place=replace(META, block=block),
        )
    ]  # fmt: skip
    return record(*later, nodes=others)


def test_an_owner_of_more_than_a_third_of_a_group_is_found_with_its_share() -> None:
    (found,) = findings(owned(10, 10, 10, 10, 6))
    assert (found.check, found.kind, found.party, found.role) == ("M21", FindingKind.OBSERVED, address(80), "owner")
    assert found.task_id == group_id(CLASS, Segment(0, 12))
    evidence = {"class": execution_class().name, "layers": "[0, 12)", "seasoned seats": "46 of 136", "nodes": "5 of 14"}
    assert dict(found.evidence) == evidence


def test_a_third_of_a_group_is_no_finding() -> None:
    assert findings(owned(10, 10, 10, 10, 5)) == []


def test_seats_that_may_not_check_yet_do_not_count_for_their_owner() -> None:
    assert findings(owned(10, 10, 10, 10, 10, 10, block=BLOCK + 450)) == []


def test_in_a_group_too_small_for_checks_no_owner_is_a_finding() -> None:
    assert findings(owned(10, 10, 10, 10, 10, others=7)) == []
    assert [found.check for found in findings(owned(10, 10, 10, 10, 10, others=8))] == ["M21"]


def test_a_watcher_shows_a_large_owner_once_while_its_seats_change() -> None:
    (few,), (more,) = findings(owned(10, 10, 10, 10, 6)), findings(owned(10, 10, 10, 10, 10))
    assert few.evidence != more.evidence
    assert name_of(few) == name_of(more)


def test_an_unanswered_objection_names_the_call_that_strikes() -> None:
    claim = next(iter(claims()))[0]
    deadline = OPENED + PARAMETERS.answer_window
    objected = on.Objected(claim.tab, claim.claim_id, claim.state.claim.first, TAB.payer, 0, deadline, META)
    subject = recorded([*claims(), (objected, claims()[0][1])])
    assert findings(subject) == []
    evidence = replace(subject.evidence, last=replace(subject.evidence.last, number=10**6))
    (found,) = [one for one in findings(AuditSubject(evidence, subject.history)) if one.check == "M12"]
    assert found.kind is FindingKind.INCONCLUSIVE
    assert "Bank.strike" in str(found.action)


# -------------------------------------------------------------------------------------------------------------- payees


def test_money_in_a_tab_whose_payee_has_left_is_found_with_the_call_that_brings_it_back() -> None:
    leaves = on.Deregistered(TAB.payee, BLOCK + 900, META)
    (found,) = findings(record(leaves))
    tab = messages.tab_id(TAB)
    assert (found.check, found.kind, found.task_id) == ("M27", FindingKind.OBSERVED, tab)
    assert (found.party, found.role) == (TAB.payee, "payee")
    assert dict(found.evidence)["payer"] == TAB.payer
    assert dict(found.evidence)["balance"] == "1000000"
    assert found.action == f"Bank.close(tab 0x{tab.hex()}), by its payer"


def test_a_tab_that_closes_or_is_empty_does_not_wait_for_a_payee_that_has_left() -> None:
    tab, leaves = messages.tab_id(TAB), on.Deregistered(TAB.payee, BLOCK + 900, META)
    closes = on.TabClosing(tab, BLOCK + 1_000, META)
    assert findings(record(leaves, closes)) == []
    assert "M27" not in numbers(record(leaves, on.TabRedeemed(tab, 1_000_000, META)))


def test_a_watcher_shows_a_payee_that_has_left_once_while_the_tab_is_redeemed() -> None:
    leaves, paid = on.Deregistered(TAB.payee, BLOCK + 900, META), on.TabRedeemed(messages.tab_id(TAB), 10, META)
    (before,) = findings(record(leaves))
    (after,) = [found for found in findings(record(leaves, paid)) if found.check == "M27"]
    assert before.evidence != after.evidence
    assert name_of(before) == name_of(after)


# --------------------------------------------------------------------------------------------------------------- money


def claims(key: bytes = TAB_KEY) -> Events:
    """A claim on the scene's tab, and the call that filed it."""
    voucher = Voucher(messages.tab_id(TAB), 10, 10_000, 5, 2, 0)
    made, _ = claim_of(voucher, {3: 100, 4: 200})
    state = ClaimState(made, voucher, 310, OPENED + PARAMETERS.claim_delay, TAB.payee)
    claim_id = Hash32(messages.state_hash(state)[:30] + bytes(2))
    signature = sign(voucher, DOMAIN, key).signature
    call = build(PLACE.contracts, Part.BANK, "claim", TAB, voucher, signature, made)
    return [(on.Claimed(messages.tab_id(TAB), claim_id, state, META), call)]


def test_claims_stand_on_the_payers_word() -> None:
    assert findings(recorded(claims())) == []
    (forged,) = findings(recorded(claims(b"\x21" * 32)))
    assert (forged.check, forged.kind) == ("M5", FindingKind.INCONCLUSIVE)
    ((event, call),) = claims()
    dearer = replace(event, state=replace(event.state, owed=311))
    assert {"M3", "M5"} == numbers(recorded([(dearer, call)]))


def test_payments_show_their_voucher() -> None:
    voucher = Voucher(messages.tab_id(TAB), 10, 10_000, 5, 2, 0)
    signature = sign(voucher, DOMAIN, TAB_KEY).signature
    call = build(PLACE.contracts, Part.BANK, "redeem", TAB, voucher, signature)
    tab = messages.tab_id(TAB)
    assert findings(recorded([(on.TabRedeemed(tab, 10, META), call)])) == []
    assert numbers(recorded([(on.TabRedeemed(tab, 9, META), call)])) == {"M5"}
    assert numbers(recorded([(on.TabRedeemed(tab, 12, META), call)])) == {"M5"}


# --------------------------------------------------------------------------------------------------------- convictions


def convicted(**changes: Any) -> Events:
    """Two results of one node, and what Evidence says of them."""
    one = CASE.result
    other = replace(one, output_head=hash_of("another"))
    node = CASE.node
    signed = [sign(message, DOMAIN, key_of(node)).signature for message in (one, other)]
    call = build(PLACE.contracts, Part.EVIDENCE, "convictResults", one, signed[0], other, signed[1])
    event = on.FaultProven(typed_data.struct_hash(one), node, TAB.payer, Fault.TWO_RESULTS, 5, META)
    return [(replace(event, **changes), call)]


def test_a_conviction_is_named_and_its_evidence_checked() -> None:
    (found,) = findings(recorded(convicted()))
    assert (found.check, found.kind, found.party, found.amount) == ("M10", FindingKind.CHEATED, CASE.node, 5)
    for wrong in ({"convict": address(9)}, {"fault": Fault.TWO_ROWS}):
        kinds = [one.kind for one in findings(recorded(convicted(**wrong)))]
        assert kinds == [FindingKind.CHEATED, FindingKind.MISMATCH]


def test_a_conviction_without_a_cause_is_found() -> None:
    alone = on.Convicted(CASE.node, Fault.TWO_ROWS, ZERO_HASH, 0, META.block, 0, META)
    assert numbers(record(alone)) == {"M10"}


# ------------------------------------------------------------------------------------------------------------ receipts


def test_a_receipt_is_verified_offline_and_against_a_record(tmp_path: Path) -> None:
    path = tmp_path / "receipt"
    path.write_bytes(receipt.encode(receipt_of(Scene())))
    found = receipts.read_receipt(path)
    offline = receipts.audit_receipt(found, None)
    assert offline.exit_code is ExitCode.CLEAN
    assert any("drawn" in note for note in offline.not_checked)
    assert receipts.audit_receipt(found, record()).exit_code is ExitCode.CLEAN
    few = receipts.audit_receipt(found, record(nodes=12))
    assert few.exit_code is ExitCode.VIOLATION
    unchecked = receipts.audit_receipt(replace(found, checks=()), None)
    assert unchecked.exit_code is ExitCode.INCONCLUSIVE
    assert "summonCheck" in str(unchecked.findings[0].action)
    damaged = receipts.audit_receipt(replace(found, infer_proof=found.infer_proof[::-1]), None)
    assert damaged.exit_code is ExitCode.VIOLATION
    path.write_bytes(b"{}")
    with pytest.raises(BundleRefused):
        receipts.read_receipt(path)


def test_a_rejected_receipt_names_the_court() -> None:
    report = receipts.audit_receipt(receipt_of(Scene(), Opinion.REJECT), record())
    (found,) = report.findings
    assert (found.kind, found.role) == (FindingKind.CHEATED, "node")
    assert "Court.open" in str(found.action)


def test_the_document_lists_every_check_under_its_title() -> None:
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "auditors.md").read_text("utf-8")
    listed = dict(re.findall(r"^\| (M\d+) \| ([^|]+) \|", text, re.MULTILINE))
    assert list(listed) == list(NUMBERS)
    assert {check.number: check.title for check in CHAIN}.items() <= listed.items()
