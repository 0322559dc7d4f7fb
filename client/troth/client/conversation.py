"""A conversation on a terminal: the answer on standard output, everything about it on standard error."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import aclosing
from dataclasses import dataclass

from troth.chain.errors import ChainError
from troth.chain.keystore import Key
from troth.client.asking import Assigned, Finished, Posted, Text, Update, Verdict, ask_afresh
from troth.client.choices import Choices
from troth.client.configuration import Configuration
from troth.client.dialogue import next_question, opening, say
from troth.client.errors import AnswerNotAccepted, ClientError
from troth.client.home import Home
from troth.client.money import format_amount
from troth.client.ordering import SignedOrder
from troth.client.prompt import decode_question
from troth.client.session import Session, session
from troth.client.template import Message
from troth.client.terminal import printable
from troth.protocol.types import Address


@dataclass
class Talk:
    """A conversation so far, and the node that served its last turn: the next one enters there if it can."""

    history: list[Message]
    near: Address | None = None


async def converse(  # noqa: PLR0917
    home: Home, configuration: Configuration, key: Key, choices: Choices, system: str, question: str
) -> None:
    """Answer `question`; without one, go on asking until end of input or /exit, with the whole history each time.

    Raises:
        AnswerNotAccepted: the single question's answer was not accepted by its verifiers.
    """
    async with session(home, configuration) as ready:
        talk = Talk(opening(system))
        if question:
            outcome = await _turn(ready, key, choices, talk, question)
            require_accepted(outcome)
            return
        say(f"{format_amount(ready.offer.fee)} a question; /exit ends the conversation")
        while (line := next_question(sys.stdin.buffer)) is not None:
            await _survive(ready, key, choices, talk, line)


async def print_json_answer(  # noqa: PLR0917
    home: Home, configuration: Configuration, key: Key, choices: Choices, system: str, question: str
) -> None:
    """Answer one question and print a single JSON object at the end; raises as `converse` does."""
    async with session(home, configuration) as ready:
        messages = [*opening(system), _user(question)]
        signed = await ready.prepare(messages, choices, key)
        pieces: list[str] = []
        result: dict[str, object] = {"task_id": "0x" + signed.task_id.hex(), "fee_wei": str(signed.fee)}
        try:
            afresh = ask_afresh(ready, signed, lambda session: session.prepare(messages, choices, key))
            async with aclosing(afresh) as updates:
                async for update in updates:
                    if isinstance(update, SignedOrder):
                        result |= {"task_id": "0x" + update.task_id.hex(), "fee_wei": str(update.fee)}
                    else:
                        _note(update, pieces, result)
        finally:
            # Also after an error, which goes to standard error: whoever pays gets what has come, and the task's id.
            print(json.dumps({"answer": "".join(pieces), **result}, ensure_ascii=False))
    require_accepted(str(result["outcome"]))


def _note(update: Update, pieces: list[str], result: dict[str, object]) -> None:
    match update:
        case Text(text):
            pieces.append(text)
        case Finished(reason, tokens, served_by):
            result |= {"finish_reason": reason, "tokens": tokens, "served_by": served_by}
        case Verdict(outcome, cost):
            result |= {"outcome": outcome, "cost_wei": str(cost)}
        case Posted(step, transaction, gas):
            result[step] = {"transaction": transaction, "gas": gas}
        case Assigned(assignment):
            result["parties"] = [list(parties) for parties in assignment.parties]


def require_accepted(outcome: str) -> None:
    """Raise AnswerNotAccepted for any other outcome, so that a script notices."""
    if outcome != "accepted":
        raise AnswerNotAccepted(
            "The answer was not accepted by its verifiers", outcome, "Do not rely on it. Your fee came back; ask again."
        )


def describe(update: Update, signed: SignedOrder) -> str:
    """A line for people; empty for what is printed otherwise."""
    match update:
        case Assigned(assignment):
            count = len(assignment.segments)
            drawn = f"{count} segment{'s' if count > 1 else ''}"
            return f"task       0x{assignment.task_id.hex()}: parties of {drawn} drawn, proofs checked"
        case Finished(reason, tokens, served_by):
            served = "" if served_by is None else f"served by  {served_by}, which signed this answer\n"
            return f"{served}answer     {tokens} tokens ({reason}); its verifiers re-compute it now"
        case Posted(step, transaction, gas):
            return f"{step:<10} {transaction} ({gas:,} gas)"
        case Verdict("accepted", cost):
            return f"verdict    accepted; you paid {format_amount(cost)}"
        case Verdict(outcome, cost):
            back = format_amount(signed.fee - cost)
            return f"verdict    {outcome.upper()}: do not rely on this answer; {back} came back to you"
        case Text():
            return ""


async def _survive(ready: Session, key: Key, choices: Choices, talk: Talk, line: bytes) -> None:
    """One turn of a conversation, which an error does not end."""
    try:
        question = decode_question(line)
        if question.strip():
            await _turn(ready, key, choices, talk, question)
    except (ClientError, ChainError) as error:
        say(f"error: {error.what}\nvalue: {error.value}\nto do: {error.remedy}")


async def _turn(ready: Session, key: Key, choices: Choices, talk: Talk, question: str) -> str:
    messages = [*talk.history, _user(question)]
    signed = await ready.prepare(messages, choices, key)
    pieces: list[str] = []
    outcome, served_by = "", None
    # Should this turn fail, the next one enters anywhere.
    near, talk.near = talk.near, None
    try:
        afresh = ask_afresh(ready.near(near), signed, lambda session: session.prepare(messages, choices, key))
        async with aclosing(afresh) as updates:
            async for update in updates:
                if isinstance(update, SignedOrder):
                    signed = update
                    say("the nodes have moved: ordered anew at the new terms")
                    continue
                _show(update, signed, pieces)
                if isinstance(update, Finished):
                    served_by = update.served_by
                if isinstance(update, Verdict):
                    outcome = update.outcome
    except asyncio.CancelledError:
        name = "0x" + signed.task_id.hex()
        say(f"\ninterrupted; the task goes on, `troth client receipts {name}` shows how it ends")
        raise
    if outcome == "accepted":
        talk.history = [*messages, {"role": "assistant", "content": "".join(pieces)}]
        talk.near = served_by
    return outcome


def _show(update: Update, signed: SignedOrder, pieces: list[str]) -> None:
    if isinstance(update, Text):
        pieces.append(update.text)
        print(printable(update.text), end="", flush=True)
        return
    if isinstance(update, Finished):
        print(flush=True)
    say(describe(update, signed))


def _user(question: str) -> Message:
    return {"role": "user", "content": question}
