"""Texts of one node in one answer: what is encoded decodes to the same, and nothing else decodes at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from troth.protocol.errors import WireError
from troth.protocol.logprobs import ALTERNATIVES_LIMIT, PACKED_LIMIT
from troth.protocol.tensors import COLUMNS_LIMIT
from troth.protocol.types import Hash32
from troth.protocol.wire import Failure
from troth.protocol.wire_decoding import (
    DecodedPart,
    HaltedPart,
    WantedText,
    WrittenPart,
    decode_parts,
    decode_wanted,
    encode_parts,
    encode_wanted,
)
from troth.protocol.wire_fields import DECODE_LIMIT, SEQUENCES_LIMIT, RowSignature

words = some.binary(min_size=32, max_size=32).map(Hash32)
positions = some.integers(0, 2**32 - 1)
asked = some.builds(WantedText, words, positions, some.none() | some.integers(0, ALTERNATIVES_LIMIT))
wanted_texts = some.lists(asked, min_size=1, max_size=6, unique_by=lambda one: one.order)


@some.composite
def written(draw: some.DrawFn) -> WrittenPart:
    count, row_bytes = draw(some.integers(1, DECODE_LIMIT)), draw(some.integers(1, 9))
    start = draw(some.integers(0, 2**32 - count))
    row = RowSignature(start + count - 1, draw(words), draw(words), draw(some.binary(min_size=65, max_size=65)))
    told = some.binary(max_size=min(PACKED_LIMIT, 40))
    return WrittenPart(
        draw(words),
        start,
        tuple(draw(some.lists(positions, min_size=count, max_size=count))),
        row,
        draw(some.binary(min_size=count * row_bytes, max_size=count * row_bytes)),
        row_bytes,
        draw(some.sampled_from([None, "stop", "length"])),
        draw(positions),
        tuple(draw(some.just([]) | some.lists(told, min_size=count, max_size=count))),
    )


failures = some.builds(Failure, some.from_regex(r"\A[a-z][a-z0-9_]{0,63}\Z"), some.text(max_size=50), some.text())
parts = written() | some.builds(HaltedPart, words, positions, failures)
answers = some.lists(parts, max_size=4, unique_by=lambda one: one.order)


def plain(part: DecodedPart) -> DecodedPart:
    return replace(part, rows=bytes(part.rows)) if isinstance(part, WrittenPart) else part


@given(wanted_texts)
def test_questions_round_trip(texts: list[WantedText]) -> None:
    assert decode_wanted(memoryview(encode_wanted(texts)), len(texts)) == tuple(texts)


@pytest.mark.slow
@given(answers)
def test_answers_round_trip(answer: list[DecodedPart]) -> None:
    found = decode_parts(memoryview(encode_parts(answer)), len(answer))
    assert [plain(part) for part in found] == [plain(part) for part in answer]


@given(some.binary(max_size=600), some.integers(-1, SEQUENCES_LIMIT + 1))
@example(b"", 0)
def test_whatever_decodes_encodes_to_the_same_bytes(data: bytes, count: int) -> None:
    for decode, encode in ((decode_wanted, encode_wanted), (decode_parts, encode_parts)):
        try:
            found = decode(data, count)
        except WireError:
            continue
        assert encode(found) == data


@pytest.mark.slow
@given(answers.filter(bool), some.data())
def test_a_changed_byte_decodes_to_itself_or_not_at_all(answer: list[DecodedPart], data: some.DataObject) -> None:
    changed = bytearray(encode_parts(answer))
    changed[data.draw(some.integers(0, len(changed) - 1))] = data.draw(some.integers(0, 255))
    try:
        found = decode_parts(bytes(changed), len(answer))
    except WireError:
        return
    assert encode_parts(found) == changed


@pytest.mark.slow
@given(answers.filter(bool), some.data())
def test_what_is_cut_off_or_longer_is_refused(answer: list[DecodedPart], data: some.DataObject) -> None:
    whole = encode_parts(answer)
    with pytest.raises(WireError):
        decode_parts(whole[: data.draw(some.integers(0, len(whole) - 1))], len(answer))
    with pytest.raises(WireError, match="Nothing follows"):
        decode_parts(whole + b"\0", len(answer))
    with pytest.raises(WireError):
        decode_parts(whole, len(answer) + 1)


@pytest.mark.slow
@given(written())
def test_parts_that_do_not_fit_are_never_sent(part: WrittenPart) -> None:
    wrong = [
        replace(part, tokens=()),
        replace(part, tokens=part.tokens * 65, rows=bytes(part.rows) * 65),
        replace(part, rows=bytes(part.rows) + b"\0"),
        replace(part, start=part.start + 1),
        replace(part, logprobs=(b"",) * (len(part.tokens) + 1)),
    ]
    for one in wrong:
        with pytest.raises(WireError, match="do not fit"):
            encode_parts([one])


def test_sizes_that_nobody_sends_are_refused_before_anything_is_read() -> None:
    text = WantedText(Hash32(bytes(32)), 0)
    with pytest.raises(WireError, match="wanted text has"):
        decode_wanted(encode_wanted([text]), 2)
    with pytest.raises(WireError, match="comes twice"):
        decode_wanted(encode_wanted([text, text]), 2)
    with pytest.raises(WireError, match="alternatives"):
        decode_wanted(encode_wanted([replace(text, alternatives=ALTERNATIVES_LIMIT + 1)]), 1)
    row = RowSignature(0, bytes(32), bytes(32), bytes(65))
    whole = encode_parts([WrittenPart(Hash32(bytes(32)), 0, (1,), row, bytes(8), 8)])
    size_at = 32 + 4 + 2 + 1 + 1 + 4
    for size in (0, 4 * COLUMNS_LIMIT + 1, 2**32 - 1):
        with pytest.raises(WireError, match="cannot be"):
            decode_parts(whole[:size_at] + size.to_bytes(4, "big") + whole[size_at + 4 :], 1)
    with pytest.raises(WireError, match="comes twice"):
        decode_parts(whole + whole, 2)
    with pytest.raises(WireError, match="within a part"):
        decode_parts(whole[:-1], 1)
