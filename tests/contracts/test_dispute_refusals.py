"""What a dispute is not moved by: late turns, another matter, parts of the tree that are not what they are called."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from support.dispute_stage import DisputeStage, Played, dispute_stage
from support.tabs_stage import MODEL, PARAMETERS
from support.toy_disputes import ROWS, TENSORS, accused_of, descend, refused, trace
from support.toy_steps import ToyTrace, opening_of, shape_of, step_of, toy_steps

from troth.protocol.calls import Call
from troth.protocol.disputes import calls, game
from troth.protocol.disputes.calls import Accusation
from troth.protocol.disputes.game import NamedNode, SeenTrace
from troth.protocol.disputes.sums import packed
from troth.protocol.hashing import keccak256
from troth.protocol.market import messages
from troth.protocol.market.layers import mark_of
from troth.protocol.market.messages import sign, state_hash
from troth.protocol.market.token_proofs import ShownRow
from troth.protocol.market.types import PotKind
from troth.protocol.types import Hash32

pytestmark = [pytest.mark.chain]

OTHER = Hash32(b"\x07" * 32)


@pytest.fixture(scope="module")
def steps() -> Call:
    return toy_steps()


@pytest.fixture
async def stage(anvil: Any, steps: Call) -> AsyncIterator[DisputeStage]:
    async with dispute_stage(anvil, steps, shape_of(TENSORS), MODEL) as made:
        yield made


def late(stage: DisputeStage, played: Played) -> None:
    """The next block is the first in which whose turn it is comes too late."""
    now = int(stage.stage.anvil.rpc("eth_blockNumber"), 16)
    stage.stage.anvil.mine(played.state.deadline - now)


def shown_row(row: bytes) -> ShownRow:
    return ShownRow(Hash32(bytes(32)), Hash32(bytes(32)), 0, row, ())


async def at_tensors(stage: DisputeStage, own: ToyTrace) -> Played:
    """The accused has shown all roots of tensors below what was named."""
    played = await accused_of(stage, own)
    await stage.show(played, game.nodes_to_show(played.state, own))
    await stage.choose(played, game.choice_of(played.shown, 1))
    await stage.show(played, game.nodes_to_show(played.state, own))
    assert (played.state.in_tensor, played.state.shown) == (False, played.state.left)
    return played


async def test_no_turn_of_the_accuser_comes_after_its_last_block(stage: DisputeStage) -> None:
    own = trace()
    played = await at_tensors(stage, own)
    choice = game.choice_of(played.shown, 1)
    late(stage, played)
    named = calls.choose_tensor(played.id, played.state, played.matter, played.shape, choice)
    await refused(stage, named, stage.accuser, "TooLate")
    await refused(stage, calls.ask_row(played.id, played.state, played.matter, 0), stage.accuser, "TooLate")
    at_word, accused = await accused_of(stage, own), trace(wrong={(17, 4, 5): 1})
    choice_of_word = await descend(stage, at_word, own, accused, SeenTrace(accused))
    assert choice_of_word is not None
    late(stage, at_word)
    await refused(stage, calls.ask_sum(at_word.id, at_word.state, choice_of_word, 5), stage.accuser, "TooLate")


async def test_a_row_is_given_in_time_and_under_the_matter_of_the_dispute(stage: DisputeStage) -> None:
    """Else an accused would give any row, under a head of its own making."""
    own = trace()
    row, head = own.signed()
    played = await stage.open(stage.accusation(head, ROWS - 1, ROWS))
    await stage.show(played, game.nodes_to_show(played.state, own))
    forged = replace(played.matter, output_head=Hash32(keccak256(b"a row of zeros")))
    await refused(stage, calls.ask_row(played.id, played.state, forged, 0), stage.accuser, "WrongMatter")
    await stage.move(played, calls.ask_row(played.id, played.state, played.matter, ROWS - 1), stage.accuser)
    give = calls.give_row(played.id, played.state, forged, shown_row(b"a row of zeros"))
    await refused(stage, give, stage.node, "WrongMatter")
    late(stage, played)
    await refused(stage, calls.give_row(played.id, played.state, played.matter, shown_row(row)), stage.node, "TooLate")
    await stage.move(played, calls.silent(played.id, played.state), stage.accuser)
    assert stage.pot(PotKind.CREDIT, stage.accuser.address) > stage.bond


async def test_a_tensor_is_named_where_the_tree_over_tensors_ends(stage: DisputeStage) -> None:
    own = trace()
    played = await accused_of(stage, own)

    def tensor_by(choice: NamedNode) -> Call:
        return calls.choose_tensor(played.id, played.state, played.matter, played.shape, choice)

    await stage.show(played, game.nodes_to_show(played.state, own))
    assert played.state.shown < played.state.left
    await refused(stage, tensor_by(game.choice_of(played.shown, 1)), stage.accuser, "WrongLevel")
    await stage.choose(played, game.choice_of(played.shown, 1))
    await stage.show(played, game.nodes_to_show(played.state, own))
    await stage.choose(played, game.choice_of(played.shown, 1))
    while not played.state.in_tensor or played.state.shown != played.state.left:
        await stage.show(played, game.nodes_to_show(played.state, own))
        if played.state.shown != played.state.left:
            await stage.choose(played, game.choice_of(played.shown, 0))
    # A word is no tensor: as one it would have a tree of its own, which nobody can show.
    await refused(stage, tensor_by(game.choice_of(played.shown, 0)), stage.accuser, "WrongLevel")


async def test_a_node_further_up_is_not_named_for_one_that_was_shown(stage: DisputeStage) -> None:
    """It leads to the same root by fewer siblings, and the accused could show nothing so many levels below it."""
    own = trace()
    played = await accused_of(stage, own)
    await stage.show(played, game.nodes_to_show(played.state, own))
    choice = game.choice_of(played.shown, 0)
    pair = Hash32(keccak256(b"\x01" + choice.node + choice.siblings[0]))
    for shorter in (NamedNode(0, pair, choice.siblings[1:]), NamedNode(0, played.state.node, ())):
        await refused(stage, calls.choose(played.id, played.state, shorter), stage.accuser, "NoSuchChoice")
    longer = replace(choice, siblings=(*choice.siblings, OTHER))
    await refused(stage, calls.choose(played.id, played.state, longer), stage.accuser, "NoSuchChoice")


async def test_nothing_convicts_by_another_matter_or_at_another_place(stage: DisputeStage) -> None:
    own, lies = trace(), trace(wrong={(17, 4, 5): 1})
    row, _ = trace(wrong={(39, 10, 0): 5}).signed()
    played = await accused_of(stage, own)
    await stage.show(played, game.nodes_to_show(played.state, own))
    forged = replace(played.matter, output_head=Hash32(keccak256(row)))
    far = opening_of(SeenTrace(own), own, row)
    call = calls.wrong_row(played.id, played.state, forged, played.shape, far)
    await refused(stage, call, stage.accuser, "WrongMatter")
    first = game.choice_of(played.shown, 0)
    step = step_of(SeenTrace(own), 0, 0, 0)
    above = calls.wrong_step(played.id, played.state, played.matter, played.shape, first, step)
    await refused(stage, above, stage.accuser, "WrongLevel")
    played, seen = await accused_of(stage, own), SeenTrace(lies)
    choice = await descend(stage, played, own, lies, seen)
    assert choice is not None
    # With fewer positions the word would lie beyond the last one, where all that is not zero convicts.
    fewer = replace(played.matter, position=0, rows=1)
    place = game.place_of(played.state, choice)
    step = step_of(SeenTrace(own), 17, place, 5)
    call = calls.wrong_step(played.id, played.state, fewer, played.shape, choice, step)
    await refused(stage, call, stage.accuser, "WrongMatter")
    await stage.move(played, calls.ask_sum(played.id, played.state, choice, 5), stage.accuser)
    parts = packed((3 * int(own.numbers[16][4, 5]), 17))
    await stage.move(played, calls.give_sum(played.id, played.state, parts), stage.node)
    for call in (
        calls.wrong_sum(played.id, played.state, fewer, played.shape, parts),
        calls.wrong_part(played.id, played.state, fewer, played.shape, parts, 0, step),
    ):
        await refused(stage, call, stage.accuser, "WrongMatter")


async def test_a_dispute_is_not_closed_over_the_accuseds_silence(stage: DisputeStage) -> None:
    """The accused would take the bond of whoever waits for it."""
    played = await accused_of(stage, trace(wrong={(3, 3, 3): 3}))
    late(stage, played)
    await refused(stage, calls.close(played.id, played.state), stage.node, "WrongTurn")
    await stage.move(played, calls.silent(played.id, played.state), stage.accuser)


async def test_who_has_no_stake_is_not_disputed_and_its_open_disputes_are_moot(stage: DisputeStage) -> None:
    _, head = trace(wrong={(3, 3, 3): 3}).signed()
    waiting = await stage.open(stage.accusation(head, ROWS - 1, ROWS))
    friend = stage.stage.anvil.keys[7]
    for _ in range(10):
        played = await stage.open(stage.accusation(head, ROWS - 1, ROWS), friend)
        late(stage, played)
        await stage.move(played, calls.silent(played.id, played.state), friend)
        if stage.pot(PotKind.STAKE, stage.node.address) == 0:
            break
    assert stage.pot(PotKind.STAKE, stage.node.address) == 0
    call = calls.open_dispute(stage.accusation(head, ROWS - 1, ROWS), stage.bond)
    await refused(stage, call, stage.accuser, "NothingToLose")
    # Nobody was convicted for this answer, and nobody can be: the accuser has its bond back.
    await stage.move(waiting, calls.close(waiting.id, waiting.state), stage.node)
    assert stage.pot(PotKind.CREDIT, stage.accuser.address) == stage.bond


async def test_a_scheduler_that_signs_a_result_is_not_disputed(stage: DisputeStage) -> None:
    """Only a node's stake is made for this: a scheduler serves many classes."""
    _, head = trace().signed()
    accusation = stage.accusation(head, ROWS - 1, ROWS)
    signed = sign(accusation.result, stage.stage.market.domain, stage.stage.scheduler.secret)
    other = replace(accusation, signature=signed.signature)
    await refused(stage, calls.open_dispute(other, stage.bond), stage.accuser, "NothingToLose")


async def test_coins_that_are_sent_by_anybody_but_the_bank_are_refused(stage: DisputeStage) -> None:
    """They would lie beside the bonds, and be nobody's."""
    await refused(stage, Call("receive", b"", 1), stage.accuser, "NotBank")


async def test_a_conviction_voids_from_the_lag_before_the_order(stage: DisputeStage) -> None:
    played = await accused_of(stage, trace(wrong={(3, 3, 3): 3}))
    offence = played.state.offence_block
    late(stage, played)
    await stage.move(played, calls.silent(played.id, played.state), stage.accuser)
    topic = "0x" + keccak256(b"Convicted(address,uint8,bytes32,uint64,uint64,uint256)").hex()
    (log,) = stage.stage.anvil.rpc("eth_getLogs", {"fromBlock": "latest", "toBlock": "latest", "topics": [topic]})
    words = [int(log["data"][2 + 64 * at : 66 + 64 * at], 16) for at in range(len(log["data"][2:]) // 64)]
    assert max(0, offence - PARAMETERS.lag) in words


def renamed(stage: DisputeStage, accusation: Accusation, name: str) -> Accusation:
    """The same accusation over an order of a class with another name, which its node signed, too."""
    definition = replace(accusation.execution_class, name=name)
    order = replace(accusation.order.order, execution_class=state_hash(definition))
    domain = stage.stage.market.domain
    result = replace(accusation.result, order=messages.order_id(order, domain))
    signature = sign(result, domain, stage.node.secret).signature
    signed = replace(accusation.order, order=order)
    return replace(accusation, order=signed, execution_class=definition, result=result, signature=signature)


async def test_a_shape_is_named_by_its_mark_its_whole_hash_and_what_may_follow(stage: DisputeStage) -> None:
    _, head = trace().signed()
    plain = stage.accusation(head, ROWS - 1, ROWS)
    name = plain.execution_class.name
    digits = keccak256(plain.shape).hex()
    assert digits in name
    assert mark_of(name) == plain.mark
    for other in (
        name.replace("/layers:0x", "/layerz:0x"),
        name.replace(digits, digits[:-1] + ("0" if digits[-1] != "0" else "1")),
        name.replace(digits, ("0" if digits[0] != "0" else "1") + digits[1:]),
        name.split(digits)[0] + digits + "/other:one",
        name.split(digits)[0] + digits + "/head",
    ):
        accusation = renamed(stage, plain, other)
        await refused(stage, calls.open_dispute(accusation, stage.bond), stage.accuser, "ShapeNotNamed")
    await stage.open(renamed(stage, plain, name.split(digits)[0] + digits + "/head:model.embed_tokens.weight"))


async def test_a_result_is_disputed_under_its_own_order_and_within_its_rows(stage: DisputeStage) -> None:
    _, head = trace().signed()
    plain, other = (stage.accusation(head, ROWS - 1, ROWS) for _ in range(2))
    foreign = replace(plain, order=other.order)
    await refused(stage, calls.open_dispute(foreign, stage.bond), stage.accuser, "WrongPlace")
    # More positions than a number of 32 bits has are no rows, and one is one row.
    many = stage.accusation(head, 3, ROWS, prompt=2**32 - 1, written=6)
    await refused(stage, calls.open_dispute(many, stage.bond), stage.accuser, "NoSuchRow")
    single = ToyTrace(TENSORS, 1)
    played = await stage.open(stage.accusation(single.signed()[1], 0, 1, prompt=1, written=0))
    assert (played.matter.rows, played.matter.position) == (1, 0)
    none = stage.accusation(single.signed()[1], 1, 1, prompt=1, written=0)
    await refused(stage, calls.open_dispute(none, stage.bond), stage.accuser, "NoSuchRow")
