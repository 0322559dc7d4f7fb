"""ECVRF-P256-SHA256-TAI against RFC 9381's vectors and its own rules."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pytest

from troth.protocol import p256, vrf
from troth.protocol.errors import InvalidField, InvalidProof
from troth.protocol.vrf import FIXED_HINTS, hints


@dataclass(frozen=True)
class Vector:
    """One example of RFC 9381, Appendix B.1."""

    secret: str
    public: str
    alpha: bytes
    hashed: str
    proof: str
    beta: str


EXAMPLE_10 = Vector(
    secret="c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721",
    public="0360fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6",
    alpha=b"sample",
    hashed="0272a877532e9ac193aff4401234266f59900a4a9e3fc3cfc6a4b7e467a15d06d4",
    proof="035b5c726e8c0e2c488a107c600578ee75cb702343c153cb1eb8dec77f4b5071b4"
    "a53f0a46f018bc2c56e58d383f2305e0"
    "975972c26feea0eb122fe7893c15af376b33edf7de17c6ea056d4d82de6bc02f",
    beta="a3ad7b0ef73d8fc6655053ea22f9bede8c743f08bbed3d38821f0e16474b505e",
)
EXAMPLE_11 = Vector(
    secret=EXAMPLE_10.secret,
    public=EXAMPLE_10.public,
    alpha=b"test",
    hashed="02173119b4fff5e6f8afed4868a29fe8920f1b54c2cf89cc7b301d0d473de6b974",
    proof="034dac60aba508ba0c01aa9be80377ebd7562c4a52d74722e0abae7dc3080ddb56"
    "c19e067b15a8a8174905b13617804534"
    "214f935b94c2287f797e393eb0816969d864f37625b443f30f1a5a33f2b3c854",
    beta="a284f94ceec2ff4b3794629da7cbafa49121972671b466cab4ce170aa365f26d",
)
EXAMPLE_12 = Vector(
    secret="2ca1411a41b17b24cc8c3b089cfd033f1920202a6c0de8abb97df1498d50d2c8",
    public="03596375e6ce57e0f20294fc46bdfcfd19a39f8161b58695b3ec5b3d16427c274d",
    alpha=b"Example using ECDSA key from Appendix L.4.2 of ANSI.X9-62-2005",
    hashed="0258055c26c4b01d01c00fb57567955f7d39cd6f6e85fd37c58f696cc6b7aa761d",
    proof="03d03398bf53aa23831d7d1b2937e005fb0062cbefa06796579f2a1fc7e7b8c667"
    "d091c00b0f5c3619d10ecea44363b5a5"
    "99cadc5b2957e223fec62e81f7b4825fc799a771a3d7334b9186bdbee87316b1",
    beta="90871e06da5caa39a3c61578ebb844de8635e27ac0b13e829997d0d95dd98c19",
)
VECTORS = pytest.mark.parametrize("vector", [EXAMPLE_10, EXAMPLE_11, EXAMPLE_12], ids=["10", "11", "12"])

SECRET = bytes.fromhex(EXAMPLE_10.secret)
KEY = vrf.public_key(SECRET)
PROOF = bytes.fromhex(EXAMPLE_10.proof)


@VECTORS
def test_vectors_of_the_rfc(vector: Vector) -> None:
    secret = bytes.fromhex(vector.secret)
    key = vrf.public_key(secret)
    assert p256.encode(p256.Point(*key)).hex() == vector.public
    assert vrf.prove(secret, vector.alpha).hex() == vector.proof
    assert vrf.verify(key, vector.alpha, bytes.fromhex(vector.proof)).hex() == vector.beta
    assert vrf.proof_to_hash(bytes.fromhex(vector.proof)).hex() == vector.beta


@VECTORS
def test_hashing_to_the_curve_is_as_in_the_rfc(vector: Vector) -> None:
    key = p256.Point(*vrf.public_key(bytes.fromhex(vector.secret)))
    hashed, skipped = vrf.encode_to_curve(key, vector.alpha)
    assert p256.encode(hashed).hex() == vector.hashed
    for counter, value in enumerate(skipped):
        message = b"\x01\x01" + p256.encode(key) + vector.alpha + bytes([counter, 0])
        assert value == int.from_bytes(hashlib.sha256(message).digest(), "big")


def test_no_flipped_bit_of_a_proof_survives() -> None:
    for bit in range(8 * len(PROOF)):
        changed = bytearray(PROOF)
        changed[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(InvalidProof):
            vrf.verify(KEY, EXAMPLE_10.alpha, bytes(changed))


def test_another_key_or_input_is_refused() -> None:
    other = vrf.public_key(bytes.fromhex(EXAMPLE_12.secret))
    with pytest.raises(InvalidProof, match="does not hold"):
        vrf.verify(other, EXAMPLE_10.alpha, PROOF)
    with pytest.raises(InvalidProof, match="does not hold"):
        vrf.verify(KEY, b"sample ", PROOF)


@pytest.mark.parametrize("key", [(0, 0), (KEY[0], KEY[1] + 1), (KEY[0] + p256.P, KEY[1]), (KEY[0], KEY[1] - p256.P)])
def test_a_key_off_the_curve_is_refused(key: tuple[int, int]) -> None:
    with pytest.raises(InvalidProof, match="no point of P-256"):
        vrf.verify(key, EXAMPLE_10.alpha, PROOF)


@pytest.mark.parametrize(
    ("proof", "message"),
    [
        (b"", "81 bytes"),
        (PROOF[:-1], "81 bytes"),
        (PROOF + b"\x00", "81 bytes"),
        (b"\x04" + PROOF[1:], "compressed point"),
        (bytes(33) + PROOF[33:], "compressed point"),
        (b"\x02" + p256.P.to_bytes(32, "big") + PROOF[33:], "abscissa"),
        (PROOF[:49] + p256.N.to_bytes(32, "big"), "group's order"),
    ],
)
def test_encodings_that_are_not_canonical_are_refused(proof: bytes, message: str) -> None:
    with pytest.raises(InvalidProof, match=message):
        vrf.verify(KEY, EXAMPLE_10.alpha, proof)
    with pytest.raises(InvalidProof, match=message):
        vrf.proof_to_hash(proof)


@pytest.mark.parametrize("secret", [bytes(32), p256.N.to_bytes(32, "big"), b"\x01", bytes(31) + b"\x01\x00"])
def test_a_secret_that_is_no_key_is_refused_and_not_shown(secret: bytes) -> None:
    with pytest.raises(InvalidField, match="bytes") as refusal:
        vrf.prove(secret, b"")
    assert secret.hex() not in str(refusal.value)


def test_generated_keys_prove() -> None:
    first, second = vrf.generate_key(), vrf.generate_key()
    assert first != second
    assert len(first) == 32
    vrf.verify(vrf.public_key(first), b"alpha", vrf.prove(first, b"alpha"))


def test_hints_satisfy_the_equations_of_the_contract() -> None:
    given = hints(KEY, EXAMPLE_11.alpha, bytes.fromhex(EXAMPLE_11.proof))
    opened = vrf.open_proof(KEY, EXAMPLE_11.alpha, bytes.fromhex(EXAMPLE_11.proof))
    assert given[0] == opened.hashed.y
    assert given[0] % 2 == 0
    assert tuple(given[2:6]) == (*opened.commitment, *opened.hashed_commitment)
    assert given[9] * opened.challenge * opened.scalar % p256.N == 1
    assert len(given) == FIXED_HINTS + len(opened.skipped)
    for root, value in zip(given[FIXED_HINTS:], opened.skipped, strict=True):
        assert (root * root + p256.cubic(value)) % p256.P == 0
        assert root % 2 == 0


def test_a_proof_that_does_not_hold_has_no_hints() -> None:
    with pytest.raises(InvalidProof):
        hints(KEY, b"something else", PROOF)
