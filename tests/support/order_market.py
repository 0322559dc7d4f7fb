"""The market of a network of nodes in memory: parties, groups and tabs, and the ground that a node stands on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from support.market_logs import CONTRACTS, META
from support.tabs_stage import ASK, MODEL, PARAMETERS

from troth.protocol import typed_data, vrf
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import group_id
from troth.protocol.market import events as on
from troth.protocol.market import messages
from troth.protocol.market.messages import KeyCheck, market_domain, signed_by_account, tab_id
from troth.protocol.market.state import Party, State, TabRecord, account_id
from troth.protocol.market.types import (
    NO_ADDRESS,
    Ask,
    ExecutionClass,
    GroupEntry,
    PotKind,
    Role,
    Tab,
)
from troth.protocol.types import ZERO_HASH, Address, Hash32, ModelDescriptor, Segment, address_from_bytes

CHAIN_ID, BLOCK, NOW, DEPOSIT = 31337, 1_000, 1_800_000_000, 10**15
CLIENT_KEY, TAB_KEY, SCHEDULER_KEY, VRF_SECRET = (bytes([number]) * 32 for number in (1, 2, 3, 4))
SCHEDULER = typed_data.address_of(SCHEDULER_KEY)
DOMAIN = market_domain(CHAIN_ID, CONTRACTS.bank)
CLIENT_TAB = Tab(typed_data.address_of(CLIENT_KEY), SCHEDULER, typed_data.address_of(TAB_KEY))
REPLY_SECRET = b"\x25" * 32
PROMPT = tuple(range(10, 22))


def node_secret(number: int) -> bytes:
    return keccak256(b"order network node %d" % number)


@dataclass
class FakeGround:
    """A chain that stands still until a test changes it."""

    state: State
    block: int = BLOCK
    chain_id: int = CHAIN_ID
    key_check: KeyCheck = signed_by_account

    async def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        return condition()


def state_of(
    nodes: Iterable[Address],
    execution_class: ExecutionClass,
    ends: tuple[int, ...],
    ask: Ask = ASK,
    model: ModelDescriptor = MODEL,
) -> State:
    """A registered class with its model, a bonded scheduler, nodes in all groups of the split, and everybody's tabs."""
    nodes, state = list(nodes), State(deployed=on.Deployed(ZERO_HASH, CONTRACTS, PARAMETERS, META))
    class_id = messages.state_hash(execution_class)
    state = replace(
        state,
        models=state.models.set(execution_class.model, model),
        classes=state.classes.set(class_id, execution_class),
    )
    key = vrf.public_key(VRF_SECRET)
    bonded = Party(SCHEDULER, SCHEDULER, Role.SCHEDULER, NO_ADDRESS, "", ZERO_HASH, META, vrf_key=key)
    state = replace(state, parties=state.parties.set(SCHEDULER, bonded))
    for number, node in enumerate(nodes):
        owner = address_from_bytes(bytes([200 - number]) * 20)
        party = Party(node, owner, Role.NODE, NO_ADDRESS, "", ZERO_HASH, META, class_id, Segment(0, model.layers))
        stake = 2 * execution_class.seat
        state = replace(
            state,
            parties=state.parties.set(node, party),
            pots=state.pots.set((PotKind.STAKE, account_id(node)), stake),
        )
    for first, end in zip((0, *ends), ends, strict=False):
        state = with_group(state, group_id(class_id, Segment(first, end)), nodes, ask)
    for tab in (CLIENT_TAB, *(Tab(SCHEDULER, node, SCHEDULER) for node in nodes)):
        state = with_tab(state, tab)
    return state


def with_group(state: State, group: Hash32, nodes: list[Address], ask: Ask) -> State:
    entries, asks = state.entries, state.asks
    for place, node in enumerate(nodes):
        entries = entries.set((group, place), (GroupEntry(node, 1, 1, 2, 0),))
        asks = asks.set((group, node), ((1, ask),))
    return replace(state, entries=entries, asks=asks, sizes=state.sizes.set(group, ((1, len(nodes)),)))


def with_tab(state: State, tab: Tab, balance: int = DEPOSIT, **changes: Any) -> State:
    number = tab_id(tab)
    return replace(
        state,
        tabs=state.tabs.set(number, replace(TabRecord(tab), **changes)),
        pots=state.pots.set((PotKind.TAB, number), balance),
    )
