"""Points of P-256 against double-and-add on plain integers."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from troth.protocol import p256, vrf
from troth.protocol.errors import InvalidProof
from troth.protocol.p256 import GENERATOR, N, P, Point

SCALARS = st.one_of(st.integers(0, 5), st.integers(N - 5, N + 5), st.integers(0, 2**256 - 1))


def plainly_added(first: Point | None, second: Point | None) -> Point | None:
    if first is None or second is None:
        return second if first is None else first
    if (first.x, first.y) == (second.x, -second.y % P):
        return None
    if first == second:
        slope = (3 * first.x**2 - 3) * pow(2 * first.y, P - 2, P) % P
    else:
        slope = (second.y - first.y) * pow(second.x - first.x, P - 2, P) % P
    x = (slope**2 - first.x - second.x) % P
    return Point(x, (slope * (first.x - x) - first.y) % P)


def plainly_multiplied(point: Point, scalar: int) -> Point | None:
    result, doubled = None, point
    while scalar:
        if scalar & 1:
            result = plainly_added(result, doubled)
        doubled, scalar = plainly_added(doubled, doubled) or point, scalar >> 1
    return result


@settings(max_examples=30)
@given(SCALARS, st.integers(1, N - 1))
@example(0, 1)
@example(1, 1)
@example(N - 1, 5)
@example(N, 5)
def test_multiples(scalar: int, base: int) -> None:
    point = plainly_multiplied(GENERATOR, base)
    assert point is not None
    assert p256.generator_multiple(base) == point
    assert p256.multiple(point, scalar) == plainly_multiplied(point, scalar % N)
    both = (plainly_multiplied(GENERATOR, scalar % N), plainly_multiplied(point, scalar % N))
    assert p256.two_multiples(point, scalar % N) == both
    other = p256.generator_multiple(base + 1) or point
    assert p256.same_multiples(point, other, scalar) == (p256.multiple(point, scalar), p256.multiple(other, scalar))


@settings(max_examples=30)
@given(SCALARS, SCALARS)
@example(3, 3)
@example(3, N - 3)
@example(0, 3)
@example(0, 0)
def test_sums(first: int, second: int) -> None:
    total = p256.add(p256.generator_multiple(first), p256.generator_multiple(second))
    assert total == p256.generator_multiple(first + second)
    assert p256.negate(total) == p256.generator_multiple(-first - second)


@settings(max_examples=50)
@given(st.integers(1, N - 1))
def test_compressed_points_come_back(scalar: int) -> None:
    point = p256.generator_multiple(scalar)
    assert point is not None
    assert p256.is_on_curve(point)
    assert p256.decode(p256.encode(point)) == point


@settings(max_examples=50)
@given(st.binary(min_size=32, max_size=32), st.sampled_from([2, 3]))
def test_half_of_all_abscissas_are_refused(abscissa: bytes, prefix: int) -> None:
    value = int.from_bytes(abscissa, "big")
    if value < P and pow(p256.cubic(value), (P - 1) // 2, P) == 1:
        assert p256.decode(bytes([prefix]) + abscissa).x == value
    else:
        with pytest.raises(InvalidProof, match="abscissa"):
            p256.decode(bytes([prefix]) + abscissa)


@settings(max_examples=25)
@given(st.integers(1, N - 2), st.binary(max_size=100), st.binary(max_size=100))
def test_proofs_hold_for_their_input_alone(scalar: int, alpha: bytes, other: bytes) -> None:
    secret = scalar.to_bytes(32, "big")
    key, proof = vrf.public_key(secret), vrf.prove(secret, alpha)
    assert vrf.verify(key, alpha, proof) == vrf.proof_to_hash(proof)
    assert vrf.prove(secret, alpha) == proof
    if other != alpha:
        with pytest.raises(InvalidProof):
            vrf.verify(key, other, proof)
