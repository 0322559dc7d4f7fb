"""V1: the events fold without contradiction, and the money in them adds up."""

from __future__ import annotations

from troth.audit.evidence import Evidence
from troth.audit.history import History
from troth.audit.report import Finding, Kind, Result
from troth.protocol.identifiers import class_id, model_id
from troth.protocol.slots import review_slot, task_slot

NUMBER = "V1"
TITLE = "Events fold, money adds up"


def examine(evidence: Evidence, history: History) -> tuple[Result, ...]:
    """One result for the whole stream."""
    findings = [
        Finding(NUMBER, Kind.MISMATCH, contradiction.message, place=contradiction.place)
        for contradiction in history.contradictions
    ]
    findings += _identifiers(history)
    findings += _sums(evidence, history)
    findings += _states(evidence, history)
    return (Result(None, tuple(findings)),)


def _identifiers(history: History) -> list[Finding]:
    """Models and classes are called by the hash of what they are."""
    named = [(known, class_id(definition)) for known, definition in history.state.classes.items()]
    named += [(known, model_id(descriptor)) for known, descriptor in history.state.models.items()]
    return [
        Finding(NUMBER, Kind.MISMATCH, f"A model or class is called 0x{known.hex()}, but hashes to 0x{actual.hex()}")
        for known, actual in named
        if known != actual
    ]


def _sums(evidence: Evidence, history: History) -> list[Finding]:
    folded, booked = history.state.held(), history.ledger.held
    findings = []
    if folded != booked:
        message = f"Accounts hold {folded} wei, but {booked} wei came in and did not leave"
        findings.append(Finding(NUMBER, Kind.MISMATCH, message))
    # Anyone can force wei upon a contract, so that more than the accounts hold proves nothing.
    if evidence.balance is not None and evidence.balance < folded:
        message = f"The contract's balance is {evidence.balance} wei, its accounts hold {folded} wei"
        findings.append(Finding(NUMBER, Kind.MISMATCH, message))
    return findings


def _states(evidence: Evidence, history: History) -> list[Finding]:
    findings = []
    for task_id, stored in evidence.task_states.items():
        record, review = history.state.tasks.get(task_id), history.state.reviews.get(task_id)
        expected = task_slot(record) if record is not None else review_slot(review) if review is not None else None
        if expected is not None and expected != stored:
            shown = (("recomputed", "0x" + expected.hex()), ("on chain", "0x" + stored.hex()))
            what = "task" if review is None else "review"
            message = f"The contract keeps another state of the {what} than its events give"
            subject = task_id if review is None else review.task_id
            findings.append(Finding(NUMBER, Kind.MISMATCH, message, subject, evidence=shown))
    return findings
