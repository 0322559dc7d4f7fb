"""The text of a bfloat16 pipeline by states that start at the prompt: whether a row in the middle steered it.

A row there may be bent within what passes, far enough to turn a token, and the last segment then computes truly. Nobody
who sees one segment alone can tell. A verifier of the last one that holds all layers can, by one more prefill.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.node.engine.interface import Engine, SessionKey
from troth.node.judging.runs import second_run
from troth.node.judging.sessions import JudgedSegment, JudgedSession
from troth.node.judging.texts import judge_beside_own, judge_doubted_text
from troth.protocol.market.types import ExecutionClass
from troth.protocol.request import Request
from troth.protocol.tensors import Dtype
from troth.protocol.tokens import TokenReport
from troth.protocol.types import Hash32, Segment

FROM_PROMPT = b"troth/from the prompt/"
"""Names the caches of these runs as no order is named."""


async def judge_from_prompt(engine: Engine, session: JudgedSession) -> TokenReport | None:
    """Judge the text of a bfloat16 pipeline by states that honest nodes before would have given.

    A row in the middle may be bent within what passes there, far enough to turn a token, and the last segment then
    computes truly. None where there is no segment before, where rows cannot be bent so far (float32 and exact classes),
    and where this node does not hold the layers before.
    """
    seat, whole = session.seat, Segment(0, session.seat.layers.end)
    tolerant = seat.dtype is Dtype.BFLOAT16 and not seat.execution_class.exact
    if seat.layers == whole or not tolerant or not engine.holds(whole):
        return None
    inputs = np.array((*seat.request.prompt_tokens, *session.tokens[:-1]), np.int64)
    key = SessionKey(FROM_PROMPT + os.urandom(16), 0, 0)
    try:
        rows = (await engine.forward(key, whole, 0, inputs)).rows
    finally:
        await engine.forget(key)
    run = _FromPrompt(_WholeModel.of(seat, whole), session.tokens, inputs, rows)
    high = await engine.reference(whole, inputs)
    report = (await judge_beside_own(engine, run, rows, high)).report
    if report.accepted:
        return report
    return await judge_doubted_text(engine, run, (rows, await second_run(engine, run)), high, session.tokens)


@dataclass(frozen=True, slots=True)
class _WholeModel:
    """See ``JudgedSegment``: an order as it is where one node holds all layers."""

    execution_class: ExecutionClass
    layers: Segment
    dtype: Dtype
    prompt_positions: int
    request: Request
    noise_seed: Hash32
    is_last: bool = True

    @classmethod
    def of(cls, seat: JudgedSegment, layers: Segment) -> _WholeModel:
        """The order that a segment is of."""
        request = seat.request
        return cls(seat.execution_class, layers, seat.dtype, len(request.prompt_tokens), request, seat.noise_seed)


@dataclass(frozen=True, slots=True)
class _FromPrompt:
    """See ``JudgedSession``: what one node makes of prompt and text."""

    seat: _WholeModel
    tokens: tuple[int, ...]
    inputs: NDArray[Any]
    rows: NDArray[Any]

    def all_inputs(self) -> NDArray[Any]:
        """Tokens of every position."""
        return self.inputs

    def all_outputs(self) -> NDArray[Any]:
        """The rows behind the last layer."""
        return self.rows
