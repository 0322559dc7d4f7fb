"""A node never signs two different things for one place, across retries and restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from troth.node.errors import AlreadySigned
from troth.node.signing_record import ROW, VERDICT, SigningRecord, Subject

TASK = b"t" * 32


def subject(position: int, kind: str = ROW, attempt: int = 0) -> Subject:
    return Subject(TASK, 1, attempt, kind, position)


def never() -> bytes:
    raise AssertionError("must not sign")


def test_a_retry_gets_the_stored_signature_even_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "signed.sqlite"
    record = SigningRecord(path)
    assert record.sign_once(subject(3), b"digest", lambda: b"signature") == b"signature"
    record.close()
    assert SigningRecord(path).sign_once(subject(3), b"digest", never) == b"signature"


def test_another_digest_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    record = SigningRecord(tmp_path / "signed.sqlite")
    record.sign_once(subject(3), b"digest", lambda: b"signature")
    with pytest.raises(AlreadySigned):
        record.sign_once(subject(3), b"other", never)
    assert record.sign_once(subject(3), b"digest", never) == b"signature"


def test_rows_covered_by_a_later_signature_count_as_signed(tmp_path: Path) -> None:
    record = SigningRecord(tmp_path / "signed.sqlite")
    record.sign_chain(subject(2), [(0, b"a"), (1, b"b")], b"c", lambda: b"over c")
    with pytest.raises(AlreadySigned):
        record.sign_once(subject(1), b"x", never)
    with pytest.raises(AlreadySigned):
        record.sign_chain(subject(5), [(2, b"x"), (3, b"d")], b"e", never)
    assert record.sign_once(subject(1), b"b", lambda: b"over b") == b"over b"


def test_the_record_is_private(tmp_path: Path) -> None:
    SigningRecord(tmp_path / "signed.sqlite").close()
    assert (tmp_path / "signed.sqlite").stat().st_mode & 0o077 == 0


def test_kinds_and_attempts_are_separate(tmp_path: Path) -> None:
    record = SigningRecord(tmp_path / "signed.sqlite")
    record.sign_once(subject(0), b"one", lambda: b"1")
    assert record.sign_once(subject(0, VERDICT), b"two", lambda: b"2") == b"2"
    assert record.sign_once(subject(0, attempt=1), b"three", lambda: b"3") == b"3"


def test_nothing_is_stored_when_signing_fails(tmp_path: Path) -> None:
    record = SigningRecord(tmp_path / "signed.sqlite")
    with pytest.raises(ZeroDivisionError):
        record.sign_once(subject(0), b"one", lambda: bytes(1 // 0))
    assert record.sign_once(subject(0), b"two", lambda: b"2") == b"2"
