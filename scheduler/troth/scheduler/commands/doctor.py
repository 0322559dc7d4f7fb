"""`troth scheduler doctor`: one line per thing that must be right, and the exact fix for each that is not."""

from __future__ import annotations

import time
from pathlib import Path

from troth.chain.errors import ChainError, KeystoreError
from troth.chain.tokens import asset_of
from troth.chain.withdrawing import withdrawable
from troth.protocol.amounts import COIN
from troth.protocol.market import views
from troth.protocol.market.types import PotKind, Role
from troth.scheduler.commands.status import GAS_RESERVE, DeploymentStatus, looking, operator_in
from troth.scheduler.configuration import SchedulerConfiguration, load_market
from troth.scheduler.errors import SchedulerError
from troth.scheduler.orders.offers import Offers
from troth.scheduler.pool.showing import asked_here
from troth.scheduler.sections import FILE
from troth.transport.errors import ChannelUnavailable, OverlayError
from troth.transport.health import HealthFinding
from troth.transport.identity import load_identity
from troth.transport.listener import require_free

CLOCK_SECONDS = 30.0
"""Half of what the channel tolerates between two clocks."""
REGISTER = "Run: troth scheduler register --owner-keystore FILE --broadcast"


async def examine(folder: Path) -> list[HealthFinding]:
    """All checks, those that need no chain first; without a configuration there is only one."""
    try:
        configuration = load_market(folder)
    except SchedulerError as error:
        return [HealthFinding("config", False, error.what, error.remedy)]
    runs = bool(await asked_here(configuration, ["/livez"]))
    findings = [
        HealthFinding("config", True, str(folder / FILE), ""),
        _keys(configuration),
        _tls(folder),
        _port(configuration, runs=runs),
    ]
    try:
        async with looking(folder) as looked:
            findings += [HealthFinding("chain", True, f"block {looked.block}", ""), await _clock(looked)]
            findings += [
                *_classes(looked),
                await _registered(looked),
                await _stake(looked),
                _endpoint(looked),
                await _gas(looked),
            ]
    except (ChainError, KeystoreError, SchedulerError) as error:
        findings.append(HealthFinding("chain", False, error.what, error.remedy))
    seen = "it answers" if runs else "it does not run here"
    return [*findings, HealthFinding("process", runs, seen, "Run: troth scheduler start")]


def _keys(configuration: SchedulerConfiguration) -> HealthFinding:
    """Both keyfiles are there; what is in them only the password shows, at the start."""
    if not configuration.vrf_keystore.is_file():
        fix = "Restore the VRF key's file from your copy: the registered key cannot be changed."
        return HealthFinding("keys", False, f"{configuration.vrf_keystore} is not there", fix)
    try:
        return HealthFinding("keys", True, f"operator {operator_in(configuration)}", "")
    except (KeystoreError, SchedulerError) as error:
        return HealthFinding("keys", False, error.what, error.remedy)


def _tls(folder: Path) -> HealthFinding:
    try:
        return HealthFinding("tls", True, "0x" + load_identity(folder / "tls").spki_sha256.hex(), "")
    except OverlayError as error:
        return HealthFinding("tls", False, error.what, error.remedy)


def _port(configuration: SchedulerConfiguration, *, runs: bool) -> HealthFinding:
    place = f"{configuration.host}:{configuration.port}"
    if runs:
        return HealthFinding("port", True, f"this scheduler answers on {place}", "")
    try:
        require_free(configuration.host, configuration.port, f"listen.port in {configuration.folder / FILE}")
    except ChannelUnavailable as error:
        return HealthFinding("port", False, f"{place}: {error.what}", error.remedy)
    return HealthFinding("port", True, f"{place} is free; the scheduler is not running", "")


async def _clock(looked: DeploymentStatus) -> HealthFinding:
    newest = await looked.market.chain.block(looked.block)
    behind = 0.0 if newest is None else time.time() - newest.timestamp
    fix = "This clock is behind. Synchronise it (chrony or systemd-timesyncd)."
    return HealthFinding("clock", behind > -CLOCK_SECONDS, f"newest block is {behind:.0f} s old by this clock", fix)


def _classes(looked: DeploymentStatus) -> list[HealthFinding]:
    """What is served is registered, and its folder holds the registered texts."""
    served = looked.configuration.served
    if not served:
        return [HealthFinding("class", False, "none is served", "Add a [[serve]] table with class, model and ends.")]
    problems = Offers(served, looked.configuration.prices).problems(looked.state)
    fix = "Name the class of this deployment and the folder of its model in [[serve]]; `troth models` lists them."
    if problems:
        return [HealthFinding("class", False, one, fix) for one in problems]
    return [HealthFinding("class", True, f"{len(served)} served, as registered", "")]


async def _registered(looked: DeploymentStatus) -> HealthFinding:
    party = looked.state.parties.get(looked.operator)
    if party is None or party.role is not Role.SCHEDULER:
        return HealthFinding("role", False, "not registered as a scheduler", REGISTER)
    if not party.exit_block:
        return HealthFinding("role", True, "scheduler", "")
    found = await withdrawable(looked.market, looked.operator)
    return HealthFinding("role", False, *found.departure("troth scheduler"))


async def _stake(looked: DeploymentStatus) -> HealthFinding:
    """Enough of it; one that has left needs none."""
    party, asset = looked.state.parties.get(looked.operator), await asset_of(looked.market)
    held, needed = looked.state.pot(PotKind.STAKE, looked.operator), views.parameters_of(looked.state).scheduler_stake
    fix = f"Run: troth scheduler top-up {max(0, needed - held)}units --broadcast"
    if party is None or party.role is not Role.SCHEDULER:
        fix = REGISTER
    elif party.exit_block:
        _, fix = (await withdrawable(looked.market, looked.operator)).departure("troth scheduler")
    return HealthFinding("stake", held >= needed, f"{asset.show(held)}, at least {asset.show(needed)} are needed", fix)


def _endpoint(looked: DeploymentStatus) -> HealthFinding:
    """Clients and nodes find endpoint and TLS key on chain, and trust nothing else."""
    party, configuration = looked.state.parties.get(looked.operator), looked.configuration
    if party is None:
        return HealthFinding("endpoint", False, "none is registered", "Register first.")
    try:
        key = load_identity(configuration.folder / "tls").spki_sha256
    except OverlayError as error:
        return HealthFinding("endpoint", False, error.what, error.remedy)
    same = party.endpoint == configuration.endpoint and party.tls_key_hash == key
    seen = f"{party.endpoint} with TLS key 0x{party.tls_key_hash.hex()} is registered"
    fix = "Set listen.endpoint to what is on chain and restore tls/, or have the owner change the endpoint."
    return HealthFinding("endpoint", same, seen, fix)


async def _gas(looked: DeploymentStatus) -> HealthFinding:
    money = await looked.market.chain.balance(looked.operator)
    seen = f"{COIN.show(money)}; keep more than {COIN.show(GAS_RESERVE)}"
    return HealthFinding("gas", money >= GAS_RESERVE, seen, f"Send coins to {looked.operator}.")
