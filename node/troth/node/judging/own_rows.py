"""Whether a text is what its node's own rows choose: see `troth.protocol.straying`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.node.engine.interface import Engine
from troth.node.judging.sessions import JudgedSession
from troth.node.judging.texts import LOGIT_ROWS, Ruled, blocks
from troth.protocol.straying import FAITHFUL, Straying, kinder, strays
from troth.protocol.tensors import Dtype, widen
from troth.protocol.tokens import Sampling


async def judge_straying(
    engine: Engine, session: JudgedSession, claimed: NDArray[Any], places: Iterable[int]
) -> Straying:
    """How far the tokens at some places of the text are from what the inferencer's own rows choose there."""
    found, wanted = list[Straying](), set(places)
    first, chosen = len(session.seat.request.prompt_tokens) - 1, list[_Claimed]()
    async for position, tokens, _, ruled in blocks(engine, session, session.tokens if wanted else ()):
        rows = [row for row in range(len(tokens)) if position + row - first in wanted]
        block = claimed[position : position + len(tokens)]
        chosen.append(_Claimed(block, tokens, ruled, range(position, position + len(tokens))).only(rows))
    # The head is read for all of them together: it is most of what this costs.
    if chosen:
        together = _Claimed.joined(chosen)
        every = range(len(together.tokens))
        for start in every[::LOGIT_ROWS]:
            found += await _strays_by_both(engine, session, together.only(every[start : start + LOGIT_ROWS]))
    return reduce(or_, found, FAITHFUL)


async def _strays_by_both(engine: Engine, session: JudgedSession, claimed: _Claimed) -> list[Straying]:
    """By the kinder of both heads: the one that rounds nothing is asked where the class's own finds something."""
    by_rows = await _strays(engine, session, claimed)
    doubted = [index for index, one in enumerate(by_rows) if one.worst]
    if doubted and session.seat.dtype is Dtype.BFLOAT16:
        unrounded = await _strays(engine, session, claimed.only(doubted), widened=True)
        for index, other in zip(doubted, unrounded, strict=True):
            by_rows[index] = kinder(by_rows[index], other)
    return by_rows


@dataclass(frozen=True, slots=True)
class _Claimed:
    """Rows of the inferencer's, the tokens that it chose by them, what transforms them, and their places."""

    states: NDArray[Any]
    tokens: Sequence[int]
    rules: Ruled
    places: Sequence[int]

    @classmethod
    def joined(cls, parts: Sequence[_Claimed]) -> _Claimed:
        """Several together: all of one text have rules, or none."""
        rules = None if parts[0].rules is None else [rule for one in parts for rule in one.rules or ()]
        return cls(
            np.concatenate([one.states for one in parts]),
            [token for one in parts for token in one.tokens],
            rules,
            [place for one in parts for place in one.places],
        )

    def only(self, rows: Sequence[int]) -> _Claimed:
        """Some of them."""
        rules = None if self.rules is None else [self.rules[row] for row in rows]
        places = [self.places[row] for row in rows]
        return _Claimed(self.states[list(rows)], [self.tokens[row] for row in rows], rules, places)


async def _strays(
    engine: Engine, session: JudgedSession, claimed: _Claimed, *, widened: bool = False
) -> list[Straying]:
    """How far each token is from its row, by the class's head or by the one that rounds nothing."""
    seat = session.seat
    states = widen(claimed.states, seat.dtype) if widened else claimed.states
    told = partial(strays, dtype=seat.dtype, seed=seat.noise_seed, positions=claimed.places)
    logits = (await engine.logits(states)).rows
    return await asyncio.to_thread(told, logits, claimed.tokens, Sampling.of(seat.request), claimed.rules)
