"""Summonses for orders that these records do not have: they are lost, or an old copy, and silence would convict.

The chain has the summons alone, and not its order. That is enough to pass it on: who was admitted is found by the hash
that the admission names, and nodes show once more what they signed. A node that a summons is passed on to speaks, or
pays for its silence. What is promised to it anew is worth nothing: it has its promise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import islice, product
from typing import Any, Protocol, TypeVar

from troth.protocol import typed_data
from troth.protocol.errors import ProtocolError
from troth.protocol.identifiers import group_id
from troth.protocol.market import canonical, draws, messages
from troth.protocol.market.draws import DrawnSeats
from troth.protocol.market.messages import Signed, compact, word_of
from troth.protocol.market.proceedings import SummonsKind, SummonsState
from troth.protocol.market.signed import Promise, Result, Verdict, Work
from troth.protocol.market.state import SummonsRecord
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.market.views import parameters_of, rules_in
from troth.protocol.types import Address, Hash32, Segment, segments_from_ends, unpack_ends
from troth.protocol.wire_market import Conclude, Judge
from troth.scheduler.orders.context import SchedulerContext
from troth.transport.errors import OverlayError

log = logging.getLogger(__name__)

MOST_TRIED = 1 << 18
"""Choices of nodes that are hashed: all of two groups with 500 members, or of three with 64."""
ANSWER_SECONDS = 5.0
_SEARCHING = ThreadPoolExecutor(1, "searching")
"""One search at a time, beside the threads that every order's books are written in: each takes a processor whole, and
strangers who summon for many orders would have all of those threads searching."""
_LIMIT = 1 << 12

Word = TypeVar("Word", Result, Verdict)


class SummonsSender(Protocol):
    """Sends a call about the summons at hand."""

    def __call__(self, function: str, *arguments: object, deposit: int = 0) -> Awaitable[None]:
        """Raises ChainError."""


async def answer_forgotten(context: SchedulerContext, record: SummonsRecord, send: SummonsSender) -> None:
    """Pass it on, or answer it with what nodes show again. Raises ChainError, ProtocolError."""
    if record.state.kind is SummonsKind.RESULTS:
        if not record.state.extended:
            await _pass_on_results(context, record.state, send)
    elif record.state.passed_to == NO_ADDRESS:
        await _answer_check(context, record, send)


# ------------------------------------------------------------------------------------------------------------- results


async def _pass_on_results(context: SchedulerContext, state: SummonsState, send: SummonsSender) -> None:
    nodes = await asyncio.get_running_loop().run_in_executor(_SEARCHING, _admitted, context, state)
    if nodes is None:
        log.error("nobody in the groups of order 0x%s was admitted for it", state.order.hex())
        return
    promised = _promised(context, state, nodes[0], 0, Work.INFERENCE)
    tab, deposit = context.node_tabs.tab(nodes[0]), await context.ledger.pass_deposit()
    await send("passOnResults", nodes, tab, promised.message, promised.signature, deposit=deposit)


def _admitted(context: SchedulerContext, state: SummonsState) -> tuple[Address, ...] | None:
    """Who was admitted: the choice of members that hashes to what the admission names. In a thread."""
    return _chosen(tuple(tuple(_members(context, state, span)) for span in _spans(context, state)), state.named)


@lru_cache(maxsize=1 << 8)
def _chosen(groups: tuple[tuple[Address, ...], ...], named: Hash32) -> tuple[Address, ...] | None:
    """Remembered: each look at the summons asks again, and it takes seconds where the groups are large."""
    tried = islice(product(*groups), MOST_TRIED)
    return next((nodes for nodes in tried if messages.nodes_hash(nodes) == named), None)


# ------------------------------------------------------------------------------------------------------------- a check


async def _answer_check(context: SchedulerContext, record: SummonsRecord, send: SummonsSender) -> None:
    state = record.state
    results = await _results(context, state)
    if results is None:
        log.error("nobody shows the results of order 0x%s again", state.order.hex())
        return
    shown = tuple(one.message for one in results), tuple(compact(one.signature) for one in results)
    drawn = _verifiers(context, record, results)
    asked = Judge(state.order, state.segment, 1, 0, 1)
    answers = await asyncio.gather(*[_word(context, node, asked, Verdict) for node in drawn.seats])
    judged = typed_data.struct_hash(results[state.segment].message)
    given = [one for one in answers if one is not None and one.message.result == judged]
    spoke = {typed_data.recover(one.message, context.operator.domain, one.signature) for one in given}
    missing = [node for node in drawn.seats if node not in spoke and node not in record.responded]
    if not missing:
        await send("answerCheck", *shown, tuple(word_of(one) for one in given), drawn.hints)
        return
    promised = _promised(context, state, missing[0], state.segment, Work.CHECK)
    tab, deposit = context.node_tabs.tab(missing[0]), await context.ledger.pass_deposit()
    words = (tab, promised.message, promised.signature, drawn.hints)
    await send("passOnCheck", *shown, *words, deposit=deposit)


async def _results(context: SchedulerContext, state: SummonsState) -> tuple[Signed[Result], ...] | None:
    """The results that the draw names, each from the node that signed it."""
    groups = [_members(context, state, span) for span in _spans(context, state)]
    asked = [
        _word(context, node, Conclude(state.order, segment, 0), Result)
        for segment, members in enumerate(groups)
        for node in members
    ]
    answers = [one for one in await asyncio.gather(*asked) if one is not None]
    # Members that were not admitted may sign results of their own: the draw's hash says which are meant.
    shown = [[one for one in answers if _is_about(one.message, state.order, segment)] for segment in range(len(groups))]
    return await asyncio.get_running_loop().run_in_executor(_SEARCHING, _meant, shown, state.results)


def _is_about(result: Result, order: Hash32, segment: int) -> bool:
    return (result.order, result.segment) == (order, segment)


def _meant(shown: Sequence[Sequence[Signed[Result]]], named: Hash32) -> tuple[Signed[Result], ...] | None:
    """What the draw names: the choice of shown results, one for each segment, that hashes to it. In a thread."""
    segments: list[dict[Hash32, Signed[Result]]] = [{} for _ in shown]
    for by_hash, results in zip(segments, shown, strict=True):
        for one in results:
            by_hash.setdefault(typed_data.struct_hash(one.message), one)
    chosen = _chosen_results(tuple(map(tuple, segments)), named)
    return None if chosen is None else tuple(some[one] for some, one in zip(segments, chosen, strict=True))


@lru_cache(maxsize=1 << 8)
def _chosen_results(hashes: tuple[tuple[Hash32, ...], ...], named: Hash32) -> tuple[Hash32, ...] | None:
    """Remembered, as ``_chosen``: what is shown again at the next look is mostly the same."""
    tried = islice(product(*hashes), MOST_TRIED)
    return next((some for some in tried if messages.results_hash_of(some) == named), None)


def _verifiers(context: SchedulerContext, record: SummonsRecord, results: Sequence[Signed[Result]]) -> DrawnSeats:
    """Who was drawn to check the summoned segment, as ``checks.verifiers`` draws."""
    state, chain, domain = record.state, context.ledger.state, context.operator.domain
    rules, span = rules_in(chain, state.execution_class), _spans(context, state)[state.segment]
    group = chain.group(group_id(state.execution_class, span))
    signers = [typed_data.recover(one.message, domain, one.signature) for one in results]
    excluded = dict.fromkeys(chain.owner_of(node) for node in (*signers, *record.silent))
    seed = messages.check_seed(state.order, state.secret, state.named, state.results)
    request = draws.verifiers_request(state, rules, span, messages.segment_seed(seed, state.segment), tuple(excluded))
    return draws.draw(request, group, seat_cap=rules.seat_cap, seasoning=parameters_of(chain).seasoning)


async def _word(
    context: SchedulerContext, node: Address, asked: Conclude | Judge, kind: type[Word]
) -> Signed[Word] | None:
    """What a node signed before and shows again; None where it shows nothing of the kind."""
    try:
        frame = await context.peers.channel(node).request(asked, b"", ANSWER_SECONDS)
        size = getattr(frame.header, "traces", 0)
        word: Any = canonical.decode(Signed[kind], frame.payload[: len(frame.payload) - size], _LIMIT)  # type: ignore[valid-type]
        word.require(context.operator.domain, node)
    except (OverlayError, ProtocolError):
        return None
    found: Signed[Word] = word
    return found


# ---------------------------------------------------------------------------------------------------------------- both


def _spans(context: SchedulerContext, state: SummonsState) -> tuple[Segment, ...]:
    layers = rules_in(context.ledger.state, state.execution_class).layers
    return segments_from_ends(unpack_ends(state.ends), layers)


def _members(context: SchedulerContext, state: SummonsState, span: Segment) -> list[Address]:
    entries = context.ledger.state.members_at(group_id(state.execution_class, span), state.reference_block)
    return list(dict.fromkeys(entry.operator for entry in entries if entry.seats))


def _promised(
    context: SchedulerContext, state: SummonsState, node: Address, segment: int, work: Work
) -> Signed[Promise]:
    """A promise that says what the summons is about, and pays nothing."""
    tab = messages.tab_id(context.node_tabs.tab(node))
    named = Promise(tab, 0, state.order, segment, work, state.reference_block, 0, 0, 0, 0)
    found: Signed[Promise] = context.signed(named)
    return found
