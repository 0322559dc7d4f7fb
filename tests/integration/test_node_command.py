"""An operator's whole way through the command line, over a real chain and with a small model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import save_file  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from troth.chain.keystore import DEMO_SCRYPT_N, Key, create_account  # noqa: E402
from troth.demo.ports import free_port  # noqa: E402
from troth.overlay.https import pinned_sync_client  # noqa: E402

pytestmark = [pytest.mark.chain, pytest.mark.slow]

PASSWORD = "of a test"
DEADLINE = 120.0


@dataclass
class Operator:
    """A home folder, and the command line in it."""

    home: Path
    environment: dict[str, str]

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments, "--home", self.home), env=self.environment, capture_output=True, text=True,
            timeout=DEADLINE, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def told(self, *arguments: object) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command("node", "start", "--home", self.home), env=self.environment, text=True, stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from troth.command.main import main; main()", *map(str, arguments)]


def tiny_model(path: Path, seed: int) -> None:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=48, hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True, max_position_embeddings=256,
    )  # fmt: skip
    path.mkdir()
    state = {name: value for name, value in LlamaForCausalLM(config).state_dict().items() if "lm_head" not in name}
    save_file({name: value.contiguous() for name, value in state.items()}, path / "model.safetensors", {"format": "pt"})
    (path / "config.json").write_text(json.dumps(config.to_dict()))
    (path / "tokenizer.json").write_text("{}")


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TROTH_")}
    environment = {**kept, "TROTH_PASSWORD_FILE": str(password), "OMP_NUM_THREADS": "1"}
    return Operator(tmp_path / "home", environment)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    give_up = time.monotonic() + DEADLINE
    while not condition():
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < give_up
        time.sleep(0.1)


def readiness(made: dict[str, Any]) -> dict[str, Any]:
    with pinned_sync_client(made["endpoint"], bytes.fromhex(made["tls_key_hash"][2:])) as client:
        answer: dict[str, Any] = client.get("/readyz").json()
        return answer


def is_ready(made: dict[str, Any]) -> bool:
    try:
        return bool(readiness(made)["ready"])
    except httpx.TransportError:
        return False


async def test_from_init_to_withdraw(
    tmp_path: Path, operator: Operator, deployed: Any, processes: list[subprocess.Popen[str]]
) -> None:
    anvil = deployed.anvil
    owner = create_account(tmp_path / "owner.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N)
    key = create_account(tmp_path / "operator.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N)
    anvil.fund(owner)
    tiny_model(tmp_path / "tiny", 1)
    where = ("--rpc", anvil.url, "--contract", deployed.chain.contract)

    dry = operator.told("model", "add", tmp_path / "tiny", *where, "--keystore", tmp_path / "owner.json")
    assert [sent["sent"] for sent in dry["transactions"]] == [False, False]
    pays = ("--keystore", tmp_path / "owner.json", "--broadcast")
    added = operator.told("model", "add", tmp_path / "tiny", *where, *pays)
    assert [sent["sent"] for sent in added["transactions"]] == [True, True]
    again = operator.told("model", "add", tmp_path / "tiny", *where, *pays)
    assert [sent.get("note") for sent in again["transactions"]] == ["registered already"] * 2

    made = operator.told(
        "node", "init", *where, "--class", added["class_id"], "--model", tmp_path / "tiny", "--slice", "0:2",
        "--port", free_port(), "--threads", 1, "--import-key", tmp_path / "operator.json",
    )  # fmt: skip
    assert made["operator"] == key.address
    examined = {line["check"]: line for line in json.loads(operator.run("node", "doctor", "--json").stdout)}
    assert {check for check, line in examined.items() if not line["ok"]} == {"stake", "gas"}
    assert all(line["fix"] for line in examined.values() if not line["ok"])
    assert "none named" in operator.run("node", "register").stderr

    file = operator.home / "node.toml"
    right = file.read_text()
    file.write_text(right.replace('"0:2"', '"0:9"'))
    (model,) = (
        line for line in json.loads(operator.run("node", "doctor", "--json").stdout) if line["check"] == "model"
    )
    assert (model["ok"], "4 layers" in model["seen"]) == (False, True)
    file.write_text(right)

    owner_key = ("--owner-keystore", tmp_path / "owner.json")
    assert operator.told("node", "register", *owner_key)["sent"] is False
    assert operator.told("node", "status")["role"] == "none"
    assert operator.told("node", "register", *owner_key, "--broadcast")["sent"] is True
    anvil.fund(key)
    assert operator.run("node", "doctor").returncode == 0

    process = operator.start()
    processes.append(process)
    wait_for(lambda: is_ready(made), process)
    told = operator.told("node", "status")
    assert told["process"] == {"ready": True, "reasons": []}
    assert told["role"] == "node"
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == 0

    assert operator.told("node", "exit", "--broadcast")["exit_block"] > 0
    early = operator.run("node", "withdraw", "--broadcast")
    assert early.returncode == 1
    assert "StillUnbonding" in early.stderr
    anvil.mine(deployed.parameters.unbonding_period + 1)
    assert operator.told("node", "withdraw", "--broadcast")["sent"] is True


async def test_a_running_node_moves(
    tmp_path: Path, operator: Operator, deployed: Any, processes: list[subprocess.Popen[str]]
) -> None:
    anvil = deployed.anvil
    made, key = registered(tmp_path, operator, deployed)
    anvil.fund(key)
    process = operator.start()
    processes.append(process)
    wait_for(lambda: is_ready(made), process)
    assert slice_line(operator)["seen"] == "node.toml 0:2, chain 0:2, process 0:2"

    dry = operator.told("node", "move", "2:4", "--segment", "2:4", "--segment", "3:4")
    assert (dry["sent"], dry["before"], dry["slice"], dry["segments"]) == (False, "0:2", "2:4", ["2:4", "3:4"])
    assert '"0:2"' in (operator.home / "node.toml").read_text()
    assert "InvalidSlice" in operator.run("node", "move", "2:5", "--broadcast").stderr
    assert "FIRST:END" in operator.run("node", "move", "2-4").stderr
    assert operator.told("node", "move", "2:4", "--segment", "2:4", "--segment", "3:4", "--broadcast")["sent"] is True
    wait_for(lambda: slice_line(operator)["ok"], process)
    assert slice_line(operator)["seen"] == "node.toml 2:4, chain 2:4, process 2:4"
    wait_for(lambda: is_ready(made), process)
    early = operator.run("node", "move", "0:2", "--broadcast")
    assert (early.returncode, "SliceChangedLately" in early.stderr, "on" in early.stderr) == (1, True, True)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0

    # The chain's word counts, whatever the file says.
    file = operator.home / "node.toml"
    file.write_text(file.read_text().replace('"2:4"', '"0:4"', 1))
    line = slice_line(operator)
    assert (line["ok"], line["seen"]) == (False, "node.toml 0:4, chain 2:4, process none")
    assert 'node.slice = "2:4"' in line["fix"]
    process = operator.start()
    processes.append(process)
    wait_for(lambda: is_ready(made), process)
    assert slice_line(operator)["seen"] == "node.toml 0:4, chain 2:4, process 2:4"


def slice_line(operator: Operator) -> dict[str, Any]:
    (line,) = (
        one for one in json.loads(operator.run("node", "doctor", "--json").stdout) if one["check"] == "slice"
    )  # fmt: skip
    return line


def registered(tmp_path: Path, operator: Operator, deployed: Any) -> tuple[dict[str, Any], Key]:
    """A node of the lower half of a tiny model, on chain; what `init` told, and its operator's key."""
    owner = create_account(tmp_path / "owner.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N)
    key = create_account(tmp_path / "operator.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N)
    deployed.anvil.fund(owner)
    tiny_model(tmp_path / "tiny", 1)
    where = ("--rpc", deployed.anvil.url, "--contract", deployed.chain.contract)
    pays = ("--keystore", tmp_path / "owner.json", "--broadcast")
    added = operator.told("model", "add", tmp_path / "tiny", *where, *pays)
    made = operator.told(
        "node", "init", *where, "--class", added["class_id"], "--model", tmp_path / "tiny", "--slice", "0:2",
        "--port", free_port(), "--threads", 1, "--import-key", tmp_path / "operator.json",
    )  # fmt: skip
    operator.told("node", "register", "--owner-keystore", tmp_path / "owner.json", "--broadcast")
    return made, key


async def test_other_weights_are_not_served(tmp_path: Path, operator: Operator, deployed: Any) -> None:
    owner = create_account(tmp_path / "owner.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N)
    deployed.anvil.fund(owner)
    tiny_model(tmp_path / "tiny", 1)
    tiny_model(tmp_path / "other", 2)
    where = ("--rpc", deployed.anvil.url, "--contract", deployed.chain.contract)
    pays = ("--keystore", tmp_path / "owner.json", "--broadcast")
    added = operator.told("model", "add", tmp_path / "tiny", *where, *pays)
    operator.told(
        "node", "init", *where, "--class", added["class_id"], "--model", tmp_path / "other", "--slice", "0:2",
        "--port", free_port(), "--import-key", _operator_key(tmp_path),
    )  # fmt: skip
    process = operator.start()
    _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1
    assert "not the registered model: weights_root differs" in errors


async def test_an_entry_of_the_overlay(
    tmp_path: Path, operator: Operator, deployed: Any, processes: list[subprocess.Popen[str]]
) -> None:
    owner, imported = create_account(tmp_path / "owner.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N), _operator_key(tmp_path)
    deployed.anvil.fund(owner)
    tiny_model(tmp_path / "tiny", 1)
    where = ("--rpc", deployed.anvil.url, "--contract", deployed.chain.contract)
    pays = ("--keystore", tmp_path / "owner.json", "--broadcast")
    added = operator.told("model", "add", tmp_path / "tiny", *where, *pays)
    overlay_port = free_port()
    init = (
        "node", "init", *where, "--class", added["class_id"], "--model", tmp_path / "tiny", "--threads", 1,
        "--port", free_port(), "--import-key", imported,
        "--committee", deployed.chain.contract, "--overlay-port", overlay_port,
    )  # fmt: skip
    part = operator.run(*init, "--slice", "0:2")
    assert part.returncode == 1
    assert "--slice 0:4" in part.stderr
    assert not (operator.home / "node.toml").exists()
    made = operator.told(*init, "--slice", "0:4")
    operator.told("node", "register", "--owner-keystore", tmp_path / "owner.json", "--broadcast")
    process = operator.start()
    processes.append(process)
    wait_for(lambda: is_ready(made), process)
    # One identity: whom the directory names is who is bonded. What is spoken behind TLS is not HTTP.
    with (
        pinned_sync_client(f"https://127.0.0.1:{overlay_port}", bytes.fromhex(made["tls_key_hash"][2:])) as client,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        client.get("/")
    with pinned_sync_client(made["endpoint"], bytes.fromhex(made["tls_key_hash"][2:])) as client:
        assert "troth_node_entry_under_way 0.0" in client.get("/metrics").text
    assert (operator.home / "keys" / "seal.pem").stat().st_mode & 0o777 == 0o600
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == 0


def _operator_key(tmp_path: Path) -> Path:
    create_account(tmp_path / "operator.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N)
    return tmp_path / "operator.json"
