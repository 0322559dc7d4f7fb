"""An answer asked for again: fetched from the scheduler, checked against the chain, then shown."""

from __future__ import annotations

import json

from troth.client.api import connected
from troth.client.chain_view import view
from troth.client.checking import check_output
from troth.client.configuration import Configuration
from troth.client.errors import ReceiptNotFound, StreamLost
from troth.client.home import Home
from troth.client.market import find_scheduler, offer_of
from troth.client.receipts import Receipt, opened
from troth.client.recovering import is_committed, read_answer
from troth.client.session import load_language
from troth.client.terminal import printable
from troth.protocol.state import State, TaskRecord


async def fetch_answer(home: Home, configuration: Configuration, task: str, *, as_json: bool) -> None:
    """Print the answer of an earlier task.

    Raises:
        ReceiptNotFound: nothing was committed on chain for it, so no text can be checked.
        StreamLost: its scheduler has no answer.
        ProofError: the scheduler's answer is not the one that was committed on chain.
    """
    async with view(home, configuration) as (chain, follower):
        with opened(home.receipts, chain.domain) as receipts:
            receipt = receipts.find(task)
            record = _committed(receipt, follower.state)
            scheduler = find_scheduler(follower.state, configuration.overridden(scheduler=receipt.scheduler))
            ends = record.task.terms.segments
            offer = offer_of(follower.state, scheduler, receipt.execution_class, tuple(one.end for one in ends))
            async with connected(scheduler) as api:
                tokens, _ = read_answer(await api.task(receipt.task_id, receipt.salt), offer.model.vocabulary)
                language = await load_language(home, api, offer)
            if tokens is None:
                raise StreamLost("The scheduler holds no answer for this task", receipt.name, "Ask again.")
            check_output(record.task, receipt.salt, receipt.prompt_tokens, tokens)
            receipts.answered(receipt.task_id, tokens)
            receipts.followed(receipt.task_id, record)
    answer = language.decode(tokens)
    outcome = None if record.outcome is None else record.outcome.name.lower()
    shown = {"task_id": receipt.name, "answer": answer, "outcome": outcome}
    print(json.dumps(shown, ensure_ascii=False) if as_json else printable(answer))


def _committed(receipt: Receipt, state: State) -> TaskRecord:
    record = state.tasks.get(receipt.task_id)
    if record is None or not is_committed(record):
        raise ReceiptNotFound(
            "Nothing is committed on chain for this task, so no answer can be checked", receipt.name, "Try again later."
        )
    return record
