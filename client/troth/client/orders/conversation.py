"""A question and its answer, paid from tabs: answers on standard output, all about them on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from troth.client.errors import AnswerNotAccepted, ModelUnavailable
from troth.client.orders.asking import ask
from troth.client.orders.judging import case_command
from troth.client.orders.own_check import spoken
from troth.client.orders.running import Running
from troth.client.orders.session import PayerSession
from troth.client.orders.updates import (
    DrawnUpdate,
    EndedUpdate,
    FinishedUpdate,
    OrderOutcome,
    RecomputedUpdate,
    SentUpdate,
    ServedUpdate,
    SignedUpdate,
    TextUpdate,
    Update,
)
from troth.client.orders.wishes import Wish
from troth.client.prompt import check_text
from troth.client.template import Message
from troth.client.terminal import coloured, printable, printable_line
from troth.protocol.amounts import Asset
from troth.protocol.market.signed import Opinion

ACCEPTED = {OrderOutcome.UNDRAWN, OrderOutcome.CHECKED}


def opening(system: str) -> list[Message]:
    """The beginning of a conversation."""
    return [{"role": "system", "content": check_text(system)}] if system else []


def say(line: str) -> None:
    """A line about an answer, beside it."""
    print(coloured(line, sys.stderr), file=sys.stderr, flush=True)


@dataclass
class Turn:
    """One question's answer as it came."""

    pieces: list[str] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)
    outcome: OrderOutcome | None = None
    signed: SignedUpdate | None = None
    ended: EndedUpdate | None = None
    own: Opinion | None = None

    @property
    def accepted(self) -> bool:
        """Whether neither verifiers nor the own model say otherwise."""
        return self.outcome in ACCEPTED and self.own is not Opinion.REJECT

    def receipt_line(self, asset: Asset) -> str:
        """What became of it, in one line; what must not be overlooked comes first."""
        if self.ended is None:
            return f"not ended yet: `troth client receipts` follows {self.result.get('order', 'it')}"
        words = [describe(self.ended, asset) if not self.accepted else str(self.outcome)]
        if self.own is not None:
            words.append(f"own model: {spoken(self.own)}")
        if self.signed is not None:
            cached = f" ({self.signed.cached} cached)" if self.signed.cached else ""
            words.append(f"{self.signed.prompt} read{cached}, {self.signed.written} written")
        checked = {node for one in self.result.get("verifiers", []) for node in one}
        if checked:
            words.append("1 verifier" if len(checked) == 1 else f"{len(checked)} verifiers")
        order = str(self.result.get("order", ""))[:12]
        return " · ".join([*words, asset.show(self.ended.fee), order])

    def note(self, update: Update) -> None:
        """An update, for ``--json``."""
        match update:
            case TextUpdate(text):
                self.pieces.append(text)
            case SentUpdate(order, scheduler, most, _):
                self.result |= {"order": "0x" + order.hex(), "scheduler": scheduler, "at_most_units": str(most)}
            case FinishedUpdate(reason, tokens, served_by):
                self.result |= {"finish_reason": reason, "tokens": tokens, "served_by": served_by}
            case SignedUpdate():
                self.signed = update
                self.result |= {"fee_units": str(update.fee), "cached_tokens": update.cached}
            case DrawnUpdate(_, verifiers):
                self.result["verifiers"] = [list(one) for one in verifiers]
            case RecomputedUpdate(_, opinion, words):
                self.own = opinion
                self.result["own_check"] = {"opinion": spoken(opinion), "words": words}
            case EndedUpdate(_, outcome, fee, due, advice):
                self.outcome, self.ended = outcome, update
                self.result |= {"outcome": str(outcome), "cost_units": str(fee), "due_block": due, "advice": advice}


async def converse(running: Running, wish: Wish, system: str, question: str) -> None:
    """Answer one question.

    Raises:
        AnswerNotAccepted: the answer was rejected, or its check was refused.
    """
    session = running.session
    await session.ready()
    turn = await turn_of(session, running.asset, wish, [*opening(system), user_message(question)])
    await running.keeper.once()
    require_accepted(turn)


async def print_json_answer(running: Running, wish: Wish, system: str, question: str) -> None:
    """Answer one question and print a single JSON object at the end; raises as `converse` does."""
    turn, session = Turn(), running.session
    await session.ready()
    try:
        async with aclosing(
            ask(session, _prompt(session, [*opening(system), user_message(question)]), wish)
        ) as updates:
            async for update in updates:
                turn.note(update)
        await running.keeper.once()
    finally:
        # Escaped, all of it: an answer may hold characters that steer a terminal, and a program reads both alike.
        # Also after an error, which goes to standard error: whoever pays gets what has come, and the order's id.
        print(json.dumps({"answer": "".join(turn.pieces), **turn.result}))
    require_accepted(turn)


async def turn_of(
    session: PayerSession, asset: Asset, wish: Wish, messages: Sequence[Message], *, brief: bool = False
) -> Turn:
    """Ask, and print the answer as it comes; what is said of it beside it, unless ``brief``."""
    turn, line_is_open = Turn(), False
    try:
        async with aclosing(ask(session, _prompt(session, messages), wish)) as updates:
            async for update in updates:
                turn.note(update)
                if isinstance(update, TextUpdate):
                    print(printable(update.text), end="", flush=True)
                    line_is_open = True
                    continue
                line = "" if brief else describe(update, asset)
                if line_is_open and (line or isinstance(update, SignedUpdate | FinishedUpdate)):
                    # What is said of an answer must not go on in the answer's last line, and no error may.
                    print(flush=True)
                    line_is_open = False
                if line:
                    say(line)
    finally:
        if line_is_open:
            print(flush=True)
    return turn


def describe(update: Update, asset: Asset) -> str:
    """A line for people; empty for what is printed otherwise."""
    match update:
        case SentUpdate(order, scheduler, most, again):
            what = "ordered anew" if again else "ordered"
            return f"{what:<10} 0x{order.hex()[:10]} at {scheduler}, at most {asset.show(most)}"
        case ServedUpdate(_, nodes):
            return f"served by  {', '.join(nodes)}: drawn, proof checked"
        case SignedUpdate():
            cached = f", {update.cached} of them from a cache" if update.cached else ""
            return f"answer     {update.prompt} tokens read{cached}, {update.written} written: {asset.show(update.fee)}"
        case DrawnUpdate(_, verifiers):
            count = len({node for one in verifiers for node in one})
            who = "1 verifier computes" if count == 1 else f"{count} verifiers compute"
            return f"drawn      {who} it again"
        case RecomputedUpdate(_, Opinion.ACCEPT, words):
            return f"own model  {words}"
        case RecomputedUpdate(_, opinion, words):
            what = "do not rely on this answer: " if opinion is Opinion.REJECT else ""
            return f"OWN MODEL {spoken(opinion).upper()}: {what}{printable_line(words)}"
        case EndedUpdate(_, OrderOutcome.CHECKED, fee, _, advice):
            return f"checked    a majority of verifiers agrees; {asset.show(fee)} paid{'; ' + advice if advice else ''}"
        case EndedUpdate(_, OrderOutcome.UNDRAWN, fee, due, advice):
            return f"undrawn    {asset.show(fee)} will be paid at block {due}{'; ' + advice if advice else ''}"
        case EndedUpdate(order, OrderOutcome.UNCLEAR, fee, due, advice):
            doubt = f"`{case_command(order)}` doubts it"
            return f"NO MAJORITY: {advice}; {asset.show(fee)} will be paid at block {due}; {doubt}"
        case EndedUpdate(_, OrderOutcome.REJECTED, _, due, advice):
            return f"REJECTED: do not rely on this answer. A case must stand at block {due}, or it is paid: {advice}"
        case EndedUpdate(_, outcome, _, _, advice):
            paid = "is paid before that" if outcome is OrderOutcome.UNCHECKED else "is paid for it"
            return f"{str(outcome).upper()}: do not rely on this answer; nothing {paid}. {advice}"
        case _:
            return ""


def require_accepted(turn: Turn) -> None:
    """Raise AnswerNotAccepted where verifiers did not accept, or the own model does not, so that a script notices."""
    remedy = "Do not rely on it. `troth client receipts` shows what is paid, `troth client case` what can be done."
    if turn.outcome not in ACCEPTED:
        raise AnswerNotAccepted("The answer was not accepted by its verifiers", str(turn.outcome), remedy)
    if turn.own is Opinion.REJECT:
        raise AnswerNotAccepted("Your own model gives another answer", str(turn.outcome), remedy)


def _prompt(session: PayerSession, messages: Sequence[Message]) -> tuple[int, ...]:
    if session.language is None:
        raise ModelUnavailable("The model's language is not loaded", "", "Ask again.")
    return session.language.prompt_tokens(messages)


def user_message(question: str) -> Message:
    """What a user says."""
    return {"role": "user", "content": question}
