from __future__ import annotations

from pathlib import Path

import pytest

from troth.chain import keystore
from troth.chain.errors import KeystoreExposed, KeystoreMissing, PasswordMissing
from troth.chain.keystore import ENVIRONMENT, read_password


class Terminal:
    """Stands for standard input."""

    def __init__(self, interactive: bool) -> None:
        self._interactive = interactive

    def isatty(self) -> bool:
        return self._interactive


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    monkeypatch.setattr(keystore.sys, "stdin", Terminal(interactive=False))


def password_file(path: Path, content: str, mode: int = 0o600) -> Path:
    path.write_text(content)
    path.chmod(mode)
    return path


def test_named_file_goes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = password_file(tmp_path / "named", "first\n")
    monkeypatch.setenv(ENVIRONMENT, str(password_file(tmp_path / "environment", "second\r\n")))
    assert read_password(named) == "first"
    assert read_password() == "second"


def test_inner_spaces_belong_to_the_password(tmp_path: Path) -> None:
    assert read_password(password_file(tmp_path / "p", "  a b \n")) == "  a b "


def test_exposed_empty_or_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KeystoreExposed):
        read_password(password_file(tmp_path / "open", "secret", 0o644))
    with pytest.raises(PasswordMissing):
        read_password(password_file(tmp_path / "empty", "\n"))
    with pytest.raises(KeystoreMissing):
        read_password(tmp_path / "absent")


def test_no_source_says_how_to_give_one() -> None:
    with pytest.raises(PasswordMissing, match=r"--password-file.*TROTH_PASSWORD_FILE"):
        read_password()


def test_terminal_is_asked_and_a_new_password_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keystore.sys, "stdin", Terminal(interactive=True))
    asked: list[str] = []

    def answers(*replies: str):
        pending = list(replies)

        def ask(prompt: str) -> str:
            asked.append(prompt)
            return pending.pop(0)

        return ask

    assert read_password(purpose="node", ask=answers("once")) == "once"
    assert asked == ["Password for node: "]
    assert read_password(confirm=True, ask=answers("twice", "twice")) == "twice"
    with pytest.raises(PasswordMissing, match="differ"):
        read_password(confirm=True, ask=answers("twice", "thrice"))
    with pytest.raises(PasswordMissing, match="empty"):
        read_password(ask=answers(""))


def test_a_credential_of_systemd_is_read_and_only_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LoadCredential= grants access by an access-control list, whose mask shows as the group's mode."""
    folder = tmp_path / "credentials"
    folder.mkdir(mode=0o500)
    folder.chmod(0o700)
    file = password_file(folder / "password", "secret\n", 0o440)
    with pytest.raises(KeystoreExposed):
        read_password(file)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
    assert read_password(file) == "secret"
    with pytest.raises(KeystoreExposed):
        read_password(password_file(tmp_path / "elsewhere", "secret\n", 0o440))
    file.chmod(0o444)
    with pytest.raises(KeystoreExposed):
        read_password(file)
    file.chmod(0o440)
    folder.chmod(0o755)
    with pytest.raises(KeystoreExposed):
        read_password(file)
