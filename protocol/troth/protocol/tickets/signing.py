"""Blind signatures of t of n members over a ticket's name, and their checks (Boldyreva 2003, threshold blind BLS).

The client multiplies the name's point by a blinding r; a member multiplies that by its share; t of these, weighed by
Lagrange's coefficients and 1/r, are the point times the secret: the signature. Whatever members saw is uniform whatever
the name: all of them together cannot tell which request a ticket came from.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from py_arkworks_bls12381 import GT, G1Point, G2Point, Scalar

from troth.protocol.tickets.curve import (
    MINUS_G2,
    ORDER,
    InvalidTicket,
    decode_point,
    encode_point,
    is_pairing,
    point_of,
    scalar,
)
from troth.protocol.tickets.dealing import EpochKeys, at_zero
from troth.protocol.types import Address

COEFFICIENT_BYTES = 16
"""Of a random coefficient: forged signatures that cancel each other pass with a probability of 2^-128."""


def blind(name: Address, blinding: int) -> G1Point:
    """The point that members see: uniform for a uniform blinding, 1 to ORDER - 1."""
    return point_of(name) * scalar(blinding)


def sign_blinded(point: G1Point, share: int) -> G1Point:
    """A member's part of a signature."""
    return point * scalar(share)


def combine(parts: Mapping[int, G1Point], blinding: int = 1) -> G1Point:
    """A signature from the parts of as many members as the threshold, by their numbers.

    With the ticket's blinding it is the one over the name; with 1 the blind one. One multiplication takes off blinding
    and Lagrange's divisor together.
    """
    numbers = tuple(sorted(parts))
    weights, divisor = at_zero(numbers)
    total = G1Point.identity()
    for number, weight in zip(numbers, weights, strict=True):
        part = parts[number] * scalar(abs(weight))
        total = total + part if weight > 0 else total - part
    return total * scalar(pow(divisor * blinding, -1, ORDER))


def is_signed(name: Address, signature: bytes, key: G2Point) -> bool:
    """Whether 96 bytes are the members' signature over a name; raises InvalidTicket where they are no point."""
    return is_pairing(decode_point(signature), point_of(name), key)


@dataclass(frozen=True, slots=True)
class SignedName:
    """A ticket as its checker sees it; ``key`` names its epoch and denomination."""

    name: Address
    signature: bytes
    key: tuple[int, int]


def are_signed(tickets: Sequence[SignedName], keys: Mapping[tuple[int, int], G2Point]) -> bool:
    """Whether all of these are signed: one pairing for each key and one more, with random coefficients.

    Plain sums would be forgeable: signatures that are wrong by D and by -D add up to what is right. Raises
    InvalidTicket where one is no point, or its key is not among ``keys``.
    """
    if not tickets:
        return True
    coefficients = [_coefficient() for _ in tickets]
    sums = [G1Point.multiexp_unchecked([decode_point(one.signature) for one in tickets], coefficients)]
    sides = [MINUS_G2]
    for key in dict.fromkeys(one.key for one in tickets):
        if key not in keys:
            raise InvalidTicket("There is no key for such a ticket", key, "Take the epoch's keys from the chain.")
        mine = [(one, by) for one, by in zip(tickets, coefficients, strict=True) if one.key == key]
        sums.append(G1Point.multiexp_unchecked([point_of(one.name) for one, _ in mine], [by for _, by in mine]))
        sides.append(keys[key])
    return bool(GT.pairing_check(sums, sides))


def invalid_among(tickets: Sequence[SignedName], keys: Mapping[tuple[int, int], G2Point]) -> list[int]:
    """Places of those that are not signed, by halving: few pairings where few are wrong; no points count as wrong."""
    try:
        if are_signed(tickets, keys):
            return []
    except InvalidTicket:
        if len(tickets) == 1:
            return [0]
    if len(tickets) == 1:
        return [0]
    middle = len(tickets) // 2
    left, right = invalid_among(tickets[:middle], keys), invalid_among(tickets[middle:], keys)
    return [*left, *(middle + place for place in right)]


@dataclass(frozen=True, slots=True)
class TicketSignatures:
    """Signatures over tickets' names, and the members whose parts were nonsense."""

    signatures: tuple[G1Point, ...]
    liars: frozenset[int] = field(default_factory=frozenset)


def gather(
    points: Sequence[G1Point],
    blindings: Sequence[int],
    answers: Mapping[int, Sequence[bytes]],
    keys: EpochKeys,
    denomination: int,
) -> TicketSignatures:
    """Signatures over the names behind blinded points, from what members answered; whoever answered nonsense is named.

    Args:
        blindings: of the points, in their order.
        answers: by the member's number, a part of 96 bytes for each point.

    Raises InvalidTicket where fewer members than the threshold answered rightly.
    """
    key, seen = keys.key(denomination), [1] * len(points)
    parts, liars = _decoded(points, answers)
    if len(parts) >= keys.threshold:
        made = _combined(parts, sorted(parts)[: keys.threshold], blindings)
        if _are_points(made, points, blindings, key):
            return TicketSignatures(made, frozenset(liars))
    for number in sorted(parts):
        if not _are_points(parts[number], points, seen, keys.key_of_member(denomination, number)):
            liars.add(number)
            del parts[number]
    if len(parts) < keys.threshold:
        what = f"{len(parts)} members signed, {keys.threshold} are needed; these signed nonsense"
        raise InvalidTicket(what, sorted(liars), "Ask again when more members answer.")
    return TicketSignatures(_combined(parts, sorted(parts)[: keys.threshold], blindings), frozenset(liars))


def encoded(points: Sequence[G1Point]) -> bytes:
    """Points one after the other, 96 bytes each."""
    return b"".join(encode_point(one) for one in points)


def _decoded(
    points: Sequence[G1Point], answers: Mapping[int, Sequence[bytes]]
) -> tuple[dict[int, tuple[G1Point, ...]], set[int]]:
    parts: dict[int, tuple[G1Point, ...]] = {}
    liars: set[int] = set()
    for number, answer in answers.items():
        try:
            if len(answer) != len(points):
                raise InvalidTicket("A member signs every point", len(answer), "Leave it out.")
            parts[number] = tuple(decode_point(one) for one in answer)
        except InvalidTicket:
            liars.add(number)
    return parts, liars


def _combined(
    parts: Mapping[int, Sequence[G1Point]], chosen: Sequence[int], blindings: Sequence[int]
) -> tuple[G1Point, ...]:
    return tuple(
        combine({number: parts[number][place] for number in chosen}, blinding)
        for place, blinding in enumerate(blindings)
    )


def _are_points(
    signatures: Sequence[G1Point], points: Sequence[G1Point], blindings: Sequence[int], key: G2Point
) -> bool:
    """Whether each is its point, less the blinding, times the secret of ``key``; all at once, with random
    coefficients."""
    coefficients = [int.from_bytes(secrets.token_bytes(COEFFICIENT_BYTES), "big") for _ in points]
    left = G1Point.multiexp_unchecked(list(signatures), [scalar(one) for one in coefficients])
    off = [scalar(one * pow(by, -1, ORDER)) for one, by in zip(coefficients, blindings, strict=True)]
    return is_pairing(left, G1Point.multiexp_unchecked(list(points), off), key)


def _coefficient() -> Scalar:
    return scalar(int.from_bytes(secrets.token_bytes(COEFFICIENT_BYTES), "big"))
