"""Files on a disk that is full, or of a process that is killed: nothing half written stays, and the next one writes."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from troth.chain import new_files
from troth.chain.keystore import DEMO_SCRYPT_N, create_account, load_account
from troth.chain.new_files import create_file, replace_file, replacing
from troth.command.rendering import describe
from troth.overlay.relay.keys import create_handshake_key, load_handshake_key
from troth.transport import identity
from troth.transport.identity import create_identity, load_identity

FULL = OSError(errno.ENOSPC, "No space left on device")


def full_after(monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    """The disk takes so many files, and no more."""
    taken: list[int] = []

    def fsync(descriptor: int) -> None:
        taken.append(descriptor)
        if len(taken) > files:
            raise FULL

    monkeypatch.setattr(os, "fsync", fsync)


def test_a_new_file_is_private_and_never_replaces_another(tmp_path: Path) -> None:
    create_file(tmp_path / "new", b"key")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "new", b"other")
    assert (tmp_path / "new").read_bytes() == b"key"


def test_a_full_disk_leaves_nothing_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        full_after(patched, 0)
        with pytest.raises(OSError, match="No space left") as refused:
            create_file(tmp_path / "new", b"key")
    assert refused.value.filename == str(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
    create_file(tmp_path / "new", b"key")


KILLED = """
import os, signal, sys
from pathlib import Path
from typing import BinaryIO
from troth.chain import new_files

def opened(descriptor, mode):
    os.write(descriptor, b"half")
    os.kill(os.getpid(), signal.SIGKILL)

new_files.os.fdopen = opened
new_files.create_file(Path(sys.argv[1]), b"half and half")
"""


def test_who_is_killed_while_it_writes_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    """Half a key would be there already for whoever gives the command again, and open nothing."""
    place = tmp_path / "key.json"
    done = subprocess.run([sys.executable, "-c", KILLED, str(place)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert not place.exists()
    create_file(place, b"half and half")
    assert (place.read_bytes(), stat.S_IMODE(place.stat().st_mode)) == (b"half and half", 0o600)


def test_what_a_killed_process_left_is_removed_by_whoever_writes_or_reads_the_file_next(tmp_path: Path) -> None:
    """It would stay there for ever: a part of a key, or a second name of one that was thought to be moved away."""
    key = tmp_path / "key.json"
    done = subprocess.run([sys.executable, "-c", KILLED, str(key)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.read_bytes() == b"half"
    (other := tmp_path / ".key.json.backup").write_bytes(b"of somebody else")
    create_account(key, "word", scrypt_n=DEMO_SCRYPT_N)
    assert set(tmp_path.iterdir()) == {key, other}
    os.link(key, left)
    load_account(key, "word")
    assert set(tmp_path.iterdir()) == {key, other}


def test_what_another_process_still_writes_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def beside_another(writing: Path, place: Path) -> None:
        new_files.remove_unfinished(place)
        link(writing, place)

    monkeypatch.setattr(os, "link", beside_another)
    create_file(tmp_path / "new", b"key")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("new", b"key")]


@pytest.mark.parametrize("make", [create_identity, lambda folder: create_handshake_key(folder / "tls-key.pem")])
def test_a_second_name_of_a_key_is_gone_once_the_key_is_read(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path)
    key = tmp_path / identity.KEY_FILE
    os.link(key, left := tmp_path / f".{key.name}.{'0a' * 8}")
    load_identity(tmp_path) if (tmp_path / identity.CERTIFICATE_FILE).exists() else load_handshake_key(key)
    assert not left.exists()


def test_where_files_have_one_name_the_same_holds_but_for_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_names: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    create_file(tmp_path / "new", b"key")
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "new", b"other")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("new", b"key")]
    with monkeypatch.context() as patched:
        full_after(patched, 1)
        with pytest.raises(OSError, match="No space left"):
            create_file(tmp_path / "other", b"key")
    assert not (tmp_path / "other").exists()


def test_of_two_that_write_one_file_at_once_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one's file comes after this one looked, and stays as it is."""
    link = os.link

    def late(writing: Path, place: Path) -> None:
        place.write_bytes(b"first")
        link(writing, place)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "new", b"second")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("new", b"first")]


def test_an_old_file_stays_until_the_new_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "client.toml"
    replace_file(place, b"old")
    (tmp_path / f".client.toml.{'0a' * 8}").write_bytes(b"of a run that was killed")
    with monkeypatch.context() as patched:
        full_after(patched, 0)
        with pytest.raises(OSError, match="No space left"):
            replace_file(place, b"new")
    assert (place.read_bytes(), list(tmp_path.iterdir())) == (b"old", [place])
    replace_file(place, b"new")
    assert place.read_bytes() == b"new"


def test_of_two_that_replace_a_file_at_once_the_last_one_stays_whole(tmp_path: Path) -> None:
    """Two commands may save one conversation, or note what they read of one model."""
    place = tmp_path / "saved.json"
    with replacing(place) as file:
        file.write(b"first ")
        replace_file(place, b"second")
        assert place.read_bytes() == b"second"
        file.write(b"and last")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("saved.json", b"first and last")]


def test_a_file_about_to_take_its_place_is_left_to_whoever_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.replace

    def beside_another(writing: Path, place: Path) -> Path:
        new_files.remove_unfinished(place)
        return rename(writing, place)

    monkeypatch.setattr(Path, "replace", beside_another)
    replace_file(tmp_path / "new", b"whole")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("new", b"whole")]


def test_what_fails_while_it_is_written_leaves_the_old_file_and_says_why(tmp_path: Path) -> None:
    """Numpy says in words alone that a disk is full."""
    place = tmp_path / "states.npy"
    replace_file(place, b"old")

    def fill(file: BinaryIO) -> None:
        file.write(b"ne")
        raise OSError("4 requested and 2 written")

    with pytest.raises(OSError, match=r"^4 requested and 2 written$"), replacing(place) as file:
        fill(file)
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("states.npy", b"old")]


@pytest.mark.parametrize(("mode", "made"), [(0o600, 0o600), (0o666, 0o640)])
def test_a_file_for_anybody_to_read_is_as_open_as_the_umask_lets_it_be(tmp_path: Path, mode: int, made: int) -> None:
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "network.json", mode) as file:
            file.write(b"{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "network.json").stat().st_mode) == made


@pytest.mark.parametrize("files", [0, 2])
def test_a_tls_identity_is_a_pair_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    with monkeypatch.context() as patched:
        full_after(patched, files)
        with pytest.raises(OSError, match="No space left"):
            create_identity(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert create_identity(tmp_path) == load_identity(tmp_path)
    assert identity.load_or_create_identity(tmp_path) == load_identity(tmp_path)


def test_a_command_that_was_killed_between_key_and_certificate_can_be_given_again(tmp_path: Path) -> None:
    """The pin is the key's; a certificate is made of it at any time."""
    pin = create_identity(tmp_path).spki_sha256
    (tmp_path / identity.CERTIFICATE_FILE).unlink()
    assert identity.load_or_create_identity(tmp_path).spki_sha256 == pin
    assert load_identity(tmp_path).spki_sha256 == pin


def test_a_full_disk_that_names_no_file_is_said_in_words() -> None:
    shown = describe(FULL)
    assert (shown.what, shown.value) == ("The disk is full", "No space left on device")
    assert "Make room" in shown.remedy


@pytest.mark.slow
def test_a_command_that_a_limit_of_files_ended_can_be_given_again(tmp_path: Path) -> None:
    """A limit of the system's in place of a full disk: the real command, with and without it."""
    (tmp_path / "password").write_text("word")
    (tmp_path / "password").chmod(0o600)
    code = (
        "import resource, sys; from troth.command.main import main\n"
        "limit = int(sys.argv[1]); resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))\n"
        "main(['network', 'account', sys.argv[2]])"
    )
    environment = os.environ | {"TROTH_PASSWORD_FILE": str(tmp_path / "password"), "PYTHONDONTWRITEBYTECODE": "1"}

    def account(limit: int) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", code, str(limit), str(tmp_path / "key.json")]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=240, env=environment)

    refused = account(100)
    assert refused.returncode == 1
    assert "larger than is allowed" in refused.stderr
    assert "Make room on the disk, or allow larger files" in refused.stderr
    assert str(tmp_path / "key.json") in refused.stderr
    assert not (tmp_path / "key.json").exists()
    assert account(100_000).returncode == 0


def test_a_full_disk_is_named_so_where_the_system_names_a_file() -> None:
    shown = describe(OSError(errno.ENOSPC, "No space left on device", "/disk/keys/handshake.pem"))
    assert (shown.what, shown.value) == ("The disk is full", "/disk/keys/handshake.pem")
    assert "Make room" in shown.remedy
