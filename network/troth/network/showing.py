"""How networks, chains, plans and checks are shown: lines for a person, dictionaries for --json."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from troth.network.creating import CreatedNetwork
from troth.network.description import NetworkDescription, plain_parameters
from troth.network.explaining import Explained, duration, explain
from troth.network.journal import journal_of
from troth.network.planning import CreationPlan, CreationWish
from troth.network.probing import ProbedChain
from troth.network.verifying import Verification
from troth.protocol.amounts import COIN, Asset
from troth.protocol.market.shipped import BLOCK_SECONDS, warning_of
from troth.protocol.market.types import NO_ADDRESS

NARROWEST, WIDEST = 80, 120
"""Columns of a line."""
_ENDS = {
    0: "the network is what its file says",
    1: "the network is NOT what its file says",
    3: "what could be checked holds; not everything could",
}


def chain_text(chain: ProbedChain) -> str:
    """What a chain has."""
    pace = f"a block every {chain.block_seconds:g} s" if chain.block_seconds else "too few blocks to see its pace"
    lines = [f"chain {chain.chain_id} ({chain.client}), block {chain.block:,}, {pace}"]
    for one in chain.findings:
        lost = f"; {one.lost}" if one.lost and not one.ok else "" if one.ok else "; nothing of Troth uses it"
        lines.append(f"  {one.verdict:<8} {one.name:<13} {one.found}{lost}")
    if chain.unfit:
        lines.append("no network can work on this chain: what is missing above is needed")
    return "\n".join(lines)


def told_of_chain(chain: ProbedChain) -> dict[str, Any]:
    """The same for programs."""
    return {
        "chain_id": chain.chain_id,
        "client": chain.client,
        "block": chain.block,
        "block_seconds": chain.block_seconds,
        "fit": not chain.unfit,
        "findings": [asdict(one) | {"verdict": one.verdict} for one in chain.findings],
    }


def parameters_text(explained: Sequence[Explained]) -> list[str]:
    """A line for each parameter, or more in a narrow terminal."""
    values = max(len(one.value) for one in explained)
    width = min(max(shutil.get_terminal_size().columns, NARROWEST), WIDEST)
    indent = " " * (values + 22)
    return [
        textwrap.fill(f"  {one.name:<17} {one.value:<{values}}  {one.meaning}", width, subsequent_indent=indent)
        for one in explained
    ]


def plan_text(wish: CreationWish, plan: CreationPlan, warnings: Sequence[str], *, dry: bool) -> str:
    """What will be created, and for a dry run what is to be done first."""
    pace = plan.chain.block_seconds or BLOCK_SECONDS
    price = plan.fees.maximum / 10**9
    lines = [chain_text(plan.chain), "", f"network {wish.name}, with a block every {pace:g} s:"]
    lines += parameters_text(explain(wish.parameters, pace, plan.paid))
    lines += [
        "",
        f"{len(plan.steps)} transactions, about {plan.gas:,} gas: {COIN.show(_rounded(plan.cost))} at today's price, "
        f"at most {COIN.show(_rounded(plan.most))} ({price:.9g} gwei a gas)",
    ]
    if wish.factory is None and plan.chain.chain_id not in {1, 11_155_111}:
        lines.append("if this is an L2, its fee for data on the parent chain comes on top")
    if plan.balance is not None:
        lines.append(f"the account has {COIN.show(plan.balance)}")
    if plan.under_way:
        lines.append(f"a creation is under way in {journal_of(wish.output)}: it is carried on")
    lines += [f"note: {text}" for text in warnings]
    if dry:
        problems = problems_of(wish, plan)
        lines += [f"problem: {text}" for text in problems]
        lines.append(
            "nothing was sent: " + ("mend this first" if problems else "add --broadcast to create the network")
        )
    return "\n".join(lines)


def problems_of(wish: CreationWish, plan: CreationPlan) -> list[str]:
    """What stands in the way of sending."""
    found = [f"the chain lacks {one.name}: {one.found}" for one in plan.chain.unfit]
    if plan.balance is not None and plan.balance < plan.cost and not plan.under_way:
        found.append(f"the account needs {COIN.show(_rounded(plan.cost - plan.balance))} more for gas")
    if wish.output.exists() and not plan.under_way:
        found.append(f"there is a file {wish.output} already: choose another --output")
    return found


def told_of_plan(wish: CreationWish, plan: CreationPlan, warnings: Sequence[str]) -> dict[str, Any]:
    """The dry run for programs; money as text."""
    pace = plan.chain.block_seconds or BLOCK_SECONDS
    explained = explain(wish.parameters, pace, plan.paid)
    told: dict[str, Any] = {
        "name": wish.name,
        "chain": told_of_chain(plan.chain),
        "parameters": plain_parameters(wish.parameters),
        "explained": {one.name: {"value": one.value, "meaning": one.meaning} for one in explained},
        "transactions": [asdict(step) for step in plan.steps],
        "estimated_gas": plan.gas,
        "estimated_cost_wei": str(plan.cost),
        "maximum_gas_cost_wei": str(plan.most),
        "balance_wei": None if plan.balance is None else str(plan.balance),
        "problems": problems_of(wish, plan),
        "sent": False,
    }
    return told | ({"warning": " ".join(warnings)} if warnings else {})


def created_text(wish: CreationWish, made: CreatedNetwork) -> str:
    """What to do with a new network."""
    return "\n".join(
        [
            verification_text(made.verification),
            f"wrote {wish.output}: {made.gas:,} gas, {COIN.show(made.cost)}",
            "Give this file to everybody. Every command takes it as --network FILE; after",
            f"`troth network add {wish.output}` as --network {wish.name}. Next: troth model register",
        ]
    )


def told_of_creation(wish: CreationWish, made: CreatedNetwork) -> dict[str, Any]:
    """The same for programs."""
    committee = made.network.committee
    return {
        "network": str(wish.output),
        "factory": made.network.factory,
        **asdict(made.network.contracts),
        "committee": None if committee is None else committee.address,
        "disputes": None if made.network.disputes is None else made.network.disputes.address,
        "imprints": None if made.network.imprints is None else made.network.imprints.address,
        "services": {name: place.address for name, place in made.network.services.items()},
        "start_block": made.network.start_block,
        "gas": made.gas,
        "cost_wei": str(made.cost),
        "sent": True,
    }


def network_text(network: NetworkDescription) -> str:
    """What a network is."""
    asset = network.parameters.asset
    paid = COIN if asset == NO_ADDRESS else Asset(asset, "units", 0)
    disputes, imprints = network.disputes, network.imprints
    lines = [
        f"network {network.name} on chain {network.chain_id}, read from block {network.start_block:,}",
        f"  chain nodes       {', '.join(network.rpc) or 'none suggested: name one with --rpc'}",
        f"  committee         {network.committee.address if network.committee else 'none: no overlay'}",
        f"  disputes          {disputes.address if disputes else 'none: wrong rows go to the court'}",
        f"  imprints          {imprints.address if imprints else 'none: who proves a wrong token shows its row'}",
        f"  factory           {network.factory}",
        *(f"  {name:<17} {place}" for name, place in asdict(network.contracts).items()),
        *(f"  {name:<17} {place.address}" for name, place in network.services.items()),
        f"parameters, with a block every {duration(network.block_seconds)}:",
        *parameters_text(explain(network.parameters, network.block_seconds, paid)),
    ]
    if warning := warning_of(network.parameters):
        lines.append(f"note: {warning}")
    return "\n".join([*lines, "`troth network verify` compares this with the chain"])


def told_of_network(network: NetworkDescription) -> dict[str, Any]:
    """The same for programs; money as text."""
    asset = network.parameters.asset
    paid = COIN if asset == NO_ADDRESS else Asset(asset, "units", 0)
    explained = explain(network.parameters, network.block_seconds, paid)
    told: dict[str, Any] = {
        "name": network.name,
        "chain_id": network.chain_id,
        "rpc": list(network.rpc),
        "start_block": network.start_block,
        "block_seconds": network.block_seconds,
        "factory": network.factory,
        "contracts": asdict(network.contracts),
        "committee": None if network.committee is None else network.committee.address,
        "disputes": None if network.disputes is None else network.disputes.address,
        "imprints": None if network.imprints is None else network.imprints.address,
        "services": {name: place.address for name, place in network.services.items()},
        "parameters": plain_parameters(network.parameters),
        "explained": {one.name: {"value": one.value, "meaning": one.meaning} for one in explained},
    }
    warning = warning_of(network.parameters)
    return told | ({"warning": warning} if warning else {})


def verification_text(verification: Verification) -> str:
    """A line for each check, and what to do about one that does not hold."""
    lines = []
    for one in verification.findings:
        verdict = "?" if one.ok is None else "ok" if one.ok else "FAIL"
        lines.append(f"{verdict:<4} {one.number}  {one.what}: {one.found}")
        if one.remedy:
            lines.append(f"         to do: {one.remedy}")
    return "\n".join([*lines, _ENDS[verification.exit_code]])


def told_of_verification(verification: Verification) -> dict[str, Any]:
    """The same for programs; `ok` is null where a check could not be made."""
    return {"ok": verification.exit_code == 0, "findings": [asdict(one) for one in verification.findings]}


def _rounded(wei: int) -> int:
    """To four figures, upwards: estimates have no more."""
    unit: int = 10 ** max(len(str(wei)) - 4, 0)
    return -(-wei // unit) * unit
