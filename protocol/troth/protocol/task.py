"""A task as the contract keeps it: only the hash of ``Task`` is stored on chain, callers bring the task along."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from troth.protocol.bindings import named
from troth.protocol.bindings.structs import encode_parameters, from_abi, to_abi
from troth.protocol.contract_types import Settled
from troth.protocol.ends import unpack_ends
from troth.protocol.errors import InvalidField
from troth.protocol.hashing import keccak256
from troth.protocol.types import ZERO_HASH, Address, Hash32, Segment, segments_from_ends

MAXIMUM_SEGMENTS = 32
"""``ends`` packs one byte per segment into a word."""
ENDING_BYTES = 2
"""The end of a slot that tells how a task ended: segments that are not accepted, outcome."""


class Phase(IntEnum):
    """Where a live task stands."""

    NONE = 0
    OPENED = 1
    ASSIGNED = 2
    COMMITTED = 3
    SAMPLED = 4
    DISPUTED = 5


@dataclass(frozen=True, slots=True)
class Terms:
    """What never changes. ``ends`` is packed: byte s is the end of segment s, zero after the last one."""

    client: Address
    scheduler: Address
    execution_class: Hash32
    fee: int
    reference_block: int
    ends: Hash32

    @property
    def is_review(self) -> bool:
        """True for a segment's second verification, which is kept like a task."""
        return self.ends[0] == 0

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The layer split; a review has one segment, whose ends follow a zero byte."""
        if self.is_review:
            return (Segment(self.ends[1], self.ends[2]),)
        ends = unpack_ends(self.ends)
        return segments_from_ends(ends, ends[-1] if ends else 0)


@dataclass(frozen=True, slots=True)
class Progress:
    """What the calls move forward; an assignment leaves the opening's ``phase_block``.

    ``parties``: per segment c candidates, then k verifiers; once a segment has a root, its inferencer stands first.
    ``posts``: per segment the root, then k commitments, zero where there is none; empty before the first post.
    ``revealed``: per segment 1 + k hashes of what a call of its own revealed; empty before the first of them.
    """

    phase: Phase
    phase_block: int
    segments: int
    candidates: int
    attempt: int = 0
    positions: int = 0
    output_hash: Hash32 = ZERO_HASH
    seed: Hash32 = ZERO_HASH
    parties: tuple[Address, ...] = ()
    posts: tuple[Hash32, ...] = ()
    revealed: tuple[Hash32, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """A live task, in the form that the contract's calls take."""

    terms: Terms
    progress: Progress

    @property
    def parties_per_segment(self) -> int:
        """c + k; 0 until the task is assigned."""
        return len(self.progress.parties) // self.progress.segments

    @property
    def verifiers(self) -> int:
        """k; raises InvalidField before the task is assigned."""
        if not self.progress.parties:
            raise InvalidField("The task has no verifiers yet", self.progress.phase.name, "Assign it first.")
        return self.parties_per_segment - self.progress.candidates

    @property
    def posts_per_segment(self) -> int:
        """1 + k; 0 until the first post."""
        return len(self.progress.posts) // self.progress.segments

    def parties_of(self, segment: int) -> tuple[Address, ...]:
        """Candidates, then verifiers of a segment; empty until assigned."""
        width = self.parties_per_segment
        return self.progress.parties[segment * width : (segment + 1) * width]

    def posts_of(self, segment: int) -> tuple[Hash32, ...]:
        """The root, then the commitments of a segment; empty before the first post."""
        width = self.posts_per_segment
        return self.progress.posts[segment * width : (segment + 1) * width]

    def verifiers_of(self, segment: int) -> tuple[Address, ...]:
        """The k verifiers of a segment; empty until assigned."""
        return self.parties_of(segment)[self.progress.candidates :]


def terms_hash(terms: Terms) -> Hash32:
    """keccak256(abi.encode(terms)), which calls of the parties' own posts take in place of the terms."""
    (parameter,) = named("function")["stateHash"].inputs
    return Hash32(keccak256(encode_parameters(parameter.components[:1], [terms])))


def task_hash(task: Task) -> Hash32:
    """What the contract stores for a live task: its ``stateHash``, whose last two bytes are zero."""
    (parameter,) = named("function")["stateHash"].inputs
    progress = encode_parameters(parameter.components[1:], [task.progress])
    # abi.encode(bytes32, Progress) has the word first, and its offset counts that word: 0x40 in place of 0x20.
    encoded = terms_hash(task.terms) + (64).to_bytes(32, "big") + progress[32:]
    return Hash32(keccak256(encoded)[:-ENDING_BYTES] + bytes(ENDING_BYTES))


def kept_hash(task: Task, settled: Settled) -> Hash32:
    """What the contract keeps of a settled task: its last state and how it was decided, the last two bytes zero.

    In the slot those bytes are the number of segments that are not accepted, and the outcome.
    """
    parameter = next(given for given in named("function")["dispute"].inputs if given.name == "settled")
    decided = keccak256(encode_parameters([parameter], [settled]))
    return Hash32(keccak256(task_hash(task) + decided)[:-ENDING_BYTES] + bytes(ENDING_BYTES))


def task_to_abi(task: Task) -> object:
    """Nested tuples as the ABI codec takes them."""
    return to_abi(task)


def task_from_abi(values: tuple[object, ...]) -> Task:
    """The task from decoded calldata."""
    return from_abi(Task, values)
