"""Members of one group in one event loop: real channels over TLS, a chain of their own, engines that are told what
their caches hold."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import FastAPI
from support.tabs_stage import execution_class_of
from support.waiting import eventually

from troth.node.direct.group_side import group_of
from troth.node.engine.interface import Cleared, EngineLoad, Removed, Stored
from troth.node.engine.vllm.blocks import block_names, packed
from troth.node.engine.vllm.cache_events import Audience
from troth.node.group import agreement, sharing, telling
from troth.node.group import agreement as key
from troth.node.group.group import Group
from troth.node.group.telling import PATH
from troth.node.pool.meter import Meter
from troth.protocol.identifiers import group_id
from troth.protocol.logs import LogMeta
from troth.protocol.market.messages import state_hash
from troth.protocol.market.state import Party, State
from troth.protocol.market.types import GroupEntry, Role
from troth.protocol.typed_data import Domain
from troth.protocol.types import ZERO_HASH, Address, Hash32, ModelDescriptor, Segment
from troth.protocol.wire_group import Tell
from troth.routing.prefixes import members as member_table
from troth.routing.prefixes import view as views
from troth.transport.channel import Channel
from troth.transport.channel_server import ChannelServer
from troth.transport.identity import Operator, create_identity
from troth.transport.server import TlsServer

DOMAIN = Domain(31337, Address("0x" + "11" * 20))
MODEL = ModelDescriptor("toy", 2, 32, 64, 0, ZERO_HASH)
RULES = execution_class_of(MODEL)
CLASS = Hash32(state_hash(RULES))
WHOLE = Segment(0, MODEL.layers)
BLOCK = 32
PACE = 0.1
"""Seconds of a prompt token: a match is worth any way."""
META = LogMeta(1, 0, ZERO_HASH, ZERO_HASH)


class StagedEngine:
    """A whole engine of which only its cache is there."""

    slice, layers, hidden_size, vocabulary, dtype, cache_bytes, failure = WHOLE, 2, 32, 64, 0, 0, None
    positions = 8192
    tokenizer = ""

    def __init__(self) -> None:
        self.audience = Audience()
        self.running = self.waiting = 0
        self.block = BLOCK

    @property
    def load(self) -> EngineLoad:
        return EngineLoad(self.running, self.waiting, 0.0, 1000, self.block, 0, 0)

    def holds_prompt(self, tokens: Sequence[int]) -> None:
        """The blocks of a prompt come into the cache."""
        names = tuple(block_names(tokens, BLOCK))
        self.audience.tell(Stored(ZERO_HASH, names, packed(tokens[: len(names) * BLOCK])))

    def evicts(self, tokens: Sequence[int]) -> None:
        self.audience.tell(Removed(tuple(block_names(tokens, BLOCK)[::-1])))

    def clears(self) -> None:
        self.audience.tell(Cleared())

    def events(self) -> AsyncIterator[Any]:
        return self.audience.listen()

    async def _unused(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    forward = reference = logits = holds = rehost = forget = release = close = _unused
    generate = prefill = probabilities = _unused


class Member:
    """One node as far as its group goes."""

    def __init__(self, stage: Stage, number: int, folder: Path) -> None:
        self.stage = stage
        self.operator = Operator(bytes([number]) * 32, DOMAIN)
        self.identity = create_identity(folder / f"member{number}")
        self.engine = StagedEngine()
        self.port = 0
        self.begin()

    def begin(self) -> None:
        """A new process: nothing is known but key and chain."""
        meter = Meter()
        meter.note(MODEL.layers, 1, PACE)
        context = SimpleNamespace(engine=self.engine, operator=self.operator, execution_class=CLASS, meter=meter)
        group = group_of(cast(Any, context), state=lambda: self.stage.chain, sessions=lambda: 0)
        assert group is not None
        self.group: Group = group
        self.refused: list[Exception] = []

    @property
    def address(self) -> Address:
        return self.operator.address

    async def _handle(self, sender: Address, header: Tell, payload: memoryview) -> Any:
        try:
            return await self.group.tell(sender, header, payload)
        except Exception as error:
            self.refused.append(error)
            raise

    async def start(self) -> None:
        app = FastAPI()
        server = ChannelServer(self.operator, self._handle, self.group.is_member, requests=(Tell,), path=PATH)
        server.mount(app)
        self.server = TlsServer(app, self.identity, "127.0.0.1", self.port)
        await self.server.start()
        self.port = self.server.port
        self.stage.register(self)
        self.running = asyncio.create_task(self.group.run())

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        await self.group.close()
        await self.server.stop()

    def known(self, other: Member, tokens: Sequence[int]) -> int:
        """Tokens of a prompt that this member believes another one to hold."""
        view = self.group.sharing.view
        if other.address not in view.members:
            return 0
        matches = view.search(view.naming.path(packed(list(tokens))), 1 << view.members[other.address].slot)
        return matches.tokens

    def alive(self, other: Member) -> bool:
        view = self.group.sharing.view
        return other.address in view.members and view.members[other.address].alive

    @property
    def names(self) -> bytes:
        return self.group.sharing.view.naming.identity

    @property
    def share(self) -> bytes:
        return self.group.sharing.header().share

    def channel_to(self, other: Member) -> Channel:
        """A channel of its own, to say what no Group would."""
        return Channel(
            f"https://127.0.0.1:{other.port}", other.identity.spki_sha256, self.operator, other.address, path=PATH
        )


def with_node(
    state: State, operator: Address, endpoint: str, key_hash: Hash32 = ZERO_HASH, hosted: Segment = WHOLE, **more: Any
) -> State:
    """The chain with one more node in the group of what it hosts, or with another word of one that is there."""
    group = group_id(CLASS, hosted)
    size = state.size_at(group, 1)
    places = {entry.operator: place for place, entry in enumerate(state.members_at(group, 1))}
    role = more.pop("role", Role.NODE)
    party = Party(operator, operator, role, operator, endpoint, key_hash, META, CLASS, hosted, **more)
    place = places.get(operator, size)
    return replace(
        state,
        parties=state.parties.set(operator, party),
        entries=state.entries.set((group, place), (GroupEntry(operator, 1, 1, 2),)),
        sizes=state.sizes.set(group, ((1, max(size, place + 1)),)),
    )


class Stage:
    """The chain and its members."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.members: list[Member] = []
        state = State()
        self.chain = State(models=state.models.set(RULES.model, MODEL), classes=state.classes.set(CLASS, RULES))

    def register(self, member: Member, *, hosted: Segment = WHOLE, exit_block: int = 0) -> None:
        key_hash = Hash32(member.identity.spki_sha256)
        endpoint = f"https://127.0.0.1:{member.port}"
        self.chain = with_node(self.chain, member.address, endpoint, key_hash, hosted, exit_block=exit_block)

    def make(self, number: int) -> Member:
        member = Member(self, number, self._folder)
        self.members.append(member)
        return member

    async def started(self, count: int) -> list[Member]:
        """So many members, in the order of their addresses, that have come to the same names."""
        made = [self.make(number) for number in range(1, count + 1)]
        for member in made:
            await member.start()
        await eventually(lambda: agreed(made))
        return sorted(made, key=lambda member: member.address.lower())


def agreed(made: Sequence[Member]) -> bool:
    """Whether all know each other and have the same names."""
    return len({member.names for member in made}) == 1 and all(
        one.alive(other) for one in made for other in made if one is not other
    )


def seems_silent(gone: Member, others: Sequence[Member]) -> None:
    """As if these had heard nothing of it for as long as it takes to be dead."""
    for member in others:
        member.group.sharing.view.members[gone.address].heard -= member_table.SILENCE


async def heard_again(members: Sequence[Member]) -> None:
    """Each of these has heard each of the others once more: whatever was said before this call has arrived."""
    since = time.monotonic()
    pairs = [(one, other) for one in members for other in members if one is not other]
    await eventually(lambda: all(one.group.sharing.view.members[other.address].heard > since for one, other in pairs))


def keeps_its_names(member: Member) -> bool:
    """Whether it would take no other names, however long nothing new is said: it is asked as of later."""
    sharing = member.group.sharing
    own, rows = member.address, sharing.view.members.rows()
    alive = [Address(name) for name, row in rows if row.alive and name != own]
    listed = len(sharing._membership.peers) + 1
    now, asked = time.monotonic(), copy.deepcopy(sharing._agreement)
    waits = (0.0, 2 * agreement.SETTLED, 2 * agreement.REST)
    return all(asked.look(sharing.proposal.lengths, alive, listed, now + later) is None for later in waits)


@asynccontextmanager
async def group_stage(folder: Path) -> AsyncIterator[Stage]:
    stage = Stage(folder)
    try:
        yield stage
    finally:
        for member in stage.members:
            if hasattr(member, "running"):
                await member.stop()


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tenths of seconds instead of seconds, but for silence: this machine is slow."""
    for module in (telling, sharing):
        monkeypatch.setattr(module, "HEARTBEAT", 0.05)
        monkeypatch.setattr(module, "INTERVAL", 0.2)
    monkeypatch.setattr(telling, "SOONEST", 0.01)
    monkeypatch.setattr(views, "INTERVAL", 0.2)
    monkeypatch.setattr(agreement, "SETTLED", 0.2)
    for module in (member_table, key):
        monkeypatch.setattr(module, "SILENCE", 4.0)
