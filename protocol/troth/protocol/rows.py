"""The chain of rows: each boundary state is linked to the one before, so one signature covers all rows so far.

The link of a row is the EIP-712 struct hash of its ``Row``; ``previous`` of position 0 is zero. Whoever signs two rows
of one position can be slashed with both.
"""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol import typed_data
from troth.protocol.errors import InvalidRows
from troth.protocol.hashing import keccak256
from troth.protocol.types import ZERO_HASH, Address, Hash32, Row
from troth.protocol.wire import RowSignature

POSITIONS_LIMIT = 1 << 32
"""Positions are uint32 in the signed row."""


@dataclass(frozen=True, slots=True)
class RowChain:
    """End of a chain: the next row has position ``position`` and previous link ``link``."""

    task_id: Hash32
    segment: int
    attempt: int
    position: int = 0
    link: Hash32 = ZERO_HASH

    def extend(self, data: bytes | memoryview, row_size: int) -> tuple[RowChain, tuple[Row, ...]]:
        """The chain after whole rows of ``row_size`` bytes, and their Row structs.

        Raises InvalidRows where ``data`` is empty or no whole number of rows, or positions run out.
        """
        count, rest = divmod(len(data), row_size) if row_size > 0 else (0, 0)
        if not count or rest:
            raise InvalidRows(f"Rows come in whole multiples of {row_size} bytes", len(data), "Send whole rows.")
        if self.position + count > POSITIONS_LIMIT:
            raise InvalidRows("Positions are below 2**32", self.position + count, "Start another task.")
        view, link, rows = memoryview(data), self.link, []
        for index in range(count):
            row_hash = Hash32(keccak256(bytes(view[index * row_size : (index + 1) * row_size])))
            rows.append(Row(self.task_id, self.segment, self.attempt, self.position + index, row_hash, link))
            link = typed_data.struct_hash(rows[-1])
        return RowChain(self.task_id, self.segment, self.attempt, self.position + count, link), tuple(rows)


def row_signature(row: Row, domain: typed_data.Domain, secret: bytes) -> RowSignature:
    """``row`` signed; the task, segment and attempt are those of the message that carries it."""
    return RowSignature(row.position, row.row_hash, row.previous, typed_data.sign(row, domain, secret))


def signed_row(chain: RowChain, signature: RowSignature) -> Row:
    """The Row struct that ``signature`` stands for, e.g. as evidence of an equivocation."""
    return Row(
        chain.task_id,
        chain.segment,
        chain.attempt,
        signature.position,
        Hash32(signature.row_hash),
        Hash32(signature.previous),
    )


def verify_rows(
    chain: RowChain,
    data: bytes | memoryview,
    row_size: int,
    signature: RowSignature,
    *,
    signer: Address,
    domain: typed_data.Domain,
) -> tuple[RowChain, tuple[Row, ...]]:
    """The chain after ``data``, once ``signature`` is ``signer``'s over its last row.

    Raises InvalidRows naming the first thing that differs (count, bytes, history), InvalidSignature for the signer.
    """
    extended, rows = chain.extend(data, row_size)
    last = rows[-1]
    if signature.position != last.position:
        what = f"{len(rows)} rows from position {chain.position} end at {last.position}, not where the signature says"
        raise InvalidRows(what, signature.position, "Ask for the missing rows.")
    if signature.row_hash != last.row_hash:
        what = f"The bytes of the row at position {last.position} are not those that were signed"
        raise InvalidRows(what, signature.row_hash, "Keep bytes and signature as evidence and ask the signer again.")
    if signature.previous != last.previous:
        what = f"The rows before position {last.position} are not those that the signer has chained"
        raise InvalidRows(what, signature.previous, "Compare links with the sender to find where the histories part.")
    typed_data.require_signer(last, domain, signature.signature, signer)
    return extended, rows
