"""The text of an earlier answer, from the receipt or again from its scheduler, and only if it is the committed one."""

from __future__ import annotations

from troth.client.chain_view import view
from troth.client.checking import check_commitment
from troth.client.configuration import Configuration
from troth.client.connection import connection
from troth.client.errors import AnswerUnavailable, ProofError
from troth.client.home import Home
from troth.client.language import Language
from troth.client.receipts import Receipt, opened
from troth.client.scheduler_calls import SchedulerCalls
from troth.client.session import load_language
from troth.client.standing import Standing, standing_of
from troth.client.untrusted import read_list, read_whole
from troth.protocol.request import TOKENS_LIMIT
from troth.protocol.state import Scheduler, State
from troth.protocol.types import ModelDescriptor, to_address


async def fetch_answer(home: Home, configuration: Configuration, task: str) -> str:
    """The committed answer of one of this wallet's tasks.

    Raises:
        AnswerUnavailable: none was committed, or its scheduler or class is gone.
        ProofError: the scheduler sends another answer than the committed one.
    """
    async with view(home, configuration) as (chain, follower):
        with opened(home.receipts, chain.domain) as receipts:
            receipt, state = receipts.find(task), follower.state
            standing = _committed(receipt, state)
            async with connection(home, configuration, _scheduler(receipt, state)) as reached:
                api = reached.api
                if not holds_answer(receipt, standing):
                    tokens = await fetch_tokens(api, receipt, _model(receipt, state), standing)
                    receipts.answered(receipt.identifier, tokens)
                    receipt = receipts.find(receipt.task_id)
                language = await _language(home, api, receipt, state)
    return language.decode(list(receipt.tokens))


def holds_answer(receipt: Receipt, standing: Standing) -> bool:
    """Whether the receipt's own tokens are the committed answer."""
    try:
        check_commitment(standing, receipt.prompt_length, receipt.salt, receipt.tokens)
    except ProofError:
        return False
    return True


async def fetch_tokens(api: SchedulerCalls, receipt: Receipt, model: ModelDescriptor, standing: Standing) -> list[int]:
    """The committed answer's tokens from its scheduler; AnswerUnavailable or ProofError otherwise."""
    if receipt.served_by is not None:
        # Whoever is asked sees the answer; this node knows it already.
        api = api.near(to_address(receipt.served_by))
    found = await api.task(receipt.identifier, receipt.salt)
    if found.get("tokens") is None:
        raise AnswerUnavailable("The scheduler has no answer any more", receipt.task_id, "Ask again, or ask another.")
    tokens = [read_whole(token, 0, model.vocabulary - 1) for token in read_list(found["tokens"], TOKENS_LIMIT)]
    check_commitment(standing, receipt.prompt_length, receipt.salt, tokens)
    return tokens


async def _language(home: Home, api: SchedulerCalls, receipt: Receipt, state: State) -> Language:
    return await load_language(home, api, receipt.execution_class, _model(receipt, state).architecture)


def _committed(receipt: Receipt, state: State) -> Standing:
    standing = standing_of(state, receipt.identifier)
    if standing is None or standing.output_hash is None:
        raise AnswerUnavailable(
            "No answer was committed on chain for this task",
            receipt.task_id,
            "`troth client receipts` shows its state.",
        )
    return standing


def _scheduler(receipt: Receipt, state: State) -> Scheduler:
    scheduler = state.schedulers.get(to_address(receipt.scheduler))
    if scheduler is None:
        raise AnswerUnavailable("The task's scheduler has left the network", receipt.scheduler, "Ask another one.")
    return scheduler


def _model(receipt: Receipt, state: State) -> ModelDescriptor:
    rules = state.classes.get(receipt.execution_class)
    model = None if rules is None else state.models.get(rules.model)
    if model is None:
        raise AnswerUnavailable("The chain does not know the task's class", receipt.task_id, "Check --contract.")
    return model
