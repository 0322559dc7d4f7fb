"""`troth demo network`: a network on which a reader tries the commands (docs/tutorials), until Ctrl-C."""

from __future__ import annotations

import shlex
import shutil
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from troth.testnet.display import Display
from troth.testnet.errors import DemoError
from troth.testnet.network import LOADING_SECONDS, LocalNetwork, market_plan
from troth.testnet.observed import prometheus_file
from troth.testnet.weights import prepare_model

VARIABLES = "variables"
"""Name of the file that a shell reads."""
PROMETHEUS = "prometheus.yml"
"""Name of the file that Prometheus reads."""


def play(folder: Path, models: Path, display: Display) -> None:
    """Start a network below ``folder``, tell where everything is, and end it with Ctrl-C; nothing is left behind.

    Raises:
        DemoError: the folder exists, or a process did not become ready.
    """
    if folder.exists():
        what = "The folder of the network exists already"
        raise DemoError(what, folder, "Another network may run there: name another --folder, or remove it.")
    plan = replace(market_plan(), refuser=False)
    # No node is favoured, as none cheats: who is drawn is spread over all of them.
    network = LocalNetwork(folder, models, plan=plan, report=display.step, ready_seconds=LOADING_SECONDS, favoured="")
    prepare_model(models, network.plan, display)
    try:
        with network:
            network.start()
            _introduce(network, display)
            _wait(display)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def variables_of(network: LocalNetwork) -> Mapping[str, object]:
    """What a reader needs to know of the network: its file, keyfiles with money, and where things are."""
    keys = network.home / "keys"
    return {
        "NETWORK": network.file,
        "SCHEDULER": network.scheduler.operator,
        "CLASS": network.execution_class,
        "MODEL": network.models / "models" / network.plan.model,
        "WALLET": keys / "your-wallet.json",
        "OWNER": keys / "your-owner.json",
        "OPERATOR": keys / "your-operator.json",
        "PROMETHEUS": network.home / PROMETHEUS,
        "TROTH_HOME": network.home / "yours",
        "TROTH_PASSWORD_FILE": network.password_file,
    }


def in_shell(variables: Mapping[str, object]) -> str:
    """The same as lines that a shell reads."""
    return "".join(f"export {name}={shlex.quote(str(value))}\n" for name, value in variables.items())


def _introduce(network: LocalNetwork, display: Display) -> None:
    variables = variables_of(network)
    for name in ("WALLET", "OWNER", "OPERATOR"):
        network.account(Path(str(variables[name])))
    file = network.home / VARIABLES
    file.write_text(in_shell(variables))
    (network.home / PROMETHEUS).write_text(prometheus_file(network))
    display.good(f"a chain, a scheduler, {len(network.nodes)} nodes and {network.plan.relays} relays are ready")
    display.command("in another terminal, in the same folder", f". .venv/bin/activate && . {shlex.quote(str(file))}")
    display.step("this network stays until Ctrl-C; then all of it is removed, yours too")


def _wait(display: Display) -> None:
    try:
        signal.pause()
    except KeyboardInterrupt:
        display.step("stopping")
