"""`troth node accuse`: a proof of a wrong token, from a file of evidence or from what this node rejected."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from troth.cases.command import read_evidence
from troth.cases.evidence import Evidence, rows_of
from troth.cases.office import CaseSettings, Office, open_office
from troth.chain.keystore import Key, load_account, read_password
from troth.node.configuration import NodeConfiguration, load
from troth.node.court.accusing import accuse
from troth.node.court.holding import from_own_rejections
from troth.node.court.imprinting_command import HiddenProof, accuse_hidden
from troth.node.court.proving import accused_text, require_again, rows_again
from troth.node.engine.loading import load_engine
from troth.node.errors import ConfigError
from troth.node.models.folder import find_model
from troth.node.orders.rejections import Rejection
from troth.node.orders.session import JUDGED
from troth.node.orders.traces import TraceStore
from troth.protocol.market.state import State
from troth.protocol.market.views import class_of
from troth.protocol.tensors import Dtype, rows_to_bytes

FOLDER = "accusing"
"""Of the followed chain that this command keeps, beside that of the running node."""


def accuse_by(
    home: Path, what: str, password_file: Path | None, hidden: HiddenProof | None = None, *, broadcast: bool
) -> dict[str, Any]:
    """Who is convicted and how; sent with ``broadcast``, else simulated. ``hidden``: without showing the row.

    Raises:
        NothingToDo: no token of the answer is wrong by more than honest machines differ, or evidence is missing.
        ConfigError: neither a file nor an order that this node rejected.
    """
    configuration = load(home)
    key = load_account(configuration.operator_keystore, read_password(password_file, purpose="the operator"))
    result: dict[str, Any] = asyncio.run(_accuse(configuration, key, what, hidden, broadcast=broadcast))
    return result


async def _accuse(
    configuration: NodeConfiguration, key: Key, what: str, hidden: HiddenProof | None, *, broadcast: bool
) -> dict[str, Any]:
    place = configuration.market
    if place is None:
        raise ConfigError("this node serves no market", "no [market]", "Name its factory in node.toml.")
    folder = configuration.folder / FOLDER
    settings = CaseSettings(configuration.rpc, place.factory, folder, key, place.bank, place.start_block)
    async with open_office(settings) as office:
        seen = await office.courtroom.seen()
        evidence, rows = _held(configuration, office, what)
        rows = rows or await _computed_again(configuration, evidence, seen.state)
        text = accused_text(evidence, seen.state, rows)
        model = find_model(configuration.folder, configuration.model)
        if hidden is not None:
            return await accuse_hidden(text, model, office.courtroom, hidden, broadcast=broadcast)
        proof = await asyncio.to_thread(accuse, text, model)
        call = proof.build(office.courtroom.contracts, b"")
        told = {"convicts": proof.conviction.convict, "order": "0x" + proof.conviction.order.hex(), "why": proof.words}
        if broadcast:
            mined = await office.opener.convict(proof)
            return {**told, "sent": True, "block": mined.block}
        simulation = await office.courtroom.simulate(call)
        refused = None if simulation.rejection is None else str(simulation.rejection)
        return {**told, "sent": False, "would_fail": refused, "most_wei_of_gas": str(simulation.maximum_cost)}


async def _computed_again(configuration: NodeConfiguration, evidence: Evidence, state: State) -> bytes:
    """Rows of which only hashes travelled, by an engine of this command's own."""
    require_again(evidence, state)
    definition, descriptor = class_of(state, evidence.signed_order.order.execution_class)
    engine = await asyncio.to_thread(load_engine, configuration, definition, descriptor, verify=True)
    try:
        return await rows_again(engine, evidence, state)
    finally:
        await engine.close()


def _held(configuration: NodeConfiguration, office: Office, what: str) -> tuple[Evidence, bytes]:
    path = Path(what).expanduser()
    if path.is_file():
        evidence = read_evidence(path)
        return evidence, rows_of(evidence, len(evidence.results) - 1, path.parent.resolve()) or b""

    def read(traces: TraceStore, rejection: Rejection, evidence: Evidence) -> tuple[Evidence, bytes] | None:
        trace = traces.find(rejection.order, rejection.segment, JUDGED)
        if trace is None and len(rejection.papers.results) > 1:
            return None  # a segment within the pipeline, whose rows choose no token
        return evidence, b"" if trace is None else rows_to_bytes(traces.rows(trace), Dtype(trace.dtype))

    return from_own_rejections(configuration.folder, what, office.courtroom.domain, read)
