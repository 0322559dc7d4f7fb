"""Every long-running command started while its chain node is away: it ends at once, and says what to do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.cases_scene import evidence_of
from support.market_scene import Scene

from troth.cases import evidence as files
from troth.chain.keystore import DEMO_SCRYPT_N, create_account, create_vrf_secret
from troth.testnet.ports import free_port

pytestmark = pytest.mark.slow

PASSWORD = "of a test"
FACTORY, CLASS = "0x" + "11" * 20, "0x" + "22" * 32
AWAY = "http://user:secret@127.0.0.1:1"


@pytest.fixture
def troth(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TROTH_")}
    environment = {**kept, "TROTH_PASSWORD_FILE": str(password), "TROTH_RPC": AWAY, "TROTH_FACTORY": FACTORY}

    def run(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from troth.command.main import main; main()", *map(str, arguments)]
        return subprocess.run(
            command,
            env=environment | more,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    create_account(tmp_path / "operator.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N)
    create_vrf_secret(tmp_path / "vrf.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "toy", "max_position_embeddings": 64}')
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    return run


def set_up(troth: Callable[..., subprocess.CompletedProcess[str]], folder: Path, party: str) -> None:
    own = {
        "scheduler": (
            *("--ends", "1,2", "--operator-keystore", folder / "operator.json"),
            *("--vrf-keystore", folder / "vrf.json", "--prices", "3,1,6", "--deposit", "1000units"),
        ),
        "node": ("--slice", "0:2", "--import-key", folder / "operator.json"),
    }
    here = ("--home", folder / party, "--port", free_port(), "--model", folder / "model")
    made = troth(party, "init", *here, "--class", CLASS, *own[party])
    assert made.returncode == 0, made.stderr


@pytest.mark.parametrize("party", ["scheduler", "node"])
def test_a_party_whose_chain_node_is_away_does_not_start(
    tmp_path: Path, troth: Callable[..., subprocess.CompletedProcess[str]], party: str
) -> None:
    set_up(troth, tmp_path, party)
    started = troth(party, "start", "--home", tmp_path / party)
    said = started.stdout + started.stderr
    assert started.returncode == 1, said
    for part in ("The chain node cannot be reached", "http://127.0.0.1:1", "Check that the node runs"):
        assert part in said
    assert "secret" not in said
    assert "Traceback" not in said


@pytest.mark.parametrize("party", ["scheduler", "node"])
def test_the_chain_is_what_its_status_names(
    tmp_path: Path, troth: Callable[..., subprocess.CompletedProcess[str]], party: str
) -> None:
    set_up(troth, tmp_path, party)
    shown = troth(party, "status", "--home", tmp_path / party)
    assert shown.returncode == 1
    assert "The chain node cannot be reached" in shown.stdout + shown.stderr
    assert "Traceback" not in shown.stderr


def test_an_audit_without_a_chain_could_not_complete(troth: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    ended = troth("audit", "market")
    assert ended.returncode == 3, ended.stderr
    assert "The chain node cannot be reached" in ended.stdout + ended.stderr
    assert "secret" not in ended.stdout + ended.stderr


@pytest.mark.parametrize("words", ["audit watch --act --once --evidence {0}", "case convict {0}/evidence"])
def test_no_password_is_asked_for_before_the_chain_answers(
    tmp_path: Path, troth: Callable[..., subprocess.CompletedProcess[str]], words: str
) -> None:
    """There is neither a terminal nor a file with a password, so that asking for one would end the command."""
    files.write(tmp_path / "evidence", evidence_of(Scene()))
    told = words.format(tmp_path).split()
    ended = troth(*told, "--keystore", tmp_path / "operator.json", "--home", tmp_path / "own", TROTH_PASSWORD_FILE="")
    assert "The chain node cannot be reached" in ended.stdout + ended.stderr
    assert "password" not in ended.stdout + ended.stderr
    assert ended.returncode == (3 if told[0] == "audit" else 1)


@pytest.fixture
def hanging() -> Iterator[str]:
    """A node that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://user:secret@127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("command", ["audit market", "node status", "scheduler status"])
def test_who_waits_for_a_node_that_hangs_is_told_so(
    tmp_path: Path, troth: Callable[..., subprocess.CompletedProcess[str]], hanging: str, command: str
) -> None:
    party, home = command.split(maxsplit=1)[0], {"TROTH_HOME": str(tmp_path)}
    if party != "audit":
        set_up(troth, tmp_path, party)
        file = tmp_path / party / f"{party}.toml"
        file.write_text(file.read_text().replace(AWAY, hanging))
        home = {"TROTH_HOME": str(tmp_path / party)}
    ended = troth(*command.split(), TROTH_RPC=hanging, TROTH_CHAIN_TIMEOUT="4", **home)
    assert ended.returncode in {1, 3}, ended.stderr
    assert "waiting for the chain node http://127.0.0.1:" in ended.stderr
    assert "at most 4 s for each answer (--chain-timeout)" in ended.stderr
    assert "did not answer eth_" in ended.stdout + ended.stderr
    assert "secret" not in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    "command", ["model list", "node status", "scheduler status", "client tabs", "relay doctor", "committee status"]
)
def test_a_home_that_is_a_file_is_refused(
    tmp_path: Path, troth: Callable[..., subprocess.CompletedProcess[str]], command: str
) -> None:
    (tmp_path / "file").write_text("")
    ended = troth(*command.split(), "--home", tmp_path / "file")
    assert ended.returncode == 2
    # The words stand in a box, and break where the path's length has them break.
    assert "is a file" in " ".join(ended.stderr.replace("│", " ").split())


@pytest.mark.parametrize("party", ["scheduler", "node"])
def test_a_party_that_waits_for_its_chain_node_at_its_start_ends_with_the_first_signal(
    tmp_path: Path, troth: Callable[..., subprocess.CompletedProcess[str]], party: str
) -> None:
    """Nothing is under way yet, so that nothing is waited for."""
    set_up(troth, tmp_path, party)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TROTH_")}
        environment |= {"TROTH_PASSWORD_FILE": str(tmp_path / "password"), "TROTH_CHAIN_TIMEOUT": "3000"}
        file = tmp_path / party / f"{party}.toml"
        file.write_text(file.read_text().replace(AWAY, f"http://127.0.0.1:{silent.getsockname()[1]}"))
        command = [sys.executable, "-c", START, party, "start", "--home", str(tmp_path / party)]
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as started:
            silent.settimeout(60)
            silent.accept()
            try:
                started.send_signal(signal.SIGINT)
                _, said = started.communicate(timeout=60)
            finally:
                started.kill()
    assert started.returncode == (130 if party == "scheduler" else 0), said
    assert "Traceback" not in said


START = """
import signal
# What a shell starts in its background ignores it, and so does what that starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
from troth.command.main import main
main()
"""
