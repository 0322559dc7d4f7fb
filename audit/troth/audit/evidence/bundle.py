"""Bundles of a deployment: gzip over JSON lines, each in canonical form, sealed by the SHA-256 of all lines.

1. ``market``: version, chain id, factory, the contracts in the order of ``Contracts``, blocks, counts of lines;
2. ``header`` lines by number: the header's own bytes, from which hash, time and RANDAO are read;
3. ``transaction`` lines by hash: the signed bytes of every transaction that emitted a log;
4. ``log`` lines in the order of the chain;
5. ``entry`` lines by scheduler and number: what was served behind a log entry, as it was served;
6. ``seal``.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path

import msgspec

from troth.audit.errors import BundleRefused
from troth.audit.evidence.history import read_history
from troth.audit.evidence.lines import (
    CONTENT_LIMIT,
    REMEDY,
    Input,
    LineReader,
    Seal,
    bounded_lines,
    check_logs,
    natural,
    read_transaction,
    refuse,
    unhash,
    unhex,
)
from troth.audit.evidence.source import parameters_of
from troth.audit.evidence.types import AuditEvidence
from troth.chain.headers import RawHeader, read_header
from troth.chain.market import DeploymentPlace
from troth.chain.new_files import replacing
from troth.protocol.errors import ProtocolError
from troth.protocol.logs import EventLog, LogMeta
from troth.protocol.market.types import Contracts
from troth.protocol.types import Address, Hash32, to_address

VERSION = 1

Served = Mapping[tuple[Address, int], bytes]
"""Data of log entries, by scheduler and number."""


class BundleStart(msgspec.Struct, frozen=True, tag="market", tag_field="type", forbid_unknown_fields=True):
    """What the bundle is of."""

    version: int
    chain_id: int
    factory: str
    contracts: tuple[str, ...]
    made_in: int
    first_block: int
    last_block: int
    headers: int
    transactions: int
    logs: int
    entries: int


class Header(msgspec.Struct, frozen=True, tag="header", tag_field="type", forbid_unknown_fields=True):
    """A block header, whole."""

    raw: str


class Event(msgspec.Struct, frozen=True, tag="log", tag_field="type", forbid_unknown_fields=True):
    """One log of one of the contracts."""

    address: str
    block: int
    log_index: int
    transaction: str
    topics: tuple[str, ...]
    data: str


class BundleEntry(msgspec.Struct, frozen=True, tag="entry", tag_field="type", forbid_unknown_fields=True):
    """What a scheduler served behind one log entry."""

    scheduler: str
    number: int
    data: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a bundle holds; ``content`` is the hash that its seal carries."""

    evidence: AuditEvidence
    served: Served = field(default_factory=dict)
    content: str = ""


def write_bundle(path: Path, evidence: AuditEvidence, served: Served) -> str:
    """Write the bundle, for anybody to read; returns the content hash that its seal carries."""
    content = hashlib.sha256()
    with replacing(path, mode=0o666) as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        for line in _lines(evidence, served):
            encoded = msgspec.json.encode(line) + b"\n"
            content.update(encoded)
            packed.write(encoded)
        packed.write(msgspec.json.encode(Seal(content.hexdigest())) + b"\n")
    return content.hexdigest()


def _lines(evidence: AuditEvidence, served: Served) -> Iterator[msgspec.Struct]:
    place = evidence.place
    yield BundleStart(
        version=VERSION,
        chain_id=evidence.chain_id,
        factory=place.factory,
        contracts=tuple(getattr(place.contracts, one.name) for one in fields(place.contracts)),
        made_in=place.block,
        first_block=evidence.first,
        last_block=evidence.last.number,
        headers=len(evidence.headers),
        transactions=len(evidence.transactions),
        logs=len(evidence.logs),
        entries=len(served),
    )
    for number in sorted(evidence.headers):
        yield Header(_hex(evidence.headers[number].raw))
    for transaction in sorted(evidence.transactions.values(), key=lambda found: found.hash):
        yield Input(_hex(transaction.hash), _hex(transaction.raw))
    for log in evidence.logs:
        topics = tuple(_hex(topic) for topic in log.topics)
        yield Event(log.address, log.meta.block, log.meta.log_index, _hex(log.meta.transaction), topics, _hex(log.data))
    for scheduler, number in sorted(served):
        yield BundleEntry(scheduler, number, _hex(served[scheduler, number]))


def read_bundle(path: Path) -> Bundle:
    """A bundle's content; raises BundleRefused for anything that is not exactly one."""
    try:
        with gzip.open(path, "rb") as file:
            return _read(LineReader(bounded_lines(file)))
    except (OSError, EOFError, zlib.error) as error:
        raise BundleRefused(f"The bundle cannot be read: {error}", path, REMEDY) from error
    except (ProtocolError, TypeError) as error:
        raise BundleRefused(f"The bundle holds a value of the wrong form: {error}", path, REMEDY) from error


def _read(lines: LineReader) -> Bundle:
    opening = lines.take(BundleStart)
    if opening.version != VERSION:
        refuse(f"The bundle is of version {opening.version}, this auditor reads {VERSION}", "version")
    counts = (opening.headers, opening.transactions, opening.logs, opening.entries)
    if not 0 <= min(counts) <= max(counts) <= CONTENT_LIMIT // 64:
        refuse("The bundle announces more lines than it may have", counts)
    contracts = Contracts(*(to_address(one) for one in opening.contracts))
    place = DeploymentPlace(to_address(opening.factory), contracts, natural(opening.made_in))
    headers = [_header(lines.take(Header)) for _ in range(opening.headers)]
    _check_headers(headers, opening.last_block)
    by_number = {header.number: header for header in headers}
    transactions = [read_transaction(lines.take(Input)) for _ in range(opening.transactions)]
    logs = tuple(_log(lines.take(Event), place, by_number) for _ in range(opening.logs))
    check_logs(logs, transactions)
    served = dict(_entry(lines.take(BundleEntry)) for _ in range(opening.entries))
    if list(served) != sorted(served) or len(served) != opening.entries:
        refuse("Log entries are not in the order of scheduler and number", len(served))
    lines.close()
    evidence = AuditEvidence(
        chain_id=opening.chain_id,
        place=place,
        parameters=parameters_of(read_history(logs, place)),
        first=natural(opening.first_block),
        last=headers[-1],
        logs=logs,
        headers=by_number,
        transactions={transaction.hash: transaction for transaction in transactions},
    )
    return Bundle(evidence, served, lines.content)


def _header(line: Header) -> RawHeader:
    try:
        return read_header(unhex(line.raw))
    except ValueError as error:
        raise BundleRefused(f"A header cannot be read: {error}", line.raw[:80], REMEDY) from error


def _check_headers(headers: list[RawHeader], last: int) -> None:
    if not headers or headers[-1].number != last:
        refuse("The header of the last block is missing", last)
    for before, after in pairwise(headers):
        if after.number <= before.number or after.timestamp < before.timestamp:
            refuse("Headers are not in the order of the chain", after.number)
        if after.number == before.number + 1 and after.parent_hash != before.hash:
            refuse("Two consecutive blocks do not link", after.number)


def _log(line: Event, place: DeploymentPlace, headers: Mapping[int, RawHeader]) -> EventLog:
    header = headers.get(line.block)
    if header is None:
        refuse("A log belongs to a block whose header is missing", line.block)
    if len(line.topics) > 4:
        refuse("A log has more than four topics", len(line.topics))
    meta = LogMeta(line.block, natural(line.log_index), header.hash, unhash(line.transaction))
    topics: tuple[Hash32, ...] = tuple(unhash(topic) for topic in line.topics)
    return EventLog(to_address(line.address), topics, unhex(line.data), meta)


def _entry(line: BundleEntry) -> tuple[tuple[Address, int], bytes]:
    return (to_address(line.scheduler), natural(line.number)), unhex(line.data)


def _hex(raw: bytes) -> str:
    return "0x" + raw.hex()
