"""`troth node doctor`: one line per thing that must be right, and the exact fix for each that is not."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from troth.chain.adapter import Chain
from troth.chain.errors import ChainError, KeystoreError
from troth.node.configuration import Configuration, load
from troth.node.configured_slice import text_of
from troth.node.errors import ConfigError, NodeError
from troth.node.findings import CLOCK_SECONDS, GAS_MONEY, Finding
from troth.node.keyfiles import run
from troth.node.process import operator_of, process_slice, process_state
from troth.overlay.errors import OverlayError
from troth.protocol.calls import views
from troth.protocol.contract_types import Account, HostedSlice, Role
from troth.protocol.types import ModelDescriptor


class OnChain(NamedTuple):
    """What the chain says, asked once."""

    block: int
    behind: float
    account: Account
    minimum: int
    gas_money: int
    class_known: bool
    hosted: HostedSlice


def examine(home: Path) -> list[Finding]:
    """All checks; those that need an earlier one to pass are left out when it failed."""
    configuration = load(home)
    findings = [Finding("config", True, str(home / "node.toml"), "")]
    try:
        seen: OnChain = run(_ask(configuration))
    except (ChainError, KeystoreError, NodeError) as error:
        findings.append(Finding("rpc", False, error.what, error.remedy))
    else:
        findings += [*_chain_findings(configuration, seen), _slice(configuration, seen.hosted)]
    return [
        *findings,
        _guarded("device", _device, configuration),
        _guarded("model", _model, configuration),
        _port(configuration),
    ]


async def _ask(configuration: Configuration) -> OnChain:
    operator = operator_of(configuration)
    async with await Chain.connect(configuration.rpc, configuration.contract, chain_id=configuration.chain_id) as chain:
        latest = await chain.block()
        minimum = await chain.read(views.minimum_stake_of(configuration.execution_class))
        return OnChain(
            block=latest.number if latest else 0,
            behind=time.time() - (latest.timestamp if latest else 0),
            account=await chain.read(views.account_of(operator)),
            minimum=minimum,
            gas_money=await chain.balance(operator),
            class_known=minimum > 0,
            hosted=await chain.read(views.slice_of(operator)),
        )


def _chain_findings(configuration: Configuration, seen: OnChain) -> list[Finding]:
    operator = operator_of(configuration)
    stake, bonded = seen.account.stake, seen.account.role is Role.NODE and seen.account.exit_block == 0
    return [
        Finding("rpc", True, f"block {seen.block} at {configuration.rpc.split('?')[0]}", ""),
        Finding(
            "clock",
            seen.behind > -CLOCK_SECONDS,
            f"newest block is {seen.behind:.0f} s old by this clock",
            "This clock is behind: synchronise it (chrony or systemd-timesyncd).",
        ),
        Finding(
            "class", seen.class_known, "0x" + configuration.execution_class.hex(), "Run: troth model add … --broadcast"
        ),
        Finding(
            "stake",
            bonded and stake >= seen.minimum,
            f"{stake} wei of {seen.minimum} needed" + ("" if bonded else ", not registered or leaving"),
            f"Run: troth node register --home {configuration.folder} --owner-keystore FILE --broadcast",
        ),
        Finding(
            "gas",
            seen.gas_money >= GAS_MONEY,
            f"{seen.gas_money} wei at {operator}",
            f"Send {GAS_MONEY - seen.gas_money} wei or more to {operator}.",
        ),
    ]


def _slice(configuration: Configuration, hosted: HostedSlice) -> Finding:
    """The slice in the file, on chain and in the running process are one."""
    file, process = text_of(configuration.slice), process_slice(configuration)
    chain = f"{hosted.first}:{hosted.end}" if hosted.end else file
    running = chain if process is None else text_of(process)
    seen = f"node.toml {file}, chain {chain if hosted.end else 'none'}, process {running if process else 'none'}"
    if running != chain:
        fix = "If the node is loading the new layers, wait; /readyz says what is wrong. Else restart it."
    else:
        fix = f'Set node.slice = "{chain}" in node.toml, or run: troth node move {file} --broadcast'
    return Finding("slice", file == chain == running, seen, fix)


def _guarded(check: str, look: Callable[[Configuration], Finding], configuration: Configuration) -> Finding:
    try:
        return look(configuration)
    except (NodeError, ChainError, OverlayError) as error:
        return Finding(check, False, error.what, error.remedy)
    except ImportError as error:
        return Finding(check, False, str(error), "pip install 'troth[torch]'")


def _device(configuration: Configuration) -> Finding:
    import torch

    from troth.node.loading import require_engine

    kind = configuration.device.split(":")[0]
    usable = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}.get(kind, False)
    require_engine(configuration)
    seen = f"{configuration.engine} on {configuration.device}, torch {torch.__version__}"
    return Finding("device", usable, seen, 'Set engine.device = "cpu".')


def _model(configuration: Configuration) -> Finding:
    from troth.node.loading import require_registered
    from troth.node.models.folder import find_model

    folder = find_model(configuration.folder, configuration.model)
    registered = run(_registered(configuration))
    require_registered(folder, registered)
    if configuration.slice.end > registered.layers:
        raise ConfigError(
            f"node.slice ends at {configuration.slice.end}, the model has {registered.layers} layers",
            str(configuration.slice),
            f"Keep slice and segments within 0:{registered.layers}.",
        )
    return Finding("model", True, f"{folder.path} is the registered model", "")


async def _registered(configuration: Configuration) -> ModelDescriptor:
    from troth.chain.follower import EventFollower

    async with await Chain.connect(configuration.rpc, configuration.contract) as chain:
        follower = EventFollower(chain, None, start_block=configuration.start_block)
        state = await follower.catch_up()
        await follower.close()
    execution_class = state.classes.get(configuration.execution_class)
    if execution_class is None:
        shown = "0x" + configuration.execution_class.hex()
        raise NodeError("the execution class is not registered", shown, "Run: troth model add … --broadcast")
    return state.models[execution_class.model]


def _port(configuration: Configuration) -> Finding:
    place = f"{configuration.host}:{configuration.port}"
    state = process_state(configuration)
    if state.get("ready"):
        return Finding("port", True, f"this node answers on {place}", "")
    try:
        with socket.create_server((configuration.host, configuration.port)):
            return Finding("port", True, f"{place} is free; the node is not running", "")
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return Finding("port", False, f"{place}: {error.strerror}", "Change listen.host or listen.port.")
        reasons = "; ".join(state.get("reasons", []))
        fix = "If this node is starting, wait; else stop what holds the port, or change listen.port."
        return Finding("port", False, f"{place} is in use ({reasons})", fix)
