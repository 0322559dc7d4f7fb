"""`troth demo`: a tab, instant answers over an overlay, checks that the client draws, two that cheat, money, audits."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path

from troth.demo import acts
from troth.demo.refusal_act import refuse
from troth.demo.stage import DemoStage
from troth.testnet.display import Display
from troth.testnet.network import CHECK_PERCENT, LOG_SECONDS, LocalNetwork
from troth.testnet.weights import int8_name, prepare_models

SECOND_QUESTION = "What is the capital of Italy? Answer in one sentence."


def play(folder: Path, models: Path, display: Display, question: str, expected: str, *, keep: bool = False) -> None:
    """Run everything below ``folder``; processes end and files go whatever happens.

    Raises:
        DemoError: something that must happen did not.
    """
    network = LocalNetwork(folder / "network", models, report=display.step)
    prepare_models(models, network.plan, display)
    with network:
        display.console.rule("[bold]A network on this machine", align="left")
        network.start()
        _introduce(network, display)
        stage = DemoStage(network, display)
        _acts(stage, models / "models" / int8_name(network.plan), question, expected)
        display.times()
        if keep:
            wait_for_interrupt(stage)
    shutil.rmtree(folder / "network", ignore_errors=True)
    display.good(f"done in {display.seconds:.0f} s; everything is stopped, nothing is left behind")


def _introduce(network: LocalNetwork, display: Display) -> None:
    plan = network.plan
    display.step(
        f"ready: anvil, two schedulers, {len(network.nodes)} nodes, {plan.members} committee members, {plan.relays} "
        "relays, a process each, TLS between them"
    )
    display.step(
        f"as any network, with shorter windows: blocks of {plan.block_seconds:g} s, {CHECK_PERCENT} % of answers "
        f"checked and not 5 %, a log every {LOG_SECONDS:.0f} s and not every hour"
    )


def _acts(stage: DemoStage, cheating_weights: Path, question: str, expected: str) -> None:
    display, network = stage.display, stage.network
    display.act(1, "A client opens a tab: the one thing that its wallet signs")
    acts.open_tab(stage)
    display.act(2, "Questions are answered at once; the client draws which answers are checked")
    acts.ask_checked(stage, question, expected)
    acts.ask_with_openai(stage, SECOND_QUESTION)
    display.act(3, f"The node {network.favoured} serves int8 weights until a draw hits it")
    rejected = acts.cheat_until_caught(stage, cheating_weights)
    display.act(4, "A rejecting verifier goes to court by itself; nodes judge, the chain decides")
    asyncio.run(acts.court(stage))
    acts.refunded(stage, rejected)
    display.act(5, "A scheduler refuses a check, and pays for it")
    refuse(stage)
    display.act(6, "Who is paid, and what it costs")
    acts.redeem(stage)
    asyncio.run(acts.logged(stage))
    asyncio.run(acts.gas(stage))
    display.act(7, "Anyone re-checks: a receipt that proves itself, the scheduler's log, the whole chain")
    acts.audit(stage)


def wait_for_interrupt(stage: DemoStage) -> None:
    """Tell how to use the network, and keep it until Ctrl-C."""
    network, display = stage.network, stage.display
    password = f"--password-file {network.password_file}"
    place = f"--rpc {network.rpc} --factory {network.factory}"
    display.step("the network stays until Ctrl-C; from another terminal, after `. .venv/bin/activate`:")
    display.command("ask, from the tab of this run", f"troth client chat Hello --home {stage.client.home} {password}")
    display.command("re-check everything", f"troth audit market {place}")
    display.command("what the processes say", f"ls {network.home / 'logs'}")
    try:
        signal.pause()
    except KeyboardInterrupt:
        display.step("stopping")
