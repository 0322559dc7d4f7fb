"""Evidence is one canonical file: what is written comes back, and nothing else is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases_scene import evidence_of, without_prompt
from support.market_case import receipt_of
from support.market_scene import Scene, hash_of

from troth.cases import evidence as files
from troth.cases.errors import EvidenceRefused
from troth.cases.evidence import Evidence, OpenedTiles, SegmentRows
from troth.protocol.market.checks import Opened
from troth.protocol.market.signed import Opinion

HELD = evidence_of(Scene(), opinion=Opinion.REJECT)


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    shown = (OpenedTiles(0, HELD.nodes[0], Opened(hash_of("root"), hash_of("salt"))),)
    held = replace(HELD, rows=(SegmentRows.of(0, b"rows"),), shown=shown)
    files.write(tmp_path / "one.evidence", held)
    assert files.read(tmp_path / "one.evidence") == held
    assert (tmp_path / "one.evidence").stat().st_mode & 0o777 == 0o600
    assert files.decode(files.encode(held)) == held


def test_large_rows_lie_beside_the_file_under_their_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROWS_INSIDE", 100)
    rows, data = SegmentRows.of(1, b"x" * 101), b"x" * 101
    files.write(tmp_path / "one.evidence", replace(HELD, rows=(rows, SegmentRows.of(0, b"short"))))
    read = files.read(tmp_path / "one.evidence")
    assert [one.inside for one in read.rows] == [None, b"short"]
    assert files.rows_of(read, 1, tmp_path) == data
    assert files.rows_of(read, 0) == b"short"
    assert files.rows_of(read, 2, tmp_path) is None
    assert files.rows_of(read, 1) is None
    files.rows_path(tmp_path, rows).write_bytes(b"y" * 101)
    assert files.rows_of(read, 1, tmp_path) is None


def test_what_is_no_evidence_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = files.encode(HELD)
    wrong = replace(SegmentRows.of(0, b"rows"), digest=hash_of("other"))
    many = replace(HELD, short_tabs=(HELD.tab,) * (files.ITEMS_LIMIT + 1))
    for bad in (
        b"{}",
        data[:-1],
        data + b" ",
        data.replace(b'"version":"1"', b'"version":"2"'),
        data.replace(b'"version":"1"', b'"version":"01"'),
        files.encode(replace(HELD, rows=(wrong,))),
        files.encode(many),
    ):
        with pytest.raises(EvidenceRefused):
            files.decode(bad)
    monkeypatch.setattr(files, "SIZE_LIMIT", len(data) - 1)
    for refused in (lambda: files.encode(HELD), lambda: files.decode(data)):
        with pytest.raises(EvidenceRefused, match="at most"):
            refused()
    (tmp_path / "large").write_bytes(data)
    with pytest.raises(EvidenceRefused, match="at most"):
        files.read(tmp_path / "large")
    with pytest.raises(EvidenceRefused):
        files.read(tmp_path / "nowhere")


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    with pytest.raises(EvidenceRefused):
        files.decode(data)


def test_a_receipt_becomes_evidence_without_the_prompt() -> None:
    held = files.of_receipt(receipt_of(Scene(), Opinion.REJECT))
    assert held.order_id == Scene().order_id
    assert len(held.verdicts) == len(held.commitments) > 0
    assert (held.request, held.answer, held.salt) == (None, None, None)
    told = replace(
        HELD, request=b"a", answer=b"b", salt=hash_of("c"), head_salt=hash_of("d"), rows=(SegmentRows.of(0, b"e"),)
    )
    assert without_prompt(told) == without_prompt(HELD)
    assert b"request" in files.encode(told)


def test_without_an_order_there_is_nothing_to_open_with() -> None:
    empty = Evidence(HELD.version, HELD.chain_id, HELD.bank)
    with pytest.raises(EvidenceRefused, match="no order"):
        _ = empty.order_id
