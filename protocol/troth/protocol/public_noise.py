"""The public noise of a token in fixed point: -ln(-ln u), u from Philox 4x64 (Salmon et al. 2011).

In units of 2**-120, wrong by less than 2**-60; the float64 noise that nodes choose by (``tokens.noise``) is within
2**-40 of it. The contracts' library ``PublicNoise`` has the same integers.
"""

from __future__ import annotations

from troth.protocol.errors import InvalidNumbers

BITS = 120
ONE = 1 << BITS
LN_2 = 921350637599661305226344307672478455
"""ln 2 in units of 2**-120."""
ROOT_2 = 1879812259125035246445576347481445757
"""The square root of 2, in the same units."""
LAST_TERM = 47
ROUNDS = 10
_WORD = (1 << 64) - 1


def gumbel(seed: bytes, position: int, token: int) -> int:
    """The noise of one token at one position of a seed of 32 bytes."""
    odd = (draw(seed, position, token) >> 12 << 1) | 1
    # -ln u for u = odd / 2**53, and then its logarithm.
    return BITS * LN_2 - ln(53 * LN_2 - ln(odd))


def ln(number: int) -> int:
    """ln of an integer from 1 to 2**200; raises InvalidNumbers for another."""
    if not 1 <= number <= 1 << 200:
        raise InvalidNumbers("The logarithm is of an integer from 1 to 2**200", number, "Check the noise.")
    power = number.bit_length() - 1
    x = number >> (power - BITS) if power > BITS else number << (BITS - power)
    if x > ROOT_2:
        x, power = x >> 1, power + 1
    # ln x = 2 artanh z; z is at most 0.172.
    z = (abs(x - ONE) << BITS) // (x + ONE)
    square, term, total = (z * z) >> BITS, z, z
    for i in range(3, LAST_TERM + 1, 2):
        term = (term * square) >> BITS
        total += term // i
    return power * LN_2 + (-2 * total if x < ONE else 2 * total)


def draw(seed: bytes, position: int, token: int) -> int:
    """The raw 64 bits of a token; see ``tokens.noise``."""
    if len(seed) != 32:
        raise InvalidNumbers("A seed has 32 bytes", len(seed), "Take tokens.noise_seed.")
    words = [int.from_bytes(seed[at : at + 8], "little") for at in range(0, 32, 8)]
    c0, c1, c2, c3, k0, k1 = token // 4 + 1, position, words[2], words[3], words[0], words[1]
    for _ in range(ROUNDS):
        first, second = c0 * 0xD2E7470EE14C6C93, c2 * 0xCA5A826395121157
        c0, c1, c2, c3 = (second >> 64) ^ c1 ^ k0, second & _WORD, (first >> 64) ^ c3 ^ k1, first & _WORD
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & _WORD, (k1 + 0xBB67AE8584CAA73B) & _WORD
    return (c0, c1, c2, c3)[token % 4]
