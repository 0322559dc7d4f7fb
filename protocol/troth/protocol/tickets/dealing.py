"""An epoch's key: dealt by the members together, so that none of them ever holds it (Pedersen 1991, Feldman 1987).

Every member deals: for each denomination it draws a polynomial of degree t - 1, commits to its coefficients in G2, and
gives member k the value at k. Commitments are checked against the values, so that a dealer that gives nonsense is found
by whoever got it. The dealers whose word more than 2/3 of the members hold make the key: their polynomials add up, and
a member's share is the sum of the values that it got. As long as one of t dealers is honest nobody knows the secret.

Members are numbered from 1, in ascending order of their operators, as they stand when an epoch's key is dealt.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from py_arkworks_bls12381 import G2Point

from troth.protocol.hashing import keccak256
from troth.protocol.tickets.curve import (
    ORDER,
    InvalidTicket,
    decode_key,
    encode_key,
    padded,
    random_scalar,
    scalar,
)
from troth.protocol.types import Address, Hash32, address_to_bytes

Polynomial = tuple[int, ...]
"""Coefficients modulo ORDER, the constant first."""
Commitments = tuple[bytes, ...]
"""Of one denomination: each coefficient times the generator of G2, 192 bytes."""

MAXIMUM_DENOMINATIONS = 16
DEALING_TAG, KEYS_TAG = b"troth/tickets/dealing/1", b"troth/tickets/keys/1"


def numbered(operators: Iterable[Address]) -> tuple[Address, ...]:
    """Members in the order of their numbers; the first has number 1."""
    return tuple(sorted(operators, key=address_to_bytes))


@dataclass(frozen=True, slots=True)
class KeyDealing:
    """What a dealer says to everybody: commitments for each denomination, all of them t long.

    ``operators`` are the members that it deals to, in the order of their numbers.
    """

    epoch: int
    dealer: Address
    operators: tuple[Address, ...]
    commitments: tuple[Commitments, ...]

    @property
    def digest(self) -> Hash32:
        """What names it among members."""
        head = DEALING_TAG + self.epoch.to_bytes(8, "big") + address_to_bytes(self.dealer)
        return Hash32(keccak256(head + _binding(self.operators, self.commitments)))


def draw_polynomials(denominations: int, threshold: int) -> tuple[Polynomial, ...]:
    """A dealer's secret, for each denomination."""
    return tuple(tuple(random_scalar() for _ in range(threshold)) for _ in range(denominations))


def deal(epoch: int, dealer: Address, operators: Sequence[Address], polynomials: Sequence[Polynomial]) -> KeyDealing:
    """What is said to everybody about these polynomials."""
    generator = G2Point()
    committed = (tuple(encode_key(generator * scalar(one)) for one in polynomial) for polynomial in polynomials)
    return KeyDealing(epoch, dealer, numbered(operators), tuple(committed))


def shares_for(polynomials: Sequence[Polynomial], number: int) -> tuple[int, ...]:
    """What a dealer gives one member, for each denomination; for that member alone."""
    return tuple(_value(polynomial, number) for polynomial in polynomials)


def require_dealing(dealing: KeyDealing, *, denominations: int, threshold: int) -> None:
    """Raise InvalidTicket unless a dealing has the form that it must have, and points for commitments."""
    sizes = {len(one) for one in dealing.commitments}
    if len(dealing.commitments) != denominations or sizes != {threshold}:
        what = f"A dealing commits to {threshold} coefficients for each of {denominations} denominations"
        raise InvalidTicket(what, sorted(sizes), f"{dealing.dealer} has to deal again.")
    for commitments in dealing.commitments:
        for one in commitments:
            decode_key(one)


def require_shares(dealing: KeyDealing, number: int, shares: Sequence[int]) -> None:
    """Raise InvalidTicket unless these are the values that the dealer committed to (Feldman 1987)."""
    if len(shares) != len(dealing.commitments):
        raise InvalidTicket("A dealer gives one share a denomination", len(shares), "It has to deal again.")
    for share, commitments in zip(shares, dealing.commitments, strict=True):
        if not 0 <= share < ORDER or G2Point() * scalar(share) != _public_value(commitments, number):
            what = f"{dealing.dealer} gave member {number} a share that it did not commit to"
            raise InvalidTicket(what, None, "Leave this dealer out.")


@dataclass(frozen=True, slots=True)
class EpochKeys:
    """An epoch's keys in public: the dealers' commitments, added up.

    Attributes:
        operators: who has a share, in the order of their numbers.
        commitments: for each denomination, t of 192 bytes; the first is the key itself.
    """

    epoch: int
    operators: tuple[Address, ...]
    commitments: tuple[Commitments, ...]

    @property
    def threshold(self) -> int:
        """How many members sign a ticket."""
        return len(self.commitments[0])

    @property
    def digest(self) -> Hash32:
        """What more than 2/3 of the members sign and the chain keeps beside the keys: nobody names members wrongly."""
        return Hash32(keccak256(KEYS_TAG + self.epoch.to_bytes(8, "big") + _binding(self.operators, self.commitments)))

    @property
    def chain_keys(self) -> tuple[bytes, ...]:
        """The keys as the contract takes them, 256 bytes each."""
        return tuple(padded(one[0]) for one in self.commitments)

    @property
    def keys_hash(self) -> Hash32:
        """keccak256 of the keys, one after the other."""
        return Hash32(keccak256(b"".join(self.chain_keys)))

    def key(self, denomination: int) -> G2Point:
        """The key of a denomination."""
        return decode_key(self.commitments[denomination][0])

    def key_of_member(self, denomination: int, number: int) -> G2Point:
        """What a member's part of a signature is checked with."""
        return _public_value(self.commitments[denomination], number)


def keys_of(dealings: Sequence[KeyDealing]) -> EpochKeys:
    """The keys that these dealers make together; raises InvalidTicket where they do not fit or cancel each other."""
    kinds = {(one.epoch, one.operators) for one in dealings}
    if len(kinds) != 1 or len({one.dealer for one in dealings}) != len(dealings):
        what = "Dealings are of one epoch, to the same members, one for each dealer"
        raise InvalidTicket(what, len(dealings), "Leave the others out.")
    added = []
    for parts in zip(*(one.commitments for one in dealings), strict=True):
        sums = (_sum(coefficient) for coefficient in zip(*parts, strict=True))
        added.append(tuple(encode_key(one) for one in sums))
    keys = EpochKeys(dealings[0].epoch, dealings[0].operators, tuple(added))
    for denomination in range(len(added)):
        keys.key(denomination)
    return keys


def share_of(given: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """A member's share of each denomination's key, from what the dealers gave it."""
    return tuple(sum(parts) % ORDER for parts in zip(*given, strict=True))


@lru_cache(maxsize=256)
def at_zero(numbers: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Lagrange's coefficients: by what the values of a polynomial at these places are weighed to give that at 0.

    As whole numbers over one divisor. Members' numbers are small, and so are these: weighing points by them costs a
    tenth of what it does by residues modulo ORDER.
    """
    weights = []
    for number in numbers:
        others = [other for other in numbers if other != number]
        weights.append(Fraction(math.prod(others), math.prod(other - number for other in others)))
    divisor = math.lcm(*(weight.denominator for weight in weights))
    return tuple(int(weight * divisor) for weight in weights), divisor


def _binding(operators: Sequence[Address], commitments: Sequence[Commitments]) -> bytes:
    """All of it as bytes that can be read in one way."""
    sizes = bytes((len(operators), len(commitments), len(commitments[0])))
    return sizes + b"".join(map(address_to_bytes, operators)) + b"".join(b"".join(one) for one in commitments)


def _value(polynomial: Polynomial, place: int) -> int:
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * place + coefficient) % ORDER
    return value


def _public_value(commitments: Commitments, place: int) -> G2Point:
    """The polynomial's value at a place, times the generator."""
    powers = [scalar(pow(place, exponent, ORDER)) for exponent in range(len(commitments))]
    return G2Point.multiexp_unchecked([G2Point.from_xy_bytes_unchecked_be(one) for one in commitments], powers)


def _sum(points: Sequence[bytes]) -> G2Point:
    total = G2Point.identity()
    for point in points:
        total = total + decode_key(point)
    return total
