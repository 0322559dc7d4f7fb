"""`troth committee members`: a member joins, moves and leaves by a file that the others sign."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Anvil
from typer.testing import CliRunner

from troth.chain.keystore import DEMO_SCRYPT_N, create_account
from troth.committee.command import app
from troth.committee.configuration import Bonding
from troth.committee.errors import ChangeRefused
from troth.committee.initialisation import MemberInitOptions, initialise

pytestmark = [pytest.mark.chain, pytest.mark.slow]

PASSWORD = "a word"
MOVED = "https://192.0.2.99:8543"


@dataclass
class Members:
    """Homes by number, and what `init` printed for each; whoever pays."""

    folder: Path
    payer: Path
    password_file: Path
    printed: list[str]

    def home(self, number: int) -> Path:
        return self.folder / f"member{number}"

    def operator(self, number: int) -> str:
        return self.printed[number].split(",")[0]

    def run(self, *arguments: object, by: int = 0) -> Any:
        """A command; what it raises is raised here."""
        words = [str(one) for one in (*arguments, "--home", self.home(by), "--json")]
        done = CliRunner().invoke(app, words, env={"TROTH_PASSWORD_FILE": str(self.password_file)})
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    def send(self, file: Path) -> Any:
        return self.run("members", "send", file, "--keystore", self.payer, "--broadcast")


@pytest.fixture
def members(anvil: Anvil, tmp_path: Path) -> Members:
    """Four members, and a fifth who has done `init` and wants to join."""
    password_file, payer = tmp_path / "password", tmp_path / "payer.json"
    password_file.write_text(PASSWORD)
    password_file.chmod(0o600)
    create_account(payer, PASSWORD, scrypt_n=DEMO_SCRYPT_N, key=anvil.keys[8])
    made = Members(tmp_path, payer, password_file, [])
    for number in range(5):
        home = made.home(number)
        create_account(home / "keys" / "operator.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N)
        endpoint = f"https://192.0.2.{number + 1}:8543"
        wishes = MemberInitOptions(anvil.url, "", Bonding(), "127.0.0.1", 8543, endpoint)
        made.printed.append(str(initialise(home, wishes, password_file)["member"]))
    named = [word for member in made.printed[:4] for word in ("--member", member)]
    paid = ("--rpc", anvil.url, "--keystore", str(payer), "--broadcast", "--json")
    done = CliRunner().invoke(app, ["deploy", *named, *paid], env={"TROTH_PASSWORD_FILE": str(password_file)})
    committee = json.loads(done.output)["committee"]
    for number in range(5):
        path = made.home(number) / "committee.toml"
        path.write_text(path.read_text().replace('committee = ""', f'committee = "{committee}"'))
    return made


def changed(members: Members, file: Path, *what: str, signers: tuple[int, ...]) -> Any:
    """Proposed, signed by some, sent."""
    members.run("members", "propose", file, *what)
    for number in signers:
        members.run("members", "sign", file, by=number)
    return members.send(file)


def test_one_joins_moves_and_leaves(members: Members, tmp_path: Path) -> None:
    file, joining = tmp_path / "change.json", members.printed[4]
    told = members.run("members", "propose", file, "--add", joining)
    assert told["signatures"] == "0 of 3 that are needed"
    for number in (2, 0):
        members.run("members", "sign", file, by=number)
    with pytest.raises(ChangeRefused, match="3 members must sign"):
        members.send(file)
    with pytest.raises(ChangeRefused, match="is no member"):
        members.run("members", "sign", file, by=4)
    # Signed twice by one is signed once.
    members.run("members", "sign", file, by=0)
    assert members.run("members", "sign", file, by=1)["signatures"] == "3 of 3 that are needed"
    assert members.send(file)["function"] == "addMember"
    assert members.run("status")["threshold"] == "4 of 5"
    # What was signed counts once.
    with pytest.raises(ChangeRefused, match="another one was made meanwhile"):
        members.send(file)
    operator, key, _ = joining.split(",")
    assert changed(members, file, "--move", f"{operator},{key},{MOVED}", signers=(0, 1, 2, 4))["change"] == "move"
    assert any(line.startswith(MOVED) for line in members.run("status")["lists"])
    changed(members, file, "--remove", members.operator(0), signers=(1, 2, 3, 4))
    assert members.run("status", by=1)["threshold"] == "3 of 4"
    assert not members.run("status", by=0)["member"]


def test_what_the_contract_would_not_take_is_refused_before(members: Members, tmp_path: Path) -> None:
    file = tmp_path / "change.json"
    stranger = members.printed[4]
    for what, member, message in (
        ("--add", members.printed[1], "is a member already"),
        ("--remove", members.operator(4), "is no member"),
        ("--move", stranger, "is no member"),
    ):
        with pytest.raises(ChangeRefused, match=message):
            members.run("members", "propose", file, what, member)
    assert not file.exists()
    members.run("members", "propose", file, "--add", stranger)
    members.run("members", "sign", file, by=1)
    signed = json.loads(file.read_text())
    ((signer, signature),) = signed["signatures"].items()
    other = members.operator(2)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"member": stranger.replace("192.0.2.5", "192.0.2.6")}, "did not sign this"),
        ({"kind": "move"}, "is no member"),
        ({"nonce": 1}, "another one was made meanwhile"),
        ({"contract": members.operator(3)}, "of another committee"),
        ({"signatures": {other: signature}}, "did not sign this"),
        ({"signatures": {members.operator(4): signature}}, "signed who is no member"),
        ({"signatures": {signer: "0xzz"}}, "no hexadecimal number"),
        ({"member": "nobody"}, "cannot be read"),
        ({"version": 2}, "version 2"),
        ({"unknown": 1}, "cannot be read"),
    ]
    for change, message in changes:
        file.write_text(json.dumps(signed | change))
        with pytest.raises(ChangeRefused, match=message):
            members.run("members", "sign", file, by=3)
    for content in (b"", b"\xff", b"[" * 70_000):
        file.write_bytes(content)
        with pytest.raises(ChangeRefused, match=r"cannot be read|at most"):
            members.run("members", "sign", file, by=3)


def test_one_change_is_named(members: Members, tmp_path: Path) -> None:
    for given in ((), ("--add", members.printed[4], "--remove", members.operator(1))):
        words = ["members", "propose", str(tmp_path / "x"), *given, "--home", str(members.home(0))]
        assert CliRunner().invoke(app, words).exit_code == 2
