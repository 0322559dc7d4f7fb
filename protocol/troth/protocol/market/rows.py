"""The chain of rows of one segment of one order: one signature over the last row covers all before it.

The link of a row is the struct hash of its ``Row``; ``previous`` of position 0 is zero. Whoever signs two rows of one
position can be convicted with both (``convictions``), so a node never computes a signed row anew: a segment that broke
off ends its order, and the client orders again.

The first segment reads tokens that nobody else signed, so its row hash binds them: keccak256(token as uint32
big-endian ‖ row). The inputs of every other segment are rows that are signed themselves; its row hash is
keccak256(row).

Where one node of an exact class computes the whole model, nobody reads its rows: who checks computes the same ones. Its
row hashes travel in their place (``travel_as_hashes``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import sha3

from troth.protocol import possession, secp256k1, typed_data
from troth.protocol.errors import InvalidProof, InvalidRows
from troth.protocol.hashing import keccak256
from troth.protocol.market.signed import Row
from troth.protocol.rings import ring_in
from troth.protocol.types import ZERO_HASH, Address, Hash32
from troth.protocol.wire_fields import RowSignature, VeiledRow

POSITIONS_LIMIT = 1 << 32
"""Positions are uint32 in the signed row."""
HASH_BYTES = 32
"""Of a row that travels as its hash."""


def travel_as_hashes(*, exact: bool, segments: int) -> bool:
    """Whether row hashes travel, and are kept, in place of the rows of an order with so many segments."""
    return exact and segments == 1


@dataclass(frozen=True, slots=True)
class RowHashes:
    """End of a chain: the next row has position ``position`` and previous link ``link``."""

    order: Hash32
    segment: int
    position: int = 0
    link: Hash32 = ZERO_HASH

    def extend(
        self, data: bytes | memoryview, row_size: int, tokens: Sequence[int] | None = None
    ) -> tuple[RowHashes, Row]:
        """The chain after whole rows of ``row_size`` bytes, and the last of them as a Row.

        Arguments and errors as ``hashes``; InvalidRows also where positions run out.
        """
        return self.extend_hashed(self.hashes(data, row_size, tokens))

    def hashes(self, data: bytes | memoryview, row_size: int, tokens: Sequence[int] | None = None) -> list[bytes]:
        """The hashes of whole rows of ``row_size`` bytes.

        Args:
            tokens: what the rows were computed from, one uint32 per row, at segment 0; None elsewhere.

        Raises InvalidRows where ``data`` is empty or no whole number of rows, or tokens do not fit.
        """
        count, rest = divmod(len(data), row_size) if row_size > 0 else (0, 0)
        if not count or rest:
            raise InvalidRows(f"Rows come in whole multiples of {row_size} bytes", len(data), "Send whole rows.")
        view = memoryview(data)
        hashes = []
        for index, bound in enumerate(self._bound(tokens, count)):
            hashing = sha3.keccak_256(bound)
            # A view: a row is not copied, and hashed without holding up other threads.
            hashing.update(view[index * row_size : (index + 1) * row_size])
            hashes.append(hashing.digest())
        return hashes

    def extend_hashed(self, hashes: Sequence[bytes]) -> tuple[RowHashes, Row]:
        """The same after rows of which only the hashes are at hand, tokens bound; raises InvalidRows for none."""
        count = len(hashes)
        if not count or self.position + count > POSITIONS_LIMIT:
            raise InvalidRows("A chain grows by rows below 2**32", self.position + count, "Send its next rows.")
        # ``typed_data.struct_hash`` of each Row, with what all of them have in common encoded once.
        head = typed_data.type_hash_of(Row) + self.order + self.segment.to_bytes(32, "big")
        link: bytes = self.link
        for position, row_hash in enumerate(hashes, self.position):
            previous, link = link, keccak256(b"".join((head, position.to_bytes(32, "big"), row_hash, link)))
        last = Row(self.order, self.segment, self.position + count - 1, Hash32(hashes[-1]), Hash32(previous))
        return RowHashes(self.order, self.segment, self.position + count, Hash32(link)), last

    def signed(self, signature: RowSignature) -> Row:
        """The Row that a signature in this chain is over, e.g. as evidence of an equivocation."""
        row_hash, previous = Hash32(signature.row_hash), Hash32(signature.previous)
        return Row(self.order, self.segment, signature.position, row_hash, previous)

    def _bound(self, tokens: Sequence[int] | None, count: int) -> list[bytes]:
        """What is hashed before each row."""
        if (tokens is None) == (self.segment == 0):
            raise InvalidRows("Rows of segment 0, and no others, bind their tokens", self.segment, "Pass its tokens.")
        if tokens is None:
            return [b""] * count
        if len(tokens) != count or any(not 0 <= token < 1 << 32 for token in tokens):
            raise InvalidRows(f"{count} rows bind {count} tokens of uint32", len(tokens), "Pass one token per row.")
        return [token.to_bytes(4, "big") for token in tokens]


def verify_rows(
    hashes: RowHashes,
    data: bytes | memoryview,
    row_size: int,
    signature: RowSignature,
    *,
    signer: Address,
    domain: typed_data.Domain,
    tokens: Sequence[int] | None = None,
) -> RowHashes:
    """The chain after ``data``, once ``signature`` is ``signer``'s over its last row.

    ``tokens`` as in ``RowHashes.extend``. Raises InvalidRows naming the first thing that differs (count, bytes or
    token, history), InvalidSignature for the signer.
    """
    extended, last = hashes.extend(data, row_size, tokens)
    _require_same(hashes, last, signature)
    typed_data.require_signer(last, domain, signature.signature, signer)
    return extended


def verify_veiled(
    hashes: RowHashes,
    data: bytes | memoryview,
    row_size: int,
    veiled: VeiledRow,
    *,
    members: Collection[Address],
    domain: typed_data.Domain,
    tokens: Sequence[int] | None = None,
) -> RowHashes:
    """The same where the signature is proven and not shown: by some key of a ring, all of them of ``members``.

    Raises InvalidRows as ``verify_rows``; InvalidField for what is no ring, InvalidProof for a proof that does not hold
    or a ring with another account's key.
    """
    extended, last = hashes.extend(data, row_size, tokens)
    _require_same(hashes, last, veiled)
    ring = ring_in(veiled.ring)
    for key in ring:
        account = secp256k1.account_of(key)
        if account not in members:
            raise InvalidProof("A ring holds the key of a node that was not drawn", account, "Take those drawn alone.")
    possession.verify(veiled.proof, typed_data.digest(last, domain), ring)
    return extended


def verify_hashes(
    hashes: RowHashes, data: bytes | memoryview, signature: RowSignature, *, signer: Address, domain: typed_data.Domain
) -> RowHashes:
    """The same where only the hashes of rows travelled, ``HASH_BYTES`` each: who has no rows cannot see whether the
    hashes are theirs, only that they are what was signed."""
    extended, last = hashes.extend_hashed(hashes_in(data))
    _require_same(hashes, last, signature)
    typed_data.require_signer(last, domain, signature.signature, signer)
    return extended


def hashes_in(data: bytes | memoryview) -> list[bytes]:
    """Row hashes that stand one after the other; raises InvalidRows where there are none, or the last is cut off."""
    if not len(data) or len(data) % HASH_BYTES:
        raise InvalidRows(f"Row hashes come in whole multiples of {HASH_BYTES} bytes", len(data), "Send whole ones.")
    whole = bytes(data)
    return [whole[at : at + HASH_BYTES] for at in range(0, len(whole), HASH_BYTES)]


def _require_same(hashes: RowHashes, last: Row, signature: RowSignature | VeiledRow) -> None:
    """Raise InvalidRows unless ``last`` is the row that was signed."""
    if signature.position != last.position:
        what = f"Rows from position {hashes.position} end at {last.position}, not where the signature says"
        raise InvalidRows(what, signature.position, "Ask for the missing rows.")
    if signature.row_hash != last.row_hash:
        what = f"Bytes or token of the row at position {last.position} are not those that were signed"
        raise InvalidRows(what, signature.row_hash, "Keep bytes and signature as evidence and ask the signer again.")
    if signature.previous != last.previous:
        what = f"The rows before position {last.position} are not those that the signer has chained"
        raise InvalidRows(what, signature.previous, "Compare links with the sender to find where the histories part.")
