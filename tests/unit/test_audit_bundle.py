"""Bundles: the same evidence comes back, and nothing that is not exactly a bundle is accepted."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.audit_tampering import BUNDLE, audited, recorded

from troth.audit import bundle_lines
from troth.audit.bundle_reading import read_bundle
from troth.audit.bundle_writing import write_bundle
from troth.audit.errors import AuditError, BundleRefused

Lines = list[dict[str, Any]]


def lines() -> Lines:
    return [json.loads(line) for line in gzip.decompress(BUNDLE.read_bytes()).splitlines()]


def packed(content: list[bytes]) -> bytes:
    return gzip.compress(b"".join(line + b"\n" for line in content), mtime=0)


def sealed(changed: Lines) -> bytes:
    """A bundle of these lines with the seal that fits them: what a careful forger makes."""
    body = [json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() for line in changed[:-1]]
    digest = hashlib.sha256(b"".join(line + b"\n" for line in body)).hexdigest()
    return packed([*body, json.dumps({"type": "seal", "content": digest}, separators=(",", ":")).encode()])


def first(changed: Lines, kind: str) -> int:
    return next(index for index, line in enumerate(changed) if line["type"] == kind)


def refused(path: Path, data: bytes) -> BundleRefused:
    path.write_bytes(data)
    with pytest.raises(BundleRefused) as caught:
        read_bundle(path)
    assert caught.value.exit_code == 3
    return caught.value


def test_round_trip_is_the_same_evidence_and_the_same_bytes(tmp_path: Path) -> None:
    evidence, content = read_bundle(BUNDLE)
    assert write_bundle(tmp_path / "one", evidence) == content
    assert write_bundle(tmp_path / "two", evidence) == content
    again, same = read_bundle(tmp_path / "one")
    assert (again, same) == (evidence, content)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert not list(tmp_path.glob("*.unfinished"))


def test_sealing_again_what_was_not_changed_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(sealed(lines()))
    assert read_bundle(tmp_path / "file") == read_bundle(BUNDLE)


def test_a_changed_line_breaks_the_seal(tmp_path: Path) -> None:
    content = gzip.decompress(BUNDLE.read_bytes()).splitlines()
    index = first(lines(), "log")
    content[index] = content[index].replace(b'"log_index":', b'"log_index":1', 1)
    assert "changed" in refused(tmp_path / "file", packed(content)).what


def other(field: str, value: Any, kind: str) -> Callable[[Lines], None]:
    def change(changed: Lines) -> None:
        changed[first(changed, kind)][field] = value

    return change


def flip(field: str, kind: str) -> Callable[[Lines], None]:
    def change(changed: Lines) -> None:
        line = changed[first(changed, kind)]
        line[field] = line[field][:-1] + ("0" if line[field][-1] != "0" else "1")

    return change


def swap(kind: str) -> Callable[[Lines], None]:
    def change(changed: Lines) -> None:
        index = first(changed, kind)
        changed[index], changed[index + 1] = changed[index + 1], changed[index]

    return change


def drop(kind: str, counter: str) -> Callable[[Lines], None]:
    def change(changed: Lines) -> None:
        del changed[first(changed, kind)]
        changed[0][counter] -= 1

    return change


def drop_last_header(changed: Lines) -> None:
    del changed[first(changed, "transaction") - 1]
    changed[0]["headers"] -= 1


def unnamed_transaction(changed: Lines) -> None:
    wanted = changed[first(changed, "transaction")]["hash"]
    kept = [line for line in changed if line["type"] != "log" or line["transaction"] != wanted]
    changed[:] = kept
    changed[0]["logs"] = sum(line["type"] == "log" for line in kept)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (other("version", 3, "bundle"), "version"),
        (other("logs", 2**60, "bundle"), "more lines"),
        (other("logs", 2**20, "bundle"), "malformed"),
        (other("contract", "0x12", "bundle"), "wrong form"),
        (other("minimum_scheduler_stake", "1e9", "bundle"), "wei"),
        (other("commit_window", -1, "bundle"), "range"),
        (other("surplus", 1, "header"), "malformed"),
        (other("number", 2**60, "header"), "range"),
        (other("hash", "0x" + "A" * 64, "header"), "canonical"),
        (other("hash", "f" * 64, "header"), "hexadecimal"),
        (flip("hash", "header"), "link"),
        (swap("header"), "order"),
        (drop("header", "headers"), "header is missing"),
        (drop_last_header, "last block"),
        (flip("raw", "transaction"), "hash"),
        (flip("hash", "transaction"), "hash"),
        (swap("transaction"), "order"),
        (unnamed_transaction, "No log"),
        (swap("log"), "order"),
        (other("block", 2**40, "log"), "header is missing"),
        (other("topics", ["0x" + "11" * 32] * 5, "log"), "four"),
    ],
)
def test_a_forger_that_seals_again_is_refused(tmp_path: Path, change: Callable[[Lines], None], reason: str) -> None:
    changed = lines()
    change(changed)
    assert reason in str(refused(tmp_path / "file", sealed(changed)))


def test_a_forged_log_that_still_fits_its_block_fails_the_checks(tmp_path: Path) -> None:
    """What structure cannot show, recomputation does."""
    changed = lines()
    index = max(index for index, line in enumerate(changed) if line["type"] == "log")
    amount = changed[index]["data"]
    changed[index]["data"] = amount[:64] + "f" + amount[65:]
    (tmp_path / "file").write_bytes(sealed(changed))
    evidence, _ = read_bundle(tmp_path / "file")
    assert audited(evidence).exit_code == 1


def test_bytes_after_the_seal_and_missing_lines_are_refused(tmp_path: Path) -> None:
    content = gzip.decompress(BUNDLE.read_bytes()).splitlines()
    assert "after its seal" in refused(tmp_path / "file", packed([*content, content[-1]])).what
    assert "early" in refused(tmp_path / "file", packed(content[:-1])).what
    assert "within a line" in refused(tmp_path / "file", gzip.compress(b'{"type":"bundle"')).what
    assert "early" in refused(tmp_path / "file", gzip.compress(b"")).what


def test_a_line_in_another_form_is_refused(tmp_path: Path) -> None:
    content = gzip.decompress(BUNDLE.read_bytes()).splitlines()
    content[0] = content[0].replace(b":", b": ", 1)
    assert "canonical" in refused(tmp_path / "file", packed(content)).what


@pytest.mark.parametrize("opening", [b'{"type":"bundle","version":', b'{"x":', b"", b'{"type":', b'{"type":{"a":'])
@pytest.mark.parametrize("bracket", [b"[", b'{"a":'])
def test_a_deeply_nested_line_is_refused(tmp_path: Path, opening: bytes, bracket: bytes) -> None:
    assert "malformed" in refused(tmp_path / "file", packed([opening + bracket * 1_000_000])).what


@pytest.mark.parametrize("limit", ["LINE_LIMIT", "CONTENT_LIMIT"])
def test_an_oversized_bundle_is_refused_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(bundle_lines, limit, 2**16)
    bomb = gzip.compress(b"0" * 2**20) if limit == "LINE_LIMIT" else BUNDLE.read_bytes()
    assert "larger" in refused(tmp_path / "file", bomb).what


def test_truncated_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    data = BUNDLE.read_bytes()
    for wrong in (data[: len(data) // 2], b"no gzip", b"", data[:200] + b"\0" * 50 + data[250:]):
        refused(tmp_path / "file", wrong)
    with pytest.raises(AuditError):
        read_bundle(tmp_path / "missing")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(min_value=0), byte=st.integers(min_value=0, max_value=255))
def test_no_changed_byte_is_accepted_or_crashes_the_reader(tmp_path: Path, place: int, byte: int) -> None:
    content = bytearray(gzip.decompress(BUNDLE.read_bytes()))
    place %= len(content)
    if content[place] == byte:
        return
    content[place] = byte
    refused(tmp_path / "file", gzip.compress(bytes(content), compresslevel=1))


def test_evidence_without_a_transaction_is_exported_without_it(tmp_path: Path) -> None:
    evidence = replace(recorded(), transactions={})
    write_bundle(tmp_path / "file", evidence)
    assert read_bundle(tmp_path / "file")[0] == evidence
