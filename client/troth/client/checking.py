"""What the client checks by itself of what a scheduler tells it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from troth.client.errors import ProofError
from troth.client.market import Offer
from troth.client.ordering import SignedOrder
from troth.client.standing import Standing
from troth.client.untrusted import read_hex, read_list
from troth.protocol import typed_data, vrf
from troth.protocol.announcement import Announcement
from troth.protocol.assignment import Assignment, AssignmentContext, verify_assignment
from troth.protocol.errors import ProtocolError
from troth.protocol.identifiers import group_id
from troth.protocol.request import output_hash
from troth.protocol.state import State
from troth.protocol.task import Task
from troth.protocol.typed_data import Domain
from troth.protocol.types import (
    SEGMENTS_LIMIT,
    Address,
    Hash32,
    Served,
    address_from_bytes,
    segments_from_ends,
)

PROOF_BYTES = 81
_PARTIES_LIMIT = 256
_REMEDY = "Do not trust this scheduler; `troth client receipts` shows whether the task was opened all the same."


def check_assignment(
    line: dict[str, Any], signed: SignedOrder, offer: Offer, domain: Domain, state: State
) -> Assignment:
    """The parties that the chain supports for this order.

    Raises:
        ProofError: the scheduler names other parties, or proves nothing.
        StreamError: the line is malformed.
    """
    proofs = tuple(read_hex(proof, PROOF_BYTES) for proof in read_list(line.get("proofs"), SEGMENTS_LIMIT))
    order = signed.order
    try:
        betas = tuple(Hash32(vrf.proof_to_hash(proof)) for proof in proofs)
        announcement = Announcement(order, signed.signature, offer.ends, betas, proofs, signed.request, signed.salt)
        context = AssignmentContext(
            domain, offer.scheduler.vrf_key, offer.rules, offer.model.layers, _groups(signed, offer, state)
        )
        assignment = verify_assignment(announcement, context)
    except ProtocolError as error:
        raise ProofError(error.what, error.value, _REMEDY) from error
    claimed = _claimed(line)
    drawn = tuple(tuple(party.lower() for party in parties) for parties in assignment.parties)
    if claimed != drawn:
        raise ProofError("The scheduler names parties that were not drawn", claimed, f"The draw is {drawn}. {_REMEDY}")
    return assignment


def _groups(signed: SignedOrder, offer: Offer, state: State) -> tuple[tuple[Address | None, ...], ...]:
    order = signed.order
    groups = []
    for segment in segments_from_ends(offer.ends, offer.model.layers):
        group = state.groups.get(group_id(order.execution_class, segment))
        groups.append(() if group is None else tuple(group.members_at(order.reference_block)))
    return tuple(groups)


def _claimed(line: dict[str, Any]) -> tuple[tuple[str, ...], ...]:
    segments = read_list(line.get("parties"), SEGMENTS_LIMIT)
    return tuple(
        tuple("0x" + read_hex(party, 20).hex() for party in read_list(parties, _PARTIES_LIMIT)) for parties in segments
    )


def check_terms(task: Task, signed: SignedOrder, offer: Offer) -> None:
    """That the task was opened as it was offered: layer split and fee; ProofError otherwise."""
    ends = tuple(segment.end for segment in task.terms.segments)
    if ends != offer.ends or task.terms.fee > signed.fee:
        raise ProofError(
            "The task was opened on other terms than the scheduler offered",
            f"segments end at {ends} for {task.terms.fee} wei",
            f"Offered were {offer.ends} for {signed.fee} wei. {_REMEDY}",
        )


def check_output_hash(claimed: object, salt: Hash32, tokens: Sequence[int]) -> None:
    """That the scheduler speaks of the tokens it streamed; ProofError otherwise."""
    expected = output_hash(salt, tokens)
    found = read_hex(claimed, 32)
    if found != expected:
        raise ProofError(
            "The scheduler's output hash is not that of the tokens it streamed",
            "0x" + found.hex(),
            f"The streamed tokens hash to 0x{expected.hex()}. {_REMEDY}",
        )


def check_served(
    line: dict[str, Any], assignment: Assignment, salt: Hash32, tokens: Sequence[int], domain: Domain
) -> tuple[Address, bytes]:
    """The candidate that signed just these tokens as its answer to the task, and its signature.

    Raises:
        ProofError: another than the named node signed, or another answer, or the node was not drawn to infer.
        StreamError: the line is malformed.
    """
    node, signature = address_from_bytes(read_hex(line.get("node"), 20)), read_hex(line.get("signature"), 65)
    drawn = assignment.candidates(len(assignment.segments) - 1)
    if node not in drawn:
        raise ProofError("A node is said to have served that was not drawn for it", node, f"Drawn: {drawn}. {_REMEDY}")
    answer = Served(assignment.task_id, output_hash(salt, tokens))
    try:
        signer = typed_data.recover(answer, domain, signature)
    except ProtocolError as error:
        raise ProofError(error.what, error.value, _REMEDY) from error
    if signer != node:
        what = "The node that is said to have served has not signed this answer"
        raise ProofError(what, node, f"{signer} fits the signature. {_REMEDY}")
    return node, signature


def check_commitment(standing: Standing, prompt: int, salt: Hash32, tokens: Sequence[int]) -> None:
    """That what was committed on chain for a prompt of `prompt` tokens is this answer; ProofError otherwise."""
    expected, found = output_hash(salt, tokens), standing.output_hash
    if found != expected:
        raise ProofError(
            "The answer committed on chain is not the one that was sent",
            "0x" + found.hex() if found else "none is committed",
            f"The tokens sent hash to 0x{expected.hex()}. Keep the receipt and report the scheduler.",
        )
    positions = prompt + len(tokens) - 1
    if standing.positions != positions:
        raise ProofError(
            "The committed trace has another length than prompt and answer",
            standing.positions,
            f"It should have {positions} positions. Keep the receipt and report the scheduler.",
        )
