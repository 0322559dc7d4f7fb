"""`troth demo`: a tab, instant answers over an overlay, checks that the client draws, two that cheat, money, audits."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path

from troth.demo import acts
from troth.demo.moments import Act, Moment
from troth.demo.refusal_act import refuse
from troth.demo.stage import DemoStage
from troth.testnet.display import Display
from troth.testnet.network import CHECK_PERCENT, LOADING_SECONDS, LOG_SECONDS, LocalNetwork
from troth.testnet.weights import int8_name, prepare_models

SECOND_QUESTION = "What is the capital of Italy? Answer in one sentence."


def play(folder: Path, models: Path, display: Display, question: str, expected: str, *, keep: bool = False) -> None:
    """Run everything below ``folder``; processes end and files go whatever happens.

    Raises:
        DemoError: something that must happen did not.
    """
    network = LocalNetwork(folder / "network", models, report=display.step, ready_seconds=LOADING_SECONDS)
    prepare_models(models, network.plan, display)
    with network:
        display.heading("A network on this machine")
        network.start()
        introduce(network, display)
        stage = DemoStage(network, display)
        _acts(stage, models / "models" / int8_name(network.plan), question, expected)
        display.times()
        if keep:
            wait_for_interrupt(stage)
    shutil.rmtree(folder / "network", ignore_errors=True)
    display.good(Moment.DONE.said(seconds=f"{display.seconds:.0f}"))


def introduce(network: LocalNetwork, display: Display) -> None:
    """What runs, and in what it differs from a real network."""
    plan = network.plan
    display.moment(Moment.READY.said(nodes=len(network.nodes), members=plan.members, relays=plan.relays))
    block, log = f"{plan.block_seconds:g}", f"{LOG_SECONDS:.0f}"
    display.moment(Moment.WINDOWS.said(block=block, percent=CHECK_PERCENT, log=log))


def _acts(stage: DemoStage, cheating_weights: Path, question: str, expected: str) -> None:
    display, network = stage.display, stage.network
    _begin(display, Act.TAB)
    acts.open_tab(stage)
    _begin(display, Act.ANSWERS)
    acts.ask_checked(stage, question, expected)
    acts.ask_with_openai(stage, SECOND_QUESTION)
    _begin(display, Act.CHEAT, node=network.favoured)
    rejected = acts.cheat_until_caught(stage, cheating_weights)
    _begin(display, Act.COURT)
    asyncio.run(acts.court(stage))
    acts.refunded(stage, rejected)
    _begin(display, Act.REFUSAL)
    refuse(stage)
    _begin(display, Act.MONEY)
    acts.redeem(stage)
    asyncio.run(acts.logged(stage))
    asyncio.run(acts.gas(stage))
    _begin(display, Act.AUDIT)
    acts.audit(stage)


def _begin(display: Display, act: Act, **values: object) -> None:
    display.act(act.number, act.said(**values))


def wait_for_interrupt(stage: DemoStage) -> None:
    """Tell how to use the network, and keep it until Ctrl-C."""
    network, display = stage.network, stage.display
    gateway = stage.client.gateway
    assert gateway is not None
    password = f"--password-file {network.password_file}"
    place = f"--network {network.file}"
    display.step("the network stays until Ctrl-C; from another terminal, after `. .venv/bin/activate`:")
    display.command("ask, from the tab of this run", f"troth client ask Hello --home {stage.client.home} {password}")
    display.command(
        "let any OpenAI client ask", f"export OPENAI_BASE_URL={gateway.address}/v1 OPENAI_API_KEY={gateway.key}"
    )
    display.command("a wallet of your own", f"troth client init {place} --home FOLDER {password}")
    display.command("re-check everything", f"troth audit market {place}")
    display.command("what the processes say", f"ls {network.home / 'logs'}")
    try:
        signal.pause()
    except KeyboardInterrupt:
        display.step("stopping")
