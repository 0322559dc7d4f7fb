"""A completion's receipt: what the chain says of its tasks now, and the answer, checked against what was committed."""

from __future__ import annotations

from typing import Any

from troth.chain.errors import ChainError
from troth.client.answers import fetch_tokens
from troth.client.errors import ClientError, ReceiptNotFound
from troth.client.gateway.errors import NotFound
from troth.client.gateway.ledger import Entry, Ledger
from troth.client.gateway.prices import ether
from troth.client.history import Entry as TaskEntry
from troth.client.history import refreshed
from troth.client.session import Session
from troth.overlay.errors import OverlayError


async def receipt_json(ledger: Ledger, session: Session, identifier: str) -> dict[str, Any]:
    """The receipt of a completion; NotFound if it is none of this gateway's."""
    entry = ledger.find(identifier)
    if entry is None:
        remedy = "Use the id of a completion that this gateway made."
        raise NotFound("There is no such receipt", identifier[:80], remedy, code="receipt_not_found")
    fresh = True
    try:
        await session.follower.catch_up()
    except ChainError:
        fresh = False
    tasks = [await _task_json(ledger, session, task) for task in entry.tasks]
    return _receipt(entry, tasks, session, fresh=fresh)


def _receipt(entry: Entry, tasks: list[dict[str, Any]], session: Session, *, fresh: bool) -> dict[str, Any]:
    paid = sum(int(task["paid_wei"]) for task in tasks)
    outcomes = [task["outcome"] for task in tasks]
    unsettled = None in outcomes
    others = [outcome for outcome in outcomes if outcome != "accepted"]
    return {
        "id": entry.identifier,
        "object": "troth.receipt",
        "created": entry.created,
        "model": entry.model,
        "outcome": "pending" if unsettled else others[0] if others else "accepted",
        "cost": ether(paid),
        "cost_wei": str(paid),
        "note": entry.note,
        "block": session.follower.block,
        "up_to_date": fresh,
        "tasks": tasks,
    }


async def _task_json(ledger: Ledger, session: Session, task: str) -> dict[str, Any]:
    try:
        found = refreshed(session.receipts, session.receipts.find(task), session.follower.state)
    except ReceiptNotFound:
        unknown = {"task": task, "state": "not sent", "outcome": None, "paid_wei": "0", "held_wei": "0"}
        return unknown | {"transactions": {}, "answer": None, "checked": None, "served_by": None, "failure": None}
    found = await _with_answer(session, found)
    if found.state not in {"running", "not opened"}:
        ledger.paid(task, found.paid)
    return {
        "task": task,
        "state": found.state,
        "outcome": _outcome(found),
        "paid_wei": str(found.paid),
        "held_wei": str(found.held),
        "transactions": found.receipt.transactions,
        "answer": session.language.decode(list(found.receipt.tokens)),
        "checked": found.answer_matches,
        "served_by": found.receipt.served_by,
        "failure": found.receipt.failure,
    }


def _outcome(found: TaskEntry) -> str | None:
    return None if found.state in {"running", "not opened"} else found.state


async def _with_answer(session: Session, found: TaskEntry) -> TaskEntry:
    """The same with the committed answer, fetched from its scheduler where the stored one is not it."""
    if found.answer_matches is not False or found.receipt.scheduler.lower() != session.offer.scheduler.operator.lower():
        return found
    try:
        tokens = await fetch_tokens(session.api, found.receipt, session.offer.model, _standing(found))
    except (ClientError, OverlayError):
        return found
    session.receipts.answered(found.receipt.identifier, tokens)
    return refreshed(session.receipts, session.receipts.find(found.receipt.task_id), session.follower.state)


def _standing(found: TaskEntry) -> Any:
    assert found.standing is not None
    return found.standing
