"""The game of a dispute on real contracts, over arithmetic that a test can follow: who wins, what it costs, and what
nobody can do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from support.dispute_stage import DisputeStage, Played, dispute_stage
from support.tabs_stage import MODEL, PARAMETERS
from support.toy_disputes import ROWS, TENSORS, accused_of, descend, refused, trace
from support.toy_steps import ToyTrace, opening_of, shape_of, step_of, toy_steps

from troth.chain.errors import ChainRejected
from troth.protocol.calls import Call
from troth.protocol.disputes import calls, game
from troth.protocol.disputes.game import DisputeTurn, NamedNode, SeenTrace
from troth.protocol.market.parts import Part
from troth.protocol.market.token_proofs import ShownRow
from troth.protocol.market.types import PotKind
from troth.protocol.types import Hash32

pytestmark = [pytest.mark.chain]


@pytest.fixture(scope="module")
def steps() -> Call:
    return toy_steps()


@pytest.fixture
async def stage(anvil: Any, steps: Call) -> AsyncIterator[DisputeStage]:
    async with dispute_stage(anvil, steps, shape_of(TENSORS), MODEL) as made:
        yield made


async def convict(stage: DisputeStage, played: Played, choice: NamedNode, seen: SeenTrace, wrong: int) -> None:
    step = step_of(seen, played.state.tensor, game.place_of(played.state, choice), wrong % 8)
    call = calls.wrong_step(played.id, played.state, played.matter, played.shape, choice, step)
    await stage.move(played, call, stage.accuser)


@pytest.mark.parametrize("wrong", [(17, 4, 13), (0, 0, 0), (39, 10, 23), (1, 10, 8)])
async def test_one_wrong_number_convicts_wherever_it_is(stage: DisputeStage, wrong: tuple[int, int, int]) -> None:
    accused, own = trace(wrong={wrong: 12_345_678}), trace()
    penalty, before = stage.stage.execution_class.penalty, stage.pot(PotKind.STAKE, stage.node.address)
    played, seen = await accused_of(stage, accused), SeenTrace(own)
    choice = await descend(stage, played, accused, own, seen)
    assert choice is not None
    assert played.state.tensor == wrong[0]
    assert len([name for name, _ in played.gas if name == "show"]) == 4
    await convict(stage, played, choice, seen, wrong[2])
    assert stage.pot(PotKind.STAKE, stage.node.address) == before - penalty
    assert stage.pot(PotKind.CREDIT, stage.accuser.address) >= stage.bond + penalty // 10
    assert await stage.chain.read(calls.dispute_of(played.id)) == game.ENDED
    assert await stage.chain.balance(stage.chain.contract) == 0


async def test_a_true_trace_under_another_row_convicts_at_once(stage: DisputeStage) -> None:
    own, forged = trace(), trace(wrong={(39, 10, 0): 5})
    row, head = forged.signed()
    played = await stage.open(stage.accusation(head, ROWS - 1, ROWS))
    await stage.show(played, game.nodes_to_show(played.state, own))
    call = calls.wrong_row(played.id, played.state, played.matter, played.shape, opening_of(SeenTrace(own), own, row))
    # Whoever sends it, the accuser is paid.
    await stage.move(played, call, stage.stage.anvil.keys[7])
    assert stage.pot(PotKind.CREDIT, stage.accuser.address) > stage.bond
    assert stage.pot(PotKind.CREDIT, stage.stage.anvil.keys[7].address) == 0


async def test_a_row_within_the_tolerance_stands_and_the_accuser_loses_its_bond(stage: DisputeStage) -> None:
    own = trace()
    close_row = trace(wrong={(39, 10, 0): int(own.numbers[39][10, 0]) + 10})
    row, head = close_row.signed()
    played = await stage.open(stage.accusation(head, ROWS - 1, ROWS))
    await stage.show(played, game.nodes_to_show(played.state, own))
    assert game.first_difference(played.state, played.shown, own) is None
    state = (played.id, played.state, played.matter, played.shape)
    await refused(stage, calls.wrong_row(*state, opening_of(SeenTrace(own), own, row)), stage.accuser, "NothingWrong")
    await refused(stage, calls.close(played.id, played.state), stage.node, "TooEarly")
    await refused(stage, calls.silent(played.id, played.state), stage.accuser, "WrongTurn")
    stage.stage.anvil.mine(stage.turn + 1)
    # Nothing is left to say for the accuser.
    choice = game.choice_of(played.shown, 0)
    await refused(stage, calls.choose(played.id, played.state, choice), stage.accuser, "TooLate")
    before = stage.pot(PotKind.CREDIT, stage.node.address)
    await stage.move(played, calls.close(played.id, played.state), stage.stage.anvil.keys[7])
    assert stage.pot(PotKind.CREDIT, stage.node.address) == before + stage.bond
    assert await stage.chain.balance(stage.chain.contract) == 0


async def defended(stage: DisputeStage, off: int, **changes: Any) -> tuple[Played, ToyTrace, bytes]:
    """A dispute over an honest trace whose signed row is off by so much, which the accused defends by a nudge."""
    doubled = trace(**changes)
    row, head = trace(wrong={(39, 10, 0): int(trace().numbers[39][10, 0]) + off}).signed()
    played = await stage.open(stage.accusation(head, ROWS - 1, ROWS))
    nodes = game.nodes_to_show(replace(played.state, left=played.state.left + 1), doubled)
    await stage.move(played, calls.defend(played.id, played.state, doubled.nudge, 0, nodes), stage.node)
    assert (played.state.nudge, played.state.left) == (doubled.nudge, 7)
    return played, doubled, row


async def test_a_row_within_what_a_nudge_moves_stands_and_one_beyond_convicts(stage: DisputeStage) -> None:
    """Ten are allowed, and four for each that the nudge moves the row: 42 by nudge 8, 14 by nudge 1."""
    for off, nudge, stands in ((40, 8, True), (40, 1, False)):
        played, doubled, row = await defended(stage, off, nudge=nudge)
        assert game.first_difference(played.state, played.shown, doubled) is None
        proof = opening_of(SeenTrace(doubled), doubled, row)
        call = calls.wrong_row(played.id, played.state, played.matter, played.shape, proof)
        if stands:
            await refused(stage, call, stage.accuser, "NothingWrong")
            stage.stage.anvil.mine(stage.turn + 1)
            await stage.move(played, calls.close(played.id, played.state), stage.node)
        else:
            await stage.move(played, call, stage.accuser)
    assert await stage.chain.read(calls.dispute_of(played.id)) == game.ENDED


@pytest.mark.parametrize("wrong", [(79, 10, 0), (41, 3, 7), (40, 0, 0), (17, 4, 13)])
async def test_a_forged_nudged_trace_convicts_by_one_number(stage: DisputeStage, wrong: tuple[int, int, int]) -> None:
    """Who makes the nudge move more than it does, or nudges another trace, commits to a number that does not follow."""
    played, forged, _ = await defended(stage, 500, nudge=3, wrong={wrong: 77})
    own = trace(nudge=3)
    seen, shown = SeenTrace(own), False
    while True:
        if shown:
            await stage.show(played, game.nodes_to_show(played.state, forged))
        shown = True
        seen.note(played.state, played.shown)
        index = game.first_difference(played.state, played.shown, own)
        assert index is not None
        choice = game.choice_of(played.shown, index)
        if played.state.in_tensor and played.state.shown == played.state.left:
            break
        await stage.choose(played, choice)
    assert played.state.tensor == wrong[0]
    step = step_of(seen, played.state.tensor, game.place_of(played.state, choice), wrong[2] % 8, TENSORS)
    call = calls.wrong_step(played.id, played.state, played.matter, played.shape, choice, step)
    await stage.move(played, call, stage.accuser)
    assert await stage.chain.read(calls.dispute_of(played.id)) == game.ENDED


async def test_a_nudge_is_named_first_and_is_one_of_eight(stage: DisputeStage) -> None:
    own = trace(nudge=1)
    _, head = own.signed()
    played = await stage.open(stage.accusation(head, ROWS - 1, ROWS))
    nodes = game.nodes_to_show(replace(played.state, left=played.state.left + 1), own)
    for nudge in (0, 9, 255):
        await refused(stage, calls.defend(played.id, played.state, nudge, 0, nodes), stage.node, "NoSuchNudge")
    first = calls.defend(played.id, played.state, 1, 0, nodes)
    await refused(stage, first, stage.accuser, "WrongPlayer")
    await stage.show(played, game.nodes_to_show(played.state, trace()))
    await stage.choose(played, game.choice_of(played.shown, 0))
    # What was committed to without a nudge is not doubled later.
    again = calls.defend(played.id, played.state, 1, 0, nodes)
    await refused(stage, again, stage.node, "NoSuchNudge")


async def test_a_false_accuser_convicts_nobody_whatever_it_names(stage: DisputeStage) -> None:
    own, lies = trace(), trace(wrong={(5, 2, 3): 1})
    played, seen = await accused_of(stage, own), SeenTrace(lies)
    choice = await descend(stage, played, own, lies, seen)
    assert choice is not None
    for element in range(8):
        for source in (SeenTrace(own), SeenTrace(lies), seen):
            step = step_of(source, played.state.tensor, game.place_of(played.state, choice), element)
            call = calls.wrong_step(played.id, played.state, played.matter, played.shape, choice, step)
            with pytest.raises(ChainRejected):
                await stage.send(call, stage.accuser)
    # Another word than was shown, a tensor's padding, another trace's operand.
    for other in (replace(choice, node=Hash32(b"\x07" * 32)), replace(choice, index=choice.index ^ 1)):
        step = step_of(seen, played.state.tensor, game.place_of(played.state, choice), 0)
        call = calls.wrong_step(played.id, played.state, played.matter, played.shape, other, step)
        await refused(stage, call, stage.accuser, "WrongNodes")
    stage.stage.anvil.mine(stage.turn + 1)
    await stage.move(played, calls.close(played.id, played.state), stage.node)
    assert stage.pot(PotKind.STAKE, stage.node.address) == 2 * stage.stage.execution_class.seat


async def test_what_pads_a_trace_is_zero_or_convicts(stage: DisputeStage) -> None:
    """Else a node could hide what is wrong behind a difference that nobody can be convicted for."""
    wide, own = ToyTrace(TENSORS, ROWS, columns=32), trace()
    for accused, wrong in ((wide, True), (own, False)):
        played, seen = await accused_of(stage, accused), SeenTrace(own)
        while not played.state.in_tensor or played.state.shown < played.state.left:
            await stage.show(played, game.nodes_to_show(played.state, accused))
            seen.note(played.state, played.shown)
            last = (1 << played.state.shown) - 1
            if played.state.in_tensor and played.state.shown == played.state.left:
                break
            # Tensor 0, then row 10 and its last word, whose numbers 24 to 31 pad.
            index = (43 >> played.state.left - played.state.shown) & last if played.state.in_tensor else 0
            await stage.choose(played, game.choice_of(played.shown, index))
        choice = game.choice_of(played.shown, 43 & last)
        call = calls.wrong_step(played.id, played.state, played.matter, played.shape, choice, step_of(seen, 0, 43, 3))
        if wrong:
            await stage.move(played, call, stage.accuser)
        else:
            await refused(stage, call, stage.accuser, "NothingWrong|PartyLeft|Unknown")


async def test_a_tensor_that_does_not_exist_is_not_named(stage: DisputeStage) -> None:
    own = trace()
    played = await accused_of(stage, own)
    await stage.show(played, game.nodes_to_show(played.state, own))
    await stage.choose(played, game.choice_of(played.shown, 7))
    await stage.show(played, game.nodes_to_show(played.state, own))
    with pytest.raises(ChainRejected):
        await stage.choose(played, game.choice_of(played.shown, 7))


async def test_silence_convicts_the_accused_after_its_turn_and_not_before(stage: DisputeStage) -> None:
    own, accused = trace(), trace(wrong={(3, 3, 3): 3})
    played = await accused_of(stage, accused)
    await refused(stage, calls.silent(played.id, played.state), stage.accuser, "TooEarly")
    await stage.show(played, game.nodes_to_show(played.state, accused))
    index = game.first_difference(played.state, played.shown, own)
    assert index is not None
    await stage.choose(played, game.choice_of(played.shown, index))
    nodes = game.nodes_to_show(played.state, accused)
    stage.stage.anvil.mine(stage.turn + 1)
    await refused(stage, calls.show(played.id, played.state, nodes), stage.node, "TooLate")
    await stage.move(played, calls.silent(played.id, played.state), stage.stage.anvil.keys[7])
    assert stage.pot(PotKind.CREDIT, stage.accuser.address) > stage.bond
    assert stage.pot(PotKind.CREDIT, stage.stage.anvil.keys[7].address) == 0


def wait(stage: DisputeStage, block: int) -> None:
    """Mine until the next block is this one."""
    now = int(stage.stage.anvil.rpc("eth_blockNumber"), 16)
    stage.stage.anvil.mine(block - 1 - now)


async def test_each_clock_counts_its_last_block(stage: DisputeStage) -> None:
    """Whose turn it is may take it in the last block, and nobody ends the dispute before the next one."""
    own = trace()
    played = await accused_of(stage, own)
    wait(stage, played.state.deadline)
    await refused(stage, calls.silent(played.id, played.state), stage.accuser, "TooEarly")
    await stage.show(played, game.nodes_to_show(played.state, own))
    wait(stage, played.state.deadline)
    await refused(stage, calls.close(played.id, played.state), stage.node, "TooEarly")
    await stage.choose(played, game.choice_of(played.shown, 1))
    await stage.show(played, game.nodes_to_show(played.state, own))
    wait(stage, played.state.deadline + 1)
    await refused(stage, calls.choose(played.id, played.state, game.choice_of(played.shown, 1)), stage.accuser, "Late")
    await stage.move(played, calls.close(played.id, played.state), stage.node)
    silent = await accused_of(stage, trace(wrong={(3, 3, 3): 3}))
    wait(stage, silent.state.deadline + 1)
    nodes = game.nodes_to_show(silent.state, own)
    await refused(stage, calls.show(silent.id, silent.state, nodes), stage.node, "TooLate")
    await stage.move(silent, calls.silent(silent.id, silent.state), stage.accuser)


async def test_old_orders_are_not_disputed(stage: DisputeStage) -> None:
    _, head = trace().signed()
    _, opening = await stage.chain.read(calls.windows())
    young, old = (stage.accusation(head, ROWS - 1, ROWS) for _ in range(2))
    last = old.order.order.reference_block + opening
    wait(stage, last)
    await stage.open(young)
    await refused(stage, calls.open_dispute(old, stage.bond), stage.accuser, "TooLate")


async def test_who_leaves_is_disputed_as_long_as_its_stake_outlasts_the_longest_dispute(stage: DisputeStage) -> None:
    _, head = trace().signed()
    leaving = await stage.stage.send(stage.stage.owner_of(stage.node), Part.REGISTRY, "deregister", stage.node.address)
    last = leaving.block + PARAMETERS.unbonding - game.MOST_TURNS * stage.turn
    wait(stage, last)
    await stage.follower.catch_up()
    first, second = (stage.accusation(head, ROWS - 1, ROWS) for _ in range(2))
    await stage.open(first)
    await refused(stage, calls.open_dispute(second, stage.bond), stage.accuser, "NothingToLose")


@pytest.mark.parametrize("late", [0, 1])
async def test_a_dispute_is_moot_only_after_the_accuseds_last_block(stage: DisputeStage, late: int) -> None:
    """Until then it could be convicted, and whoever has nothing more to say loses the bond."""
    own = trace()
    leaving = await stage.stage.send(stage.stage.owner_of(stage.node), Part.REGISTRY, "deregister", stage.node.address)
    await stage.follower.catch_up()
    played = await stage.open(stage.accusation(own.signed()[1], ROWS - 1, ROWS))
    await stage.show(played, game.nodes_to_show(played.state, own))
    wait(stage, leaving.block + PARAMETERS.unbonding + late)
    await stage.move(played, calls.close(played.id, played.state), stage.node)
    paid = [stage.pot(PotKind.CREDIT, one.address) for one in (stage.node, stage.accuser)]
    assert paid == ([0, stage.bond] if late else [stage.bond, 0])


async def test_a_choice_beyond_what_was_shown_is_none(stage: DisputeStage) -> None:
    """Its higher bits would lead to the same node, and to another place, at which another number follows."""
    own = trace()
    played = await accused_of(stage, own)
    while True:
        await stage.show(played, game.nodes_to_show(played.state, own))
        choice = game.choice_of(played.shown, 1)
        beyond = replace(choice, index=choice.index + len(played.shown))
        if played.state.in_tensor and played.state.shown == played.state.left:
            break
        if played.state.shown < played.state.left:
            call = calls.choose(played.id, played.state, beyond)
        else:
            call = calls.choose_tensor(played.id, played.state, played.matter, played.shape, beyond)
        await refused(stage, call, stage.accuser, "NoSuchChoice")
        await stage.choose(played, choice)
    step = step_of(SeenTrace(own), played.state.tensor, game.place_of(played.state, choice), 0)
    call = calls.wrong_step(played.id, played.state, played.matter, played.shape, beyond, step)
    await refused(stage, call, stage.accuser, "NoSuchChoice")
    await refused(stage, calls.ask_sum(played.id, played.state, beyond, 0), stage.accuser, "NoSuchChoice")


async def test_a_signed_row_is_asked_for_once_and_only_that_one_is_given(stage: DisputeStage) -> None:
    own, stranger = trace(), stage.stage.anvil.keys[7]
    row, head = own.signed()
    played = await stage.open(stage.accusation(head, ROWS - 1, ROWS))
    shown = ShownRow(Hash32(bytes(32)), Hash32(bytes(32)), 0, row, ())
    await refused(stage, calls.ask_row(played.id, played.state, played.matter, 0), stage.accuser, "WrongTurn")
    await stage.show(played, game.nodes_to_show(played.state, own))
    await refused(stage, calls.ask_row(played.id, played.state, played.matter, 0), stranger, "WrongPlayer")
    await refused(stage, calls.ask_row(played.id, played.state, played.matter, ROWS), stage.accuser, "NoSuchRow")
    await stage.move(played, calls.ask_row(played.id, played.state, played.matter, ROWS - 1), stage.accuser)
    assert (played.state.turn, played.state.asked) == (DisputeTurn.ROW, ROWS)
    give = calls.give_row(played.id, played.state, played.matter, shown)
    await refused(stage, give, stranger, "WrongPlayer")
    other = calls.give_row(played.id, played.state, played.matter, replace(shown, row=row[::-1]))
    with pytest.raises(ChainRejected):
        await stage.send(other, stage.node)
    await refused(stage, calls.silent(played.id, played.state), stage.accuser, "TooEarly")
    await stage.move(played, give, stage.node)
    assert played.state.turn == DisputeTurn.ACCUSER
    again = calls.ask_row(played.id, played.state, played.matter, 0)
    await refused(stage, again, stage.accuser, "AskedBefore")
    # The accuser has the row, and nothing to say about it.
    stage.stage.anvil.mine(stage.turn + 1)
    await stage.move(played, calls.close(played.id, played.state), stage.node)
    assert stage.pot(PotKind.CREDIT, stage.node.address) == stage.bond


async def test_nobody_else_takes_a_turn_and_no_other_nodes_are_shown(stage: DisputeStage) -> None:
    accused, own, stranger = trace(wrong={(20, 1, 1): 1}), trace(), stage.stage.anvil.keys[7]
    played = await accused_of(stage, accused)
    nodes = game.nodes_to_show(played.state, accused)
    await refused(stage, calls.show(played.id, played.state, nodes), stranger, "WrongPlayer")
    await refused(stage, calls.show(played.id, played.state, nodes[:-1]), stage.node, "NoSuchRange")
    forged = replace(played.state, accused=stranger.address)
    await refused(stage, calls.show(played.id, forged, nodes), stranger, "StateMismatch")
    await stage.show(played, nodes)
    index = game.first_difference(played.state, played.shown, own)
    assert index is not None
    choice = game.choice_of(played.shown, index)
    await refused(stage, calls.choose(played.id, played.state, choice), stranger, "WrongPlayer")
    replayed = calls.show(played.id, played.state, nodes)
    await refused(stage, replayed, stage.node, "WrongTurn")
    await stage.choose(played, choice)
    # The accused must stand by what it committed to.
    await refused(
        stage, calls.show(played.id, played.state, game.nodes_to_show(played.state, own)), stage.node, "Wrong"
    )


async def test_a_state_in_other_bits_is_another_state(stage: DisputeStage) -> None:
    """The state is hashed as it lies in the calldata: no bit of it, and none that no field has, passes for another."""
    accused = trace(wrong={(20, 1, 1): 1})
    played = await accused_of(stage, accused)
    call = calls.show(played.id, played.state, game.nodes_to_show(played.state, accused))
    # Behind the selector and the dispute are eight words; the highest bits of the last one belong to no field.
    for bit in (0, 300, 1_000, 5 * 256 + 255, 6 * 256 + 255, 7 * 256, 7 * 256 + 39, 7 * 256 + 100, 8 * 256 - 1):
        data = bytearray(call.data)
        data[4 + 32 + bit // 8] ^= 0x80 >> bit % 8
        await refused(stage, replace(call, data=bytes(data)), stage.node, "StateMismatch")
    await stage.move(played, call, stage.node)


async def test_one_dispute_per_row_and_accuser_and_each_accuser_has_its_own(stage: DisputeStage) -> None:
    accused, own = trace(wrong={(2, 0, 0): 9}), trace()
    _, head = accused.signed()
    accusation = stage.accusation(head, ROWS - 1, ROWS)
    # A friend of the accused, who will say nothing, keeps nobody from the court.
    friend = await stage.open(accusation, stage.stage.anvil.keys[7])
    await refused(stage, calls.open_dispute(accusation, stage.bond), stage.stage.anvil.keys[7], "AlreadyDisputed")
    played = await stage.open(accusation)
    seen = SeenTrace(own)
    choice = await descend(stage, played, accused, own, seen)
    assert choice is not None
    await convict(stage, played, choice, seen, 0)
    # The friend's bond goes back: nothing can come of its dispute.
    await stage.move(friend, calls.close(friend.id, friend.state), stage.stage.anvil.keys[7])
    assert stage.pot(PotKind.CREDIT, stage.stage.anvil.keys[7].address) == stage.bond
    await refused(stage, calls.open_dispute(accusation, stage.bond), stage.accuser, "AlreadyDisputed")


async def test_what_no_dispute_is_opened_with(stage: DisputeStage) -> None:
    _, head = trace().signed()
    accusation = stage.accusation(head, ROWS - 1, ROWS)
    for other, name in (
        (replace(accusation, position=ROWS), "NoSuchRow"),
        (replace(accusation, shape=shape_of(TENSORS + 1)), "ShapeNotNamed"),
        (replace(accusation, mark=accusation.mark - 1), "ShapeNotNamed"),
        (replace(accusation, signature=accusation.signature[:-1] + b"\x00"), "ECDSA"),
        (replace(accusation, model=replace(accusation.model, layers=3)), "Mismatch"),
        (replace(accusation, result=replace(accusation.result, prompt=ROWS + 1)), "NothingToLose"),
        (replace(accusation, result=replace(accusation.result, segment=1)), "UnknownSegment"),
        (replace(accusation, execution_class=replace(accusation.execution_class, penalty=1)), "Mismatch"),
    ):
        await refused(stage, calls.open_dispute(other, stage.bond), stage.accuser, name)
    # What is given above the bond would stay in the contract.
    for bond in (0, stage.bond - 1, stage.bond + 1):
        await refused(stage, calls.open_dispute(accusation, bond), stage.accuser, "BondMismatch")


async def test_bfloat16_is_refused_in_words(anvil: Any, steps: Call) -> None:
    model = replace(MODEL, dtype=1)
    async with dispute_stage(anvil, steps, shape_of(TENSORS), model, dtype=1, mantissa_bits=7) as stage:
        _, head = trace().signed()
        call = calls.open_dispute(stage.accusation(head, ROWS - 1, ROWS), stage.bond)
        await refused(stage, call, stage.accuser, "NotFloat32")


async def test_nothing_is_proven_but_by_a_dispute_that_is_won(stage: DisputeStage) -> None:
    """Evidence asks this contract back: nobody's call makes it say anything."""
    from troth.cases.calls import convict_by_proof

    played = await accused_of(stage, trace())
    words = stage.node.address.removeprefix("0x").rjust(64, "0") + "0" * 63 + "1" + played.state.result.hex()
    call = convict_by_proof(stage.stage.market.contracts, bytes.fromhex(words))
    with pytest.raises(ChainRejected, match=r"NoSuchProof|Unknown"):
        await stage.stage.market.execute(call, stage.accuser)
    assert played.state.turn == DisputeTurn.ACCUSED
