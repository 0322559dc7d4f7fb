"""EIP-712 hashing, signing and recovery against eth_account, and every refusal of a signature."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data

from troth.protocol.errors import InvalidField, InvalidSignature
from troth.protocol.market.signed import Row
from troth.protocol.market.types import Consent
from troth.protocol.typed_data import (
    CURVE_ORDER,
    Domain,
    address_of,
    camel_case,
    digest,
    recover,
    require_signer,
    sign,
    type_string,
)
from troth.protocol.types import Envelope, Hash32, address_from_bytes

DOMAIN = Domain(31337, address_from_bytes(bytes(range(20))))
SECRET = bytes(range(1, 33))
ONE, TWO, THREE = (Hash32(bytes([number]) * 32) for number in (1, 2, 3))
ALICE, BOB = address_from_bytes(b"\xaa" * 20), address_from_bytes(b"\xbb" * 20)
ROW = Row(ONE, 3, 77, TWO, THREE)

# Written out as the contract has them, so that a renamed or reordered Python field fails here.
MESSAGES = {
    "Row(bytes32 order,uint8 segment,uint32 position,bytes32 rowHash,bytes32 previous)": ROW,
    "Consent(address owner,address operator)": Consent(ALICE, BOB),
    "Envelope(bytes32 contentHash,address sender,address recipient,bytes32 nonce,uint64 timestamp)": Envelope(
        ONE, ALICE, BOB, TWO, 1_700_000_000
    ),
}


def signable(type_text: str, message: object) -> object:
    name, members = type_text.rstrip(")").split("(")
    fields = [dict(zip(("type", "name"), member.split(" "), strict=True)) for member in members.split(",")]
    values = [getattr(message, field) for field in message.__dataclass_fields__]
    return encode_typed_data(
        full_message={
            "types": {
                "EIP712Domain": [
                    {"name": "name", "type": "string"},
                    {"name": "version", "type": "string"},
                    {"name": "chainId", "type": "uint256"},
                    {"name": "verifyingContract", "type": "address"},
                ],
                name: fields,
            },
            "primaryType": name,
            "domain": {
                "name": "Troth",
                "version": "1",
                "chainId": DOMAIN.chain_id,
                "verifyingContract": DOMAIN.contract,
            },
            "message": {field["name"]: value for field, value in zip(fields, values, strict=True)},
        }
    )


@pytest.mark.parametrize("type_text", MESSAGES)
def test_type_string_is_the_contracts(type_text: str) -> None:
    assert type_string(type(MESSAGES[type_text])) == type_text


@pytest.mark.parametrize("type_text", MESSAGES)
def test_signature_equals_eth_accounts_and_recovers(type_text: str) -> None:
    message = MESSAGES[type_text]
    signed = Account.sign_message(signable(type_text, message), SECRET)
    assert digest(message, DOMAIN) == signed.message_hash
    assert sign(message, DOMAIN, SECRET) == signed.signature
    assert recover(message, DOMAIN, signed.signature) == Account.from_key(SECRET).address == address_of(SECRET)


@pytest.mark.parametrize(
    "other", [Domain(1, DOMAIN.contract), Domain(31337, ALICE)], ids=["another chain", "another contract"]
)
def test_domain_is_part_of_the_signature(other: Domain) -> None:
    assert recover(ROW, other, sign(ROW, DOMAIN, SECRET)) != address_of(SECRET)


def high_s(signature: bytes) -> bytes:
    s = CURVE_ORDER - int.from_bytes(signature[32:64])
    return signature[:32] + s.to_bytes(32) + bytes([55 - signature[64]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (high_s, "lower half"),
        (lambda signature: signature[:64] + b"\x00", "27 or 28"),
        (lambda signature: signature[:64] + b"\x1d", "27 or 28"),
        (lambda signature: signature[:64], "65 bytes"),
        (lambda signature: signature + b"\x00", "65 bytes"),
        (lambda signature: bytes(32) + signature[32:], "r must"),
        (lambda signature: CURVE_ORDER.to_bytes(32) + signature[32:], "r must"),
        (lambda signature: signature[:32] + bytes(32) + signature[64:], "lower half"),
        (lambda signature: b"", "65 bytes"),
    ],
)
def test_signature_that_the_contract_would_refuse(change: object, message: str) -> None:
    with pytest.raises(InvalidSignature, match=message):
        recover(ROW, DOMAIN, change(sign(ROW, DOMAIN, SECRET)))


def test_abscissa_that_is_on_no_point_is_refused() -> None:
    signature = sign(ROW, DOMAIN, SECRET)
    with pytest.raises(InvalidSignature, match="No public key"):
        recover(ROW, DOMAIN, (5).to_bytes(32) + signature[32:])


def test_require_signer_names_both_parties() -> None:
    signature = sign(ROW, DOMAIN, SECRET)
    require_signer(ROW, DOMAIN, signature, address_of(SECRET))
    with pytest.raises(InvalidSignature, match=ALICE):
        require_signer(ROW, DOMAIN, signature, ALICE)


@pytest.mark.parametrize(
    "change",
    [
        {"segment": 256},
        {"segment": -1},
        {"position": 2**32},
        {"position": True},
        {"position": 1.0},
        {"row_hash": b"short"},
        {"row_hash": "1" * 32},
        {"previous": bytearray(32)},
    ],
)
def test_value_that_does_not_fit_its_field(change: dict[str, object]) -> None:
    with pytest.raises(InvalidField):
        digest(replace(ROW, **change), DOMAIN)


@pytest.mark.parametrize("address", ["0x" + "aa" * 20, "aa" * 20, "", "0x" + "zz" * 20, None])
def test_address_without_checksum_is_refused(address: object) -> None:
    with pytest.raises(InvalidField):
        digest(Consent(address, BOB), DOMAIN)  # type: ignore[arg-type]


@pytest.mark.parametrize("secret", [bytes(32), CURVE_ORDER.to_bytes(32), b"1", bytes(33)])
def test_secret_that_is_no_key_is_refused_without_showing_it(secret: bytes) -> None:
    with pytest.raises(InvalidField) as caught:
        sign(ROW, DOMAIN, secret)
    assert secret.hex() not in str(caught.value)


def test_field_without_solidity_type_is_a_programming_error() -> None:
    @dataclass(frozen=True)
    class Plain:
        number: float

    with pytest.raises(TypeError, match="no Solidity type"):
        type_string(Plain)
    with pytest.raises(TypeError, match="no dataclass"):
        digest("text", DOMAIN)


def test_camel_case() -> None:
    assert [camel_case(name) for name in ("nonce", "row_hash", "max_fee")] == ["nonce", "rowHash", "maxFee"]
