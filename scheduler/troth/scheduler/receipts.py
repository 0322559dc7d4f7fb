"""Receipts: what the journal and the timings say of a task, as JSON for its client and its operator."""

from __future__ import annotations

import hmac
from typing import Any

from troth.protocol.request import output_hash
from troth.protocol.types import Hash32
from troth.scheduler.journal import Journal
from troth.scheduler.story import Story

Receipt = dict[str, Any]


def receipt(task_id: Hash32, journal: Journal, salt: bytes | None = None) -> Receipt | None:
    """The receipt of a task, None if it is unknown here.

    Tokens are shown only with the request's salt: task ids are public on chain, outputs are not.
    """
    story = Story.of(journal.history(task_id))
    received = story.received
    if received is None:
        return None
    allowed = salt is not None and hmac.compare_digest(salt, received.salt)
    generated = story.generated
    return {
        "task_id": _hex(task_id),
        "state": story.step,
        "outcome": _outcome(story),
        "tokens": list(generated.tokens) if generated is not None and allowed else None,
        "finished": None if generated is None else ("end" if generated.finished == "stop" else "length"),
        "output_hash": None if generated is None else _hex(output_hash(Hash32(received.salt), generated.tokens)),
        "execution_class": _hex(received.execution_class),
        "fee": received.fee,
        "ends": list(received.ends),
        "parties": [list(parties) for parties in received.parties],
        "attempt": None if generated is None else generated.attempt,
        "inferencers": None if generated is None else list(generated.inferencers),
        "transactions": _transactions(story),
        "gas": _gas(story),
        "failure": _failure(story),
        "times": journal.times(task_id),
        "timing": journal.timings(task_id),
    }


def _outcome(story: Story) -> str | None:
    if story.settled is not None:
        return story.settled.outcome
    return "aborted" if story.aborted is not None else None


def _transactions(story: Story) -> dict[str, str | None]:
    named = {
        "open": story.opened,
        "commit": story.committed,
        "sample": story.sampled,
        "settle": story.settled,
        "abort": story.aborted,
    }
    # Parties are drawn on chain by the committing transaction itself.
    found = {name: None if record is None else _hex(record.transaction) for name, record in named.items()}
    return {**found, "assign": found["commit"]}


def _gas(story: Story) -> dict[str, int]:
    named = {
        "open": story.opened,
        "commit": story.committed,
        "sample": story.sampled,
        "settle": story.settled,
        "abort": story.aborted,
    }
    return {name: record.gas for name, record in named.items() if record is not None}


def _failure(story: Story) -> dict[str, str] | None:
    for record in (story.failed, story.aborting):
        if record is not None:
            return {"code": record.code, "message": record.message}
    return None


def _hex(value: bytes) -> str:
    return "0x" + value.hex()
