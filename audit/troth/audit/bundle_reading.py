"""A bundle into evidence. The file comes from a stranger: whatever is too big or does not fit is refused."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NoReturn, TypeVar

import msgspec

from troth.audit import bundle_format as form
from troth.audit.errors import BundleRefused
from troth.audit.evidence import Evidence, Header, Transaction
from troth.audit.transactions import read_raw
from troth.protocol.contract_types import Parameters
from troth.protocol.errors import ProtocolError
from troth.protocol.logs import Log, LogMeta
from troth.protocol.types import Address, Hash32, to_address, to_hash32

LINE_LIMIT = 2**23
"""Bytes of one line: a transaction of the largest size in hexadecimal, with room to spare."""

CONTENT_LIMIT = 2**30
"""Bytes of a bundle once unpacked; more than a machine should be made to hold by a file from a stranger."""

NUMBER_LIMIT = 2**53

REMEDY = "Ask for the bundle again, or export your own with `troth audit export`."
_Kind = TypeVar("_Kind", bound=msgspec.Struct)


def read_bundle(path: Path) -> tuple[Evidence, str]:
    """Evidence and content hash; raises BundleRefused for anything that is not exactly a bundle."""
    try:
        with gzip.open(path, "rb") as file:
            lines = LineReader(bounded_lines(file))
            return _evidence(lines), lines.content
    except (OSError, EOFError, zlib.error) as error:
        raise BundleRefused(f"The bundle cannot be read: {error}", path, REMEDY) from error
    except ProtocolError as error:
        raise BundleRefused(f"The bundle holds a value of the wrong form: {error}", path, REMEDY) from error


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
        if kind is not form.Seal:
            self._hash.update(line)
        return decoded

    def close(self) -> None:
        """Read the seal, after which there is nothing."""
        seal = self.take(form.Seal)
        self.content = self._hash.hexdigest()
        if seal.content != self.content:
            refuse(f"The bundle was changed: its content hashes to {self.content}", seal.content)
        if next(self._lines, None) is not None:
            refuse("The bundle goes on after its seal", f"line {self._number + 1}")


def _evidence(lines: LineReader) -> Evidence:
    opening = lines.take(form.Opening)
    if opening.version != form.VERSION:
        refuse(f"The bundle is of version {opening.version}, this auditor reads {form.VERSION}", "version")
    if not max(opening.headers, opening.transactions, opening.logs) <= CONTENT_LIMIT // 64:
        refuse("The bundle announces more lines than it may have", opening)
    contract = to_address(opening.contract)
    headers = [_header(lines.take(form.Header)) for _ in range(opening.headers)]
    _check_headers(headers, opening.last_block)
    by_number = {header.number: header for header in headers}
    transactions = [read_transaction(lines.take(form.Input)) for _ in range(opening.transactions)]
    logs = tuple(_log(lines.take(form.Entry), contract, by_number) for _ in range(opening.logs))
    check_logs(logs, transactions)
    lines.close()
    return Evidence(
        chain_id=opening.chain_id,
        contract=contract,
        parameters=_parameters(opening),
        first=opening.first_block,
        last=headers[-1],
        logs=logs,
        headers=by_number,
        transactions={transaction.hash: transaction for transaction in transactions},
    )


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


def _header(line: form.Header) -> Header:
    return Header(natural(line.number), unhash(line.hash), unhash(line.parent_hash), natural(line.timestamp))


def _check_headers(headers: list[Header], last: int) -> None:
    if not headers or headers[-1].number != last:
        refuse("The header of the last block is missing", last)
    for before, after in pairwise(headers):
        if after.number <= before.number or after.timestamp < before.timestamp:
            refuse("Headers are not in the order of the chain", after.number)
        if after.number == before.number + 1 and after.parent_hash != before.hash:
            refuse("Two consecutive blocks do not link", after.number)


def read_transaction(line: form.Input) -> Transaction:
    """A transaction that hashes to its name and carries a valid signature."""
    transaction = read_raw(unhex(line.raw), unhash(line.hash))
    if transaction is None:
        refuse("A transaction does not hash to its name, or carries no valid signature", line.hash[:80])
    return transaction


def _log(line: form.Entry, contract: Address, headers: dict[int, Header]) -> Log:
    header = headers.get(line.block)
    if header is None:
        refuse("A log belongs to a block whose header is missing", line.block)
    if len(line.topics) > 4:
        refuse("A log has more than four topics", len(line.topics))
    meta = LogMeta(line.block, natural(line.log_index), header.hash, unhash(line.transaction))
    return Log(contract, tuple(unhash(topic) for topic in line.topics), unhex(line.data), meta)


def check_logs(logs: tuple[Log, ...], transactions: list[Transaction]) -> None:
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


def _parameters(opening: form.Opening) -> Parameters:
    if not opening.minimum_scheduler_stake.isdecimal() or len(opening.minimum_scheduler_stake) > 29:
        refuse("The minimum stake is no number of wei", opening.minimum_scheduler_stake[:80])
    return Parameters(
        natural(opening.commit_window),
        natural(opening.sample_window),
        natural(opening.reveal_window),
        natural(opening.dispute_window),
        natural(opening.unbonding_period),
        int(opening.minimum_scheduler_stake),
        to_address(opening.reserve),
    )
