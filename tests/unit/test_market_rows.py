"""The chain of rows, and what a receiver can tell from one signature."""

from __future__ import annotations

import itertools
from dataclasses import replace

import msgspec
import pytest

from troth.protocol.errors import InvalidRows, InvalidSignature
from troth.protocol.hashing import keccak256
from troth.protocol.market.rows import POSITIONS_LIMIT, RowHashes, verify_rows
from troth.protocol.market.signed import Row
from troth.protocol.typed_data import Domain, address_of, recover, sign, struct_hash
from troth.protocol.types import ZERO_HASH, Hash32, address_from_bytes
from troth.protocol.wire_fields import RowSignature

ORDER = Hash32(b"\x01" * 32)
DOMAIN = Domain(1, address_from_bytes(b"\xcc" * 20))
SECRET, OTHER = b"\x05" * 32, b"\x06" * 32
SIGNER = address_of(SECRET)
SIZE = 24
DATA = bytes(range(5 * SIZE))
START, FIRST = RowHashes(ORDER, 2), RowHashes(ORDER, 0)
TOKENS = (3, 1, 4, 2**32 - 1, 5)


def row_signature(row: Row, secret: bytes = SECRET) -> RowSignature:
    return RowSignature(row.position, row.row_hash, row.previous, sign(row, DOMAIN, secret))


def one_by_one(chain: RowHashes, tokens: tuple[int, ...] | None = None) -> list[Row]:
    """The rows of DATA, each as the last of a message of its own."""
    rows = []
    for index in range(5):
        bound = None if tokens is None else tokens[index : index + 1]
        chain, row = chain.extend(DATA[index * SIZE : (index + 1) * SIZE], SIZE, bound)
        rows.append(row)
    return rows


def test_rows_are_linked_by_their_struct_hashes() -> None:
    rows = one_by_one(START)
    assert [row.position for row in rows] == [0, 1, 2, 3, 4]
    assert rows[0] == Row(ORDER, 2, 0, Hash32(keccak256(DATA[:SIZE])), ZERO_HASH)
    assert all(after.previous == struct_hash(before) for before, after in itertools.pairwise(rows))
    assert START.extend(DATA, SIZE) == (RowHashes(ORDER, 2, 5, struct_hash(rows[-1])), rows[-1])


def test_pieces_make_the_same_chain_as_one_message() -> None:
    chain, _ = START.extend(DATA[: 2 * SIZE], SIZE)
    assert chain.extend(memoryview(DATA)[2 * SIZE :], SIZE) == START.extend(DATA, SIZE)


def test_verified_rows_continue_the_chain() -> None:
    chain, last = START.extend(DATA, SIZE)
    signature = row_signature(last)
    assert verify_rows(START, DATA, SIZE, signature, signer=SIGNER, domain=DOMAIN) == chain
    assert recover(START.signed(signature), DOMAIN, signature.signature) == SIGNER


def test_rows_of_the_first_segment_bind_their_tokens() -> None:
    rows = one_by_one(FIRST, TOKENS)
    assert rows[2].row_hash == keccak256(b"\x00\x00\x00\x04" + DATA[2 * SIZE : 3 * SIZE])
    assert rows[3].row_hash == keccak256(b"\xff\xff\xff\xff" + DATA[3 * SIZE : 4 * SIZE])
    signature = row_signature(rows[-1])

    def verify(tokens: tuple[int, ...]) -> RowHashes:
        return verify_rows(FIRST, DATA, SIZE, signature, signer=SIGNER, domain=DOMAIN, tokens=tokens)

    assert verify(TOKENS) == FIRST.extend(DATA, SIZE, TOKENS)[0]
    with pytest.raises(InvalidRows, match="not those that were signed"):
        verify((*TOKENS[:-1], 6))
    with pytest.raises(InvalidRows, match="before position 4"):
        verify((3, 1, 5, *TOKENS[3:]))


def test_pieces_of_the_first_segment_make_the_same_chain() -> None:
    chain, _ = FIRST.extend(DATA[: 2 * SIZE], SIZE, TOKENS[:2])
    assert chain.extend(DATA[2 * SIZE :], SIZE, TOKENS[2:]) == FIRST.extend(DATA, SIZE, TOKENS)


@pytest.mark.parametrize("tokens", [None, (), TOKENS[:-1], (*TOKENS, 1), (*TOKENS[:-1], 2**32), (*TOKENS[:-1], -1)])
def test_the_first_segment_binds_one_token_per_row(tokens: tuple[int, ...] | None) -> None:
    with pytest.raises(InvalidRows, match="bind"):
        FIRST.extend(DATA, SIZE, tokens)


def test_no_other_segment_binds_tokens() -> None:
    with pytest.raises(InvalidRows, match="bind"):
        START.extend(DATA, SIZE, TOKENS)


def refuse(chain: RowHashes, data: bytes, match: str, **changes: object) -> None:
    signature = msgspec.structs.replace(row_signature(START.extend(DATA, SIZE)[1]), **changes)
    with pytest.raises(InvalidRows, match=match):
        verify_rows(chain, data, SIZE, signature, signer=SIGNER, domain=DOMAIN)


def test_receiver_says_what_differs() -> None:
    refuse(START, DATA[:-SIZE], "not where the signature says")
    refuse(START, DATA, "not where the signature says", position=5)
    refuse(START, DATA[:-1] + b"x", "not those that were signed")
    refuse(START, b"x" + DATA[1:], "before position 4")
    refuse(START, DATA, "not those that were signed", row_hash=b"\x09" * 32)
    refuse(START, DATA, "before position 4", previous=b"\x09" * 32)
    refuse(replace(START, link=Hash32(b"\x09" * 32)), DATA, "before position 4")


@pytest.mark.parametrize("index", range(5))
def test_a_bit_of_any_row_two_rows_exchanged_and_rows_of_another_answer_are_refused(index: int) -> None:
    changed = bytearray(DATA)
    changed[index * SIZE] ^= 1
    refuse(START, bytes(changed), "position 4")
    rows = [DATA[at : at + SIZE] for at in range(0, len(DATA), SIZE)]
    other = (index + 1) % 5
    rows[index], rows[other] = rows[other], rows[index]
    refuse(START, b"".join(rows), "position 4")
    rows[other] = rows[index]
    refuse(START, b"".join(rows), "position 4")


@pytest.mark.parametrize(
    "chain", [replace(START, order=Hash32(b"\x02" * 32)), replace(START, segment=3)], ids=["order", "segment"]
)
def test_rows_of_another_message_are_refused(chain: RowHashes) -> None:
    signature = row_signature(START.extend(DATA, SIZE)[1])
    with pytest.raises(InvalidRows):
        verify_rows(chain, DATA, SIZE, signature, signer=SIGNER, domain=DOMAIN)
    one = row_signature(START.extend(DATA[:SIZE], SIZE)[1])
    with pytest.raises(InvalidSignature):
        verify_rows(chain, DATA[:SIZE], SIZE, one, signer=SIGNER, domain=DOMAIN)


def test_rows_of_another_signer_are_refused() -> None:
    signature = row_signature(START.extend(DATA, SIZE)[1], OTHER)
    with pytest.raises(InvalidSignature, match=SIGNER):
        verify_rows(START, DATA, SIZE, signature, signer=SIGNER, domain=DOMAIN)


@pytest.mark.parametrize("data", [b"", DATA[:-1], DATA + b"x"])
def test_only_whole_rows(data: bytes) -> None:
    with pytest.raises(InvalidRows):
        START.extend(data, SIZE)


@pytest.mark.parametrize("size", [0, -1])
def test_row_size_is_positive(size: int) -> None:
    with pytest.raises(InvalidRows):
        START.extend(DATA, size)


def test_positions_end_with_uint32() -> None:
    chain, last = replace(START, position=POSITIONS_LIMIT - 5).extend(DATA, SIZE)
    assert last.position == POSITIONS_LIMIT - 1
    with pytest.raises(InvalidRows):
        chain.extend(DATA[:SIZE], SIZE)
