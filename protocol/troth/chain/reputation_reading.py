"""Reputation as it is read through a node: settled epochs with their gas and their leader's proof, and all ratings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from troth.chain import decoding
from troth.chain.adapter import Chain
from troth.chain.errors import ChainError, WrongChain
from troth.chain.rpc import Rpc
from troth.protocol import committee_calls, typed_data, vrf
from troth.protocol.bindings import REPUTATION, functions_by_selector
from troth.protocol.bindings.structs import converter, decode_parameters
from troth.protocol.calls import DecodedCall
from troth.protocol.errors import InvalidField, ProtocolError
from troth.protocol.market.signed import VrfProof
from troth.protocol.reputation import EpochUpdate, ReputationPlace, leader_alpha, leader_by
from troth.protocol.reputation_events import (
    EpochSettled,
    NodeRated,
    ReputationEvent,
    ReputationState,
    parse_reputation_log,
)
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32

SPAN = 2_000
"""Blocks asked for at once; public nodes often refuse more."""


class LeaderCheck(StrEnum):
    """What a settlement's input shows of its leader."""

    PROVED = "proved"
    """The last leader's VRF proof holds and draws this one."""
    BY_SEED = "by_seed"
    """Without a proof the seed draws this one."""
    WRONG = "wrong"
    """Proof, digest or draw is another."""
    UNSEEN = "unseen"
    """The input is not to be had, or the members of that block."""


@dataclass(frozen=True, slots=True)
class SettledEpoch:
    """An epoch, what was checked of its leader, and the gas of its settlement; None where the node has no receipt."""

    event: EpochSettled
    leader: LeaderCheck
    gas: int | None
    scored: int
    silent: int


@dataclass(slots=True)
class ReputationReading:
    """Everything up to a block. ``state`` has taken the events before ``broken``, which is why one did not fit; empty:
    all of them did."""

    place: ReputationPlace
    block: int
    state: ReputationState = field(default_factory=ReputationState)
    epochs: list[SettledEpoch] = field(default_factory=list)
    ratings: list[NodeRated] = field(default_factory=list)
    broken: str = ""

    @property
    def epoch(self) -> int:
        """The epoch of the block."""
        assert self.state.deployed is not None
        return (self.block - self.state.deployed.start_block) // self.state.deployed.rules.epoch_blocks

    def take(self, event: ReputationEvent) -> bool:
        """Fold one more event; whether it fitted, as all before it did."""
        if self.broken:
            return False
        try:
            self.state = self.state.after(event)
        except InvalidField as error:
            self.broken = str(error)
            return False
        if isinstance(event, NodeRated):
            self.ratings.append(event)
        return True


Known = dict[Hash32, tuple[LeaderCheck, int | None]]
"""By a settlement's transaction what was checked of its leader, and its gas: looked up once."""


async def read_reputation(
    rpc: str, place: ReputationPlace, registry: Address, *, block: int | None = None, known: Known | None = None
) -> ReputationReading:
    """Read the contract's logs up to a block, or to the newest; every score is computed again.

    Args:
        registry: of the market; a Reputation of another market's nodes is refused.
        known: what an earlier reading looked up; more is added.

    Raises:
        WrongChain: the contract is no Reputation, or belongs to another market.
        ChainError: the node cannot be used.
    """
    found: Known = {} if known is None else known
    async with await Chain.connect(rpc, place.contract) as chain:
        last = await chain.block_number() if block is None else block
        reading, settled = ReputationReading(place, last), list[tuple[EpochSettled, ReputationState]]()
        for start in range(place.start_block, last + 1, SPAN):
            for event in map(parse_reputation_log, await chain.logs(start, min(start + SPAN - 1, last))):
                before = reading.state
                if event is not None and reading.take(event) and isinstance(event, EpochSettled):
                    settled.append((event, before))
        deployed = reading.state.deployed
        if deployed is None:
            what = f"The contract says nothing of reputation from block {place.start_block} on"
            raise WrongChain(what, place.contract, "Name the Reputation contract, and a block not after it.")
        if deployed.registry != registry:
            what = "The contract rates another market's nodes"
            raise WrongChain(what, place.contract, "Name the contract of this deployment, or its --factory.")
        await _look_up(rpc, chain, deployed.committee, settled, found)
    reading.epochs = [_epoch(event, *found[event.meta.transaction], reading.ratings) for event, _ in settled]
    return reading


async def _look_up(
    url: str, chain: Chain, committee: Address, settled: list[tuple[EpochSettled, ReputationState]], known: Known
) -> None:
    fresh = [(event, before) for event, before in settled if event.meta.transaction not in known]
    if not fresh:
        return
    rpc = Rpc(url)
    try:
        async with await Chain.connect(url, committee) as other:
            for event, before in fresh:
                members = await _members(other, event.meta.block)
                sent: Any = await rpc.request("eth_getTransactionByHash", decoding.hexadecimal(event.meta.transaction))
                told = await _gas(rpc, event.meta.transaction)
                check = checked_leader(chain.domain, before, event, decoding.data((sent or {}).get("input")), members)
                known[event.meta.transaction] = check, told
    finally:
        await rpc.close()


async def _members(committee: Chain, block: int) -> tuple[Address, ...]:
    """The members when a block began; empty where the node keeps no states that old."""
    try:
        return tuple(one.operator for one in await committee.read(committee_calls.members(), block - 1))
    except ChainError:
        return ()


async def _gas(rpc: Rpc, transaction: Hash32) -> int | None:
    found: Any = await rpc.request("eth_getTransactionReceipt", decoding.hexadecimal(transaction))
    return decoding.quantity(found.get("gasUsed")) if isinstance(found, dict) else None


def checked_leader(
    domain: Domain, before: ReputationState, event: EpochSettled, data: bytes, members: Collection[Address]
) -> LeaderCheck:
    """Whether the leader of a settled epoch is the one that proof or seed draws, from the settlement's input.

    Args:
        before: the state in which it was settled.
        members: of the committee then; none: they are not known.
    """
    call = _settlement(data)
    if call is None or not members:
        return LeaderCheck.UNSEEN
    update, lead = converter(EpochUpdate)(call.value("update")), converter(VrfProof)(call.value("lead"))
    if typed_data.struct_hash(update.message()) != event.digest or bool(lead.proof) != event.drawn:
        return LeaderCheck.WRONG
    randomness, last = update.seed, before.raters.get(before.leader)
    if lead.proof:
        try:
            assert last is not None  # the contract takes no proof where nobody led before
            alpha = leader_alpha(domain, event.epoch, update.seed)
            randomness = vrf.verify((last.vrf_x, last.vrf_y), alpha, lead.proof)
        except (ProtocolError, AssertionError):
            return LeaderCheck.WRONG
    if leader_by(before.raters, members, event.epoch, randomness) != event.leader:
        return LeaderCheck.WRONG
    return LeaderCheck.PROVED if lead.proof else LeaderCheck.BY_SEED


def _settlement(data: bytes) -> DecodedCall | None:
    entry = functions_by_selector(REPUTATION).get(data[:4])
    if entry is None or entry.name != "settle":
        return None
    try:
        return DecodedCall(entry, decode_parameters(entry.inputs, data[4:]))
    except ProtocolError:
        return None


def _epoch(event: EpochSettled, check: LeaderCheck, gas: int | None, ratings: list[NodeRated]) -> SettledEpoch:
    mine = [one for one in ratings if one.epoch == event.epoch]
    return SettledEpoch(event, check, gas, sum(not one.silent for one in mine), sum(one.silent for one in mine))
