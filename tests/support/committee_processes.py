"""Real `troth committee` and `troth relay` processes on loopback, beside an anvil process."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.committee_stage import DOMAIN

from troth.chain.keystore import DEMO_SCRYPT_N, Key, create_account
from troth.overlay.circuits.descriptors import RelayDescriptor
from troth.overlay.relay.initialisation import own_descriptor
from troth.protocol.types import Address
from troth.testnet import forked
from troth.testnet.ports import free_port

PASSWORD = "a password of tests"
COMMANDS = {"committee": "troth.committee.command", "relay": "troth.overlay.relay.command"}


def arguments_of(program: str, *arguments: str) -> list[str]:
    """The command line of `troth PROGRAM …`, whether or not this checkout is installed."""
    code = f"from {COMMANDS[program]} import app; app()"
    return [sys.executable, "-c", code, *arguments]


def called(program: str, *arguments: str) -> Any:
    """The JSON that a command prints; AssertionError with its errors if it fails."""
    command = arguments_of(program, *arguments, "--json")
    run = forked.run(command, os.environ, 120)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@dataclass
class Processes:
    """Everything that was started, ended with `stop`."""

    folder: Path
    rpc: str
    password: Path
    committee: Address = DOMAIN.contract
    homes: list[Path] = field(default_factory=list)
    running: dict[Path, forked.Forked] = field(default_factory=dict)

    def member(self, number: int) -> dict[str, Any]:
        """`troth committee init`, with a keystore that opens fast."""
        home = self.folder / f"member{number}"
        create_account(home / "keys" / "operator.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N)
        port = free_port()
        self.homes.append(home)
        listen = ["--port", str(port), "--endpoint", f"https://127.0.0.1:{port}", "--rpc", self.rpc]
        made: dict[str, Any] = called("committee", "init", "--home", str(home), *listen, *self.secret())
        return made

    def secret(self) -> list[str]:
        return ["--password-file", str(self.password)]

    def deploy(self, members: list[str], payer: Key) -> dict[str, Any]:
        """`troth committee deploy`, first as a dry run."""
        keystore = self.folder / "payer.json"
        create_account(keystore, PASSWORD, scrypt_n=DEMO_SCRYPT_N, key=payer)
        named = [part for member in members for part in ("--member", member)]
        arguments = ["deploy", "--rpc", self.rpc, "--keystore", str(keystore), *named, *self.secret()]
        dry = called("committee", *arguments)
        assert not dry["sent"]
        sent: dict[str, Any] = called("committee", *arguments, "--broadcast")
        self.committee = sent["committee"]
        return sent

    def configure(self, home: Path, settings: str) -> None:
        """Write the contract and the settings of a test into committee.toml."""
        path = home / "committee.toml"
        text = path.read_text(encoding="utf-8").replace('committee = ""', f'committee = "{self.committee}"')
        path.write_text(text + settings, encoding="utf-8")
        assert tomllib.loads(path.read_text(encoding="utf-8"))["chain"]["committee"] == self.committee

    def start(self, program: str, home: Path) -> None:
        extra = self.secret() if program == "committee" else []
        command = arguments_of(program, "start", "--home", str(home), "--log-level", "info", *extra)
        self.running[home] = forked.start(command, os.environ, home / "log")

    def kill(self, home: Path) -> None:
        """As a machine that loses power does."""
        process = self.running.pop(home)
        process.kill()
        process.wait()

    def relay(self, name: str) -> RelayDescriptor:
        """`troth relay init` with this committee, then `start`."""
        home, port = self.folder / name, free_port()
        listed = ["--committee", self.committee, "--rpc", self.rpc, "--region", "test", "--bandwidth", "1000"]
        called("relay", "init", "--home", str(home), "--port", str(port), "--no-proxy", *listed)
        path = home / "relay.toml"
        text = path.read_text(encoding="utf-8")
        text = text.replace("publish_seconds = 1800.0", "publish_seconds = 1.0")
        text = text.replace("retry_seconds = 30.0", "retry_seconds = 0.5")
        path.write_text(text + "\n[waits]\ndrain = 0.0\n", encoding="utf-8")
        self.start("relay", home)
        return own_descriptor(home)

    def logs(self) -> str:
        """What all of them said, for a test that failed."""
        return "\n".join(f"== {home.name}\n{(home / 'log').read_text()[-3000:]}" for home in self.running)

    def stop(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


@contextmanager
def committee_processes(folder: Path, rpc: str) -> Iterator[Processes]:
    """Nothing is started yet; everything that was is ended."""
    password = folder / "password"
    password.write_text(PASSWORD, encoding="utf-8")
    password.chmod(0o600)
    processes = Processes(folder, rpc, password)
    try:
        yield processes
    finally:
        processes.stop()
