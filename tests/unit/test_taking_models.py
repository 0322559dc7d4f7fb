"""Files of a stranger's folder while he changes it: what is taken is what was looked at, or nothing."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import BinaryIO

import pytest

from troth.node.errors import ModelError
from troth.node.models import taking
from troth.node.models.taking import open_source

SECRET, HONEST = b"the operator's private key", b'{"model": 1}'
NAME = "tokenizer.json"


@pytest.fixture
def place(tmp_path: Path) -> SimpleNamespace:
    source, secret = tmp_path / "source", tmp_path / "secret"
    source.mkdir()
    secret.write_bytes(SECRET)
    (source / NAME).write_bytes(HONEST)
    (tmp_path / "staging").mkdir()
    return SimpleNamespace(source=source, secret=secret, target=tmp_path / "staging" / NAME, home=tmp_path)


def silent(_line: str) -> None:
    """Nobody listens."""


@contextmanager
def swapping(place: SimpleNamespace) -> Iterator[None]:
    """Another process puts a link to a secret in the place of the file, and the file back, as fast as it can."""
    ended = Event()

    def swap() -> None:
        link, kept = place.source / ".link", place.source / ".kept"
        while not ended.is_set():
            link.unlink(missing_ok=True)
            link.symlink_to(place.secret)
            link.replace(place.source / NAME)
            kept.write_bytes(HONEST)
            kept.replace(place.source / NAME)

    thread = Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.slow
def test_a_link_that_is_put_in_while_a_file_is_taken_leads_nowhere(place: SimpleNamespace) -> None:
    taken, refused, until = 0, 0, time.monotonic() + 20
    with swapping(place), open_source(place.source) as folder:
        while (taken < 200 or refused < 200) and time.monotonic() < until:
            place.target.unlink(missing_ok=True)
            try:
                folder.take(NAME, place.target, silent)
            except ModelError as error:
                assert "leads out" in error.what or "changes while" in error.what  # noqa: PT017
                refused += 1
            else:
                assert place.target.read_bytes() in {HONEST, b""}
                taken += 1
    assert taken
    assert refused


def test_what_was_opened_is_taken_whatever_lies_there_by_then(
    place: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The swap at the worst moment: after the look, before the use."""
    real = taking._taken

    def late(file: BinaryIO, target: Path) -> str:
        (place.source / NAME).unlink()
        (place.source / NAME).symlink_to(place.secret)
        return real(file, target)

    monkeypatch.setattr(taking, "_taken", late)
    with open_source(place.source) as folder:
        folder.take(NAME, place.target, silent)
        assert place.target.read_bytes() == HONEST
        place.target.unlink()
        with pytest.raises(ModelError, match="leads out of the model's folder"):
            folder.take(NAME, place.target, silent)


def test_weights_are_linked_to_the_file_that_is_open(place: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    weights, target = place.source / "model.safetensors", place.target.with_name("model.safetensors")
    weights.write_bytes(HONEST)
    inode, real = weights.stat().st_ino, taking._linked

    def late(file: BinaryIO, target: Path) -> bool:
        weights.rename(place.source / "kept")
        weights.symlink_to(place.secret)
        return real(file, target)

    monkeypatch.setattr(taking, "_linked", late)
    lines: list[str] = []
    with open_source(place.source) as folder:
        folder.take(weights.name, target, lines.append)
    assert target.read_bytes() == HONEST
    assert not target.is_symlink()
    assert lines[0].startswith("sharing") or target.stat().st_ino == inode


def test_a_folder_that_is_swapped_meanwhile_is_still_the_one_that_was_opened(place: SimpleNamespace) -> None:
    with open_source(place.source) as folder:
        place.source.rename(place.home / "moved")
        (place.home / "other").mkdir()
        (place.home / "other" / NAME).write_bytes(SECRET)
        place.source.symlink_to(place.home / "other")
        folder.take(NAME, place.target, silent)
    assert place.target.read_bytes() == HONEST


def cached(place: SimpleNamespace) -> None:
    """The file as Hugging Face's cache has it."""
    repository = place.home / "models--org--tiny"
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    shutil.move(place.source / NAME, repository / "blobs" / "01")
    (snapshot / NAME).symlink_to("../../blobs/01")
    place.snapshot, place.blobs = snapshot, repository / "blobs"


def test_links_of_a_cache_are_followed_into_its_blobs_alone(place: SimpleNamespace) -> None:
    cached(place)
    with open_source(place.snapshot) as folder:
        folder.take(NAME, place.target, silent)
        assert place.target.read_bytes() == HONEST
        place.target.unlink()
        (place.blobs / "01").unlink()
        (place.blobs / "01").symlink_to(place.secret)
        with pytest.raises(ModelError, match="leads out of the model's folder"):
            folder.take(NAME, place.target, silent)
        (place.snapshot / NAME).unlink()
        (place.snapshot / NAME).symlink_to(place.blobs / "02")
        with pytest.raises(ModelError, match="is missing"):
            folder.take(NAME, place.target, silent)
        (place.blobs / "02").symlink_to("02")
        with pytest.raises(ModelError, match="lead in circles"):
            folder.take(NAME, place.target, silent)


def test_blobs_that_are_a_link_are_no_blobs(place: SimpleNamespace) -> None:
    cached(place)
    place.blobs.rename(place.home / "elsewhere")
    place.blobs.symlink_to(place.home / "elsewhere")
    with open_source(place.snapshot) as folder, pytest.raises(ModelError, match="leads out of the model's folder"):
        folder.take(NAME, place.target, silent)


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket"])
def test_what_is_no_file_is_refused_at_once(kind: str, place: SimpleNamespace) -> None:
    (place.source / NAME).unlink()
    if kind == "pipe":
        os.mkfifo(place.source / NAME)
    elif kind == "folder":
        (place.source / NAME).mkdir()
    else:
        import socket

        here = os.open(place.source, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"/proc/self/fd/{here}/{NAME}")
        os.close(here)
    with open_source(place.source) as folder, pytest.raises(ModelError, match="this is no file"):
        folder.take(NAME, place.target, silent)


def test_a_file_of_nothing_but_size_fills_no_disk(place: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    with (place.source / NAME).open("wb") as file:
        file.truncate(1 << 43)
    with open_source(place.source) as folder, pytest.raises(ModelError, match="larger than"):
        folder.take(NAME, place.target, silent)
    weights = place.source / "model.safetensors"
    (place.source / NAME).rename(weights)
    monkeypatch.setattr(taking, "_linked", lambda _file, _target: False)
    with open_source(place.source) as folder, pytest.raises(ModelError, match="8796093022208 bytes, and there is room"):
        folder.take(weights.name, place.target.with_name(weights.name), silent)


def test_a_file_that_grows_while_it_is_copied_ends(place: SimpleNamespace) -> None:
    target = place.target
    with (place.source / NAME).open("rb") as file:
        taking._copy(file, target, 5)
        assert target.read_bytes() == HONEST[:5]
    with (place.source / NAME).open("rb") as file, pytest.raises(ModelError, match="was cut while it was taken"):
        taking._copy(file, target, 500)
