"""Who serves and who checks: VRF inputs, the draw of parties, the sampled tiles, and the check of an announcement.

The contract derives the same values (VeriLLM sections 5.3 and 5.7); every party recomputes them from its own view of
the chain, so a scheduler can neither choose parties nor tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from troth.protocol import typed_data, vrf
from troth.protocol.announcement import Announcement
from troth.protocol.ends import pack_ends
from troth.protocol.errors import InvalidField, InvalidProof, InvalidSignature, WrongAssignment
from troth.protocol.hashing import abi_keccak, keccak256
from troth.protocol.identifiers import class_id, fee, task_id
from troth.protocol.permutation import walk
from troth.protocol.request import request_hash
from troth.protocol.types import Address, ExecutionClass, Hash32, Segment, segments_from_ends, to_hash32

ASSIGNMENT_TAG = keccak256(b"troth/assignment/1")
SAMPLE_TAG = keccak256(b"troth/sample/1")

Members = Sequence[Address | None]
"""A group at a block: the member of each slot in slot order, None where the slot was empty."""


@dataclass(frozen=True, slots=True)
class AssignmentContext:
    """A checker's own view of the chain at the order's reference block; ``groups`` holds one group per segment."""

    domain: typed_data.Domain
    vrf_key: tuple[int, int]
    execution_class: ExecutionClass
    layers: int
    groups: tuple[Members, ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The parties of a task; ``parties[s]`` holds the candidates of segment s, then its verifiers."""

    task_id: Hash32
    client: Address
    segments: tuple[Segment, ...]
    parties: tuple[tuple[Address, ...], ...]
    betas: tuple[Hash32, ...]
    proofs: tuple[bytes, ...]
    candidate_count: int

    def candidates(self, segment: int) -> tuple[Address, ...]:
        """Nodes that may infer the segment."""
        return self.parties[segment][: self.candidate_count]

    def verifiers(self, segment: int) -> tuple[Address, ...]:
        """Nodes that check the segment."""
        return self.parties[segment][self.candidate_count :]


def assignment_alpha(
    domain: typed_data.Domain, task: Hash32, segment: int, *, group_size: int, reference_block: int
) -> Hash32:
    """VRF input of a segment's assignment; ``group_size`` counts slots, empty ones included."""
    types = ["bytes32", "uint256", "address", "bytes32", "uint256", "uint256", "uint256"]
    values = [ASSIGNMENT_TAG, domain.chain_id, domain.contract, to_hash32(task), segment, group_size, reference_block]
    return Hash32(abi_keccak(types, values))


def sample_alpha(
    domain: typed_data.Domain,
    task: Hash32,
    *,
    posts: Sequence[Hash32],
    block_hash: Hash32,
) -> Hash32:
    """VRF input of the sampling: root and k commitments (zero if missing) per segment, hash of the commit block."""
    committed = abi_keccak(["bytes32[]"], [[to_hash32(post) for post in posts]])
    types = ["bytes32", "uint256", "address", "bytes32", "bytes32", "bytes32"]
    values = [SAMPLE_TAG, domain.chain_id, domain.contract, to_hash32(task), committed, to_hash32(block_hash)]
    return Hash32(abi_keccak(types, values))


def draw(beta: Hash32, members: Members, count: int) -> tuple[Address, ...]:
    """The first ``count`` members on the shuffled walk over the slots; raises WrongAssignment where too few serve."""
    drawn: list[Address] = []
    for slot in walk(beta, len(members)):
        member = members[slot]
        if member is not None:
            drawn.append(member)
        if len(drawn) >= count:
            return tuple(drawn[:count])
    raise WrongAssignment(f"The group has fewer than {count} members", len(drawn), "Wait for more nodes to register.")


def verify_assignment(announcement: Announcement, context: AssignmentContext) -> Assignment:
    """The parties that the chain supports for this announcement; raises WrongAssignment naming what differs.

    Checks (1) class, fee and layer split, (2) the client's signature, (3) the request against its hash where it is
    shown, (4) each segment's proof, (5) each draw. Deadline, block window and the client's escrow are the caller's,
    since they depend on now.
    """
    segments = _check_terms(announcement, context)
    task, client = _check_client(announcement, context)
    _check_request(announcement)
    if len({len(segments), len(announcement.betas), len(announcement.proofs), len(context.groups)}) != 1:
        counts = (len(segments), len(announcement.betas), len(announcement.proofs), len(context.groups))
        raise WrongAssignment("Segments, outputs, proofs and groups differ in number", counts, "Send one per segment.")
    parties = []
    for segment, (beta, proof, members) in enumerate(
        zip(announcement.betas, announcement.proofs, context.groups, strict=True)
    ):
        _check_output(announcement, context, task, segment, size=len(members), claimed=(beta, proof))
        parties.append(draw(beta, members, context.execution_class.parties))
    return Assignment(
        task_id=task,
        client=client,
        segments=segments,
        parties=tuple(parties),
        betas=announcement.betas,
        proofs=announcement.proofs,
        candidate_count=context.execution_class.candidates,
    )


def _check_terms(announcement: Announcement, context: AssignmentContext) -> tuple[Segment, ...]:
    order = announcement.order
    if order.execution_class != class_id(context.execution_class):
        raise WrongAssignment("The order names another execution class", order.execution_class, "Ask who serves it.")
    try:
        if order.ends != pack_ends(announcement.ends):
            raise WrongAssignment("The client signed another layer split", announcement.ends, "Use the signed one.")
        segments = segments_from_ends(announcement.ends, context.layers)
    except InvalidField as error:
        raise WrongAssignment(error.what, error.value, error.remedy) from error
    price = fee(context.execution_class, len(segments))
    if price > order.max_fee:
        raise WrongAssignment(f"The fee is {price} wei, more than the order allows", order.max_fee, "Order again.")
    return segments


def _check_client(announcement: Announcement, context: AssignmentContext) -> tuple[Hash32, Address]:
    try:
        task = task_id(announcement.order, context.domain)
        return task, typed_data.recover_digest(task, announcement.signature)
    except (InvalidField, InvalidSignature) as error:
        raise WrongAssignment(
            f"The order carries no valid signature: {error.what}", error.value, error.remedy
        ) from error


def _check_request(announcement: Announcement) -> None:
    if (announcement.request is None) != (announcement.salt is None):
        raise WrongAssignment("Request and salt come together", announcement.salt, "Send both or neither.")
    if announcement.request is None or announcement.salt is None:
        return
    order = announcement.order
    if announcement.request.execution_class != order.execution_class:
        raise WrongAssignment("The request is for another class", announcement.request.execution_class, "Order again.")
    actual = request_hash(announcement.request, announcement.salt)
    if actual != order.request_hash:
        raise WrongAssignment("The request is not the one that was ordered", actual, "Ask for the client's request.")


def _check_output(
    announcement: Announcement,
    context: AssignmentContext,
    task: Hash32,
    segment: int,
    *,
    size: int,
    claimed: tuple[Hash32, bytes],
) -> None:
    beta, proof = claimed
    block = announcement.order.reference_block
    alpha = assignment_alpha(context.domain, task, segment, group_size=size, reference_block=block)
    remedy = "Check that both sides see the same block, then report the scheduler."
    try:
        actual = vrf.verify(context.vrf_key, alpha, proof)
    except InvalidProof as error:
        what = f"The VRF proof of segment {segment} fails for a group of {size} slots at block {block}"
        raise WrongAssignment(what, proof, remedy) from error
    if actual != beta:
        raise WrongAssignment(f"The VRF output of segment {segment} is not that of its proof", beta, remedy)
