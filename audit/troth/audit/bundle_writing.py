"""Evidence into a bundle: the same evidence gives the same lines, byte for byte."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from troth.audit.bundle_format import VERSION, Entry, Header, Input, Line, Opening, Seal
from troth.audit.evidence import Evidence


def write_bundle(path: Path, evidence: Evidence) -> str:
    """Write the bundle beside ``path`` and move it there; returns the content hash that its seal carries."""
    content = hashlib.sha256()
    unfinished = path.with_name(path.name + ".unfinished")
    with unfinished.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        for line in _lines(evidence):
            encoded = msgspec.json.encode(line) + b"\n"
            content.update(encoded)
            packed.write(encoded)
        packed.write(msgspec.json.encode(Seal(content.hexdigest())) + b"\n")
    os.replace(unfinished, path)  # noqa: PTH105 - atomic, and the same on every system
    return content.hexdigest()


def _lines(evidence: Evidence) -> Iterator[Line]:
    yield _opening(evidence)
    for number in sorted(evidence.headers):
        header = evidence.headers[number]
        yield Header(header.number, _hex(header.hash), _hex(header.parent_hash), header.timestamp)
    for transaction in sorted(evidence.transactions.values(), key=lambda found: found.hash):
        yield Input(_hex(transaction.hash), _hex(transaction.raw))
    for log in evidence.logs:
        topics = tuple(_hex(topic) for topic in log.topics)
        yield Entry(log.meta.block, log.meta.log_index, _hex(log.meta.transaction), topics, _hex(log.data))


def _opening(evidence: Evidence) -> Opening:
    parameters = evidence.parameters
    return Opening(
        version=VERSION,
        chain_id=evidence.chain_id,
        contract=evidence.contract,
        first_block=evidence.first,
        last_block=evidence.last.number,
        commit_window=parameters.commit_window,
        sample_window=parameters.sample_window,
        reveal_window=parameters.reveal_window,
        dispute_window=parameters.dispute_window,
        unbonding_period=parameters.unbonding_period,
        minimum_scheduler_stake=str(parameters.minimum_scheduler_stake),
        reserve=parameters.reserve,
        headers=len(evidence.headers),
        transactions=len(evidence.transactions),
        logs=len(evidence.logs),
    )


def _hex(raw: bytes) -> str:
    return "0x" + raw.hex()
