"""Forged VRF proofs against the contract's verifier, each stopped by the check that is there for it.

The forger below is an honest prover whose parts can be bent: it hashes to whatever challenge its bent points give, so
that everything but the attacked check holds.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from support.polynomials import plus, product, roots
from web3.exceptions import ContractCustomError

from troth.protocol import p256, vrf
from troth.protocol.p256 import GENERATOR, N, P, Point
from troth.protocol.vrf import FIXED_HINTS, hints

pytestmark = [pytest.mark.chain, pytest.mark.slow]

SECRET = bytes(31) + b"\x2a"
KEY = Point(*vrf.public_key(SECRET))
SCALAR = int.from_bytes(SECRET, "big")

(LENGTHS, SIGN, EVEN_H, WITNESS, CHALLENGE, INVERSE, U, C, D, E, SLOPE, FIT_POINTS, FIRST_SUM, SECOND_SUM) = range(
    1, 15
)
H_Y, GAMMA_Y, U_X, U_Y, V_X, V_Y, C_X, D_X, E_X, INVERSE_HINT, SLOPE_HINT = range(FIXED_HINTS)


def some_input(skipped: int) -> bytes:
    """An input for which hashing to the curve skips so many counters."""
    candidates = (number.to_bytes(32, "big") for number in range(10_000))
    return next(alpha for alpha in candidates if len(vrf.encode_to_curve(KEY, alpha)[1]) == skipped)


PLAIN, WITNESSED = some_input(0), some_input(2)


def total(*points: Point | None) -> Point:
    """The sum of points, which must not be infinity."""
    result: Point | None = None
    for point in points:
        result = p256.add(result, point)
    assert result is not None
    return result


def times(point: Point, scalar: int) -> Point:
    result = p256.multiple(point, scalar)
    assert result is not None
    return result


def flipped(point: Point) -> Point:
    return Point(point.x, P - point.y)


@dataclass(frozen=True)
class Forger:
    """``claim`` bends U and V before they are hashed; ``shift`` is t as a function of c."""

    alpha: bytes = PLAIN
    hashed: Point | None = None
    gamma: Point | None = None
    nonce: int = 0x1234567
    extra: Point | None = None
    claim: Callable[[Point, Point], tuple[Point, Point]] = lambda u, v: (u, v)
    shift: Callable[[int], int] = lambda c: c * c
    witnesses: list[int] | None = None
    seen: dict[str, Any] = field(default_factory=dict)

    def forge(self) -> tuple[bytes, list[int]]:
        honest, skipped = vrf.encode_to_curve(KEY, self.alpha)
        hashed = self.hashed or honest
        gamma = self.gamma or times(hashed, SCALAR)
        u = times(GENERATOR, self.nonce)
        v = total(times(hashed, self.nonce), self.extra)
        u, v = self.claim(u, v)
        encoded_h = b"\x02" + hashed.x.to_bytes(32, "big")
        points = [p256.encode(KEY), encoded_h, *(p256.encode(point) for point in (gamma, u, v))]
        challenge = hashlib.sha256(b"\x01\x02" + b"".join(points) + b"\x00").digest()[:16]
        c = int.from_bytes(challenge, "big")
        s = (self.nonce + c * SCALAR) % N
        t = self.shift(c) % N
        c_point = total(times(gamma, c), times(GENERATOR, t))
        d_point = total(times(hashed, s), times(GENERATOR, t))
        e_point = total(times(total(gamma, KEY), c), times(GENERATOR, t - s - 1))
        slope = (KEY.y - gamma.y) * pow(KEY.x - gamma.x, -1, P) % P
        given = [hashed.y, gamma.y, *u, *v, c_point.x, d_point.x, e_point.x, pow(c * s, -1, N), slope]
        witnesses = [even_root(-p256.cubic(value)) for value in skipped] if self.witnesses is None else self.witnesses
        return p256.encode(gamma) + challenge + s.to_bytes(32, "big"), given + witnesses


def even_root(value: int) -> int:
    root = pow(value % P, (P + 1) // 4, P)
    return root if root % 2 == 0 else P - root


def failed_check(harness: Any, alpha: bytes, proof: bytes, given: list[int], key: tuple[int, int] = KEY) -> int:
    """The number of the check that refuses, 0 if none does."""
    try:
        harness.functions.vrf(*key, alpha, proof, given).call()
    except ContractCustomError as error:
        return int(re.findall("0x[0-9a-f]{8}([0-9a-f]{64})", str(error))[0], 16)
    return 0


@pytest.mark.parametrize("alpha", [PLAIN, WITNESSED])
def test_the_unbent_forger_is_a_prover(library_harness: Any, alpha: bytes) -> None:
    proof, given = Forger(alpha).forge()
    assert given == hints(KEY, alpha, proof)
    assert failed_check(library_harness, alpha, proof, given) == 0


def test_a_constant_t_would_be_forgeable_and_is_not_taken(library_harness: Any) -> None:
    hashed, _ = vrf.encode_to_curve(KEY, PLAIN)
    opposite = flipped(times(hashed, SCALAR))
    # V = kH + 2tG = C + D for t = 1: with that t all sums hold for the wrong Γ.
    bent = Forger(gamma=opposite, extra=times(GENERATOR, 2), shift=lambda _: 1)
    assert failed_check(library_harness, PLAIN, *bent.forge()) == C
    # With the right t the abscissas hold, and the sum does not.
    assert failed_check(library_harness, PLAIN, *replace(bent, shift=lambda c: c * c).forge()) == FIRST_SUM


@pytest.mark.parametrize("shift", [lambda c: c, lambda c: c + 1, lambda c: 2 * c, lambda c: c * c + 1, lambda c: c**3])
def test_only_the_square_of_c_is_taken_for_t(library_harness: Any, shift: Callable[[int], int]) -> None:
    assert failed_check(library_harness, PLAIN, *Forger(shift=shift).forge()) in (C, E)


def test_another_h_than_the_first_is_not_taken(library_harness: Any) -> None:
    """The prover skips the first counter that hits the curve, for which there is no witness."""
    start = b"\x01\x01" + p256.encode(KEY) + PLAIN
    counters = range(1, 256)
    hashes = [hashlib.sha256(start + bytes([counter]) + b"\x00").digest() for counter in counters]
    place = next(place for place, digest in enumerate(hashes) if is_abscissa(digest))
    hashed = p256.decode(b"\x02" + hashes[place])
    first = int.from_bytes(hashlib.sha256(start + b"\x00\x00").digest(), "big")
    fitting = [even_root(-p256.cubic(int.from_bytes(digest, "big"))) for digest in hashes[:place]]
    for witness in (0, 2, even_root(p256.cubic(first)), even_root(-p256.cubic(first)), P, 2**256 - 2):
        bent = Forger(hashed=hashed, witnesses=[witness, *fitting])
        assert failed_check(library_harness, PLAIN, *bent.forge()) == WITNESS


def is_abscissa(digest: bytes) -> bool:
    square = p256.cubic(int.from_bytes(digest, "big"))
    return pow(square, (P - 1) // 2, P) == 1


def test_the_odd_ordinate_of_h_is_not_taken(library_harness: Any) -> None:
    hashed, _ = vrf.encode_to_curve(KEY, PLAIN)
    assert failed_check(library_harness, PLAIN, *Forger(hashed=flipped(hashed)).forge()) == EVEN_H


def test_every_skipped_counter_needs_its_witness(library_harness: Any) -> None:
    proof, given = Forger(WITNESSED).forge()
    first, second = given[FIXED_HINTS:]
    fixed = given[:FIXED_HINTS]
    assert failed_check(library_harness, WITNESSED, proof, fixed) == CHALLENGE
    assert failed_check(library_harness, WITNESSED, proof, [*fixed, first]) == CHALLENGE
    assert failed_check(library_harness, WITNESSED, proof, [*given, 0]) == WITNESS
    for witnesses in ([second, first], [first, first], [0, second], [P - first, second], [first, P + 1]):
        assert failed_check(library_harness, WITNESSED, proof, [*fixed, *witnesses]) == WITNESS


@pytest.mark.parametrize(
    "claim",
    [lambda u, v: (flipped(u), v), lambda u, v: (u, flipped(v)), lambda u, v: (flipped(u), flipped(v))],
    ids=["u", "v", "both"],
)
def test_flipped_signs_of_u_and_v_are_not_taken(library_harness: Any, claim: Any) -> None:
    assert failed_check(library_harness, PLAIN, *Forger(claim=claim).forge()) == SECOND_SUM


@pytest.mark.parametrize("nonce", [1, N - 1])
def test_u_is_not_the_generator(library_harness: Any, nonce: int) -> None:
    """With U = -G the sign of V would be free: -V + U + G is the opposite of V + U + G."""
    assert failed_check(library_harness, PLAIN, *Forger(nonce=nonce).forge()) == FIT_POINTS
    bent = Forger(nonce=nonce, claim=lambda u, v: (u, flipped(v)))
    assert failed_check(library_harness, PLAIN, *bent.forge()) == FIT_POINTS


@pytest.mark.parametrize("nonce", range(1000, 1004))
def test_v_off_the_curve_is_not_taken(library_harness: Any, nonce: int) -> None:
    """Off the curve there are other ordinates for V with which the second sum holds, half of them with the other sign.

    With V = (v, y) let m be the slope of the chord from U. U + V = (m² - u - v, …) and its sum with G have rational
    coordinates in m, so that all y that fit are roots of one polynomial; m for the true V is one of them.
    """
    found = 0
    for claim in (lambda u, v: (u, v), lambda u, v: (u, flipped(v))):
        proof, given = Forger(nonce=nonce, claim=claim).forge()
        u, v = Point(*given[U_X : U_Y + 1]), Point(*given[V_X : V_Y + 1])
        for target in second_sum_abscissas(given):
            for ordinate in fitting_ordinates(u, v.x, target):
                if ordinate % 2 == v.y % 2 and not p256.is_on_curve(Point(v.x, ordinate)):
                    bent = [*given[:V_Y], ordinate, *given[V_Y + 1 :]]
                    assert failed_check(library_harness, PLAIN, proof, bent) == FIT_POINTS
                    found += 1
    assert found


def second_sum_abscissas(given: list[int]) -> list[int]:
    """Abscissas of D - E and D + E."""
    first, second = (p256.decode(b"\x02" + given[place].to_bytes(32, "big")) for place in (D_X, E_X))
    return [total(first, second).x, total(first, flipped(second)).x]


def fitting_ordinates(u: Point, v_x: int, target: int) -> list[int]:
    """All y for which U + (v_x, y) + G, by the chord formulas, has the abscissa ``target``."""
    x_sum = [-u.x - v_x, 0, 1]
    y_sum = [-u.y, 2 * u.x + v_x, 0, -1]
    rise = plus(y_sum, [-GENERATOR.y])
    run = plus(x_sum, [-GENERATOR.x])
    outer = plus(x_sum, [target + GENERATOR.x])
    polynomial = plus(product(rise, rise), [-value for value in product(outer, product(run, run))])
    return [(u.y + slope * (v_x - u.x)) % P for slope in roots(polynomial)]


def test_another_gamma_is_not_taken(library_harness: Any) -> None:
    hashed, _ = vrf.encode_to_curve(KEY, PLAIN)
    for gamma in (times(hashed, SCALAR + 1), flipped(times(hashed, SCALAR)), times(GENERATOR, 5)):
        assert failed_check(library_harness, PLAIN, *Forger(gamma=gamma).forge()) == FIRST_SUM


def test_gamma_equal_to_the_key_is_not_taken(library_harness: Any) -> None:
    proof, given = Forger().forge()
    given[GAMMA_Y] = KEY.y
    bent = p256.encode(KEY) + proof[33:]
    assert failed_check(library_harness, PLAIN, bent, given) in (CHALLENGE, SLOPE)


def test_encodings_that_are_not_canonical_are_not_taken(library_harness: Any) -> None:
    proof, given = Forger().forge()
    for prefix in (0, 1, 4, 5, 0x82, proof[0] ^ 1):
        assert failed_check(library_harness, PLAIN, bytes([prefix]) + proof[1:], given) == SIGN
    for abscissa in (P, 2**256 - 1):
        bent = proof[:1] + abscissa.to_bytes(32, "big") + proof[33:]
        assert failed_check(library_harness, PLAIN, bent, given) == CHALLENGE
    for scalar in (N, N + 1, 2**256 - 1):
        assert failed_check(library_harness, PLAIN, proof[:49] + scalar.to_bytes(32, "big"), given) == INVERSE
    infinity = bytes(33) + proof[33:]
    assert failed_check(library_harness, PLAIN, infinity, given) == SIGN


def test_a_gamma_off_the_curve_is_not_taken(library_harness: Any) -> None:
    """The whole proof is consistent with a Γ whose coordinates satisfy no equation."""
    hashed, _ = vrf.encode_to_curve(KEY, PLAIN)
    gamma = times(hashed, SCALAR)
    off = Point(gamma.x, (gamma.y + 2) % P)
    u, v = times(GENERATOR, 77), times(hashed, 77)
    points = b"".join(p256.encode(point) for point in (KEY, hashed, off, u, v))
    challenge = hashlib.sha256(b"\x01\x02" + points + b"\x00").digest()[:16]
    c = int.from_bytes(challenge, "big")
    s = (77 + c * SCALAR) % N
    _, given = Forger(nonce=77).forge()
    given[GAMMA_Y], given[INVERSE_HINT] = off.y, pow(c * s, -1, N)
    proof = p256.encode(off) + challenge + s.to_bytes(32, "big")
    assert failed_check(library_harness, PLAIN, proof, given) == C


def test_a_gamma_beyond_the_field_is_not_taken(library_harness: Any) -> None:
    """Γ under the second name of its abscissa, x + p, over which the challenge is taken."""
    hashed, _ = vrf.encode_to_curve(KEY, PLAIN)
    small = next(x for x in range(1, 1000) if pow(p256.cubic(x), (P - 1) // 2, P) == 1)
    gamma = p256.decode(b"\x02" + small.to_bytes(32, "big"))
    renamed = b"\x02" + (small + P).to_bytes(32, "big")
    u, v = times(GENERATOR, 77), times(hashed, 77)
    points = p256.encode(KEY) + p256.encode(hashed) + renamed + p256.encode(u) + p256.encode(v)
    challenge = hashlib.sha256(b"\x01\x02" + points + b"\x00").digest()[:16]
    c = int.from_bytes(challenge, "big")
    s = (77 + c * SCALAR) % N
    _, given = Forger(nonce=77).forge()
    given[GAMMA_Y], given[INVERSE_HINT] = gamma.y, pow(c * s, -1, N)
    given[C_X] = total(times(gamma, c), times(GENERATOR, c * c)).x
    assert failed_check(library_harness, PLAIN, renamed + challenge + s.to_bytes(32, "big"), given) == C


def test_wrong_lengths_are_not_taken(library_harness: Any) -> None:
    proof, given = Forger().forge()
    for wrong in (b"", proof[:-1], proof + b"\x00", proof[:49]):
        assert failed_check(library_harness, PLAIN, wrong, given) == LENGTHS
    for wrong_hints in ([], given[:-1], given + [0] * 256):
        assert failed_check(library_harness, PLAIN, proof, wrong_hints) == LENGTHS


def test_challenge_and_scalar_are_not_zero(library_harness: Any) -> None:
    proof, given = Forger().forge()
    given[INVERSE_HINT] = 0
    assert failed_check(library_harness, PLAIN, proof, given) == INVERSE
    assert failed_check(library_harness, PLAIN, proof[:49] + bytes(32), given) == INVERSE
    given[INVERSE_HINT] = N
    assert failed_check(library_harness, PLAIN, proof, given) == INVERSE


def test_keys_that_are_no_points_are_not_taken(library_harness: Any) -> None:
    proof, given = Forger().forge()
    for key in ((0, 0), (KEY.x, P - KEY.y), (KEY.x, KEY.y + 2), (P + 5, KEY.y), (KEY.x, 2**256 - 1)):
        assert failed_check(library_harness, PLAIN, proof, given, key) != 0
        assert not library_harness.functions.isOnCurve(KEY.x, KEY.y + 2).call()


@pytest.mark.parametrize("place", [C_X, D_X, E_X])
def test_wrong_abscissas_are_not_taken(library_harness: Any, place: int) -> None:
    proof, given = Forger().forge()
    for abscissa in (0, 1, P - N - 1, N, P, 2**256 - 1, given[place] ^ 1):
        bent = [*given[:place], abscissa, *given[place + 1 :]]
        assert failed_check(library_harness, PLAIN, proof, bent) == place - C_X + C


def test_abscissas_where_the_residue_is_ambiguous_are_not_taken(library_harness: Any) -> None:
    """An abscissa from n on has a residue below p - n, which the precompile would take for it."""
    abscissa = next(x for x in range(N, N + 1000) if pow(p256.cubic(x), (P - 1) // 2, P) == 1)
    result = p256.decode(b"\x02" + abscissa.to_bytes(32, "big"))
    factor, other = 12345, 777
    base = times(total(result, flipped(times(GENERATOR, factor))), pow(other, -1, N))
    inverse = pow(other, -1, N)
    assert total(times(GENERATOR, factor), times(base, other)) == result
    for claimed in (abscissa, abscissa - N):
        call = library_harness.functions.checkAbscissa(claimed, factor, inverse, *base)
        with pytest.raises(ContractCustomError):
            call.call()
    # The same combination with an unambiguous result passes.
    ordinary = total(times(GENERATOR, factor + 1), times(base, other))
    library_harness.functions.checkAbscissa(ordinary.x, factor + 1, inverse, *base).call()


def test_hints_and_proofs_of_another_input_do_not_mix(library_harness: Any) -> None:
    source = random.Random(5)
    cases = [(alpha, *Forger(alpha).forge()) for alpha in (PLAIN, source.randbytes(32), source.randbytes(32))]
    for alpha, proof, _ in cases:
        for other_alpha, other_proof, other_hints in cases:
            expected = alpha == other_alpha
            assert (failed_check(library_harness, alpha, proof, other_hints) == 0) == expected
            assert (failed_check(library_harness, other_alpha, proof, other_hints) == 0) == (proof == other_proof)
