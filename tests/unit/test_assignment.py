"""The draw of parties, and what a node refuses to serve."""

from __future__ import annotations

from dataclasses import replace

import pytest
from eth_abi.abi import encode

from troth.protocol import typed_data, vrf
from troth.protocol.announcement import Announcement
from troth.protocol.assignment import (
    ASSIGNMENT_TAG,
    SAMPLE_TAG,
    AssignmentContext,
    assignment_alpha,
    draw,
    sample_alpha,
    verify_assignment,
)
from troth.protocol.ends import pack_ends
from troth.protocol.errors import InvalidField, WrongAssignment
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import class_id, fee, task_id
from troth.protocol.permutation import permutation
from troth.protocol.request import Request, request_hash
from troth.protocol.sampling import noise_seed, tile_indices
from troth.protocol.types import Address, ExecutionClass, Hash32, Order, Segment, address_from_bytes

ONE, TWO, THREE = (Hash32(bytes([number]) * 32) for number in (1, 2, 3))
DOMAIN = typed_data.Domain(31337, address_from_bytes(b"\xcc" * 20))
CLIENT = b"\x07" * 32
VRF_SECRET = b"\x09" * 32
RULES = ExecutionClass(ONE, "float32", 0, False, 10, 8, 9000, 1, 2, 3, 5, 10**12, 10**15, 1000, 20000, TWO)
LAYERS = 30
REQUEST = Request(class_id(RULES), (1, 2, 3), 16, 0, 1_000_000, (2,))
SCHEDULER = address_from_bytes(b"\xdd" * 20)
ENDS = (10, LAYERS)
ORDER = Order(class_id(RULES), request_hash(REQUEST, THREE), SCHEDULER, 10**15, 10**10, 77, 5, pack_ends(ENDS))


def member(number: int) -> Address:
    return address_from_bytes(bytes([number]) * 20)


GROUPS: tuple[tuple[Address | None, ...], ...] = (
    (member(1), None, member(2), member(3), member(4), None, member(5), member(6)),
    tuple(member(number) for number in range(10, 16)),
)
CONTEXT = AssignmentContext(DOMAIN, vrf.public_key(VRF_SECRET), RULES, LAYERS, GROUPS)


def announce(order: Order = ORDER, ends: tuple[int, ...] = ENDS, secret: bytes = CLIENT) -> Announcement:
    task = task_id(order, DOMAIN)
    proofs = tuple(
        vrf.prove(
            VRF_SECRET,
            assignment_alpha(DOMAIN, task, segment, group_size=len(group), reference_block=order.reference_block),
        )
        for segment, group in enumerate(GROUPS)
    )
    betas = tuple(Hash32(vrf.proof_to_hash(proof)) for proof in proofs)
    return Announcement(order, typed_data.sign(order, DOMAIN, secret), ends, betas, proofs, REQUEST, THREE)


ANNOUNCEMENT = announce()


def test_parties_are_those_of_the_permutation() -> None:
    assignment = verify_assignment(ANNOUNCEMENT, CONTEXT)
    assert assignment.task_id == task_id(ORDER, DOMAIN)
    assert assignment.client == typed_data.address_of(CLIENT)
    assert assignment.segments == (Segment(0, 10), Segment(10, 30))
    for segment, group in enumerate(GROUPS):
        order = permutation(ANNOUNCEMENT.betas[segment], len(group))
        expected = tuple(found for slot in order if (found := group[slot]) is not None)[:5]
        assert assignment.candidates(segment) + assignment.verifiers(segment) == expected
        assert (len(assignment.candidates(segment)), len(assignment.verifiers(segment))) == (2, 3)


def test_parties_that_need_no_text_check_without_it() -> None:
    assert verify_assignment(ANNOUNCEMENT.without_request(), CONTEXT) == verify_assignment(ANNOUNCEMENT, CONTEXT)


def flip(data: bytes, index: int = -1) -> bytes:
    changed = bytearray(data)
    changed[index] ^= 1
    return bytes(changed)


WRONG = {
    "another class": (announce(replace(ORDER, execution_class=TWO)), "another execution class"),
    "fee above the order's limit": (announce(replace(ORDER, max_fee=fee(RULES, 2) - 1)), "more than the order allows"),
    "layers left out": (announce(replace(ORDER, ends=pack_ends((10, 29))), (10, 29)), "layer count"),
    "order that fits no uint96": (
        replace(ANNOUNCEMENT, order=replace(ORDER, max_fee=2**96)),
        "no valid signature",
    ),
    "broken client signature": (
        replace(ANNOUNCEMENT, signature=ANNOUNCEMENT.signature[:64] + b"\x00"),
        "no valid signature",
    ),
    "changed order": (replace(ANNOUNCEMENT, order=replace(ORDER, nonce=6)), "VRF proof of segment 0"),
    "other reference block": (
        replace(ANNOUNCEMENT, order=replace(ORDER, reference_block=78)),
        "VRF proof of segment 0",
    ),
    "flipped proof": (
        replace(ANNOUNCEMENT, proofs=(ANNOUNCEMENT.proofs[0], flip(ANNOUNCEMENT.proofs[1]))),
        "VRF proof of segment 1",
    ),
    "proof of the other segment": (
        replace(ANNOUNCEMENT, proofs=ANNOUNCEMENT.proofs[::-1], betas=ANNOUNCEMENT.betas[::-1]),
        "VRF proof of segment 0",
    ),
    "chosen output": (
        replace(ANNOUNCEMENT, betas=(ANNOUNCEMENT.betas[0], THREE)),
        "VRF output of segment 1",
    ),
    "missing proof": (replace(ANNOUNCEMENT, proofs=ANNOUNCEMENT.proofs[:1]), "differ in number"),
    "missing segment": (announce(replace(ORDER, ends=pack_ends((LAYERS,))), (LAYERS,)), "differ in number"),
    "split that the client did not sign": (announce(ends=(11, LAYERS)), "another layer split"),
    "another request": (
        replace(ANNOUNCEMENT, request=replace(REQUEST, max_tokens=17)),
        "not the one that was ordered",
    ),
    "request of another class": (
        replace(ANNOUNCEMENT, request=replace(REQUEST, execution_class=TWO)),
        "for another class",
    ),
    "another salt": (replace(ANNOUNCEMENT, salt=TWO), "not the one that was ordered"),
    "request without salt": (replace(ANNOUNCEMENT, salt=None), "come together"),
    "salt without request": (replace(ANNOUNCEMENT, request=None), "come together"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_announcement_is_refused(name: str) -> None:
    announcement, match = WRONG[name]
    with pytest.raises(WrongAssignment, match=match):
        verify_assignment(announcement, CONTEXT)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"vrf_key": vrf.public_key(b"\x0a" * 32)}, "VRF proof of segment 0"),
        ({"groups": (GROUPS[0][:-1], GROUPS[1])}, "7 slots"),
        ({"groups": (GROUPS[0], (*GROUPS[1], None))}, "7 slots"),
        ({"groups": (GROUPS[0][:4] + (None,) * 4, GROUPS[1])}, "fewer than 5 members"),
        ({"groups": GROUPS[:1]}, "differ in number"),
        ({"domain": replace(DOMAIN, chain_id=1)}, "VRF proof of segment 0"),
    ],
)
def test_what_the_chain_does_not_support_is_refused(change: dict[str, object], match: str) -> None:
    with pytest.raises(WrongAssignment, match=match):
        verify_assignment(ANNOUNCEMENT, replace(CONTEXT, **change))


def test_alphas_are_the_contracts_encodings() -> None:
    task, segment, size, block = ONE, 3, 8, 77
    types = ["bytes32", "uint256", "address", "bytes32", "uint256", "uint256", "uint64"]
    values = [keccak256(b"troth/assignment/1"), 31337, DOMAIN.contract, task, segment, size, block]
    assert values[0] == ASSIGNMENT_TAG
    alpha = assignment_alpha(DOMAIN, task, segment, group_size=size, reference_block=block)
    assert alpha == keccak256(encode(types, values))
    posts = keccak256(encode(["bytes32[]"], [[ONE, TWO, THREE]]))
    types = ["bytes32", "uint256", "address", "bytes32", "bytes32", "bytes32"]
    values = [keccak256(b"troth/sample/1"), 31337, DOMAIN.contract, task, posts, TWO]
    assert values[0] == SAMPLE_TAG
    assert sample_alpha(DOMAIN, task, posts=[ONE, TWO, THREE], block_hash=TWO) == keccak256(encode(types, values))
    with pytest.raises(InvalidField):
        sample_alpha(DOMAIN, task, posts=[Hash32(b"short")], block_hash=TWO)


def test_noise_seed_depends_on_task_and_output() -> None:
    assert len({noise_seed(ONE, TWO), noise_seed(TWO, ONE), noise_seed(ONE, ONE)}) == 3
    expected = encode(["bytes32", "bytes32", "bytes32"], [keccak256(b"troth/noise/1"), ONE, TWO])
    assert noise_seed(ONE, TWO) == keccak256(expected)


def test_draw_of_an_empty_group() -> None:
    with pytest.raises(WrongAssignment):
        draw(ONE, (), 1)


def test_tile_indices_are_one_per_stratum() -> None:
    for count in (5, 6, 17, 1000):
        indices = tile_indices(ONE, 2, 5, count)
        assert all(count * j // 5 <= index < count * (j + 1) // 5 for j, index in enumerate(indices))
    begin, width = 1000 * 3 // 5, 200
    drawn = int.from_bytes(keccak256(encode(["bytes32", "uint256", "uint256"], [ONE, 2, 3])))
    assert tile_indices(ONE, 2, 5, 1000)[3] == begin + drawn % width


@pytest.mark.parametrize(("seed", "tiles", "count"), [(ONE, 2, 1), (ONE, 0, 5), (ONE, -1, 5), (Hash32(b"short"), 1, 5)])
def test_tile_indices_that_cannot_be(seed: Hash32, tiles: int, count: int) -> None:
    with pytest.raises(InvalidField):
        tile_indices(seed, 0, tiles, count)
