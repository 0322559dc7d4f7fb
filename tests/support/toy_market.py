"""A market in memory: a chain that a test moves on by hand, with a model, its class and nodes that may be drawn."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from support.byte_language import VOCABULARY, architecture, language_files
from support.market_scene import execution_class

from troth.chain.errors import FollowTimeout
from troth.chain.keystore import Key
from troth.client.market_table import MarketTable
from troth.protocol import typed_data, vrf
from troth.protocol.identifiers import group_id
from troth.protocol.logs import LogMeta
from troth.protocol.market import messages, shipped, tabs
from troth.protocol.market.addresses import contracts_of
from troth.protocol.market.events import Deployed
from troth.protocol.market.messages import market_domain, tab_id
from troth.protocol.market.prices import rules_of
from troth.protocol.market.state import Party, State, TabRecord, account_id
from troth.protocol.market.types import (
    Ask,
    GroupEntry,
    PotKind,
    Role,
    Tab,
)
from troth.protocol.types import (
    ZERO_HASH,
    Address,
    Hash32,
    ModelDescriptor,
    Segment,
    address_from_bytes,
)

CHAIN_ID, BLOCK, COLUMNS = 31337, 1_000, 16
PARAMETERS = replace(shipped.DEMO, lag=50, seasoning=100, reference_age=200, summons_window=6)
FACTORY = address_from_bytes(b"\xfa" * 20)
CONTRACTS = contracts_of(FACTORY, PARAMETERS)
DOMAIN = market_domain(CHAIN_ID, CONTRACTS.bank)
META = LogMeta(1, 0, ZERO_HASH, ZERO_HASH)
MODEL = ModelDescriptor(architecture(language_files()), 2, COLUMNS, VOCABULARY, 0, Hash32(b"\x51" * 32))
ASK = Ask(300_000_000, 30_000_000, 600_000_000)
PAYER = Key.from_secret(b"\x01" * 32)
DEPOSIT = 1_000_000
TABLE = MarketTable(FACTORY, stall=5, reviewers=5, seats=10, outside=5_000)


# What a test wants drawn seldom is not drawn one time in twenty.
CLASS = execution_class(model=messages.state_hash(MODEL), name="toy float32", least_check_rate=2)
CLASS_ID = messages.state_hash(CLASS)
RULES = rules_of(CLASS, hidden_size=COLUMNS, layers=MODEL.layers)
NODE_KEYS = {typed_data.address_of(bytes([60 + n]) * 32): bytes([60 + n]) * 32 for n in range(24)}


def owner_of(number: int) -> Address:
    return address_from_bytes(bytes([number + 1]) * 20)


def party_of(operator: Address, role: Role, owner: Address, **more: Any) -> Party:
    return Party(operator, owner, role, owner, "https://127.0.0.1:1", ZERO_HASH, META, **more)


class World:
    """The chain: a state and a block. It is the follower of its sessions, too."""

    def __init__(self, ends: tuple[int, ...] = (2,)) -> None:
        self.ends = ends
        self.block = BLOCK
        self.failure: Exception | None = None
        self.trouble = ""
        self.unseen = 0
        self.state = self._with_nodes(
            State(
                deployed=Deployed(ZERO_HASH, CONTRACTS, PARAMETERS, META),
                models=State().models.set(CLASS.model, MODEL),
                classes=State().classes.set(CLASS_ID, CLASS),
            )
        )

    def _with_nodes(self, state: State) -> State:
        first = 0
        for end in self.ends:
            group = group_id(CLASS_ID, Segment(first, end))
            entries, asks, parties = state.entries, state.asks, state.parties
            for number, node in enumerate(NODE_KEYS):
                entries = entries.set((group, number), (GroupEntry(node, 1, 1, 10, 0),))
                asks = asks.set((group, node), ((1, ASK),))
                parties = parties.set(node, party_of(node, Role.NODE, owner_of(number), execution_class=CLASS_ID))
            sizes = state.sizes.set(group, ((1, len(NODE_KEYS)),))
            state = replace(state, entries=entries, asks=asks, parties=parties, sizes=sizes)
            first = end
        return state

    def register(self, scheduler: Address, vrf_secret: bytes) -> None:
        party = party_of(scheduler, Role.SCHEDULER, owner_of(200), vrf_key=vrf.public_key(vrf_secret))
        self.state = replace(self.state, parties=self.state.parties.set(scheduler, party))

    def open_tab(self, tab: Tab, deposit: int = DEPOSIT) -> Hash32:
        identifier = tab_id(tab)
        record = self.state.tabs.get(identifier) or TabRecord(tab)
        pots = self.state.pots.set((PotKind.TAB, identifier), deposit)
        self.state = replace(self.state, tabs=self.state.tabs.set(identifier, record), pots=pots)
        return identifier

    def redeem(self, identifier: Hash32, spent: int) -> int:
        """What a voucher brings now."""
        state = self.state.tab_state(identifier)
        after, paid = tabs.redeem(state, spent)
        record = replace(self.state.tabs[identifier], redeemed=after.redeemed)
        pots = self.state.pots.set((PotKind.TAB, identifier), after.balance)
        self.state = replace(self.state, tabs=self.state.tabs.set(identifier, record), pots=pots)
        return paid

    def stake(self, operator: Address, amount: int) -> None:
        pots = self.state.pots.set((PotKind.STAKE, account_id(operator)), amount)
        self.state = replace(self.state, pots=pots)

    # ---- as a follower

    async def catch_up(self) -> State:
        return self.state

    recent = catch_up

    async def reach(self, block: int, timeout: float) -> State:
        await asyncio.sleep(0)
        if block > self.block:
            raise FollowTimeout(f"Block {block} was not reached", f"at block {self.block}", "")
        return self.state
