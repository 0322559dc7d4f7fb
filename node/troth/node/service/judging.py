"""A verifier's judgement of an inferencer's trace: root, states, tokens."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.node.engine.interface import Engine
from troth.node.service.work import Work
from troth.protocol.comparison import StateReport, judge_states
from troth.protocol.dtype import Dtype
from troth.protocol.identifiers import model_id
from troth.protocol.tokens import Sampling, TokenReport, judge_tokens, margins
from troth.protocol.trace import TileLayout

log = logging.getLogger(__name__)

LOGIT_ROWS = 32
"""Rows whose logits are held at a time: 32 rows of a large vocabulary are tens of megabytes, a whole text is not."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a verifier found; the verdict is the conjunction."""

    root_matches: bool
    states: StateReport
    tokens: TokenReport | None

    @property
    def verdict(self) -> bool:
        """Whether the inferencer's work is accepted."""
        return self.root_matches and self.states.accepted and (self.tokens is None or self.tokens.accepted)


async def judge(engine: Engine, work: Work, claimed: NDArray[Any], signed_root: bytes) -> Judgement:
    """Judge the claimed rows against this node's own; `signed_root` is the inferencer's."""
    seat, own = work.seat, work.all_outputs()
    layout = TileLayout(seat.task_id, model_id(seat.descriptor), len(claimed), claimed.shape[1], seat.dtype)
    root = (await asyncio.to_thread(layout.commit, claimed)).root
    reference = None
    if seat.dtype is Dtype.BFLOAT16 and not seat.execution_class.exact:
        reference = await engine.reference(seat.layers, work.all_inputs())
    states = await asyncio.to_thread(judge_states, seat.execution_class, claimed, own, reference)
    tokens = await judge_text(engine, work, own, work.tokens) if seat.is_last else None
    judgement = Judgement(root == signed_root, states, tokens)
    _report(judgement)
    return judgement


async def judge_text(engine: Engine, work: Work, own: NDArray[Any], text: tuple[int, ...]) -> TokenReport:
    """Judge every token of a text from this node's own rows of the last segment."""
    request, first = work.seat.request, len(work.seat.request.prompt_tokens) - 1
    sampling, seed = Sampling.of(request), work.seat.noise_seed
    found = []
    for start in range(0, len(text), LOGIT_ROWS):
        tokens = text[start : start + LOGIT_ROWS]
        logits = (await engine.logits(own[first + start : first + start + len(tokens)])).rows
        found.append(
            await asyncio.to_thread(margins, logits, tokens, sampling, seed=seed, first_position=first + start)
        )
    return judge_tokens(np.concatenate(found), text, request, work.seat.execution_class.margin_cut / 1_000_000)


def _report(judgement: Judgement) -> None:
    states, tokens = judgement.states, judgement.tokens
    log.info(
        "compared: verdict %s, root %s, states %.3g of %.3g (worst row %.3g at %d), tokens %s",
        "accept" if judgement.verdict else "reject",
        "matches" if judgement.root_matches else "differs",
        states.score,
        states.cut,
        states.worst_row,
        states.worst_position,
        "not judged"
        if tokens is None
        else f"{tokens.score:.3g} of {tokens.cut:.3g}, end {'ok' if tokens.end_ok else 'wrong'}",
    )
