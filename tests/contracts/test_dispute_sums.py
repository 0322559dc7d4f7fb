"""The parts of a long sum: who asks for them, who gives them, and what convicts by them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.dispute_stage import DisputeStage, Played, dispute_stage
from support.tabs_stage import MODEL
from support.toy_disputes import TENSORS, accused_of, descend, refused, trace
from support.toy_steps import ToyTrace, shape_of, step_of, toy_steps

from troth.chain.errors import ChainRejected
from troth.protocol.calls import Call
from troth.protocol.disputes import calls, game
from troth.protocol.disputes.game import DisputeTurn, NamedNode, SeenTrace
from troth.protocol.disputes.sums import packed
from troth.protocol.market.types import PotKind

pytestmark = [pytest.mark.chain]


@pytest.fixture(scope="module")
def steps() -> Call:
    return toy_steps()


@pytest.fixture
async def stage(anvil: Any, steps: Call) -> AsyncIterator[DisputeStage]:
    async with dispute_stage(anvil, steps, shape_of(TENSORS), MODEL) as made:
        yield made


PARTS_OF = (17, 4, 5)
"""A number of column 5, which is a sum of two parts."""


def packed_parts(before: int, rest: int) -> bytes:
    return packed((3 * before, rest))


async def at_the_sum(stage: DisputeStage, accused: ToyTrace, own: ToyTrace) -> tuple[Played, SeenTrace, NamedNode]:
    """A dispute at the word whose number is a sum."""
    played, seen = await accused_of(stage, accused), SeenTrace(own)
    choice = await descend(stage, played, accused, own, seen)
    assert choice is not None
    return played, seen, choice


def ask(played: Played, choice: NamedNode, number: int = 5) -> Call:
    return calls.ask_sum(played.id, played.state, choice, number)


def give(played: Played, parts: bytes) -> Call:
    return calls.give_sum(played.id, played.state, parts)


def wrong_sum(played: Played, parts: bytes) -> Call:
    return calls.wrong_sum(played.id, played.state, played.matter, played.shape, parts)


def wrong_part(played: Played, seen: SeenTrace, parts: bytes, index: int) -> Call:
    step = step_of(seen, played.state.tensor, played.state.place, 5)
    return calls.wrong_part(played.id, played.state, played.matter, played.shape, parts, index, step)


@pytest.mark.parametrize("lie", [0, 1])
async def test_a_long_sum_convicts_by_one_part(stage: DisputeStage, lie: int) -> None:
    own, accused = trace(), trace(wrong={PARTS_OF: 12_345_678})
    played, seen, choice = await at_the_sum(stage, accused, own)
    before = int(own.numbers[16][4, 5])
    await stage.move(played, ask(played, choice), stage.accuser)
    assert (played.state.turn, played.state.number) == (DisputeTurn.SUM, 6)
    true = packed_parts(before, 17)
    # The accused lies in either part, so that both together make its number.
    gap = (12_345_678 - 3 * before - 17) % (1 << 32)
    parts = packed((3 * before + (gap if lie == 0 else 0), 17 + (gap if lie else 0)))
    await refused(stage, give(played, parts), stage.accuser, "WrongPlayer")
    await stage.move(played, give(played, parts), stage.node)
    assert played.state.turn == DisputeTurn.ACCUSER
    await refused(stage, wrong_part(played, seen, parts, 1 - lie), stage.accuser, "NothingWrong")
    await refused(stage, wrong_part(played, seen, true, lie), stage.accuser, "WrongParts")
    await refused(stage, wrong_sum(played, true), stage.accuser, "WrongParts")
    await refused(stage, wrong_sum(played, parts), stage.accuser, "NothingWrong")
    with pytest.raises(ChainRejected):
        await stage.send(wrong_part(played, seen, parts, 2), stage.accuser)
    await refused(stage, ask(played, NamedNode(0, played.state.node, ())), stage.accuser, "AskedBefore")
    await stage.move(played, wrong_part(played, seen, parts, lie), stage.stage.anvil.keys[7])
    assert stage.pot(PotKind.CREDIT, stage.accuser.address) > stage.bond


async def test_who_asks_for_a_true_sum_has_nothing_to_say(stage: DisputeStage) -> None:
    own, lies = trace(), trace(wrong={PARTS_OF: 1})
    played, seen, choice = await at_the_sum(stage, own, lies)
    for number in (8, 255):
        await refused(stage, ask(played, choice, number), stage.accuser, "NoSuchNumber")
    await refused(stage, ask(played, choice), stage.node, "WrongPlayer")
    await stage.move(played, ask(played, choice), stage.accuser)
    parts = packed_parts(int(own.numbers[16][4, 5]), 17)
    await stage.move(played, give(played, parts), stage.node)
    seen = SeenTrace(own)
    for index in (0, 1):
        await refused(stage, wrong_part(played, seen, parts, index), stage.accuser, "NothingWrong")
    await refused(stage, wrong_sum(played, parts), stage.accuser, "NothingWrong")
    stage.stage.anvil.mine(stage.turn + 1)
    await stage.move(played, calls.close(played.id, played.state), stage.node)
    assert stage.pot(PotKind.CREDIT, stage.node.address) == stage.bond


@pytest.mark.parametrize("lies", [True, False])
async def test_who_is_asked_for_the_parts_of_what_has_none_gives_none(stage: DisputeStage, lies: bool) -> None:
    """The question costs the accuser a turn, and takes nothing from either side."""
    wrong, own = {(17, 4, 6): 12_345_678}, trace()
    accused, accuser = (trace(wrong=wrong), own) if lies else (own, trace(wrong=wrong))
    played, seen, choice = await at_the_sum(stage, accused, accuser)
    await stage.move(played, ask(played, choice, 6), stage.accuser)
    await stage.move(played, give(played, b""), stage.node)
    await refused(stage, wrong_sum(played, b""), stage.accuser, "NothingWrong")
    with pytest.raises(ChainRejected):
        await stage.send(wrong_part(played, seen, b"", 0), stage.accuser)
    word = NamedNode(0, played.state.node, ())
    step = step_of(seen if lies else SeenTrace(own), 17, played.state.place, 6)
    call = calls.wrong_step(played.id, played.state, played.matter, played.shape, word, step)
    if lies:
        await stage.move(played, call, stage.accuser)
    else:
        await refused(stage, call, stage.accuser, "NothingWrong")
        stage.stage.anvil.mine(stage.turn + 1)
        await stage.move(played, calls.close(played.id, played.state), stage.node)
    assert (stage.pot(PotKind.CREDIT, stage.node.address) == stage.bond) != lies


@pytest.mark.parametrize("given", ["true", "nothing", "one more", "no whole part", "another sum"])
async def test_parts_that_do_not_make_the_number_convict(stage: DisputeStage, given: str) -> None:
    """True ones make another number than the accused claims; and what is no list of as many parts makes none."""
    own, accused = trace(), trace(wrong={PARTS_OF: 12_345_678})
    played, _, choice = await at_the_sum(stage, accused, own)
    await stage.move(played, ask(played, choice), stage.accuser)
    true = packed_parts(int(own.numbers[16][4, 5]), 17)
    parts = {
        "true": true, "nothing": b"", "one more": true + bytes(96), "no whole part": true[:-1],
        "another sum": bytes(192),
    }[given]  # fmt: skip
    await refused(stage, give(played, bytes(65 * 96 + 1)), stage.node, "TooManyParts")
    await stage.move(played, give(played, parts), stage.node)
    stake = stage.pot(PotKind.STAKE, stage.node.address)
    await stage.move(played, wrong_sum(played, parts), stage.stage.anvil.keys[7])
    assert stage.pot(PotKind.STAKE, stage.node.address) < stake
    assert stage.pot(PotKind.CREDIT, stage.accuser.address) > stage.bond


async def test_silence_over_a_sum_convicts_after_its_turn(stage: DisputeStage) -> None:
    own, accused = trace(), trace(wrong={PARTS_OF: 12_345_678})
    played, _, choice = await at_the_sum(stage, accused, own)
    await stage.move(played, ask(played, choice), stage.accuser)
    await refused(stage, calls.silent(played.id, played.state), stage.accuser, "TooEarly")
    stage.stage.anvil.mine(stage.turn + 1)
    await refused(stage, give(played, packed_parts(1, 1)), stage.node, "TooLate")
    await stage.move(played, calls.silent(played.id, played.state), stage.accuser)
    assert await stage.chain.read(calls.dispute_of(played.id)) == game.ENDED


async def test_parts_are_asked_for_at_a_word_alone(stage: DisputeStage) -> None:
    own, accused = trace(), trace(wrong={PARTS_OF: 12_345_678})
    played = await accused_of(stage, accused)
    await stage.show(played, game.nodes_to_show(played.state, accused))
    index = game.first_difference(played.state, played.shown, own)
    assert index is not None
    await refused(stage, ask(played, game.choice_of(played.shown, index)), stage.accuser, "WrongLevel")
