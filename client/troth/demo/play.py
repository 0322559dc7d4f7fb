"""The acts in order."""

from __future__ import annotations

import asyncio
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from troth.demo import acts
from troth.demo.display import Display
from troth.demo.network import LocalNetwork
from troth.demo.plan import Plan
from troth.demo.weights import int8_name, prepare_models


@dataclass(frozen=True, slots=True)
class Questions:
    """What is asked: `expected` is a word that the answer to `honest` must hold."""

    honest: str
    expected: str
    cheated: str


def play(folder: Path, models: Path, display: Display, questions: Questions, *, plan: Plan, keep: bool) -> None:
    """Run everything below `folder`; processes end and files go whatever happens.

    Raises:
        DemoError: something that must happen did not.
    """
    prepare_models(models, plan, display)
    with LocalNetwork(folder / "network", models, plan, report=display.step) as network:
        display.console.rule("[bold]A local network", align="left")
        network.start()
        display.step(
            f"ready: anvil, a scheduler, {len(network.nodes)} nodes, {plan.members} committee members, {plan.relays} "
            "relays, a process each, TLS between them"
        )
        stage = acts.Stage(network, display, models / "models" / int8_name(plan))
        display.act(1, "A client deposits, and asks through its gateway and the anonymous overlay")
        acts.deposit(stage)
        gateway = acts.start_gateway(stage)
        honest = acts.honest_question(stage, gateway, questions.honest)
        display.act(2, "Committed, sampled, revealed and settled, with three verifiers a segment")
        acts.require_accepted(honest, questions.expected)
        display.good(f"accepted by all verifiers; {sum(honest.gas.values()):,} gas in {len(honest.gas)} transactions")
        display.act(3, "The drawn inferencer of one segment runs int8 weights")
        second = asyncio.run(acts.cheated_question(stage, questions.cheated))
        acts.require_rejected(second)
        display.good(f"rejected; {stage.names()[second.slashed[0]]} is slashed, the client has its money back")
        display.act(4, "Anyone re-checks all of it from the chain")
        acts.audit(stage, honest, second)
        display.good(f"{display.seconds:.0f} s after set-up")
        if keep:
            acts.restore_weights(stage, second.cheats)
            wait_for_interrupt(network, display)
    shutil.rmtree(folder / "network", ignore_errors=True)
    display.good(f"done in {display.seconds:.0f} s after set-up")
    display.step("everything is stopped, nothing is left behind")


def wait_for_interrupt(network: LocalNetwork, display: Display) -> None:
    """Tell how to use the network, and keep it until Ctrl-C."""
    place = f"--rpc {network.rpc} --contract {network.contract}"
    password = f"--password-file {network.password_file}"
    display.step("the network stays until Ctrl-C; from another terminal, after `. .venv/bin/activate`:")
    display.command(
        "ask, from the wallet of this run", f"troth client chat 'Hello' --home {network.home / 'client'} {password}"
    )
    display.command(
        "ask, from a wallet of your own (this copies a key that holds ether)",
        f"troth client init --home {network.home / 'you'} {place} {password} --import-key {network.owner_keystore}",
    )
    display.command("re-check everything", f"troth audit chain {place}")
    display.command("what the processes say", f"ls {network.home / 'logs'}")
    try:
        signal.pause()
    except KeyboardInterrupt:
        display.step("stopping")
