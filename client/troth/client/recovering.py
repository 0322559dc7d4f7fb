"""After a stream broke off: the rest of the answer from the scheduler's receipt, shown once the chain commits to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from troth.client.answers import read_count
from troth.client.checking import check_commitment
from troth.client.detokenizer import Detokenizer
from troth.client.errors import ClientError, ProofError, SchedulerRefused, SchedulerUnreachable, StreamError, StreamLost
from troth.client.ordering import SignedOrder
from troth.client.session import Session
from troth.client.terminal import printable_line
from troth.client.updates import Finished, Text, Update
from troth.protocol.request import TOKENS_LIMIT
from troth.protocol.state import TaskRecord
from troth.protocol.task import Phase

PAUSE_SECONDS = 1.0


async def recover(
    session: Session,
    signed: SignedOrder,
    shown: list[int],
    detokenizer: Detokenizer,
    lost: ClientError,
    patience: float,
) -> AsyncIterator[Update]:
    """Yield what is missing after the tokens `shown`, which grows by them; returns when the task is decided.

    Raises:
        SchedulerRefused: the scheduler gave the task up; nothing was charged.
        StreamLost: the task is not decided after `patience` seconds; or `lost` itself, where it was never taken.
        ProofError: the rest contradicts what was shown, or the chain.
    """
    give_up = time.monotonic() + patience
    whole = False
    while time.monotonic() < give_up:
        record = session.follower.state.tasks.get(signed.task_id)
        if not whole and record is not None and is_committed(record):
            tokens, reason = await _answer(session, signed)
            if tokens is not None:
                whole = True
                _require_continuation(shown, tokens)
                check_commitment(record.task, signed, session.offer.ends, tokens)
                for update in _rest(session, signed, shown, tokens, detokenizer):
                    yield update
                yield Finished(reason, len(tokens))
        if record is not None and not record.live:
            return
        if record is None:
            await _require_taken(session, signed, lost)
        await asyncio.sleep(PAUSE_SECONDS)
    name = "0x" + signed.task_id.hex()
    raise StreamLost(
        f"{lost.what}; the task is not decided yet",
        name,
        f"`troth client receipts {name}` shows how it ends. The most it can cost is its fee; once the scheduler's "
        f"deadline has passed, `troth client close {name} --broadcast` gives that back.",
    ) from lost


def read_answer(receipt: dict[str, Any], vocabulary: int) -> tuple[list[int] | None, str]:
    """Tokens and finish reason of a scheduler's receipt; None while there is no whole answer."""
    tokens, reason = receipt.get("tokens"), receipt.get("finished")
    if tokens is None or reason is None:
        return None, ""
    if not isinstance(tokens, list) or len(tokens) > TOKENS_LIMIT:
        raise StreamError("The receipt's tokens are no list", repr(tokens)[:60], "Use another scheduler.")
    return [read_count(token, "a token", vocabulary - 1) for token in tokens], printable_line(reason, 20)


def is_committed(record: TaskRecord) -> bool:
    """Whether the chain knows which answer was given."""
    return record.task.progress.phase in {Phase.COMMITTED, Phase.SAMPLED}


async def _answer(session: Session, signed: SignedOrder) -> tuple[list[int] | None, str]:
    try:
        receipt = await session.api.task(signed.task_id, signed.salt)
    except (SchedulerUnreachable, SchedulerRefused):
        return None, ""  # still away, or busy: asked again until the time is up
    return read_answer(receipt, session.offer.model.vocabulary)


async def _require_taken(session: Session, signed: SignedOrder, lost: ClientError) -> None:
    """Raise when the scheduler says that it never took the order, or gave it up before the chain saw it."""
    try:
        receipt = await session.api.task(signed.task_id, signed.salt)
    except SchedulerRefused as error:
        if error.code == "unknown_task":
            session.receipts.failed(signed.task_id, lost.what)
            raise lost from error
        return
    except SchedulerUnreachable:
        return
    failure = receipt.get("failure")
    if isinstance(failure, dict):
        what = f"The request failed: {printable_line(failure.get('message'))}"
        session.receipts.failed(signed.task_id, what)
        code = printable_line(failure.get("code"), 60)
        raise SchedulerRefused(what, code, "You were not charged. Ask again.", code)


def _require_continuation(shown: list[int], tokens: list[int]) -> None:
    if tokens[: len(shown)] != shown:
        raise ProofError(
            "The scheduler's receipt holds another answer than its stream", len(shown), "Do not rely on the answer."
        )


def _rest(
    session: Session, signed: SignedOrder, shown: list[int], tokens: list[int], detokenizer: Detokenizer
) -> list[Text]:
    missing = tokens[len(shown) :]
    shown.extend(missing)
    session.receipts.answered(signed.task_id, tokens)
    text = "".join([*map(detokenizer.feed, missing), detokenizer.flush()])
    return [Text(text)] if text else []
