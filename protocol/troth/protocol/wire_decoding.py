"""Payloads of Proceed and Decoded: what all texts that one node writes alone for one scheduler have come to.

One message asks for every text at once, one answer brings what there is of any of them, so that envelope, frame and
signature are paid for by step and not by token. Integers are big-endian, tokens as ``tensors.tokens_to_bytes``:

    Proceed   for each text    order 32 | start 4 | alternatives 1 (255: no log probabilities)
    Decoded   for each text    order 32 | start 4 | count 2 | ending 1 (0 goes on, 1 stop, 2 length) | told 1 |
                               microseconds 4 | bytes of one row 4 | row hash 32 | previous 32 | signature 65 |
                               told: for each token, size 2 and its log probabilities | tokens | rows
              or, refused      order 32 | start 4 | 0 2 | size 2 | a Failure as JSON

No order comes twice in a message. There is one encoding of everything: what was decoded encodes to the same bytes.
Every refusal is a WireError, and nothing is allocated for what is not there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from troth.protocol.errors import WireError
from troth.protocol.logprobs import ALTERNATIVES_LIMIT, PACKED_LIMIT
from troth.protocol.tensors import COLUMNS_LIMIT, TOKEN_BYTES, tokens_to_bytes
from troth.protocol.types import Hash32
from troth.protocol.wire import Failure
from troth.protocol.wire_fields import DECODE_LIMIT, SEQUENCES_LIMIT, RowSignature

NOT_TOLD = 255
"""In place of a number of alternatives: no log probabilities are asked for."""
FAILURE_LIMIT = 32_768
"""Bytes of a Failure: its texts are bounded by characters."""

_ASKED = struct.Struct(">32sIB")
_PLACE = struct.Struct(">32sIH")
_WRITTEN = struct.Struct(">BBII32s32s65s")
_SIZE = struct.Struct(">H")
_ENDINGS: tuple[Literal["stop", "length"] | None, ...] = (None, "stop", "length")
_ROW_LIMIT = 4 * COLUMNS_LIMIT
_FAILURES = msgspec.json.Decoder(Failure)
_REMEDY = "Encode it with troth.protocol.wire_decoding, in the same version."


@dataclass(frozen=True, slots=True)
class WantedText:
    """What a scheduler wants of one text: positions from ``start`` on; ``alternatives``: with log probabilities."""

    order: Hash32
    start: int
    alternatives: int | None = None


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """Positions ``start``, start+1, … of one text: ``tokens`` chosen there and their ``rows`` of ``row_bytes`` each.

    ``row`` signs the last one. ``finished`` says that the last token ends the text. ``logprobs`` are one packed entry a
    token, or none at all.
    """

    order: Hash32
    start: int
    tokens: tuple[int, ...]
    row: RowSignature
    rows: bytes | memoryview
    row_bytes: int
    finished: Literal["stop", "length"] | None = None
    microseconds: int = 0
    logprobs: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class HaltedPart:
    """Why nothing more comes of one text from ``start`` on; others go on."""

    order: Hash32
    start: int
    failure: Failure


DecodedPart = WrittenPart | HaltedPart


def encode_wanted(wanted: Iterable[WantedText]) -> bytes:
    """Payload of a Proceed."""
    return b"".join(
        _ASKED.pack(one.order, one.start, NOT_TOLD if one.alternatives is None else one.alternatives) for one in wanted
    )


def decode_wanted(payload: memoryview | bytes, count: int) -> tuple[WantedText, ...]:
    """The ``count`` texts that a Proceed asks for; raises WireError."""
    if not 0 < count <= SEQUENCES_LIMIT or len(payload) != count * _ASKED.size:
        raise WireError(f"Each wanted text has {_ASKED.size} bytes", (len(payload), count), _REMEDY)
    found = []
    for order, start, told in _ASKED.iter_unpack(payload):
        if told != NOT_TOLD and told > ALTERNATIVES_LIMIT:
            raise WireError(f"At most {ALTERNATIVES_LIMIT} alternatives are told", told, "Ask for fewer.")
        found.append(WantedText(Hash32(order), start, None if told == NOT_TOLD else told))
    _require_once([one.order for one in found])
    return tuple(found)


def size_of(parts: Iterable[DecodedPart]) -> int:
    """Bytes of rows in parts, which is nearly all of them."""
    return sum(len(part.rows) for part in parts if isinstance(part, WrittenPart))


def encode_parts(parts: Iterable[DecodedPart]) -> bytes:
    """Payload of a Decoded; raises WireError for a part that no reader would take."""
    return b"".join(piece for part in parts for piece in _pieces(part))


def decode_parts(payload: memoryview | bytes, count: int) -> tuple[DecodedPart, ...]:
    """The ``count`` parts of a Decoded, whose rows are views into the payload; raises WireError."""
    if not 0 <= count <= SEQUENCES_LIMIT:
        raise WireError(f"An answer has at most {SEQUENCES_LIMIT} texts", count, _REMEDY)
    reading = _PartReader(memoryview(payload))
    parts = tuple(_part(reading) for _ in range(count))
    if reading.left:
        raise WireError("Nothing follows the last part", reading.left, _REMEDY)
    _require_once([part.order for part in parts])
    return parts


def _require_once(orders: Sequence[bytes]) -> None:
    if len(set(orders)) != len(orders):
        raise WireError("No order comes twice in a message", len(orders), _REMEDY)


def _pieces(part: DecodedPart) -> Iterator[bytes | memoryview]:
    if isinstance(part, HaltedPart):
        told = msgspec.json.encode(part.failure)
        yield _PLACE.pack(part.order, part.start, 0) + _SIZE.pack(len(told)) + told
        return
    count, row = len(part.tokens), part.row
    fits = 0 < count <= DECODE_LIMIT and len(part.rows) == count * part.row_bytes
    if not fits or row.position != part.start + count - 1 or len(part.logprobs) not in (0, count):
        raise WireError("Tokens, rows and signature of a part do not fit", (part.start, count), _REMEDY)
    ending, told_each = _ENDINGS.index(part.finished), int(bool(part.logprobs))
    signed = (row.row_hash, row.previous, row.signature)
    yield _PLACE.pack(part.order, part.start, count)
    yield _WRITTEN.pack(ending, told_each, part.microseconds, part.row_bytes, *signed)
    for packed in part.logprobs:
        yield _SIZE.pack(len(packed)) + packed
    yield tokens_to_bytes(part.tokens)
    yield part.rows


def _part(reading: _PartReader) -> DecodedPart:
    order, start, count = _PLACE.unpack(reading.take(_PLACE.size))
    if not count:
        return HaltedPart(Hash32(order), start, _failure(reading))
    if count > DECODE_LIMIT or start + count > 1 << 32:
        raise WireError(f"A part has at most {DECODE_LIMIT} positions below 2**32", (start, count), _REMEDY)
    ending, told, microseconds, row_bytes, *signed = _WRITTEN.unpack(reading.take(_WRITTEN.size))
    if ending >= len(_ENDINGS) or told > 1 or not 0 < row_bytes <= _ROW_LIMIT:
        raise WireError("A part's ending, log probabilities or rows cannot be", (ending, told, row_bytes), _REMEDY)
    logprobs = tuple(_packed(reading) for _ in range(count * told))
    tokens = tuple(np.frombuffer(reading.take(count * TOKEN_BYTES), dtype="<u4").tolist())
    rows = reading.take(count * row_bytes)
    row = RowSignature(start + count - 1, *signed)
    return WrittenPart(Hash32(order), start, tokens, row, rows, row_bytes, _ENDINGS[ending], microseconds, logprobs)


def _packed(reading: _PartReader) -> bytes:
    (size,) = _SIZE.unpack(reading.take(_SIZE.size))
    if size > PACKED_LIMIT:
        raise WireError(f"Log probabilities of a token have at most {PACKED_LIMIT} bytes", size, _REMEDY)
    return bytes(reading.take(size))


def _failure(reading: _PartReader) -> Failure:
    (size,) = _SIZE.unpack(reading.take(_SIZE.size))
    if size > FAILURE_LIMIT:
        raise WireError(f"A refusal has at most {FAILURE_LIMIT} bytes", size, _REMEDY)
    data = bytes(reading.take(size))
    try:
        failure = _FAILURES.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError("A refusal is no Failure", str(error)[:300], _REMEDY) from error
    if msgspec.json.encode(failure) != data:
        raise WireError("A refusal is not in canonical form", failure.code, _REMEDY)
    return failure


class _PartReader:
    """A payload that is taken from its front."""

    def __init__(self, data: memoryview) -> None:
        self._data = data.cast("B") if len(data) else memoryview(b"")
        self._at = 0

    @property
    def left(self) -> int:
        """Bytes that were not taken."""
        return len(self._data) - self._at

    def take(self, size: int) -> memoryview:
        """The next bytes; WireError where there are fewer."""
        if size > self.left:
            raise WireError("The payload ends within a part", self.left, _REMEDY)
        self._at += size
        return self._data[self._at - size : self._at]
