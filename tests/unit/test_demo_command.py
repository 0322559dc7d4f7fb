"""`troth demo`: what cannot be played is said before anything starts."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner
from unit.test_demo_network import network_in

from troth.demo import play
from troth.demo.acts import require_convicted
from troth.demo.command import QUESTION, app
from troth.demo.stage import DemoStage
from troth.protocol.market.proceedings import Outcome
from troth.protocol.types import Hash32
from troth.scheduler import assembly, duties
from troth.scheduler.errors import OrderRefused
from troth.testnet import refusing
from troth.testnet.display import Display
from troth.testnet.errors import ActFailed


@pytest.mark.parametrize("act", ["exact"])
def test_an_unknown_engine_is_refused_at_once(act: str) -> None:
    refused = CliRunner().invoke(app, [act, "--engine", "nonsense"])
    assert refused.exit_code == 2
    assert "'nonsense'; use torch or vllm" in " ".join(refused.output.replace("│", " ").split())


def test_the_market_is_what_is_played_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[tuple[object, ...]] = []
    monkeypatch.setattr("troth.demo.play.play", lambda *given, **named: played.append((*given[1:], named)))
    assert CliRunner().invoke(app, ["--models", "/nowhere", "--keep"]).exit_code == 0
    ((models, _, question, expected, named),) = played
    assert (str(models), question, expected, named) == ("/nowhere", QUESTION, "Paris", {"keep": True})
    assert CliRunner().invoke(app, ["market"]).exit_code == 2


def test_a_second_signal_does_not_end_the_tidying_up() -> None:
    """`timeout` sends SIGTERM to the process and to its group; a person presses Ctrl-C twice."""
    code = (
        "import signal; from troth.demo import command\n"
        "command._end_as_interrupted()\n"
        "try: signal.raise_signal(signal.SIGTERM)\n"
        "except KeyboardInterrupt:\n"
        "    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.raise_signal(number)\n"
        "    print('tidied up')\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "tidied up\n", "")


def test_a_network_that_is_kept_says_how_to_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway's address and key, and the network's file that a wallet of one's own needs."""
    network = network_in(tmp_path)
    stage = DemoStage(network, Display(Console(file=io.StringIO(), width=400)))
    stage.client.gateway = SimpleNamespace(address="http://127.0.0.1:5", key="sk-troth-x")  # type: ignore[assignment]
    monkeypatch.setattr(play.signal, "pause", lambda: None)
    play.wait_for_interrupt(stage)
    said = stage.display.console.file.getvalue()  # type: ignore[attr-defined]
    assert "OPENAI_BASE_URL=http://127.0.0.1:5/v1 OPENAI_API_KEY=sk-troth-x" in said
    assert f"troth client init --network {network.file} --home" in said
    assert f"troth audit market --network {network.file}" in said
    assert str(network.password_file) in said


async def test_a_scheduler_that_refuses_replaces_one_part_and_its_duty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "Orders", assembly.Orders)  # type: ignore[attr-defined]
    monkeypatch.setattr(duties, "SummonsDuty", duties.SummonsDuty)  # type: ignore[attr-defined]
    started: list[object] = []
    monkeypatch.setattr("troth.command.main.main", lambda: started.append(assembly.Orders))  # type: ignore[attr-defined]
    refusing.main()
    assert started == [refusing.RefusingOrders]
    assert duties.SummonsDuty is refusing.SilentDuty  # type: ignore[attr-defined]
    orders = object.__new__(refusing.RefusingOrders)
    with pytest.raises(OrderRefused, match="no time for checks"):
        await orders.show_secret(Hash32(bytes(32)), Hash32(bytes(32)))


def test_a_court_that_was_too_slow_to_decide_is_told_as_that() -> None:
    """On a busy machine too few nodes judge within seconds: the demo ended with "value: 4"."""
    with pytest.raises(ActFailed, match="came to no decision") as failed:
        require_convicted(Outcome.UNDECIDED)
    assert "This machine is slow, or has much else to do" in failed.value.remedy
    with pytest.raises(ActFailed, match="the court convicts the cheat") as failed:
        require_convicted(Outcome.NODE_MISSING)
    assert failed.value.value == '"node missing"'
    require_convicted(Outcome.CONVICTED)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_step_that_takes_minutes_shows_on_a_terminal_that_it_goes_on(terminal: bool) -> None:
    said = io.StringIO()
    display = Display(console=Console(file=said, force_terminal=terminal, width=80))
    with display.working("converting a model"):
        time.sleep(0.3)
    assert said.getvalue().count("converting a model") == 1
    assert ("still at it" in said.getvalue()) is terminal
