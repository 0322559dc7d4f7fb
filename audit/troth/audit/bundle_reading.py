"""A bundle into evidence. The file comes from a stranger: whatever is too big or does not fit is refused."""

from __future__ import annotations

import gzip
import zlib
from itertools import pairwise
from pathlib import Path

from troth.audit import bundle_format as form
from troth.audit.bundle_lines import (
    CONTENT_LIMIT,
    REMEDY,
    LineReader,
    bounded_lines,
    check_logs,
    natural,
    read_transaction,
    refuse,
    unhash,
    unhex,
)
from troth.audit.errors import BundleRefused
from troth.audit.evidence import Evidence, Header
from troth.protocol.contract_types import Parameters
from troth.protocol.errors import ProtocolError
from troth.protocol.logs import Log, LogMeta
from troth.protocol.types import Address, to_address


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


def _log(line: form.Entry, contract: Address, headers: dict[int, Header]) -> Log:
    header = headers.get(line.block)
    if header is None:
        refuse("A log belongs to a block whose header is missing", line.block)
    if len(line.topics) > 4:
        refuse("A log has more than four topics", len(line.topics))
    meta = LogMeta(line.block, natural(line.log_index), header.hash, unhash(line.transaction))
    return Log(contract, tuple(unhash(topic) for topic in line.topics), unhex(line.data), meta)


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
