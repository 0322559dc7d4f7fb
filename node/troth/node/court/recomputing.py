"""A reviewer's own run on this node's engine: one prefill, in a tolerant class a second run as a node decodes.

Runs go in pieces, so that orders are served between them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.cases.judging import Inputs, Recomputed
from troth.node.engine.interface import Engine, SessionKey, WholeEngine
from troth.node.errors import OutOfOrder
from troth.node.judging.own_rows import judge_straying
from troth.node.judging.runs import (
    FIFTH_RULES,
    looks_twice,
    other_attention,
    reference_rows,
    second_run,
    shaken_runs,
    third_look,
)
from troth.node.judging.texts import LOGIT_ROWS, judge_doubted_text, judge_text
from troth.node.orders.context import NodeContext
from troth.protocol.credit import Surprises, surprises_of
from troth.protocol.doubts import rules_version
from troth.protocol.errors import WireError
from troth.protocol.market.types import ExecutionClass
from troth.protocol.market.views import class_of
from troth.protocol.request import Request
from troth.protocol.straying import FAITHFUL, Straying
from troth.protocol.tensors import Dtype, row_size, rows_from_bytes
from troth.protocol.tokens import TokenReport
from troth.protocol.types import Hash32, ModelDescriptor, Segment

TAG = b"troth/court/"
"""Names the caches of these runs, so that a scheduler that dismisses its order does not end a review."""
PIECE = 512
"""Positions of one call to the engine in the first run."""


@dataclass(frozen=True, slots=True)
class _Place:
    """See ``judging.JudgedSegment``."""

    task_id: Hash32
    descriptor: ModelDescriptor
    execution_class: ExecutionClass
    layers: Segment
    is_last: bool
    request: Request
    noise_seed: Hash32

    @property
    def dtype(self) -> Dtype:
        return Dtype(self.execution_class.dtype)

    @property
    def prompt_positions(self) -> int:
        return len(self.request.prompt_tokens)


@dataclass(frozen=True, slots=True)
class _Run:
    """See ``judging.JudgedSession``: what is judged, and what was computed of it."""

    seat: _Place
    tokens: tuple[int, ...]
    inputs: NDArray[Any]
    states: NDArray[Any]

    def all_inputs(self) -> NDArray[Any]:
        """Tokens or rows of every position."""
        return self.inputs

    def all_outputs(self) -> NDArray[Any]:
        """The own rows."""
        return self.states


class EngineRecompute:
    """See ``cases.judging.Recompute``; one at a time, which the reviewer sees to."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    async def recompute(self, inputs: Inputs) -> Recomputed:
        """One prefill over prompt and answer; raises where this node does not hold the layers, or has no memory."""
        context = self._context
        definition, descriptor = class_of(context.ground.state, inputs.execution_class)
        if inputs.execution_class != context.execution_class or not context.engine.holds(inputs.span):
            raise OutOfOrder("these layers are not loaded here", inputs.span, "Let others judge.")
        own = await recompute(context.engine, inputs, definition, descriptor)
        if definition.exact:
            return own
        again = await _again(context.engine, inputs, definition, descriptor, own.states)
        run = _run(inputs, definition, descriptor, _entered(inputs, descriptor, Dtype(definition.dtype)), own.states)
        otherwise = await other_attention(context.engine, run)
        shaken, third = tuple(await shaken_runs(context.engine, run)), await third_look(context.engine, run, own.high)
        at_third = None if third is None else third.states
        return replace(own, again=again, shaken=shaken, at_third=at_third, otherwise=otherwise)


async def recompute(
    engine: Engine, inputs: Inputs, definition: ExecutionClass, descriptor: ModelDescriptor
) -> Recomputed:
    """One prefill of a segment on an engine that holds it, with the judgement of the text at the last one."""
    entered = _entered(inputs, descriptor, Dtype(definition.dtype))
    states = await prefill(engine, inputs.order, inputs.span, entered)
    run = _run(inputs, definition, descriptor, entered, states)
    high = await reference_rows(engine, run)
    straying = await _straying(engine, run, inputs.claimed)
    return Recomputed(states, high, None, await _text(engine, run, high), straying)


async def surprises(engine: Engine, inputs: Inputs, dtype: Dtype, descriptor: ModelDescriptor) -> Surprises:
    """How likely a text's tokens are under the whole model: one prefill, and the head over the answer's positions."""
    request, tokens = inputs.text.request, inputs.text.tokens
    states = await prefill(engine, inputs.order, inputs.span, _entered(inputs, descriptor, dtype))
    first, parts = len(request.prompt_tokens) - 1, []
    for start in range(0, len(tokens), LOGIT_ROWS):
        block = tokens[start : start + LOGIT_ROWS]
        logits = (await engine.logits(states[first + start : first + start + len(block)])).rows
        parts.append(surprises_of(logits, block, request.temperature_millionths / 1e6))
    return Surprises.joined(parts)


def _run(
    inputs: Inputs,
    definition: ExecutionClass,
    descriptor: ModelDescriptor,
    entered: NDArray[Any],
    states: NDArray[Any],
) -> _Run:
    text = inputs.text
    place = _Place(inputs.order, descriptor, definition, inputs.span, inputs.last, text.request, text.seed)
    return _Run(place, text.tokens, entered, states)


async def prefill(engine: Engine, order: Hash32, span: Segment, entered: NDArray[Any]) -> NDArray[Any]:
    """Rows of a segment of an order, computed from tokens or from the rows of the segment before."""
    found = []
    key = SessionKey(TAG + order, span.first, 0)
    try:
        for start in range(0, len(entered), PIECE):
            computed = await engine.forward(key, span, start, entered[start : start + PIECE])
            found.append(computed.rows)
    finally:
        await engine.forget(key)
    return np.concatenate(found)


async def _again(
    engine: Engine, inputs: Inputs, definition: ExecutionClass, descriptor: ModelDescriptor, states: NDArray[Any]
) -> NDArray[Any]:
    """A second run. An engine with a cache of prefixes is told to compute all of it."""
    entered = _entered(inputs, descriptor, Dtype(definition.dtype))
    if isinstance(engine, WholeEngine) and inputs.before is None:
        return (await engine.prefill([int(token) for token in entered], fresh=True)).rows
    return await second_run(engine, _run(inputs, definition, descriptor, entered, states))


async def _text(engine: Engine, run: _Run, high: NDArray[Any] | None) -> TokenReport | None:
    """At the last segment; a trace of another length than the text is refused for its count."""
    rows = run.states if high is None else high
    if not run.seat.is_last or len(rows) != len(run.seat.request.prompt_tokens) + len(run.tokens) - 1:
        return None
    found = await judge_text(engine, run, rows, run.tokens, None if high is None else run.states)
    if found.accepted or not looks_twice(run.seat.execution_class):
        return found
    runs = (run.states, await second_run(engine, run), *await shaken_runs(engine, run))
    found = await judge_doubted_text(engine, run, runs, high, run.tokens)
    third = None if found.accepted else await third_look(engine, run, high)
    return found if third is None else await judge_doubted_text(engine, run, runs, high, run.tokens, third=third)


async def _straying(engine: Engine, run: _Run, claimed: bytes | None) -> Straying:
    """How far the text is from the rows that the node shows; in an exact class these are the own ones, or it falls for
    its rows. Nothing is said of rows that are none, which `cases.judging` refuses."""
    rules, states = run.seat.execution_class, run.states
    rows = len(run.seat.request.prompt_tokens) + len(run.tokens) - 1
    if not run.seat.is_last or rules_version(rules.calibration) < FIFTH_RULES or len(states) != rows:
        return FAITHFUL
    if not rules.exact:
        if claimed is None or len(claimed) != states.nbytes:
            return FAITHFUL
        try:
            states = rows_from_bytes(claimed, rows, states.shape[1], run.seat.dtype)
        except WireError:
            return FAITHFUL
    return await judge_straying(engine, run, states, range(len(run.tokens)))


def _entered(inputs: Inputs, descriptor: ModelDescriptor, dtype: Dtype) -> NDArray[Any]:
    if inputs.before is None:
        return np.array(inputs.text.inputs, dtype=np.int64)
    count = len(inputs.before) // row_size(descriptor.hidden_size, dtype)
    return rows_from_bytes(inputs.before, count, descriptor.hidden_size, dtype)
