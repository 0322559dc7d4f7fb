"""An operator of a node as a user of the command line: a home folder, commands, a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from support.light_keys import lighten
from support.tabs_stage import ASK, TabsStage

from troth.chain.keystore import DEMO_SCRYPT_N, create_account, load_account
from troth.testnet import forked
from troth.testnet.ports import free_port
from troth.transport.https import pinned_sync_client

PASSWORD, DEADLINE = "of a test", 120.0


class Operated:
    """A home folder, and the command line in it."""

    def __init__(self, home: Path, password: Path) -> None:
        self.home, self.password = home, password

    def command(self, *arguments: object) -> list[str]:
        words = [sys.executable, "-c", "from troth.command.main import main; main()", "node", *map(str, arguments)]
        return [*words, "--home", str(self.home)]

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return forked.run(self.command(*arguments), os.environ, DEADLINE)

    def told(self, *arguments: object) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr or done.stdout
        return json.loads(done.stdout)

    def signed(self, *arguments: object) -> Any:
        return self.told(*arguments, "--password-file", self.password)

    @property
    def log(self) -> str:
        """What processes of ``start`` wrote."""
        return (self.home / "log").read_text()

    def start(self, *options: str) -> forked.Forked:
        command = self.command("start", *options, "--password-file", self.password)
        return forked.start(command, os.environ, self.home / "log")


def wait_until_ready(operated: Operated, made: dict[str, Any], process: forked.Forked) -> None:
    give_up, answer = time.monotonic() + DEADLINE, None
    while time.monotonic() < give_up:
        assert process.poll() is None, operated.log
        try:
            with pinned_sync_client(made["endpoint"], bytes.fromhex(made["tls_key_hash"][2:])) as client:
                answer = client.get("/readyz").json()
            if answer["ready"]:
                return
        except Exception:  # noqa: BLE001 -- it does not listen yet
            pass
        time.sleep(0.2)
    raise AssertionError((answer, operated.log))


def operated_in(tmp_path: Path) -> Operated:
    """An operator with a password and nothing else."""
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    return Operated(tmp_path / "home", password)


def init_words(stage: TabsStage, tmp_path: Path, *more: object) -> tuple[object, ...]:
    """What `troth node init` takes for a node of the model in ``tmp_path``."""
    place = stage.market.place
    return (
        *("init", "--factory", place.factory, "--bank", place.contracts.bank, "--rpc", stage.anvil.url),
        *("--class", "0x" + stage.class_id.hex(), "--model", tmp_path / "model", "--port", free_port(), *more),
    )


async def joined(stage: TabsStage, anvil: Any, tmp_path: Path, *more: object) -> tuple[Operated, dict[str, Any]]:
    """A node that was set up and registered by its commands, with the asks of the stage; ``more`` goes to `init`."""
    operated = operated_in(tmp_path)
    password = operated.password
    made = operated.signed(*init_words(stage, tmp_path, "--slice", "0:2", *more))
    lighten(operated.home / "keys", password)
    owner = create_account(tmp_path / "owner.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N)
    for key in (owner, load_account(operated.home / "keys" / "operator.json", PASSWORD)):
        anvil.fund(key)
    assert "not registered" in operated.told("earnings")["why"][0]
    without = operated.run("register", "--owner-keystore", tmp_path / "owner.json", "--password-file", password)
    assert without.returncode != 0
    assert "--ask" in without.stderr
    words = ("register", "--owner-keystore", tmp_path / "owner.json", "--ask", "1,1,1")
    dry = operated.signed(*words)
    assert (dry["sent"], dry["seats"]) == (False, 2)
    assert operated.signed(*words, "--broadcast")["sent"]
    prices = f"{ASK.prompt},{ASK.cached},{ASK.written}"
    assert operated.signed("ask", "0:2", prices, "--broadcast")["sent"]
    assert operated.told("ask")["asks"]["0:2"]["written_units_per_billion"] == str(ASK.written)
    added = operated.signed("top-up", f"{stage.execution_class.seat}units", "--owner-keystore", tmp_path / "owner.json")
    assert not added["sent"]
    return operated, made
