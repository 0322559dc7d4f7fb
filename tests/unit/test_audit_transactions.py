"""Signed transactions rebuilt from a node's JSON: only bytes that hash to the transaction's name are believed."""

from __future__ import annotations

import time
from typing import Any

import pytest
import rlp
from eth_account import Account
from hypothesis import given
from hypothesis import strategies as st

from troth.audit.evidence.transactions import encode_list, encode_number, from_node, list_items, read_raw
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32, to_address

SECRET = b"\x11" * 32
SENDER = to_address(Account.from_key(SECRET).address)
RECEIVER = to_address("0x" + "22" * 20)
ACCESS = [{"address": "0x" + "33" * 20, "storageKeys": ["0x" + "44" * 32]}]

COMMON = {"nonce": 7, "gas": 90_000, "to": RECEIVER, "value": 5, "data": "0xabcdef"}
DYNAMIC = {**COMMON, "chainId": 31337, "maxFeePerGas": 9, "maxPriorityFeePerGas": 0}


def authorization() -> Any:
    return Account.sign_authorization({"chainId": 31337, "address": "0x" + "55" * 20, "nonce": 0}, SECRET)


def signed(fields: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Raw bytes, and the JSON with which a node answers."""
    made = Account.sign_transaction(fields, SECRET)
    raw = bytes(made.raw_transaction)
    kind = raw[0] if raw[0] < 0x80 else 0
    answer: dict[str, Any] = {
        **{name: hex(value) for name, value in fields.items() if isinstance(value, int)},
        "type": hex(kind),
        "hash": "0x" + keccak256(raw).hex(),
        "to": fields.get("to"),
        "input": fields["data"],
        "v": hex(made.v),
        "yParity": hex(made.v),
        "r": hex(made.r),
        "s": hex(made.s),
        "accessList": fields.get("accessList", []),
    }
    return raw, answer


CASES = {
    "legacy": {**COMMON, "gasPrice": 3},
    "EIP-155": {**COMMON, "gasPrice": 3, "chainId": 31337},
    "EIP-2930": {**COMMON, "type": 1, "gasPrice": 3, "chainId": 31337, "accessList": ACCESS},
    "EIP-1559": {**DYNAMIC, "type": 2, "accessList": ACCESS},
    "creation": {name: value for name, value in {**DYNAMIC, "type": 2}.items() if name != "to"},
}


@pytest.mark.parametrize("fields", CASES.values(), ids=CASES.keys())
def test_every_kind_is_rebuilt_to_its_hash(fields: dict[str, Any]) -> None:
    raw, answer = signed(fields)
    transaction = from_node(answer)
    assert transaction is not None
    assert transaction.raw == raw
    assert transaction.sender == SENDER
    assert transaction.receiver == fields.get("to")
    assert transaction.data == b"\xab\xcd\xef"


def test_an_authorization_list_is_rebuilt() -> None:
    given = authorization()
    fields = {**DYNAMIC, "type": 4, "authorizationList": [given]}
    made = Account.sign_transaction(fields, SECRET)
    raw = bytes(made.raw_transaction)
    _, answer = signed({**DYNAMIC, "type": 2})
    entry = {
        "chainId": hex(given.chain_id),
        "address": "0x" + bytes(given.address).hex(),
        "nonce": hex(given.nonce),
        "yParity": hex(given.y_parity),
        "r": hex(given.r),
        "s": hex(given.s),
    }
    signature = {"yParity": hex(made.v), "r": hex(made.r), "s": hex(made.s)}
    answer |= {"type": "0x4", "hash": "0x" + keccak256(raw).hex(), "authorizationList": [entry], **signature}
    transaction = from_node(answer)
    assert transaction is not None
    assert (transaction.raw, transaction.sender) == (raw, SENDER)


@pytest.mark.parametrize(
    "change", [{"input": "0xabcdee"}, {"to": "0x" + "66" * 20}, {"nonce": "0x8"}, {"hash": "0x" + "00" * 32}]
)
def test_a_node_that_changes_a_field_is_not_believed(change: dict[str, Any]) -> None:
    _, answer = signed(CASES["EIP-1559"])
    assert from_node({**answer, **change}) is None


def test_unknown_types_and_missing_fields_count_as_not_available() -> None:
    _, answer = signed(CASES["EIP-1559"])
    assert from_node({**answer, "type": "0x7e"}) is None
    assert from_node({name: value for name, value in answer.items() if name != "r"}) is None


@pytest.mark.parametrize("raw", [b"", b"\x02", b"\x02\xc0", b"\x03\xc0", b"\xc0", b"\xff" * 40, b"\x02" + b"\xf8" * 9])
def test_bytes_that_are_no_transaction_prove_nothing(raw: bytes) -> None:
    assert read_raw(raw, Hash32(keccak256(raw))) is None


def nested(depth: int) -> bytes:
    """A list in a list in a list…"""
    data = b""
    for _ in range(depth):
        data = encode_list(data)
    return data


def test_nesting_without_end_costs_no_time() -> None:
    raw = b"\x02" + nested(3_000)
    started = time.process_time()
    assert read_raw(raw, Hash32(keccak256(raw))) is None
    assert time.process_time() - started < 0.2


@given(st.binary(min_size=1, max_size=200))
def test_no_bytes_crash_the_reader(raw: bytes) -> None:
    assert read_raw(raw, Hash32(keccak256(raw))) is None


@given(st.lists(st.one_of(st.binary(max_size=300), st.integers(min_value=0, max_value=2**256 - 1)), max_size=12))
def test_list_items_are_those_of_the_library(values: list[bytes | int]) -> None:
    contents = [rlp.sedes.big_endian_int.serialize(value) if isinstance(value, int) else value for value in values]
    encoded = rlp.encode(contents)
    items = list_items(encoded)
    assert [item.content for item in items] == contents
    assert encode_list(b"".join(item.encoded for item in items)) == encoded
    numbers = [value for value in values if isinstance(value, int)]
    assert [encode_number(value) for value in numbers] == [rlp.encode(value) for value in numbers]


@pytest.mark.parametrize("place", [-3, -2, -1])
def test_numbers_beyond_a_signature_prove_nothing(place: int) -> None:
    raw, _ = signed(CASES["EIP-1559"])
    items = rlp.decode(raw[1:])
    items[place] = b"\xff" * 40
    forged = b"\x02" + rlp.encode(items)
    assert read_raw(forged, Hash32(keccak256(forged))) is None
