"""The turns of a dispute: its state as the contract keeps it, and what each side does next.

The accused shows the levels of its trace below the node that was named, the accuser names the first that differs from
its own. Whoever holds the true trace wins on either side: an accuser with it finds the first number that does not
follow from those before it, and an accused with it shows nothing else than the accuser's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from troth.protocol.disputes.tree import Range, SeenTree, Tree, WordTree
from troth.protocol.hashing import abi_keccak
from troth.protocol.market.messages import state_hash
from troth.protocol.market.types import Uint40, Uint256
from troth.protocol.types import Address, Hash32, Uint8, Uint16, Uint32, Uint64, Uint96

MOST_STRIDE = 5
MOST_TURNS = 26
"""Turns for which the contract wants the accused's stake to stay. The longest dispute has 22, and the rest is room: a
last call that is mined late still finds the stake."""
ENDED = Hash32((1).to_bytes(32, "big"))
"""What the contract keeps of a dispute that has ended."""


class DisputeTurn(IntEnum):
    """Whose turn it is; the values are the contract's."""

    NONE = 0
    ACCUSED = 1
    ACCUSER = 2
    ROW = 3
    SUM = 4


@dataclass(frozen=True, slots=True)
class Matter:
    """What a dispute is about: one row that a node signed, and all that the row follows from (``ISteps.Matter``)."""

    order: Hash32
    input_head: Hash32
    output_head: Hash32
    weights_root: Hash32
    shape: Hash32
    layers: Uint16
    hidden: Uint32
    segment: Uint8
    first: Uint8
    end: Uint8
    rows: Uint32
    position: Uint32


@dataclass(frozen=True, slots=True)
class TraceClaim:
    """What the accused says that its signed row follows from (``ISteps.Claim``)."""

    root: Hash32
    seed: Hash32
    nudge: Uint8
    moved: Uint32


@dataclass(frozen=True, slots=True)
class PackedDispute:
    """A dispute's state as calls carry it (``IDisputes.Packed``): what is not a hash shares three words.

    ``accused``: 160 bits, bond 96; ``accuser``: 160 bits, offence block 64, moved 32; ``place``: deadline 40 bits,
    turn 8, in_tensor 8, tensor 32, place 64, left 8, shown 8, asked 32, nudge 8, number 8.
    """

    matter: Hash32
    result: Hash32
    root: Hash32
    node: Hash32
    parts: Hash32
    accused: Uint256
    accuser: Uint256
    place: Uint256


@dataclass(frozen=True, slots=True)
class Dispute:
    """The state of a dispute (``IDisputes.Dispute``)."""

    matter: Hash32
    result: Hash32
    accused: Address
    accuser: Address
    offence_block: Uint64
    bond: Uint96
    deadline: Uint40
    turn: Uint8
    root: Hash32
    node: Hash32
    in_tensor: bool
    tensor: Uint32
    place: Uint64
    left: Uint8
    shown: Uint8
    asked: Uint32
    nudge: Uint8
    moved: Uint32
    number: Uint8
    parts: Hash32

    @property
    def packed(self) -> PackedDispute:
        """As calls carry it."""
        accused = int(self.accused, 16) << 96 | self.bond
        accuser = int(self.accuser, 16) << 96 | self.offence_block << 32 | self.moved
        fields = (
            (self.deadline, 40), (self.turn, 8), (self.in_tensor, 8), (self.tensor, 32), (self.place, 64),
            (self.left, 8), (self.shown, 8), (self.asked, 32), (self.nudge, 8), (self.number, 8),
        )  # fmt: skip
        place = 0
        for value, bits in fields:
            place = place << bits | int(value)
        return PackedDispute(self.matter, self.result, self.root, self.node, self.parts, accused, accuser, place)

    @property
    def hash(self) -> Hash32:
        """What the contract keeps."""
        return state_hash(self.packed)

    @property
    def claim(self) -> TraceClaim:
        """What the accused committed to."""
        return TraceClaim(self.root, self.result, self.nudge, self.moved)


@dataclass(frozen=True, slots=True)
class NamedNode:
    """One of the nodes that were shown, and its way to the node above."""

    index: Uint64
    node: Hash32
    siblings: tuple[Hash32, ...]


class CanonicalTrace(Protocol):
    """What one side computed: the tree over all tensors' roots, and the tree of each tensor's words."""

    @property
    def top(self) -> Tree:
        """Over the roots of all tensors."""

    def tensor(self, number: int) -> Tree:
        """One tensor's tree."""


class SeenTrace:
    """The accused's trace as the accuser knows it: what was shown, and its own before the first difference.

    Numbers before that one are the same in both, so that all that a step opens is known.
    """

    def __init__(self, own: CanonicalTrace) -> None:
        self._own, self.top = own, SeenTree(own.top)
        self._tensors: dict[int, SeenTree] = {}

    def note(self, state: Dispute, nodes: Sequence[Hash32]) -> None:
        """What the accused showed; ``state`` is the one after it."""
        tree = self.tensor(state.tensor) if state.in_tensor else self.top
        tree.note(state.left - state.shown, state.place << state.shown, nodes)

    def tensor(self, number: int) -> SeenTree:
        """One tensor's tree."""
        if number not in self._tensors:
            self._tensors[number] = SeenTree(self._own.tensor(number))
        return self._tensors[number]

    def open(self, tensor: int, first: int, count: int) -> Range:
        """Words of a tensor, side by side, with their way to the trace's root."""
        inside = self.tensor(tensor).open(first, count)
        return Range(inside.words, (*inside.siblings, *self.top.path(0, tensor, self.top.depth)))


def dispute_id(result: Hash32, position: int, accuser: Address) -> Hash32:
    """One dispute for each signed row and accuser."""
    return Hash32(abi_keccak(["bytes32", "uint32", "address"], [result, position, accuser]))


def stride(left: int) -> int:
    """How many levels are shown at once where so many are left: as few turns as can be, as even as they can be."""
    turns = -(-left // MOST_STRIDE)
    return -(-left // turns) if turns else 0


def nodes_to_show(state: Dispute, trace: CanonicalTrace) -> tuple[Hash32, ...]:
    """What the accused shows on its turn."""
    tree, levels = tree_of(state, trace), stride(state.left)
    return tree.nodes(state.left - levels, state.place << levels, 1 << levels)


def first_difference(state: Dispute, shown: Sequence[Hash32], trace: CanonicalTrace) -> int | None:
    """Which of the shown nodes is the first that the accuser has otherwise; None: they are its own."""
    tree, levels = tree_of(state, trace), state.shown
    own = tree.nodes(state.left - levels, state.place << levels, 1 << levels)
    return next((at for at, (one, other) in enumerate(zip(shown, own, strict=True)) if one != other), None)


def choice_of(shown: Sequence[Hash32], index: int) -> NamedNode:
    """One of the shown nodes with its way to the node above."""
    tree = WordTree(b"".join(shown), (len(shown) - 1).bit_length())
    return NamedNode(index, Hash32(shown[index]), tree.path(0, index, tree.depth))


def place_of(state: Dispute, choice: NamedNode) -> int:
    """NumberPlace of a chosen node among those of its level."""
    return state.place << state.shown | choice.index


def tree_of(state: Dispute, trace: CanonicalTrace) -> Tree:
    """The tree that the dispute is in."""
    return trace.tensor(state.tensor) if state.in_tensor else trace.top
