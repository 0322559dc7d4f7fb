"""Codecs of the protocol over arbitrary values, typed data against eth_account's encoder."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from eth_account._utils.encode_typed_data.encoding_and_hashing import hash_struct
from hypothesis import given, settings
from hypothesis import strategies as some

from troth.protocol.errors import InvalidRequest, InvalidSignature
from troth.protocol.exact_numbers import STATE_LIMIT
from troth.protocol.market.rows import RowHashes, verify_rows
from troth.protocol.market.signed import Order, Row
from troth.protocol.request import (
    Request,
    canonical_bytes,
    from_canonical_bytes,
)
from troth.protocol.tensors import Dtype, rows_from_bytes, rows_to_bytes, tokens_from_bytes, tokens_to_bytes
from troth.protocol.typed_data import Domain, address_of, recover, sign, struct_hash
from troth.protocol.types import Hash32, address_from_bytes, address_to_bytes
from troth.protocol.wire_fields import RowSignature

words = some.binary(min_size=32, max_size=32).map(Hash32)
addresses = some.binary(min_size=20, max_size=20).map(address_from_bytes)
tokens = some.integers(0, 2**32 - 1)
requests = some.builds(
    Request,
    words,
    some.lists(tokens, min_size=1, max_size=20).map(tuple),
    some.integers(1, 65_536),
    some.integers(0, 2_000_000),
    some.integers(1, 1_000_000),
    some.sets(tokens, max_size=8).map(lambda found: tuple(sorted(found))),
)
numbers = some.integers(0, 2**64 - 1)
orders = some.builds(
    Order, words, numbers, words, words, words, numbers, numbers, numbers, some.integers(0, 2**16 - 1),
    some.integers(0, 2**96 - 1), some.integers(0, 2**32 - 1), numbers, numbers, words, words, words,
)  # fmt: skip
ORDER_FIELDS = [
    {"name": name, "type": kind}
    for kind, names in (
        ("bytes32", ("tab",)), ("uint64", ("sequence",)), ("bytes32", ("executionClass", "requestHash", "ends")),
        ("uint64", ("promptPrice", "cachedPrice", "writtenPrice")), ("uint16", ("nodeShare",)), ("uint96", ("maxFee",)),
        ("uint32", ("checkRate",)), ("uint64", ("deadline", "referenceBlock")),
        ("bytes32", ("drawHash", "tilesHash", "replyKey")),
    )
    for name in names
]  # fmt: skip


@given(requests)
def test_requests_round_trip(request: Request) -> None:
    assert from_canonical_bytes(canonical_bytes(request)) == request


@pytest.mark.slow
@given(requests, some.data())
def test_canonical_bytes_are_canonical(request: Request, data: some.DataObject) -> None:
    encoded = bytearray(canonical_bytes(request))
    encoded[data.draw(some.integers(0, len(encoded) - 1))] = data.draw(some.integers(0, 255))
    try:
        decoded = from_canonical_bytes(bytes(encoded))
    except InvalidRequest:
        return
    assert canonical_bytes(decoded) == encoded


@given(some.binary(max_size=200))
def test_any_bytes_as_a_request(data: bytes) -> None:
    try:
        decoded = from_canonical_bytes(b"\x01" + data)
    except InvalidRequest:
        return
    assert canonical_bytes(decoded) == b"\x01" + data


@given(orders)
@settings(max_examples=50)
def test_struct_hash_equals_eth_accounts(order: Order) -> None:
    values = (getattr(order, name) for name in Order.__dataclass_fields__)
    message = {field["name"]: value for field, value in zip(ORDER_FIELDS, values, strict=True)}
    assert struct_hash(order) == hash_struct("Order", {"Order": ORDER_FIELDS}, message)


@given(orders, some.binary(min_size=65, max_size=65))
def test_any_signature(order: Order, signature: bytes) -> None:
    domain = Domain(1, address_from_bytes(order.tab[:20]))
    try:
        signer = recover(order, domain, signature[:64] + bytes([27 + signature[64] % 2]))
    except InvalidSignature:
        return
    assert address_to_bytes(signer)


@pytest.mark.slow
@given(
    some.binary(min_size=1, max_size=120).filter(lambda data: len(data) % 4 == 0),
    some.lists(some.integers(0, 30), max_size=5),
    words,
)
def test_chain_does_not_depend_on_how_rows_are_cut(data: bytes, cuts: list[int], order: Hash32) -> None:
    bounds = sorted({0, len(data) // 4, *(cut for cut in cuts if cut < len(data) // 4)})
    chain, domain, secret = RowHashes(order, 1), Domain(1, address_from_bytes(bytes(20))), b"\x01" * 32
    for begin, end in pairwise(bounds):
        piece = data[4 * begin : 4 * end]
        row = chain.extend(piece, 4)[1]
        signature = RowSignature(row.position, row.row_hash, row.previous, sign(row, domain, secret))
        chain = verify_rows(chain, piece, 4, signature, signer=address_of(secret), domain=domain)
    assert chain == RowHashes(order, 1).extend(data, 4)[0]


@given(words, some.integers(0, 255), some.integers(0, 2**32 - 1), words, some.binary(min_size=1, max_size=1))
def test_signature_holds_for_one_row_only(
    order: Hash32, segment: int, position: int, row_hash: Hash32, secret: bytes
) -> None:
    domain, key = Domain(1, address_from_bytes(bytes(20))), b"\x01" * 31 + secret
    row = Row(order, segment, position, row_hash, order)
    signature = sign(row, domain, key)
    assert recover(row, domain, signature) == address_of(key)
    assert recover(Row(order, segment, position ^ 1, row_hash, order), domain, signature) != address_of(key)


@given(some.integers(1, 5), some.integers(1, 7), some.data())
def test_rows_round_trip_bit_for_bit(count: int, columns: int, data: some.DataObject) -> None:
    numbers = some.integers(0, (STATE_LIMIT >> 16) - 1)
    patterns = data.draw(some.lists(numbers, min_size=count * columns, max_size=count * columns))
    low = np.array(patterns, dtype=np.uint16).reshape(count, columns)
    assert np.array_equal(rows_from_bytes(rows_to_bytes(low, Dtype.BFLOAT16), count, columns, Dtype.BFLOAT16), low)
    high = (low.astype(np.uint32) << 16 | 0xFFFF).view(np.float32)
    found = rows_from_bytes(rows_to_bytes(high, Dtype.FLOAT32), count, columns, Dtype.FLOAT32)
    assert np.array_equal(found.view(np.uint32), high.view(np.uint32))


@given(some.lists(some.integers(0, 49151), max_size=50))
def test_tokens_round_trip(ids: list[int]) -> None:
    assert tokens_from_bytes(tokens_to_bytes(ids), len(ids), 49152) == tuple(ids)
