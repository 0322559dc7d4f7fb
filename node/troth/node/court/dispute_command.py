"""`troth node dispute`: a dispute over a wrong row, from a file of evidence or from what this node rejected.

The command opens it; the node's process plays it to its end. What it needs for that is in the node's folder before
the transaction is sent.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

from troth.cases.command import read_evidence
from troth.cases.errors import NothingToDo
from troth.cases.evidence import Evidence
from troth.chain.keystore import Key, load_account, read_password
from troth.chain.market import Market
from troth.chain.market_follower import MarketFollower
from troth.node.configuration import NodeConfiguration, load
from troth.node.court.accusation import DisputableSegment, disputable
from troth.node.court.accusations import Accusations, DisputePlan, open_dispute, plan, rows_in
from troth.node.court.dispute_chain import DISPUTES_FOLDER, LiveDisputes, find_disputes
from troth.node.court.holding import from_own_rejections
from troth.node.court.opened_weights import OpenedWeights
from troth.node.court.own_disputes import rejected_rows, require_other_rows
from troth.node.engine.loading import load_engine
from troth.node.inspection.process import NO_PROCESS, process_state
from troth.node.models.folder import find_model
from troth.node.orders.rejections import Rejection
from troth.node.orders.running import connect
from troth.node.orders.traces import TraceStore
from troth.protocol.market.state import State

FOLDER = "disputing"
"""Of the followed chain that this command keeps, beside that of the running node."""


def dispute_by(
    home: Path, what: str, password_file: Path | None, *, segment: int | None, position: int | None, broadcast: bool
) -> dict[str, Any]:
    """Who is accused of which row, what it costs and how long it takes; opened with ``broadcast``, else simulated.

    Raises:
        NothingToDo: no row is wrong by more than honest machines differ, or evidence is missing.
        ConfigError: neither a file nor an order that this node rejected.
    """
    configuration = load(home)
    key = load_account(configuration.operator_keystore, read_password(password_file, purpose="the operator"))
    result: dict[str, Any] = asyncio.run(
        _dispute(configuration, key, what, segment=segment, position=position, broadcast=broadcast)
    )
    return result


async def _dispute(
    configuration: NodeConfiguration,
    key: Key,
    what: str,
    *,
    segment: int | None,
    position: int | None,
    broadcast: bool,
) -> dict[str, Any]:
    folder = configuration.folder / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    async with (
        await connect(configuration) as market,
        MarketFollower(market, folder / "chain.sqlite") as follower,
    ):
        state = await follower.catch_up()
        chain = await find_disputes(configuration.rpc, market, follower, key)
        if chain is None:
            what = "This network has no Disputes: rows are not judged by arithmetic"
            raise NothingToDo(what, market.place.factory, "Bring the answer to the court: `troth case open`.")
        try:
            found = _held(configuration, market, state, what, segment)
            await _require_other_rows(configuration, found)
            weights = await asyncio.to_thread(OpenedWeights, find_model(configuration.folder, configuration.model))
            position = await asyncio.to_thread(found.find, weights, position)
            told = _told(await plan(chain, found, weights, position), chain) | _silence(configuration)
            if not broadcast:
                return {**told, "sent": False}
            kept = Accusations(configuration.folder / DISPUTES_FOLDER / "accusations")
            opened = await open_dispute(chain, kept, found, weights, position)
            return {**told, "sent": opened.sent, "dispute": "0x" + opened.id.hex()}
        finally:
            await chain.close()


def _told(made: DisputePlan, chain: LiveDisputes) -> dict[str, Any]:
    told = asdict(made) | {"order": "0x" + made.order.hex(), "accuser": chain.account}
    money = {"bond_units": str(made.bond), "most_wei_of_gas": str(made.gas_cost)}
    refused = {"would_fail": made.refused or None}
    return {**{name: told[name] for name in told if name not in {"bond", "gas_cost", "refused"}}, **money, **refused}


def _silence(configuration: NodeConfiguration) -> dict[str, str]:
    """What is to be done where nobody would take this node's turns."""
    reasons = "; ".join(process_state(configuration).get("reasons", []))
    if not reasons.startswith(NO_PROCESS):
        return {}
    return {"warning": f"{reasons}, and the bond is lost if nobody plays: run `troth node start`"}


def _held(
    configuration: NodeConfiguration, market: Market, state: State, what: str, segment: int | None
) -> DisputableSegment:
    path = Path(what).expanduser()
    if path.is_file():
        evidence = read_evidence(path)
        if evidence.domain != market.domain:
            there = f"chain {evidence.chain_id}, Bank {evidence.bank}"
            raise NothingToDo("The evidence is of another network", there, "Give a home of that network with --home.")
        chosen = len(evidence.results) - 1 if segment is None else segment
        return disputable(evidence, state, chosen, rows_in(evidence, path.parent.resolve()))

    def read(traces: TraceStore, rejection: Rejection, evidence: Evidence) -> DisputableSegment | None:
        if segment not in {None, rejection.segment}:
            return None
        return disputable(evidence, state, rejection.segment, rejected_rows(traces, rejection))

    return from_own_rejections(configuration.folder, what, market.domain, read)


async def _require_other_rows(configuration: NodeConfiguration, found: DisputableSegment) -> None:
    """Where only hashes travelled: that the node signed other rows than an honest one; an engine is loaded for it."""
    if found.text.given is not None:
        return
    engine = await asyncio.to_thread(load_engine, configuration, found.definition, found.descriptor, verify=True)
    try:
        await require_other_rows(engine, found)
    finally:
        await engine.close()
