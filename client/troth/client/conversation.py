"""A conversation on a terminal: the answer on standard output, everything about it on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from troth.chain.keystore import Key
from troth.client.asking import Assigned, Finished, Posted, Text, Update, Verdict, ask
from troth.client.configuration import Configuration
from troth.client.home import Home
from troth.client.money import format_amount
from troth.client.ordering import Choices, SignedOrder
from troth.client.prompt import check_text
from troth.client.session import Session, session
from troth.client.template import Message

FAREWELLS = {"/exit", "/quit"}


async def converse(
    home: Home, configuration: Configuration, key: Key, choices: Choices, system: str, question: str
) -> None:
    """Answer `question`; without one, go on asking until end of input or /exit, with the whole history each time."""
    async with session(home, configuration) as ready:
        history: list[Message] = [{"role": "system", "content": system}] if system else []
        if question:
            await _turn(ready, key, choices, history, question)
            return
        _say(f"{format_amount(ready.offer.fee)} a question; /exit ends the conversation")
        while (line := _prompt()) is not None:
            await _turn(ready, key, choices, history, check_text(line))


async def print_json_answer(
    home: Home, configuration: Configuration, key: Key, choices: Choices, system: str, question: str
) -> None:
    """Answer one question and print a single JSON object at the end."""
    async with session(home, configuration) as ready:
        history: list[Message] = [{"role": "system", "content": system}] if system else []
        signed = await ready.prepare([*history, {"role": "user", "content": question}], choices, key)
        pieces: list[str] = []
        result: dict[str, object] = {"task_id": "0x" + signed.task_id.hex()}
        async for update in ask(ready, signed):
            match update:
                case Text(text):
                    pieces.append(text)
                case Finished(reason, tokens):
                    result |= {"finish_reason": reason, "tokens": tokens}
                case Verdict(outcome, cost):
                    result |= {"outcome": outcome, "cost_wei": str(cost)}
                case Posted(step, transaction, gas):
                    result[step] = {"transaction": transaction, "gas": gas}
                case Assigned():
                    pass
        print(json.dumps({"answer": "".join(pieces), **result}, ensure_ascii=False))


async def _turn(ready: Session, key: Key, choices: Choices, history: list[Message], question: str) -> None:
    messages = [*history, {"role": "user", "content": question}]
    signed = await ready.prepare(messages, choices, key)
    answer = await show(ready, signed, _say)
    history[:] = [*messages, {"role": "assistant", "content": answer}]


async def show(ready: Session, signed: SignedOrder, say: Callable[[str], None]) -> str:
    """Ask, print the answer as it streams and the rest through `say`; returns the answer."""
    pieces: list[str] = []
    async for update in ask(ready, signed):
        if isinstance(update, Text):
            pieces.append(update.text)
            print(update.text, end="", flush=True)
        elif line := describe(update, signed):
            say(line)
    return "".join(pieces)


def describe(update: Update, signed: SignedOrder) -> str:
    """A line for people; empty for what is printed otherwise."""
    match update:
        case Assigned(assignment):
            return f"task 0x{assignment.task_id.hex()}: {len(assignment.segments)} segments, parties drawn and proven"
        case Finished(reason, tokens):
            return f"\n{tokens} tokens ({reason}); now verifiers re-compute them"
        case Posted(step, transaction, gas):
            return f"{step:<10} {transaction} ({gas:,} gas)"
        case Verdict(outcome, cost):
            refund = "" if outcome == "accepted" else f"; {format_amount(signed.fee)} came back"
            return f"verdict    {outcome}; you paid {format_amount(cost)}{refund}"
        case Text():
            return ""


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _prompt() -> str | None:
    try:
        line = input("> " if sys.stdin.isatty() else "")
    except EOFError:
        return None
    return None if line.strip() in FAREWELLS else line
