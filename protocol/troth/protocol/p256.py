"""Points of the curve P-256 (SEC 2, section 2.4.2), multiplied by OpenSSL.

Where Python's own OpenSSL can be called (module ``openssl_points``), it is. That of ``cryptography`` shows a multiple
of a point only through ECDH, which gives its abscissa. The ordinate follows from a second ECDH: with (x, y) = kQ and w
the abscissa of (k + 1)Q = kQ + Q, the addition formula reads (y - y_Q)² = (w + x + x_Q)(x - x_Q)², and y² is known from
x, so y is the solution of a linear equation.

Scalar multiplication is OpenSSL's, which does not branch on the scalar. All other arithmetic is on Python integers and
takes time that depends on its operands: never pass a secret through ``add`` or ``negate``.
"""

from __future__ import annotations

from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec

from troth.protocol.errors import InvalidProof
from troth.protocol.openssl_points import CURVE as OPENSSL

P = 2**256 - 2**224 + 2**192 + 2**96 - 1
"""Order of the field."""
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Order of the group, a prime: no point but the one at infinity has a small order."""
A = P - 3
B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
CURVE = ec.SECP256R1()


class Point(NamedTuple):
    """An affine point. The point at infinity is None wherever it can occur."""

    x: int
    y: int


GENERATOR = Point(
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)


def cubic(x: int) -> int:
    """x³ + ax + b modulo p: the square of the ordinate where x is an abscissa."""
    return ((x * x + A) * x + B) % P


def is_on_curve(point: Point) -> bool:
    """Whether both coordinates are below p and satisfy the curve's equation."""
    return 0 <= point.x < P and 0 <= point.y < P and point.y * point.y % P == cubic(point.x)


def encode(point: Point) -> bytes:
    """The compressed form of SEC 1, section 2.3.3: 33 bytes."""
    return bytes([2 + (point.y & 1)]) + point.x.to_bytes(32, "big")


def decode(data: bytes) -> Point:
    """The point with this compressed form; raises InvalidProof if there is none."""
    if len(data) != 33 or data[0] not in (2, 3):
        raise InvalidProof("A compressed point is 0x02 or 0x03 and 32 bytes", data, "Ask the prover for a new proof.")
    if OPENSSL is not None:
        found = OPENSSL.decoded(data)
        if found is None:
            raise _no_point(data)
        return Point(*found)
    try:
        return _point(ec.EllipticCurvePublicKey.from_encoded_point(CURVE, data))
    except ValueError as error:
        raise _no_point(data) from error


def negate(point: Point | None) -> Point | None:
    """The opposite point."""
    return None if point is None else Point(point.x, -point.y % P)


def add(first: Point | None, second: Point | None) -> Point | None:
    """The sum of two points, in all cases."""
    if first is None or second is None:
        return first or second
    if first.x == second.x:
        if first.y != second.y:
            return None
        slope = (3 * first.x * first.x + A) * pow(2 * first.y, -1, P)
    else:
        slope = (second.y - first.y) * pow(second.x - first.x, -1, P)
    x = (slope * slope - first.x - second.x) % P
    return Point(x, (slope * (first.x - x) - first.y) % P)


def generator_multiple(scalar: int) -> Point | None:
    """scalar·G."""
    return multiple(GENERATOR, scalar)


def multiple(point: Point, scalar: int) -> Point | None:
    """scalar·point. The time taken tells only whether scalar is 0 or -1 modulo n."""
    scalar %= N
    if scalar in (0, N - 1):
        return negate(point) if scalar else None
    if OPENSSL is not None:
        found = OPENSSL.sum_of_multiples([(_factor(point), scalar)])
        return None if found is None else Point(*found)
    return _multiple_by_exchange(point, scalar)


def difference(first: tuple[Point, int], second: tuple[Point, int]) -> Point | None:
    """The first scalar·point less the second one; of public numbers alone, since sums take their own time."""
    (point, scalar), (other, subtracted) = first, second
    if OPENSSL is None:
        return add(multiple(point, scalar), negate(multiple(other, subtracted)))
    terms = [(_factor(point), scalar % N), (_factor(other), -subtracted % N)]
    found = OPENSSL.sum_of_multiples(terms)
    return None if found is None else Point(*found)


def _factor(point: Point) -> Point | None:
    """What ``openssl_points`` knows the point as: multiples of the generator are quicker."""
    return None if point == GENERATOR else point


def _multiple_by_exchange(point: Point, scalar: int) -> Point:
    """scalar·point by two exchanges of ECDH, for a scalar in 1..n-2."""
    key = ec.derive_private_key(scalar, CURVE)
    if point == GENERATOR:
        return _point(key.public_key())
    peer = ec.EllipticCurvePublicNumbers(point.x, point.y, CURVE).public_key()
    x = int.from_bytes(key.exchange(ec.ECDH(), peer), "big")
    following = int.from_bytes(ec.derive_private_key(scalar + 1, CURVE).exchange(ec.ECDH(), peer), "big")
    run = x - point.x
    twice = cubic(x) + cubic(point.x) - (following + x + point.x) * run * run
    return Point(x, twice * pow(2 * point.y, -1, P) % P)


def _point(key: ec.EllipticCurvePublicKey) -> Point:
    numbers = key.public_numbers()
    return Point(numbers.x, numbers.y)


def _no_point(data: bytes) -> InvalidProof:
    return InvalidProof("No point of P-256 has this abscissa", data, "Ask the prover for a new proof.")
