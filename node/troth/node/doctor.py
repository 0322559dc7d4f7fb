"""`troth node doctor`: one line per thing that must be right, and the exact fix for each that is not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from troth.chain.adapter import Chain
from troth.chain.errors import ChainError, KeystoreError
from troth.node.configuration import Configuration, load
from troth.node.errors import NodeError
from troth.node.machine_checks import CLOCK_SECONDS, GAS_MONEY, Finding, machine_findings, slice_finding
from troth.node.process import operator_of
from troth.node.transactions import run
from troth.protocol.calls import views
from troth.protocol.contract_types import Account, HostedSlice, Role
from troth.protocol.types import ModelDescriptor, Segment


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
        hosted = Segment(seen.hosted.first, seen.hosted.end) if seen.hosted.end else None
        findings += [*_chain_findings(configuration, seen), slice_finding(configuration, hosted)]
    return [*findings, *machine_findings(configuration, lambda: run(_registered(configuration)))]


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
