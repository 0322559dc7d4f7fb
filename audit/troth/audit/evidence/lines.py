"""Lines of a bundle, as they are written and read: in a stranger's file what is too big or does not fit is refused."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from itertools import pairwise
from typing import NoReturn, TypeVar

import msgspec

from troth.audit.errors import BundleRefused
from troth.audit.evidence.transactions import Transaction, read_raw
from troth.protocol.logs import EventLog
from troth.protocol.types import Hash32, to_hash32

LINE_LIMIT = 2**23
"""Bytes of one line: a transaction of the largest size in hexadecimal, with room to spare."""
CONTENT_LIMIT = 2**30
"""Bytes of a bundle once unpacked; more than a machine should be made to hold by a file from a stranger."""
NUMBER_LIMIT = 2**53
REMEDY = "Ask for the bundle again, or export your own with `troth audit market --export FILE`."
_Kind = TypeVar("_Kind", bound=msgspec.Struct)


class Input(msgspec.Struct, frozen=True, tag="transaction", tag_field="type", forbid_unknown_fields=True):
    """A signed transaction, whole: ``raw`` hashes to ``hash``."""

    hash: str
    raw: str


class Seal(msgspec.Struct, frozen=True, tag="seal", tag_field="type", forbid_unknown_fields=True):
    """The last line."""

    content: str


def bounded_lines(file: gzip.GzipFile) -> Iterator[bytes]:
    """Lines of a file, counted while it is unpacked."""
    total = 0
    while line := file.readline(LINE_LIMIT + 1):
        total += len(line)
        if len(line) > LINE_LIMIT or total > CONTENT_LIMIT:
            refuse("The bundle is larger than bundles may be", f"{total} bytes")
        if not line.endswith(b"\n"):
            refuse("The bundle ends within a line", f"byte {total}")
        yield line


def refuse(what: str, value: object) -> NoReturn:
    """Refuse the bundle."""
    raise BundleRefused(what, value, REMEDY)


class LineReader:
    """Takes lines in their order and hashes them on the way; ``content`` once they are closed."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._number = 0
        self._hash = hashlib.sha256()
        self.content = ""

    def take(self, kind: type[_Kind]) -> _Kind:
        """The next line, which must be of this kind and in canonical form."""
        line = next(self._lines, None)
        self._number += 1
        if line is None:
            refuse("The bundle ends early", f"line {self._number}")
        # Counted before parsing: a million brackets could overrun a parser's stack, and no line needs more than these.
        if line.count(b"{") > 1 or line.count(b"[") > 1:
            refuse("The bundle is malformed: a line is nested", f"line {self._number}")
        try:
            decoded = msgspec.json.decode(line, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BundleRefused(f"The bundle is malformed: {error}", f"line {self._number}", REMEDY) from error
        if msgspec.json.encode(decoded) + b"\n" != line:
            refuse("The bundle has a line that is not in canonical form", f"line {self._number}")
        if kind is not Seal:
            self._hash.update(line)
        return decoded

    def close(self) -> None:
        """Read the seal, after which there is nothing."""
        seal = self.take(Seal)
        self.content = self._hash.hexdigest()
        if seal.content != self.content:
            refuse(f"The bundle was changed: its content hashes to {self.content}", seal.content)
        if next(self._lines, None) is not None:
            refuse("The bundle goes on after its seal", f"line {self._number + 1}")


def unhash(text: str) -> Hash32:
    """32 bytes of canonical hexadecimal."""
    return to_hash32(unhex(text))


def unhex(text: str) -> bytes:
    """Bytes of canonical hexadecimal."""
    try:
        if not text.startswith("0x"):
            raise ValueError(text[:80])
        raw = bytes.fromhex(text[2:])
    except ValueError:
        refuse("A value is not 0x and hexadecimal digits", text[:80])
    if "0x" + raw.hex() != text:
        refuse("A value is not in canonical hexadecimal", text[:80])
    return raw


def natural(number: int) -> int:
    """A number that blocks and times can be."""
    if not 0 <= number < NUMBER_LIMIT:
        refuse("A number is outside the range of blocks and times", number)
    return number


def read_transaction(line: Input) -> Transaction:
    """A transaction that hashes to its name and carries a valid signature."""
    transaction = read_raw(unhex(line.raw), unhash(line.hash))
    if transaction is None:
        refuse("A transaction does not hash to its name, or carries no valid signature", line.hash[:80])
    return transaction


def check_logs(logs: tuple[EventLog, ...], transactions: list[Transaction]) -> None:
    """Refuse logs and transactions out of order, and transactions that no log names."""
    for before, after in pairwise(logs):
        if (after.meta.block, after.meta.log_index) <= (before.meta.block, before.meta.log_index):
            refuse("Logs are not in the order of the chain", (after.meta.block, after.meta.log_index))
    for earlier, later in pairwise(transactions):
        if later.hash <= earlier.hash:
            refuse("Transactions are not in the order of their hashes", "0x" + later.hash.hex())
    unnamed = {transaction.hash for transaction in transactions} - {log.meta.transaction for log in logs}
    if unnamed:
        refuse("No log belongs to a transaction of the bundle", "0x" + min(unnamed).hex())
