"""One question from its first order to the end of its check, whatever becomes of single orders.

An order that fails midway is followed by a new one, on another tab where there is one: prompt and the tokens shown so
far go into it, so that the stream goes on. What was shown before was signed by nobody; what the new order's nodes sign
is the rest, over a prompt that holds it. A scheduler that lied after it had shown text is not followed by another: its
text is not to be trusted.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from troth.client.detokenizer import Detokenizer
from troth.client.errors import ClientError, FeeTooHigh, OwnModelUnusable, PromptError
from troth.client.orders import building
from troth.client.orders.checking import OrderSettlement
from troth.client.orders.chosen import AnswerToken
from troth.client.orders.course import Course
from troth.client.orders.failing import (
    OrderContradicted,
    OrderFailed,
    OrderStale,
    OrderStalled,
    OrderUnseen,
    what_happened,
)
from troth.client.orders.journal import OrderRecord
from troth.client.orders.judging import case_command, go_to_court
from troth.client.orders.last_state import last_state
from troth.client.orders.own_check import OwnVerdict, check_by_self, require_own_model
from troth.client.orders.session import FAILURES, PayerSession, TabContext
from troth.client.orders.updates import (
    EndedUpdate,
    FinishedUpdate,
    OrderOutcome,
    RecomputedUpdate,
    SentUpdate,
    ServedUpdate,
    SignedUpdate,
    TextUpdate,
    TokenUpdate,
    Update,
)
from troth.client.orders.wishes import Wish
from troth.client.tabs.errors import StoreUnusable, TabShort
from troth.protocol.logprobs import NO_LOGPROBS
from troth.protocol.market.signed import Opinion

ATTEMPTS = 3
"""Orders for one question: more, and a network in trouble would be paid many times for one answer."""


def new_question() -> str:
    """An id under which the orders of one question are found again."""
    return secrets.token_hex(16)


@dataclass
class _Question:
    """What was shown so far, whether its nodes signed that it is all, and what it may have cost.

    ``ending`` is set where nobody wants more of it; ``before``: tokens that were shown before the newest order.
    """

    prompt: tuple[int, ...]
    wish: Wish
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    shown: list[int] = field(default_factory=list)
    before: int = 0
    unshown: list[AnswerToken] = field(default_factory=list)
    answered: bool = False
    at_stake: int = 0
    tried: set[bytes] = field(default_factory=set)
    short: set[bytes] = field(default_factory=set)

    def rest(self) -> tuple[tuple[int, ...], Wish]:
        """Prompt and wish of the next order."""
        left = self.wish.choices.max_tokens - len(self.shown)
        transforms = self.wish.choices.transforms
        if transforms.any:
            # The rest goes on under the same rules, from what is written.
            transforms = replace(transforms, written=transforms.written + len(self.shown))
        choices = replace(self.wish.choices, max_tokens=left, transforms=transforms)
        return (*self.prompt, *self.shown), replace(self.wish, choices=choices)


async def ask(
    session: PayerSession,
    prompt: tuple[int, ...],
    wish: Wish,
    question: str = "",
    *,
    attempts: int = ATTEMPTS,
    ending: asyncio.Event | None = None,
) -> AsyncGenerator[Update, None]:
    """Ask, and yield what happens until the answer is checked, or known not to be drawn.

    At most ``attempts`` orders are made for it. Once ``ending`` is set no more is written: the answer ends with what
    there is, which is paid and checked as any other, and nothing is ordered anew. Where it is set before there is an
    order none is made, and nothing happens.

    Raises:
        TabShort: no tab covers it; `shortfall` says what is missing.
        OwnModelUnusable: the answer is to be checked by oneself, and there is no model for it; nothing was ordered.
        OrderContradicted: a scheduler sent what breaks the rules; nothing is paid for that.
        OrderFailed, OrderStalled: the last of several orders failed.
    """
    if session.language is None:
        await session.ready()
    assert session.language is not None
    state = _Question(prompt, wish, ending or asyncio.Event())
    detokenizer = Detokenizer(session.language)
    name, failure = question or new_question(), None
    for attempt in range(attempts):
        placed = await _placed(session, state, name, failure)
        if placed is None:
            return
        tab_context, entry = placed
        state.before = len(state.shown)
        try:
            yield SentUpdate(entry.identifier, tab_context.scheduler, entry.most, again=attempt > 0)
            async with aclosing(_served(session, tab_context, entry, state, detokenizer)) as updates:
                async for update in updates:
                    yield update
            return
        except (OrderFailed, OrderStalled, OrderContradicted) as error:
            failure = error
            is_last = attempt == attempts - 1 or state.ending.is_set()
            _note_failure(session, state, tab_context, entry, error, last=is_last)
            if isinstance(error, OrderStale):
                await session.refreshed()
        finally:
            # Whoever stops reading leaves the order to the keeper.
            session.journal.release(entry.identifier)


async def _served(
    session: PayerSession, tab_context: TabContext, entry: OrderRecord, state: _Question, detokenizer: Detokenizer
) -> AsyncGenerator[Update, None]:
    """One order, from its sending to its end."""
    async with aclosing(Course(session, tab_context, entry, state.ending).send()) as steps:
        async for step in steps:
            if isinstance(step, SignedUpdate) and state.wish.state:
                yield await last_state(session, tab_context, entry)
            for update in _shown(step, state, detokenizer):
                yield update
    async with aclosing(_finish(session, tab_context, entry, state.wish)) as endings:
        async for settled in endings:
            yield settled


def _note_failure(
    session: PayerSession,
    state: _Question,
    tab_context: TabContext,
    entry: OrderRecord,
    error: ClientError,
    *,
    last: bool,
) -> None:
    """Raise the error where no other order may follow; else note what the failed one may still cost.

    Who names a block that nobody has yet may only pretend that this client is behind: then another scheduler answers.
    """
    tab_context.gone()
    state.tried.add(tab_context.identifier)
    if isinstance(error, OrderFailed) and error.shortfall:
        state.short.add(tab_context.identifier)
    if isinstance(error, OrderStalled):
        state.at_stake += entry.most
    lied = isinstance(error, OrderContradicted) and bool(state.shown)
    whole = state.answered or len(state.shown) >= state.wish.choices.max_tokens
    behind = isinstance(error, OrderUnseen) and all(one.identifier in state.tried for one in session.usable())
    if last or lied or whole or behind:
        raise error


async def _placed(
    session: PayerSession, state: _Question, name: str, failure: ClientError | None
) -> tuple[TabContext, OrderRecord] | None:
    """An order at the first tab that takes it; None where nobody wants it any more.

    Raises what the best of them was refused for, and why an order before failed.
    """
    prompt, wish = state.rest()
    refused: Exception | None = None
    tab_contexts = sorted(session.usable(), key=lambda tab_context: tab_context.identifier in state.tried)
    for tab_context in tab_contexts:
        if tab_context.identifier in state.short or state.ending.is_set():
            continue
        try:
            offer = await session.open_tab_context(tab_context)
            # With every order, and before it is written down: lists end, and anybody may register a node meanwhile.
            session.require_tier(tab_context.scheduler, offer)
            if wish.check.mode == "self":
                await require_own_model(session, offer)
            if state.ending.is_set():
                continue
            return tab_context, building.place(session, tab_context, offer, prompt, wish, name, state.at_stake)
        except (PromptError, OwnModelUnusable, StoreUnusable):
            raise
        except (TabShort, FeeTooHigh) as error:
            refused = error
        except FAILURES as error:
            tab_context.gone()
            refused = refused or error
    if state.ending.is_set():
        if failure is not None:
            raise failure
        return None
    if isinstance(refused, TabShort | FeeTooHigh):
        raise refused
    raise failure or refused or session.no_tab()


def _shown(step: object, state: _Question, detokenizer: Detokenizer) -> list[Update]:
    match step:
        case TokenUpdate(chosen):
            state.shown.append(chosen.token)
            state.unshown.append(chosen)
            text = detokenizer.feed(chosen.token)
            return [_piece(text, state)] if text else []
        case SignedUpdate():
            state.answered = True
            rest = detokenizer.flush()
            left = bool(state.unshown) and state.wish.choices.logprobs != NO_LOGPROBS
            pieces: list[Update] = [_piece(rest, state)] if rest or left else []
            served = step.nodes[-1] if step.nodes else None
            # Fewer than were shown, where a node told its tokens itself and the answer was ended early.
            return [*pieces, step, FinishedUpdate(step.reason, state.before + step.written, served)]
        case ServedUpdate():
            return [step]
    return []


def _piece(text: str, state: _Question) -> TextUpdate:
    chosen, state.unshown = tuple(state.unshown), []
    return TextUpdate(text, chosen)


async def _finish(
    session: PayerSession, tab_context: TabContext, entry: OrderRecord, wish: Wish
) -> AsyncGenerator[Update, None]:
    ending = OrderSettlement(session, tab_context, session.journal.entry(entry.identifier))
    async with aclosing(ending.run()) as steps:
        async for step in steps:
            if not isinstance(step, EndedUpdate):
                yield step  # type: ignore[misc]  # a settlement yields DrawnUpdate and EndedUpdate alone
                continue
            own = await check_by_self(session, session.journal.entry(entry.identifier))
            if own is not None:
                yield RecomputedUpdate(entry.identifier, own.opinion, own.words)
            yield await _with_court(session, entry, wish, step, own)


async def _with_court(
    session: PayerSession, entry: OrderRecord, wish: Wish, ended: EndedUpdate, own: OwnVerdict | None
) -> EndedUpdate:
    """What the user is told to do, or what was done by itself."""
    fresh = session.journal.entry(entry.identifier)
    doubted = own is not None and own.opinion is Opinion.REJECT
    try:
        rejected = ended.outcome is OrderOutcome.REJECTED
        if not rejected and wish.check.mode != "court" and not doubted:
            return ended
        line = await go_to_court(session, fresh, doubt=ended.outcome is OrderOutcome.UNDRAWN)
        if session.opener is not None:
            # Only what was done is noted: who allows a bond later still has it brought by the keeper.
            session.journal.step(entry.identifier, court=line.encode())
    except StoreUnusable:
        raise
    except FAILURES as error:
        # The outcome is told all the same; a rejection is brought to the court by the keeper.
        line = f"not at the court yet ({what_happened(error)}): `{case_command(entry.identifier)}` brings it there"
    return replace(ended, advice="; ".join(part for part in (ended.advice, line) if part))
