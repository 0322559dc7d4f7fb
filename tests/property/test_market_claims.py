"""The Merkle-sum tree: every place can be shown and nothing else, and no sum hides where nobody may look."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.market_scene import hash_of

from troth.protocol.hashing import keccak256
from troth.protocol.market import claims
from troth.protocol.market.claims import LeafPath
from troth.protocol.market.errors import InvalidClaim
from troth.protocol.market.types import Claim, Voucher
from troth.protocol.types import Hash32

amounts = st.dictionaries(st.integers(1, 90), st.integers(1, 1_000), min_size=1, max_size=30)


def _voucher(**changes: int) -> Voucher:
    return replace(Voucher(hash_of("tab"), 0, 1 << 40, 400, 0, 0), **changes)


@pytest.mark.slow
@given(amounts)
def test_every_place_round_trips(leaves: dict[int, int]) -> None:
    claim, tree = claims.claim_of(_voucher(), leaves)
    assert claim.total == sum(leaves.values())
    places = 1 << claims.depth_of(claim.first, claim.last)
    for number in range(claim.first, claim.first + places):
        claims.verify_path(claim, number, leaves.get(number, 0), tree.path(number))
        assert claims.is_claimed(claim, number) == (number in leaves)


@pytest.mark.slow
@given(amounts, st.data())
def test_a_forged_leaf_path_or_claim_fails(leaves: dict[int, int], data: st.DataObject) -> None:
    claim, tree = claims.claim_of(_voucher(), leaves)
    number = data.draw(st.sampled_from(sorted(leaves)))
    path = tree.path(number)
    forged: list[tuple[Claim, int, int, LeafPath]] = [
        (claim, number, leaves[number] + 1, path),
        (claim, number, 0, path),
        (replace(claim, total=claim.total + 1), number, leaves[number], path),
        (replace(claim, first=claim.first + 1, last=claim.last + 1), number, leaves[number], path),
        (claim, number, leaves[number], LeafPath((*path.siblings, Hash32(bytes(32))), (*path.sums, 0))),
    ]
    if path.siblings:
        step = data.draw(st.integers(0, len(path.siblings) - 1))
        other = tuple(hash_of("x") if at == step else one for at, one in enumerate(path.siblings))
        more = tuple(one + (at == step) for at, one in enumerate(path.sums))
        forged += [
            (claim, number, leaves[number], LeafPath(other, path.sums)),
            (claim, number, leaves[number], LeafPath(path.siblings, more)),
        ]
        neighbour = claim.first + (number - claim.first ^ 1)
        forged.append((claim, neighbour, leaves[number], path))
    for wrong in forged:
        with pytest.raises(InvalidClaim):
            claims.verify_path(*wrong)


@pytest.mark.slow
@given(amounts, st.integers(1, 500))
def test_a_sum_beyond_the_last_number_or_in_an_exception_is_seen(leaves: dict[int, int], hidden: int) -> None:
    """A tree whose total hides money at a place that is not claimed: the path of that place is no zero leaf."""
    first, last = min(leaves), max(leaves) + 1
    place = next(number for number in range(first, last + 1) if number not in leaves)
    tree = claims.build(first, last, {**leaves, place: hidden})
    excepted = [number for number in range(first, last + 1) if number not in leaves]
    mask = sum(1 << number - first for number in excepted)
    claim = Claim(first, last, mask, tree.total, tree.root)
    assert claims.wrong_numbers(claim, [(place, hidden, tree.path(place))], {place: hidden, **leaves}) == (place,)
    with pytest.raises(InvalidClaim, match="another root"):
        claims.verify_path(claim, place, 0, tree.path(place))


def test_the_encoding_is_that_of_the_contracts() -> None:
    tree = claims.build(5, 7, {5: 10, 7: 20})
    left = keccak256(b"\x00" + (5).to_bytes(8) + (10).to_bytes(12))
    right = keccak256(b"\x00" + (7).to_bytes(8) + (20).to_bytes(12))
    zero, no_sum = bytes(32), bytes(12)
    one = keccak256(b"\x01" + left + (10).to_bytes(12) + zero + no_sum)
    other = keccak256(b"\x01" + right + (20).to_bytes(12) + zero + no_sum)
    top = keccak256(b"\x01" + one + (10).to_bytes(12) + other + (20).to_bytes(12))
    assert tree.root == keccak256(b"\x02" + top + (30).to_bytes(12) + (5).to_bytes(8) + (7).to_bytes(8))
    assert claims.depth_of(9, 9) == 0
    assert claims.depth_of(1, 1 << 32) == 32


@given(st.integers(0, 399), st.integers(0, (1 << 256) - 1), st.integers(1, 400), st.integers(0, 200))
def test_only_open_numbers_can_be_claimed(through: int, exceptions: int, first: int, length: int) -> None:
    voucher = _voucher(acknowledged_through=through, exceptions=exceptions)
    last = min(first + length, 400)
    claim = Claim(first, last, 0, 1, hash_of("root"))
    paid = [number for number in range(first, last + 1) if claims.is_acknowledged(voucher, number)]
    if not paid:
        assert claims.owed(voucher, claim) == 1
        return
    with pytest.raises(InvalidClaim, match="acknowledged"):
        claims.owed(voucher, claim)
    if through - first >= 256:
        return
    left_out = sum(1 << number - first for number in paid if number - first < 256)
    assert claims.owed(voucher, replace(claim, exceptions=left_out)) == 1


def test_numbers_beyond_the_window_that_are_worth_nothing_are_empty_places() -> None:
    """What is left out of a claim is lost (owed is the largest sum that was ever shown), so nothing needs to be."""
    leaves = {1: 1, 3: 1, 300: 1, 400: 1}
    claim, tree = claims.claim_of(_voucher(), leaves)
    assert (claim.first, claim.last, claim.total) == (1, 400, 4)
    for number in range(1, 401):
        claims.verify_path(claim, number, leaves.get(number, 0), tree.path(number))
        assert claims.is_claimed(claim, number) == (number in leaves or number > 256)
    assert claims.together(leaves, _voucher()) == leaves
    assert claims.together({1: 1, 1 << 32: 1, (1 << 32) + 1: 1}, _voucher(sequence=1 << 40)) == {1: 1, 1 << 32: 1}
    assert claims.together(leaves, _voucher(sequence=399)) == {1: 1, 3: 1, 300: 1}
    assert claims.together(leaves, _voucher(authorised=3)) == {1: 1, 3: 1, 300: 1}


def test_what_was_never_authorised_cannot_be_claimed() -> None:
    claim, _ = claims.claim_of(_voucher(), {3: 5})
    with pytest.raises(InvalidClaim, match="ends with number 2"):
        claims.owed(_voucher(sequence=2), claim)
    with pytest.raises(InvalidClaim, match="authorises 4"):
        claims.owed(_voucher(authorised=4), claim)
    with pytest.raises(InvalidClaim, match="Nothing"):
        claims.claim_of(_voucher(), {})
    with pytest.raises(InvalidClaim, match="acknowledged already"):
        claims.claim_of(_voucher(acknowledged_through=299), {298: 1, 300: 1, 398: 1})
    for first, last in ((0, 1), (3, 2), (1, (1 << 32) + 1)):
        with pytest.raises(InvalidClaim):
            claims.depth_of(first, last)
    with pytest.raises(InvalidClaim, match="leaves 96 bits"):
        claims.build(1, 2, {1: (1 << 96) - 1, 2: 1})
    with pytest.raises(InvalidClaim, match="worth 1"):
        claims.build(1, 1, {1: 0})
