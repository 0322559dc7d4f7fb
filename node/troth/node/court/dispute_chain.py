"""The deployment's Disputes on its chain: found as its prover, followed by its events, and sent to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from troth.cases.courtroom import CallRefused, Mined
from troth.chain.adapter import Chain
from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key
from troth.chain.market import Market, find_deployed
from troth.chain.market_follower import MarketFollower
from troth.chain.records import Simulation
from troth.chain.tokens import approvals_in_asset
from troth.node.configuration import NodeConfiguration
from troth.protocol.bindings import DISPUTES
from troth.protocol.calls import Call
from troth.protocol.disputes import calls, life
from troth.protocol.disputes.calls import DisputeEvent
from troth.protocol.disputes.game import DisputeTurn
from troth.protocol.disputes.life import Life
from troth.protocol.hashing import abi_keccak
from troth.protocol.market.calls import PartCall
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.views import parameters_of
from troth.protocol.runtime_code import runtime_of
from troth.protocol.types import ZERO_ADDRESS, Address, Hash32

DISPUTES_FOLDER = "court/disputes"
"""Below the node's own: evidence of disputes that it opened, and traces under way."""
TRACES_FOLDER = DISPUTES_FOLDER + "/traces"
SETTLED = 64
"""Blocks whose events are read again at each look, since a reorganisation may have changed them: two epochs."""


class DisputeChain(Protocol):
    """What disputants need of the chain."""

    @property
    def account(self) -> Address:
        """Who sends."""

    @property
    def bond(self) -> int:
        """What an accuser puts up."""

    @property
    def in_coin(self) -> bool:
        """Whether the bond goes with the call that opens."""

    @property
    def turn(self) -> int:
        """Blocks of a turn."""

    @property
    def opening(self) -> int:
        """Blocks from an order's reference block to the last one in which a dispute over it is opened."""

    async def block(self) -> int:
        """The newest block."""

    async def lives(self) -> Mapping[Hash32, Life]:
        """All disputes of the deployment, as they stand now."""

    async def is_convicted(self, result: Hash32) -> bool:
        """Whether arithmetic has convicted for a result already."""

    async def simulate(self, call: Call) -> Simulation:
        """What a call would do and cost now."""

    async def send(self, call: Call) -> Mined:
        """Send and wait; raises CallRefused, unsent, for what would fail."""

    async def pay(self) -> tuple[str, ...]:
        """Let the contract take the bond where the asset is a token; the calls that were sent for it."""


@dataclass(slots=True)
class LiveDisputes:
    """See ``DisputeChain``; close it."""

    market: Market
    follower: MarketFollower
    key: Key
    chain: Chain
    bond: int
    turn: int
    opening: int
    _settled: Mapping[Hash32, Life] = field(default_factory=dict)
    """Disputes that had not ended in blocks that no reorganisation changes."""
    _recent: list[DisputeEvent] = field(default_factory=list)
    """Events since then, from block ``_first`` on."""
    _first: int = -1
    _read: int = -1

    @property
    def account(self) -> Address:
        """Who sends."""
        return self.key.address

    @property
    def contract(self) -> Address:
        """Where it stands."""
        return self.chain.contract

    @property
    def in_coin(self) -> bool:
        """Whether the bond goes with the call."""
        return parameters_of(self.follower.state).asset == ZERO_ADDRESS

    async def block(self) -> int:
        """The newest block."""
        return await self.chain.block_number()

    async def lives(self) -> Mapping[Hash32, Life]:
        """The disputes of the deployment, as they stand now, but those that ended long ago."""
        head = await self.block()
        first = max(self.market.place.block, self._first, min(self._read, head) - SETTLED + 1)
        logs = await self.chain.logs(first, head)
        settled = (one for one in self._recent if one.meta.block < first)
        known = life.lives(settled, self.turn, self._settled)
        self._settled = {identity: one for identity, one in known.items() if one.ending is None}
        self._recent = [event for log in logs if (event := calls.decode_event(log)) is not None]
        self._first, self._read = first, head
        return life.lives(self._recent, self.turn, self._settled)

    async def is_convicted(self, result: Hash32) -> bool:
        """Whether arithmetic has convicted for a result already."""
        await self.follower.recent()
        return Hash32(abi_keccak(["uint8", "bytes32"], [Fault.BY_PROOF, result])) in self.follower.state.proven

    async def simulate(self, call: Call) -> Simulation:
        """What a call would do and cost now."""
        return await self.market.simulate(PartCall(self.contract, call), self.account)

    async def send(self, call: Call) -> Mined:
        """Send and wait; raises CallRefused, unsent, for what would fail."""
        try:
            receipt = await self.market.execute(PartCall(self.contract, call), self.key)
        except ChainRejected as error:
            raise CallRefused(call.function, error.name, str(error)) from error
        return Mined(receipt.transaction, receipt.block)

    async def pay(self) -> tuple[str, ...]:
        """Let the contract take the bond where the asset is a token; the calls that were sent for it."""
        before = await approvals_in_asset(self.market, self.account, self.bond, spender=self.contract)
        for call in before:
            await self.market.execute(call, self.key)
        return tuple(call.call.function for call in before)

    async def close(self) -> None:
        """Close the connection."""
        await self.chain.close()


async def own_disputes(configuration: NodeConfiguration, operator: Address) -> list[dict[str, Any]]:
    """The disputes under way of an account, as ``troth node status`` tells them, with the progress of their traces."""
    place = configuration.market
    if place is None:
        return []
    deployed = await find_deployed(configuration.rpc, place.factory, place.bank, place.start_block)
    prover = deployed.parameters.prover
    if prover == ZERO_ADDRESS:
        return []
    async with await Chain.connect(configuration.rpc, prover) as chain:
        block = await chain.block_number()
        events = (calls.decode_event(one) for one in await chain.logs(deployed.meta.block, block))
        window = deployed.parameters.answer_window
        found = life.lives((event for event in events if event is not None), window)
    mine = (one for one in found.values() if one.ending is None and operator in {one.state.accused, one.state.accuser})
    return [_told(configuration.folder / TRACES_FOLDER, one, operator, block) for one in mine]


def _told(folder: Path, one: Life, operator: Address, block: int) -> dict[str, Any]:
    matter, state = one.matter, one.state
    mover = state.accuser if state.turn == DisputeTurn.ACCUSER else state.accused
    done = len(list((folder / f"{matter.order.hex()}-{matter.segment}-{matter.position}").glob("*.npz")))
    return {
        "dispute": "0x" + one.id.hex(),
        "order": "0x" + matter.order.hex(),
        "row": matter.position,
        "this_node": "accuses" if operator == state.accuser else "is accused",
        "turn": "this node's" if operator == mover else "the other side's",
        "blocks_left": max(state.deadline - block, 0),
        "rounds": len(one.looks),
        "trace_percent": 100 * done // (matter.end - matter.first),
    }


async def find_disputes(url: str, market: Market, follower: MarketFollower, key: Key) -> LiveDisputes | None:
    """The Disputes that is this deployment's prover; None where it has another prover, or none but ``Proofs``."""
    prover = parameters_of(follower.state).prover
    if prover == ZERO_ADDRESS or not runtime_of(DISPUTES).fits(await market.code(prover)):
        return None
    chain = await Chain.connect(url, prover, chain_id=market.chain.chain_id)
    bond, (turn, opening) = await asyncio.gather(chain.read(calls.bond_for()), chain.read(calls.windows()))
    return LiveDisputes(market, follower, key, chain, bond, turn, opening)
