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
from troth.protocol.events import Log, LogMeta
from troth.protocol.types import Address, Hash32, to_address, to_hash32

LINE_LIMIT = 2**23
"""Bytes of one line: a transaction of the largest size in hexadecimal, with room to spare."""

CONTENT_LIMIT = 2**30
"""Bytes of a bundle once unpacked; more than a machine should be made to hold by a file from a stranger."""

NUMBER_LIMIT = 2**53

_REMEDY = "Ask for the bundle again, or export your own with `troth audit export`."
_Kind = TypeVar("_Kind", bound=form.Line)


def read_bundle(path: Path) -> tuple[Evidence, str]:
    """Evidence and content hash; raises BundleRefused for anything that is not exactly a bundle."""
    try:
        with gzip.open(path, "rb") as file:
            reader = _Reader(_bounded_lines(file))
            return reader.evidence(), reader.content
    except (OSError, EOFError, zlib.error) as error:
        raise BundleRefused(f"The bundle cannot be read: {error}", path, _REMEDY) from error
    except ProtocolError as error:
        raise BundleRefused(f"The bundle holds a value of the wrong form: {error}", path, _REMEDY) from error


def _bounded_lines(file: gzip.GzipFile) -> Iterator[bytes]:
    total = 0
    while line := file.readline(LINE_LIMIT + 1):
        total += len(line)
        if len(line) > LINE_LIMIT or total > CONTENT_LIMIT:
            _refuse("The bundle is larger than bundles may be", f"{total} bytes")
        if not line.endswith(b"\n"):
            _refuse("The bundle ends within a line", f"byte {total}")
        yield line


def _refuse(what: str, value: object) -> NoReturn:
    raise BundleRefused(what, value, _REMEDY)


class _Reader:
    """Takes lines in their order and hashes them on the way."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._number = 0
        self._hash = hashlib.sha256()
        self.content = ""

    def evidence(self) -> Evidence:
        opening = self._take(form.Opening)
        if opening.version != form.VERSION:
            _refuse(f"The bundle is of version {opening.version}, this auditor reads {form.VERSION}", "version")
        if not max(opening.headers, opening.transactions, opening.logs) <= CONTENT_LIMIT // 64:
            _refuse("The bundle announces more lines than it may have", opening)
        contract = to_address(opening.contract)
        headers = [_header(self._take(form.Header)) for _ in range(opening.headers)]
        _check_headers(headers, opening.last_block)
        by_number = {header.number: header for header in headers}
        transactions = [_transaction(self._take(form.Input)) for _ in range(opening.transactions)]
        logs = tuple(_log(self._take(form.Entry), contract, by_number) for _ in range(opening.logs))
        _check_logs(logs, transactions)
        self._close()
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

    def _take(self, kind: type[_Kind]) -> _Kind:
        line = next(self._lines, None)
        self._number += 1
        if line is None:
            _refuse("The bundle ends early", f"line {self._number}")
        # Counted before parsing: a million brackets could overrun a parser's stack, and no line needs more than these.
        if line.count(b"{") > 1 or line.count(b"[") > 1:
            _refuse("The bundle is malformed: a line is nested", f"line {self._number}")
        try:
            decoded = msgspec.json.decode(line, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BundleRefused(f"The bundle is malformed: {error}", f"line {self._number}", _REMEDY) from error
        if msgspec.json.encode(decoded) + b"\n" != line:
            _refuse("The bundle has a line that is not in canonical form", f"line {self._number}")
        if kind is not form.Seal:
            self._hash.update(line)
        return decoded

    def _close(self) -> None:
        seal = self._take(form.Seal)
        self.content = self._hash.hexdigest()
        if seal.content != self.content:
            _refuse(f"The bundle was changed: its content hashes to {self.content}", seal.content)
        if next(self._lines, None) is not None:
            _refuse("The bundle goes on after its seal", f"line {self._number + 1}")


def _hash(text: str) -> Hash32:
    return to_hash32(_bytes(text))


def _bytes(text: str) -> bytes:
    try:
        if not text.startswith("0x"):
            raise ValueError(text[:80])
        raw = bytes.fromhex(text[2:])
    except ValueError:
        _refuse("A value is not 0x and hexadecimal digits", text[:80])
    if "0x" + raw.hex() != text:
        _refuse("A value is not in canonical hexadecimal", text[:80])
    return raw


def _natural(number: int) -> int:
    if not 0 <= number < NUMBER_LIMIT:
        _refuse("A number is outside the range of blocks and times", number)
    return number


def _header(line: form.Header) -> Header:
    return Header(_natural(line.number), _hash(line.hash), _hash(line.parent_hash), _natural(line.timestamp))


def _check_headers(headers: list[Header], last: int) -> None:
    if not headers or headers[-1].number != last:
        _refuse("The header of the last block is missing", last)
    for before, after in pairwise(headers):
        if after.number <= before.number or after.timestamp < before.timestamp:
            _refuse("Headers are not in the order of the chain", after.number)
        if after.number == before.number + 1 and after.parent_hash != before.hash:
            _refuse("Two consecutive blocks do not link", after.number)


def _transaction(line: form.Input) -> Transaction:
    transaction = read_raw(_bytes(line.raw), _hash(line.hash))
    if transaction is None:
        _refuse("A transaction does not hash to its name, or carries no valid signature", line.hash[:80])
    return transaction


def _log(line: form.Entry, contract: Address, headers: dict[int, Header]) -> Log:
    header = headers.get(line.block)
    if header is None:
        _refuse("A log belongs to a block whose header is missing", line.block)
    if len(line.topics) > 4:
        _refuse("A log has more than four topics", len(line.topics))
    meta = LogMeta(line.block, _natural(line.log_index), header.hash, _hash(line.transaction))
    return Log(contract, tuple(_hash(topic) for topic in line.topics), _bytes(line.data), meta)


def _check_logs(logs: tuple[Log, ...], transactions: list[Transaction]) -> None:
    for before, after in pairwise(logs):
        if (after.meta.block, after.meta.log_index) <= (before.meta.block, before.meta.log_index):
            _refuse("Logs are not in the order of the chain", (after.meta.block, after.meta.log_index))
    for earlier, later in pairwise(transactions):
        if later.hash <= earlier.hash:
            _refuse("Transactions are not in the order of their hashes", "0x" + later.hash.hex())
    unnamed = {transaction.hash for transaction in transactions} - {log.meta.transaction for log in logs}
    if unnamed:
        _refuse("No log belongs to a transaction of the bundle", "0x" + min(unnamed).hex())


def _parameters(opening: form.Opening) -> Parameters:
    if not opening.minimum_scheduler_stake.isdecimal() or len(opening.minimum_scheduler_stake) > 29:
        _refuse("The minimum stake is no number of wei", opening.minimum_scheduler_stake[:80])
    return Parameters(
        _natural(opening.commit_window),
        _natural(opening.sample_window),
        _natural(opening.reveal_window),
        _natural(opening.dispute_window),
        _natural(opening.unbonding_period),
        int(opening.minimum_scheduler_stake),
        to_address(opening.reserve),
    )
