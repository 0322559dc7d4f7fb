"""Disputes over arithmetic that a test can follow: what is accused, and both sides' turns up to a word."""

from __future__ import annotations

from typing import Any

import pytest
from support.dispute_stage import DisputeStage, Played
from support.toy_steps import ToyTrace

from troth.chain.errors import ChainRejected
from troth.protocol.calls import Call
from troth.protocol.disputes import game
from troth.protocol.disputes.game import NamedNode, SeenTrace

TENSORS, ROWS = 40, 11
"""Six levels over all tensors in two turns, and six in each tensor in two more."""


def trace(**changes: Any) -> ToyTrace:
    return ToyTrace(TENSORS, ROWS, **changes)


async def accused_of(stage: DisputeStage, accused: ToyTrace) -> Played:
    """A dispute over the last row of what somebody computed."""
    _, head = accused.signed()
    return await stage.open(stage.accusation(head, ROWS - 1, ROWS))


async def descend(
    stage: DisputeStage, played: Played, accused: ToyTrace, accuser: ToyTrace, seen: SeenTrace
) -> NamedNode | None:
    """Both sides' turns up to the word that differs first; None where nothing does."""
    while True:
        await stage.show(played, game.nodes_to_show(played.state, accused))
        seen.note(played.state, played.shown)
        index = game.first_difference(played.state, played.shown, accuser)
        if index is None:
            return None
        choice = game.choice_of(played.shown, index)
        if played.state.in_tensor and played.state.shown == played.state.left:
            return choice
        await stage.choose(played, choice)


async def refused(stage: DisputeStage, call: Call, key: Any, name: str) -> None:
    with pytest.raises(ChainRejected, match=name):
        await stage.send(call, key)
