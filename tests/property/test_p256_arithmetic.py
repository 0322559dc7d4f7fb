"""Points of P-256 against double-and-add on plain integers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from troth.protocol import openssl_points, p256, vrf
from troth.protocol.errors import InvalidProof
from troth.protocol.p256 import GENERATOR, N, P, Point

SCALARS = st.one_of(st.integers(0, 5), st.integers(N - 5, N + 5), st.integers(0, 2**256 - 1))


WAYS = pytest.mark.parametrize("way", [None, openssl_points.CURVE], ids=["exchanges", "openssl"])
"""By ECDH, and by Python's own OpenSSL where that can be called."""


@contextmanager
def multiplied_by(way: openssl_points.OpensslCurve | None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(p256, "OPENSSL", way)
        yield


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


@pytest.mark.skipif(sys.platform != "linux", reason="Python may have its OpenSSL built in")
def test_the_quick_way_is_there() -> None:
    assert openssl_points.CURVE is not None


@pytest.mark.slow
@WAYS
@settings(max_examples=30)
@given(scalar=SCALARS, base=st.integers(1, N - 1))
@example(scalar=0, base=1)
@example(scalar=1, base=1)
@example(scalar=N - 1, base=5)
@example(scalar=N - 2, base=5)
@example(scalar=N, base=5)
def test_multiples(way: openssl_points.OpensslCurve | None, scalar: int, base: int) -> None:
    point = plainly_multiplied(GENERATOR, base)
    assert point is not None
    with multiplied_by(way):
        assert p256.generator_multiple(base) == point
        assert p256.multiple(point, scalar) == plainly_multiplied(point, scalar % N)


@pytest.mark.slow
@WAYS
@settings(max_examples=30)
@given(first=SCALARS, second=SCALARS, base=st.integers(1, N - 1))
@example(first=5, second=1, base=5)
@example(first=0, second=0, base=1)
@example(first=5, second=N - 1, base=5)
def test_differences(way: openssl_points.OpensslCurve | None, first: int, second: int, base: int) -> None:
    point = plainly_multiplied(GENERATOR, base)
    assert point is not None
    subtracted = p256.negate(plainly_multiplied(point, second % N))
    with multiplied_by(way):
        found = p256.difference((GENERATOR, first), (point, second))
    assert found == plainly_added(plainly_multiplied(GENERATOR, first % N), subtracted)


def test_a_point_beside_the_curve_is_refused() -> None:
    assert openssl_points.CURVE is not None
    with pytest.raises(InvalidProof):
        openssl_points.CURVE.sum_of_multiples([(Point(GENERATOR.x, GENERATOR.y + 1), 2)])


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


@WAYS
@settings(max_examples=50)
@given(scalar=st.integers(1, N - 1))
def test_compressed_points_come_back(way: openssl_points.OpensslCurve | None, scalar: int) -> None:
    with multiplied_by(way):
        point = p256.generator_multiple(scalar)
        assert point is not None
        assert p256.is_on_curve(point)
        assert p256.decode(p256.encode(point)) == point


@WAYS
@settings(max_examples=50)
@given(abscissa=st.binary(min_size=32, max_size=32), prefix=st.sampled_from([2, 3]))
def test_half_of_all_abscissas_are_refused(
    way: openssl_points.OpensslCurve | None, abscissa: bytes, prefix: int
) -> None:
    value = int.from_bytes(abscissa, "big")
    with multiplied_by(way):
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
