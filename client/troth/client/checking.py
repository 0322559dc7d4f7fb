"""What the client checks by itself of what a scheduler tells it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from troth.client.errors import ProofError, StreamError
from troth.client.market import Offer
from troth.client.ordering import SignedOrder
from troth.protocol import vrf
from troth.protocol.announcement import Announcement
from troth.protocol.assignment import Assignment, AssignmentContext, verify_assignment
from troth.protocol.errors import InvalidProof, WrongAssignment
from troth.protocol.identifiers import group_id
from troth.protocol.request import output_hash
from troth.protocol.state import State
from troth.protocol.task import Task
from troth.protocol.typed_data import Domain
from troth.protocol.types import Hash32, segments_from_ends

PROOF_BYTES = 81


def check_assignment(line: dict[str, Any], signed: SignedOrder, offer: Offer, domain: Domain, state: State) -> Assignment:
    """The parties that the chain supports for this order; ProofError if the scheduler claims others or proves nothing."""
    proofs = tuple(read_hex(proof, PROOF_BYTES) for proof in _list(line, "proofs"))
    order = signed.order
    segments = segments_from_ends(offer.ends, offer.model.layers)
    groups = []
    for segment in segments:
        group = state.groups.get(group_id(order.execution_class, segment))
        groups.append(() if group is None else tuple(group.members_at(order.reference_block)))
    try:
        betas = tuple(Hash32(vrf.proof_to_hash(proof)) for proof in proofs)
        announcement = Announcement(order, signed.signature, offer.ends, betas, proofs, signed.request, signed.salt)
        context = AssignmentContext(domain, offer.scheduler.vrf_key, offer.rules, offer.model.layers, tuple(groups))
        assignment = verify_assignment(announcement, context)
    except (InvalidProof, WrongAssignment) as error:
        raise ProofError(error.what, error.value, "Do not trust this scheduler; the task is closed after its deadline.") from error
    claimed = tuple(tuple(str(party).lower() for party in parties) for parties in _list(line, "parties"))
    drawn = tuple(tuple(party.lower() for party in parties) for parties in assignment.parties)
    if claimed != drawn:
        raise ProofError("The scheduler names parties that were not drawn", claimed, f"The draw is {drawn}.")
    return assignment


def check_commitment(task: Task, signed: SignedOrder, tokens: Sequence[int]) -> None:
    """That what was committed on chain is the answer that was streamed; ProofError otherwise."""
    expected = output_hash(signed.salt, tokens)
    if task.progress.output_hash != expected:
        raise ProofError(
            "The answer committed on chain is not the one that was streamed",
            "0x" + task.progress.output_hash.hex(),
            f"The streamed tokens hash to 0x{expected.hex()}. Keep the receipt and report the scheduler.",
        )
    positions = len(signed.request.prompt_tokens) + len(tokens) - 1
    if task.progress.positions != positions:
        raise ProofError(
            "The committed trace has another length than prompt and answer",
            task.progress.positions,
            f"It should have {positions} positions.",
        )


def read_hex(value: object, size: int) -> bytes:
    """Bytes of an 0x string of exactly `size` bytes; StreamError otherwise."""
    if isinstance(value, str) and value.startswith("0x") and len(value) == 2 + 2 * size:
        try:
            return bytes.fromhex(value[2:])
        except ValueError:
            pass  # falls through to the error below, which names the value
    raise StreamError(f"The scheduler should have sent {size} bytes in hex", repr(value)[:80], "Use another scheduler.")


def _list(line: dict[str, Any], name: str) -> list[Any]:
    value = line.get(name)
    if not isinstance(value, list) or len(value) > 32:
        raise StreamError(f"The scheduler's line has no list `{name}`", repr(value)[:80], "Use another scheduler.")
    return value
