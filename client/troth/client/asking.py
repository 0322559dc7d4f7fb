"""One question from order to verdict, as a stream of updates."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from troth.client.checking import check_assignment, check_commitment
from troth.client.detokenizer import Detokenizer
from troth.client.errors import ProofError, SchedulerRefused, StreamError
from troth.client.ordering import SignedOrder
from troth.client.session import Session
from troth.protocol.assignment import Assignment

FOLLOW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Assigned:
    """The parties, drawn and proven; the client checked the proof."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is whole; what follows is its verification."""

    reason: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Posted:
    """A transaction of this task was mined: its step, hash and gas."""

    step: str
    transaction: str
    gas: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the chain closed the task, and what the client paid in wei."""

    outcome: str
    cost: int


Update = Assigned | Text | Finished | Posted | Verdict


@dataclass(slots=True)
class _Progress:
    detokenizer: Detokenizer
    assigned: bool = False
    tokens: list[int] = field(default_factory=list)
    transactions: dict[str, str] = field(default_factory=dict)
    outcome: str | None = None


async def ask(session: Session, signed: SignedOrder) -> AsyncIterator[Update]:
    """Send a prepared order and yield what happens, until the chain has decided.

    Raises:
        ProofError: the scheduler contradicts the chain or its own proofs.
        SchedulerRefused: it refused or gave up; says whether anything was charged.
        StreamError: the stream broke off; `troth client receipts` shows how the task ends.
    """
    session.receipts.ordered(signed)
    progress = _Progress(Detokenizer(session.language))
    try:
        async for line in session.api.order(signed.to_json()):
            async for update in _read(session, signed, progress, line):
                yield update
    except SchedulerRefused as error:
        session.receipts.failed(signed.task_id, error.what)
        raise
    if progress.outcome is None:
        raise StreamError(
            "The scheduler's stream ended before the verdict",
            "0x" + signed.task_id.hex(),
            "`troth client receipts` follows the chain; after its deadline `troth client close` gives the fee back.",
        )


async def _read(session: Session, signed: SignedOrder, progress: _Progress, line: dict[str, Any]) -> AsyncIterator[Update]:
    match line.get("type"):
        case "assigned":
            state = session.follower.state
            assignment = check_assignment(line, signed, session.offer, session.chain.domain, state)
            progress.assigned = True
            yield Assigned(assignment)
        case "token":
            text = _token(progress, line)
            if text:
                yield Text(text)
        case "finished":
            session.receipts.answered(signed.task_id, progress.tokens)
            rest = progress.detokenizer.flush()
            if rest:
                yield Text(rest)
            yield Finished(str(line.get("reason")), len(progress.tokens))
        case "opened" | "committed" | "settled":
            yield _posted(session, signed, progress, line)
            if line["type"] == "settled":
                yield await _verdict(session, signed, progress)
        case "failed":
            _raise_failure(line)


def _token(progress: _Progress, line: dict[str, Any]) -> str:
    token = line.get("id")
    if not progress.assigned:
        raise ProofError("The scheduler sent tokens before it proved who serves", token, "Use another scheduler.")
    if not isinstance(token, int) or line.get("position") != len(progress.tokens):
        raise StreamError("A token is missing from the scheduler's stream", line.get("position"), "See the receipt.")
    progress.tokens.append(token)
    return progress.detokenizer.feed(token)


def _posted(session: Session, signed: SignedOrder, progress: _Progress, line: dict[str, Any]) -> Posted:
    step, transaction = str(line["type"]), str(line.get("tx"))
    progress.transactions[step] = transaction
    session.receipts.posted(signed.task_id, progress.transactions)
    return Posted(step, transaction, int(line.get("gas") or 0))


async def _verdict(session: Session, signed: SignedOrder, progress: _Progress) -> Verdict:
    # The scheduler's word is not enough: the outcome is what the client's own view of the chain says.
    def is_decided(state: Any) -> bool:
        record = state.tasks.get(signed.task_id)
        return record is not None and record.outcome is not None

    state = await session.follower.wait_until(is_decided, FOLLOW_SECONDS)
    record = state.tasks[signed.task_id]
    assert record.outcome is not None
    progress.outcome = record.outcome.name.lower()
    session.receipts.decided(signed.task_id, progress.outcome)
    check_commitment(record.task, signed, progress.tokens)
    return Verdict(progress.outcome, signed.fee if progress.outcome == "accepted" else 0)


def _raise_failure(line: dict[str, Any]) -> None:
    charged = "You were charged." if line.get("charged") else "You were not charged."
    retry = "Trying again costs nothing extra." if line.get("retry_free") else "Ask again when you like."
    raise SchedulerRefused(
        f"The request failed: {line.get('message')}", line.get("code"), f"{charged} {retry}"
    )
