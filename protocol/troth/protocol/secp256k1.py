"""Points of the curve secp256k1 (SEC 2, section 2.4.1), on which operators sign, multiplied by libsecp256k1.

Points are compressed, 33 bytes. An abscissa is below the group's order, as the EVM's ``ecrecover`` wants it; of 2^128
points one has a larger one. Multiplications of other points than the generator take time that depends on the scalar: a
secret goes through ``secret_multiple``.
"""

from __future__ import annotations

import secrets
from functools import lru_cache

from coincurve import PrivateKey, PublicKey

from troth.protocol.errors import InvalidProof
from troth.protocol.hashing import keccak256
from troth.protocol.typed_data import CURVE_ORDER as N
from troth.protocol.types import Address, address_from_bytes

P = 2**256 - 2**32 - 977
"""Order of the field."""
KEY_BYTES, SCALAR_BYTES = 33, 32
REMEDY = "Ask the prover for a new proof."


@lru_cache(maxsize=1024)
def decode(data: bytes) -> PublicKey:
    """The point with this compressed form; raises InvalidProof if there is none."""
    if len(data) != KEY_BYTES or data[0] not in (2, 3) or not 0 < int.from_bytes(data[1:], "big") < N:
        raise InvalidProof("A compressed point is 0x02 or 0x03 and an abscissa", data, REMEDY)
    try:
        return PublicKey(bytes(data))
    except ValueError as error:
        raise InvalidProof("No point of secp256k1 has this abscissa", data, REMEDY) from error


def scalars_in(data: bytes) -> tuple[int, ...]:
    """Scalars of 32 bytes each, above zero and below the group's order; raises InvalidProof for any other."""
    found = tuple(int.from_bytes(data[at : at + SCALAR_BYTES], "big") for at in range(0, len(data), SCALAR_BYTES))
    if not all(0 < one < N for one in found):
        raise InvalidProof("A scalar lies between zero and the group's order", data[:40], REMEDY)
    return found


def word(number: int) -> bytes:
    """A scalar's 32 bytes."""
    return number.to_bytes(SCALAR_BYTES, "big")


def random_scalar() -> int:
    """Uniform, above zero and below the order."""
    return 1 + secrets.randbelow(N - 1)


def generator_multiple(scalar: int) -> PublicKey:
    """scalar·G, in constant time."""
    return PrivateKey(word(scalar)).public_key


def multiple(point: PublicKey, scalar: int) -> PublicKey:
    """scalar·point, for a scalar that everybody may know."""
    return point.multiply(word(scalar))


def secret_multiple(point: PublicKey, secret: int) -> PublicKey:
    """secret·point as the sum of two multiples by random scalars: the time of a multiplication tells of those alone."""
    blind = random_scalar()
    rest = (secret - blind) % N
    return add(multiple(point, blind), multiple(point, rest)) if rest else multiple(point, blind)


def two_multiples(scalar: int, key: bytes, other: int) -> PublicKey:
    """scalar·G + other·key in one multiplication: the key that ECDSA recovers from r = the key's abscissa (SEC 1,
    section 4.1.6). Raises InvalidProof where there is no such point, or the sum is the one at infinity."""
    abscissa = int.from_bytes(key[1:], "big")
    recoverable = key[1:] + word(other * abscissa % N) + bytes([key[0] - 2])
    try:
        return PublicKey.from_signature_and_message(recoverable, word(-scalar * abscissa % N), hasher=None)
    except ValueError as error:
        raise InvalidProof("A point of a proof is the one at infinity", key, REMEDY) from error


def add(first: PublicKey, second: PublicKey) -> PublicKey:
    """The sum; raises InvalidProof where it is the point at infinity."""
    try:
        return PublicKey.combine_keys([first, second])
    except ValueError as error:
        raise InvalidProof("A point of a proof is the one at infinity", first.format(), REMEDY) from error


def coordinates(point: PublicKey) -> bytes:
    """Abscissa and ordinate, 64 bytes."""
    found: bytes = point.format(compressed=False)[1:]
    return found


def account_of(key: bytes) -> Address:
    """The account that signs with a compressed key; raises InvalidProof where it is no point."""
    return address_from_bytes(keccak256(coordinates(decode(key)))[12:])
