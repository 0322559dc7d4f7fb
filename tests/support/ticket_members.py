"""Members of a committee that sign tickets: real TLS servers in one event loop, over real contracts on a real chain."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.committee_stage import Clock, StagedMember, key_named

from troth.chain.adapter import Chain
from troth.chain.deployment import committee_creation, submit, tickets_creation
from troth.committee.directory.admission import Posts
from troth.committee.service import member_app
from troth.committee.tickets.keys import TicketKeyMember, TicketKeyStore
from troth.committee.tickets.service import TicketMetrics, TicketOffice
from troth.committee.tickets.turns import TicketTurns
from troth.overlay.directory.listing import CommitteeMembership, read_membership
from troth.protocol.tickets import messages
from troth.protocol.tickets.messages import TicketRules
from troth.protocol.types import Address
from troth.transport.server import TlsServer


@dataclass
class SigningMember:
    """One member; `start` again after `stop` as a process would after a kill: from its file alone."""

    staged: StagedMember
    rpc: str
    chain: Chain
    rules: TicketRules
    membership: CommitteeMembership
    server: TlsServer | None = None
    office: TicketOffice = field(init=False)
    turns: TicketTurns = field(init=False)
    store: TicketKeyStore = field(init=False)

    async def start(self) -> None:
        key = self.staged.key
        self.store = TicketKeyStore(self.staged.folder / "tickets.sqlite")
        signer = TicketKeyMember(key.secret, self.chain.domain, len(self.rules.prices), self.store)
        await self.staged.start(self.membership)
        assert self.staged.server is not None
        await self.staged.server.stop()
        metrics = TicketMetrics(self.staged.state.metrics.registry)
        self.office = TicketOffice(signer, lambda: self.membership, self.chain, 0, metrics)
        self.turns = TicketTurns(key, self.rpc, signer, lambda: self.membership, self.chain, 0.1, 0.0)
        app = member_app(self.staged.state, Posts(1000, 1000), self.staged.vouching, tickets=self.office)
        self.server = TlsServer(app, self.staged.identity, "127.0.0.1", self.staged.port)
        await self.server.start()
        self.staged.server = self.server

    async def stop(self) -> None:
        if self.server is not None:
            await self.staged.stop()
            self.store.close()
            self.server = None


@dataclass
class MembersStage:
    """Members, their committee, and the contract whose tickets they sign."""

    members: list[SigningMember]
    committee: Address
    chain: Chain
    rules: TicketRules
    membership: CommitteeMembership
    anvil: Any

    async def keys(self, epoch: int = 0, silent: tuple[int, ...] = ()) -> None:
        """Turns of everybody that is not silent, until the epoch's keys are registered and everybody knows them."""
        awake = [one for number, one in enumerate(self.members) if number not in silent]
        for _ in range(3):
            for one in awake:
                try:
                    await one.turns.turn()
                except Exception:  # noqa: BLE001 - too few members hold the same yet: the next turn comes
                    continue
        assert await self.chain.read(messages.dealing_of(epoch)) != bytes(32)


@asynccontextmanager
async def members_stage(
    anvil: Any, bank: Address, folder: Path, *, members: int = 4, epoch_blocks: int = 10_000, prices: tuple[int, ...]
) -> AsyncIterator[MembersStage]:
    """Members that listen; none has dealt yet."""
    clock = Clock()
    staged = [
        StagedMember(key_named(f"signer {number}"), folder / f"signer{number}", clock, set())
        for number in range(members)
    ]
    payer = anvil.keys[3]
    for one in staged:
        await one.listen()
        anvil.fund(one.key)
    committee = (await submit(anvil.url, committee_creation([one.entry for one in staged]), payer)).created
    assert committee is not None
    rules = TicketRules(epoch_blocks, prices)
    contract = (await submit(anvil.url, tickets_creation(committee, bank, rules), payer)).created
    assert contract is not None
    membership = await read_membership(anvil.url, committee)
    async with await Chain.connect(anvil.url, contract) as chain:
        signing = []
        for one in staged:
            await one.stop()
            signing.append(SigningMember(one, anvil.url, chain, rules, membership))
            await signing[-1].start()
        try:
            yield MembersStage(signing, committee, chain, rules, membership, anvil)
        finally:
            for member in signing:
                await member.stop()
