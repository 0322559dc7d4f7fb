"""Evidence: one frozen value of all that its holder needs to act alone, and its canonical file.

A client, verifier, scheduler or watcher writes it down and hands it on. It holds what was signed over one order, the
proofs, the secrets that were shown, and, for a case, what the reviewers must be shown: request, answer, salts. Rows
of segments are large; a file names them by size and hash and has them inside, or in files beside it.

Nothing in it is believed: whoever uses it checks signatures and hashes (``assessing``, ``materials``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

from troth.cases.errors import EvidenceRefused
from troth.chain.new_files import replace_file
from troth.protocol.errors import InvalidField
from troth.protocol.hashing import keccak256
from troth.protocol.market import canonical, messages
from troth.protocol.market.checks import Opened
from troth.protocol.market.messages import Signed, market_domain
from troth.protocol.market.receipt import Receipt
from troth.protocol.market.signed import Admission, Draw, Order, Result, Row, SignedOrder, TraceCommitment, Verdict
from troth.protocol.market.types import Tab
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32

VERSION = 1
"""Another value is another form, and an old program refuses it instead of misreading."""
SIZE_LIMIT = 1 << 24
"""Bytes of a file without the rows beside it: the longest request has one million, rows inside are doubled by hex."""
ROWS_INSIDE = 1 << 20
"""Bytes of rows that are kept inside; more lie in a file beside it."""
ROWS_LIMIT = 1 << 32
"""Bytes of the rows of one segment."""
ITEMS_LIMIT = 1 << 10
"""Items of each list: a signature is recovered for each."""
SUFFIX = ".evidence"


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """The rows that one segment gave; ``inside`` None: they are in a file that ``rows_path`` names."""

    segment: int
    size: int
    digest: Hash32
    inside: bytes | None = None

    @classmethod
    def of(cls, segment: int, data: bytes) -> SegmentRows:
        """Rows with their bytes."""
        return cls(segment, len(data), Hash32(keccak256(data)), data)


@dataclass(frozen=True, slots=True)
class OpenedTiles:
    """What a party opened in the check of a segment, as its client read it."""

    segment: int
    party: Address
    opened: Opened


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of one order; what is not known is None or empty. Answers are tokens as uint32 words.

    ``results`` are those that the first of ``draws`` names, in order of segments; ``other_results`` whatever else was
    signed for a segment. Several admissions, draws, rows or verdicts of one party are what convicts it.
    """

    version: int
    chain_id: int
    bank: Address
    tab: Tab | None = None
    order: Signed[Order] | None = None
    admissions: tuple[Signed[Admission], ...] = ()
    nodes: tuple[Address, ...] = ()
    infer_proof: bytes = b""
    results: tuple[Signed[Result], ...] = ()
    other_results: tuple[Signed[Result], ...] = ()
    draws: tuple[Signed[Draw], ...] = ()
    draw_proof: bytes = b""
    secret: Hash32 | None = None
    second_secret: Hash32 | None = None
    commitments: tuple[Signed[TraceCommitment], ...] = ()
    verdicts: tuple[Signed[Verdict], ...] = ()
    shown: tuple[OpenedTiles, ...] = ()
    signed_rows: tuple[Signed[Row], ...] = ()
    short_tabs: tuple[Tab, ...] = ()
    request: bytes | None = None
    answer: bytes | None = None
    salt: Hash32 | None = None
    head_salt: Hash32 | None = None
    rows: tuple[SegmentRows, ...] = ()

    @property
    def domain(self) -> Domain:
        """What the messages in it are signed for."""
        return market_domain(self.chain_id, self.bank)

    @property
    def order_id(self) -> Hash32:
        """Digest of the order; EvidenceRefused where it holds none."""
        return messages.order_id(self.signed_order.order, self.domain)

    @property
    def signed_order(self) -> SignedOrder:
        """The order as the contracts take it; EvidenceRefused where it is missing."""
        if self.order is None or self.tab is None:
            raise EvidenceRefused("The evidence holds no order and tab", self.version, "Ask its client for both.")
        tab = self.tab
        return SignedOrder(self.order.message, tab.payer, tab.payee, tab.key, self.order.signature)


def of_receipt(receipt: Receipt) -> Evidence:
    """What a receipt holds; its client adds request, answer and salt for a case."""
    return Evidence(
        version=VERSION,
        chain_id=receipt.chain_id,
        bank=receipt.bank,
        tab=receipt.tab,
        order=receipt.order,
        admissions=(receipt.admission,),
        nodes=receipt.nodes,
        infer_proof=receipt.infer_proof,
        results=receipt.results,
        draws=(receipt.draw,),
        draw_proof=receipt.draw_proof,
        secret=receipt.secret,
        commitments=tuple(one for check in receipt.checks for one in check.commitments),
        verdicts=tuple(one for check in receipt.checks for one in check.verdicts),
    )


# ----------------------------------------------------------------------------------------------------------- the file


def encode(evidence: Evidence) -> bytes:
    """The canonical bytes; EvidenceRefused where they are more than anybody reads."""
    data = canonical.encode(evidence)
    if len(data) > SIZE_LIMIT:
        raise EvidenceRefused(
            f"Evidence has at most {SIZE_LIMIT} bytes", len(data), "Leave rows out: they travel apart."
        )
    return data


def decode(data: bytes | memoryview) -> Evidence:
    """Inverse of ``encode``; EvidenceRefused unless ``data`` is exactly what it returns for some evidence."""
    try:
        evidence = canonical.decode(Evidence, data, SIZE_LIMIT)
    except InvalidField as error:
        raise EvidenceRefused(error.what, error.value, "Use the file as it was written.") from error
    if evidence.version != VERSION:
        raise EvidenceRefused(f"Only version {VERSION} is known", evidence.version, "Use a newer program.")
    lists = (getattr(evidence, one.name) for one in fields(evidence))
    if any(isinstance(one, tuple) and len(one) > ITEMS_LIMIT for one in lists):
        raise EvidenceRefused(f"A list has at most {ITEMS_LIMIT} items", len(data), "Hand on what one case needs.")
    for rows in evidence.rows:
        if rows.size > ROWS_LIMIT or (rows.inside is not None and SegmentRows.of(rows.segment, rows.inside) != rows):
            raise EvidenceRefused("Rows are not of the size and hash that the file names", rows.segment, "Ask again.")
    return evidence


def write(path: Path, evidence: Evidence) -> None:
    """Write the file, with large rows beside it, so that no half of it is ever seen."""
    kept = []
    for rows in evidence.rows:
        beside = rows.inside is not None and rows.size > ROWS_INSIDE
        if beside and rows.inside is not None:
            replace_file(rows_path(path.parent, rows), rows.inside)
        kept.append(replace(rows, inside=None) if beside else rows)
    replace_file(path, encode(replace(evidence, rows=tuple(kept))))


def read(path: Path) -> Evidence:
    """The evidence in a file; EvidenceRefused if it is none."""
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise EvidenceRefused(f"Evidence has at most {SIZE_LIMIT} bytes", path, "Use another file.")
        return decode(path.read_bytes())
    except OSError as error:
        raise EvidenceRefused(f"The file cannot be read: {error}", path, "Check the path.") from error


def rows_of(evidence: Evidence, segment: int, folder: Path | None = None) -> bytes | None:
    """The rows that a segment gave, from inside or from beside the file; None if they are not there."""
    found = next((rows for rows in evidence.rows if rows.segment == segment), None)
    if found is None or found.inside is not None or folder is None:
        return None if found is None else found.inside
    path = rows_path(folder, found)
    if not path.is_file() or path.stat().st_size != found.size:
        return None
    data = path.read_bytes()
    return data if keccak256(data) == found.digest else None


def rows_path(folder: Path, rows: SegmentRows) -> Path:
    """Where rows lie that are not inside: the name is their hash, so that no name of a stranger is used."""
    return folder / f"{rows.digest.hex()}.rows"
