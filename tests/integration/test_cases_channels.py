"""A whole case over real channels: TLS, signed envelopes, rows in pieces."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from support.court_stage import HEAD_SALT, CourtStage, court_stage, quantised
from support.tabs_stage import _key

from troth.cases.carrying import Carrier
from troth.cases.journal import CaseJournal
from troth.cases.opening import Opener, WantedCase
from troth.cases.parties import ChannelParties
from troth.protocol import wire_cases
from troth.protocol.market.proceedings import Outcome
from troth.protocol.types import Address, Hash32, Segment
from troth.transport.identity import create_identity
from troth.transport.server import TlsServer, serving

pytestmark = [pytest.mark.chain, pytest.mark.slow]
HALVES = (Segment(0, 1), Segment(1, 2))
NODES = 12


async def test_a_case_over_real_channels(anvil: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("troth.cases.parties.PIECE_LIMIT", 1_000)
    monkeypatch.setattr("troth.cases.context.PIECE_LIMIT", 1_000)
    assert wire_cases.PIECE_LIMIT > 1_000
    apps: dict[Address, FastAPI] = {}
    ends: dict[Address, tuple[str, Hash32]] = {}
    async with AsyncExitStack() as stack:
        for number, key in enumerate([*(_key(f"node {one}") for one in range(NODES)), _key("scheduler")]):
            identity = create_identity(tmp_path / f"tls {number}")
            app = apps[key.address] = FastAPI()
            server = await stack.enter_async_context(serving(TlsServer(app, identity, "127.0.0.1", 0)))
            ends[key.address] = (f"https://127.0.0.1:{server.port}", Hash32(identity.spki_sha256))
        made = court_stage(
            anvil, tmp_path, nodes=NODES, segments=lambda _: HALVES, endpoint=lambda operator: ends[operator]
        )
        court = await stack.enter_async_context(made)
        parties = serve(court, apps)
        evidence = await court.serve(cheat=quantised, parts=(1, 2))
        court.defend(evidence.nodes[1])
        # Rows of the first half come from the opener, in pieces; root, salt and rows of the second from its node.
        rows = court.rows()
        court.store.rows = {1: court.store.rows[1]}
        client = court.stage.client
        own = ChannelParties(court.operator(client), lambda: court.follower.state)
        parties.append(own)
        courtroom, journal = court.courtroom(client), CaseJournal(tmp_path / "journal.sqlite")
        opener = Opener(courtroom, journal)
        carrier = Carrier(courtroom, own, journal, opener=opener)
        whole = replace(evidence, rows=rows, head_salt=HEAD_SALT)
        progress = await court.drive(carrier, await opener.bring(whole, WantedCase(1)))
        assert progress.outcome is Outcome.CONVICTED
        # Nobody had to help itself: everything came over the channels.
        record = court.follower.state.cases[progress.case_id]
        assert not dict(record.posts.items())
        assert not dict(record.reveals.items())
        await asyncio.gather(*(one.close() for one in parties))


def serve(court: CourtStage, apps: dict[Address, FastAPI]) -> list[ChannelParties]:
    """Every context at its endpoint, and reviewers that ask over channels."""
    parties = []
    for address, case_context in list(court.case_contexts.items()):
        key = next((one for one in court.stage.nodes if one.address == address), court.stage.scheduler)
        operator = court.operator(key)

        async def handle(sender: Any, header: Any, payload: Any, address: Address = address) -> Any:
            return await court.case_contexts[address].handle(sender, header, payload)

        server = case_context.server(operator)
        server._handler = handle
        server.mount(apps[address])
        if case_context.reviewer is not None:
            own = ChannelParties(operator, lambda: court.follower.state)
            object.__setattr__(case_context.reviewer.gatherer, "holders", own)
            parties.append(own)
    return parties
