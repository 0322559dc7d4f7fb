"""From nothing to a registered node by two commands at a terminal: `init` asks, `register` needs no option."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("torch")

from support.operated import DEADLINE, Operated, operated_in
from support.tabs_stage import ASK, tabs_stage
from support.tiny_llama import tiny_model

from troth.chain.keystore import address_in
from troth.node.models.descriptor import describe
from troth.testnet.ports import free_port

pytestmark = [pytest.mark.chain, pytest.mark.slow]

ANSWERS = {
    "HTTP address of a chain node": "{rpc}",
    "Factory of the deployment": "{factory}",
    "Layers to host": "",
    "Address by which schedulers": "https://127.0.0.1:9443",
    "What it asks": "",
    "Make a key for the owner": "y",
    "Password for": "correct horse",
    "The same again": "correct horse",
}


def at_terminal(words: list[str], answers: dict[str, str], environment: dict[str, str]) -> tuple[int, str]:
    """A command in a terminal of its own, whose questions are answered as they come."""
    process, terminal = pty.fork()
    if process == 0:
        os.execvpe(words[0], words, environment)
    ready = select.poll()
    ready.register(terminal, select.POLLIN)
    seen, answered, give_up, left = "", 0, time.monotonic() + DEADLINE, dict(answers)
    while time.monotonic() < give_up:
        if not ready.poll(500):
            continue
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            break
        if not piece:
            break
        seen += piece.decode("utf-8", "replace")
        asked = [one for one in left if one in seen[answered:] and seen.endswith(": ")]
        if asked:
            os.write(terminal, (left.pop(asked[0]) + "\n").encode())
            answered = len(seen)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), seen


async def test_two_commands_at_a_terminal(anvil: Any, tmp_path: Path) -> None:
    (tmp_path / "home" / "models").mkdir(parents=True)
    folder = tiny_model(tmp_path / "home" / "models" / "tiny")
    async with tabs_stage(anvil, nodes=1, model=describe(folder, 0), tabs=False) as stage:
        operated = operated_in(tmp_path)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TROTH_")}
        place = {"rpc": stage.anvil.url, "factory": stage.market.place.factory}
        answers = {question: answer.format(**place) for question, answer in ANSWERS.items()}
        code, seen = at_terminal(operated.command("init", "--bank", stage.market.contracts.bank), answers, environment)
        assert code == 0, seen
        assert "1 nodes" in seen
        assert "the median of its nodes" in seen
        assert "(--model): tiny" in seen
        registers(operated, anvil)


def registers(operated: Operated, anvil: Any) -> None:
    """What `init` wrote is enough: owner, stake of two seats, and the ask of the others."""
    operated.password.write_text("correct horse")
    owner, operator = (address_in(operated.home / "keys" / f"{name}.json") for name in ("owner", "operator"))
    assert owner != operator
    for account in (owner, operator):
        anvil.rpc("anvil_setBalance", account, hex(10**21))
    told = operated.signed("register", "--broadcast")
    assert (told["sent"], told["seats"], told["from"]) == (True, 2, owner)
    status = operated.told("status")
    assert (status["role"], status["slice"]) == ("node", "0:2")
    (group,) = status["groups"]
    assert (group["layers"], group["seats"], group["members"]) == ("0:2", 2, 2)
    asks = operated.told("ask")["asks"]["0:2"]
    assert [int(asks[f"{name}_units_per_billion"]) for name in ("prompt", "cached", "written")] == [
        ASK.prompt,
        ASK.cached,
        ASK.written,
    ]
    added = operated.signed("top-up", "0.5gwei", "--owner-keystore", operated.home / "keys" / "owner.json")
    assert added["added_units"] == str(5 * 10**8)
    assert (added["stake_units"], added["seats"]) == (str(int(told["stake_units"]) + 5 * 10**8), 2)
    assert "warning" not in added
    beyond = operated.signed("top-up", "900ether", "--owner-keystore", operated.home / "keys" / "owner.json")
    assert beyond["seats"] > 2
    assert "bring no seat" in beyond["warning"]
    people = operated.run("status").stdout
    assert "groups 1" in people
    assert re.search(r"^gas money +1000 ether$", people, re.MULTILINE)
    serves_its_page(operated)


def serves_its_page(operated: Operated) -> None:
    """In a process of its own, over the chain as it is."""
    port = free_port()
    process = subprocess.Popen(operated.command("page", "--port", port), stderr=subprocess.DEVNULL)
    give_up, text = time.monotonic() + DEADLINE, ""
    try:
        while not text and time.monotonic() < give_up:
            with contextlib.suppress(httpx.TransportError):
                text = httpx.get(f"http://127.0.0.1:{port}/", timeout=60).text
            time.sleep(0.2)
    finally:
        process.terminate()
        assert process.wait(30) == 0
    assert "Why no work came today" in text
    assert "no scheduler can be asked" in text, "the stage's scheduler does not run"
    assert "2 nodes" in text


def test_without_a_terminal_a_missing_option_is_named(tmp_path: Path) -> None:
    refused = operated_in(tmp_path).run("init")
    assert refused.returncode == 2
    assert "--factory" in refused.stderr
    assert not (tmp_path / "home").exists()
