"""Trees of a dispute: each opening leads to the root, nothing else does, and an accuser knows what it must open."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troth.protocol.disputes import game
from troth.protocol.disputes.game import Dispute, DisputeTurn, SeenTrace
from troth.protocol.disputes.layout import LAST, MOST_TERMS, MOST_WIDTH, OPERATIONS, WORD_NUMBERS
from troth.protocol.disputes.tree import Range, WordTree, depth_over, path_root, range_root, root_over
from troth.protocol.errors import InvalidOpening
from troth.protocol.types import ZERO_ADDRESS, ZERO_HASH, Hash32

words = st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=40)


class Table:
    """A trace of tensors of words."""

    def __init__(self, tensors: list[list[bytes]]) -> None:
        depth = depth_over(max(len(one) for one in tensors))
        self.trees = [WordTree(b"".join(one), depth) for one in tensors]
        self.top = WordTree(b"".join(tree.root for tree in self.trees), depth_over(len(tensors)))

    def tensor(self, number: int) -> WordTree:
        return self.trees[number]


@given(words, st.integers(0, 3), st.data())
def test_an_opening_leads_to_the_root_and_a_changed_one_does_not(
    leaves: list[bytes], more: int, data: st.DataObject
) -> None:
    tree = WordTree(b"".join(leaves), depth_over(len(leaves)) + more)
    first = data.draw(st.integers(0, len(leaves) - 1))
    count = data.draw(st.integers(1, len(leaves) - first))
    shown = tree.open(first, count)
    assert shown.words == b"".join(leaves[first : first + count])
    assert range_root(shown, first, tree.depth) == tree.root
    at = data.draw(st.integers(0, len(shown.words) - 1))
    bent = shown.words[:at] + bytes([shown.words[at] ^ 1]) + shown.words[at + 1 :]
    assert range_root(replace(shown, words=bent), first, tree.depth) != tree.root
    for siblings in ((*shown.siblings, ZERO_HASH), shown.siblings[1:] if shown.siblings else (ZERO_HASH,)):
        with pytest.raises(InvalidOpening):
            range_root(Range(shown.words, siblings), first, tree.depth)
    assert path_root(leaves[first], first, tree.path(0, first, tree.depth)) == tree.root
    level = data.draw(st.integers(0, tree.depth))
    assert root_over(tree.nodes(level, 0, 1 << tree.depth - level)) == tree.root


@given(st.integers(0, 100))
def test_strides_are_few_and_even(left: int) -> None:
    turns, rest = 0, left
    while rest:
        stride = game.stride(rest)
        assert 1 <= stride <= game.MOST_STRIDE
        rest, turns = rest - stride, turns + 1
    assert turns == -(-left // game.MOST_STRIDE)


def test_the_longest_dispute_has_22_turns_and_stake_stays_for_26() -> None:
    """Both trees as deep as the contract takes them, the row and the parts asked for and given, and the last call."""
    tensors = 2 * (OPERATIONS * 255 + LAST)  # a nudged trace of 255 layers, which is what a byte numbers
    words = depth_over(MOST_TERMS) + depth_over(MOST_WIDTH // WORD_NUMBERS)  # positions, and words of the widest row
    assert (depth_over(tensors), words) == (15, 26)
    shown = [-(-left // game.MOST_STRIDE) for left in (depth_over(tensors), words)]
    turns = 2 * sum(shown)  # each is answered; at the word by asking for parts, or by the call that convicts
    turns += 2 + 2  # the row is asked for and given; the parts are given, and the call that convicts is one turn more
    assert turns == 22
    assert turns <= game.MOST_TURNS


@pytest.mark.slow
@given(st.lists(words, min_size=2, max_size=9), st.data())
def test_the_first_difference_is_found_and_all_before_it_can_be_opened(
    tensors: list[list[bytes]], data: st.DataObject
) -> None:
    own = Table(tensors)
    bent = [list(one) for one in tensors]
    for _ in range(data.draw(st.integers(1, 4))):
        tensor = data.draw(st.integers(0, len(bent) - 1))
        place = data.draw(st.integers(0, len(bent[tensor]) - 1))
        bent[tensor][place] = data.draw(st.binary(min_size=32, max_size=32))
    accused = Table(bent)
    state = Dispute(
        matter=ZERO_HASH, result=ZERO_HASH, accused=ZERO_ADDRESS, accuser=ZERO_ADDRESS, offence_block=0, bond=0,
        deadline=0, turn=DisputeTurn.ACCUSED, root=accused.top.root, node=accused.top.root, in_tensor=False, tensor=0,
        place=0, left=own.top.depth, shown=0, asked=0, nudge=0, moved=0, number=0, parts=ZERO_HASH,
    )  # fmt: skip
    seen = SeenTrace(own)
    while True:
        nodes = game.nodes_to_show(state, accused)
        state = replace(state, shown=game.stride(state.left))
        seen.note(state, nodes)
        index = game.first_difference(state, nodes, own)
        if index is None:
            assert accused.top.root == own.top.root
            return
        choice = game.choice_of(nodes, index)
        assert path_root(choice.node, choice.index, choice.siblings) == state.node
        if state.in_tensor and state.shown == state.left:
            break
        place, left = game.place_of(state, choice), state.left - state.shown
        state = replace(state, place=place, left=left, shown=0, node=choice.node)
        if not state.in_tensor and left == 0:
            state = replace(state, in_tensor=True, tensor=place, place=0, left=own.trees[place].depth)
    where = (state.tensor, game.place_of(state, choice))
    every = [(t, w) for t, one in enumerate(tensors) for w in range(len(one))]
    assert where == next(at for at in every if tensors[at[0]][at[1]] != bent[at[0]][at[1]])
    for tensor, place in [at for at in every if at < where][-3:]:
        opened = seen.open(tensor, place, 1)
        depth = own.trees[tensor].depth
        assert range_root(opened, (tensor << depth) + place, depth + own.top.depth) == Hash32(accused.top.root)
