"""Tickets as they are read through a node: their events up to a block, folded, and what the contract holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from troth.chain.adapter import Chain
from troth.chain.errors import ChainRejected, RpcRefused, WrongChain
from troth.chain.rpc import Rpc
from troth.chain.tokens import holdings
from troth.protocol.errors import InvalidField
from troth.protocol.market.state import State
from troth.protocol.tickets import messages
from troth.protocol.tickets.events import TicketEvent, TicketsFold, parse_ticket_log
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address

SPAN = 2_000
"""Blocks asked for at once; public nodes often refuse more."""


@dataclass(frozen=True, slots=True)
class TicketsContract:
    """A Tickets contract, and a block not after its deployment."""

    contract: Address
    start_block: int = 0


@dataclass(slots=True)
class TicketsReading:
    """Everything up to a block. ``fold`` has taken the events before ``broken``, which is why one did not fit; empty:
    all of them did. ``outstanding`` is the contract's own word for each (epoch, denomination) at the last block,
    ``holdings`` what it has of the asset there; None where the node keeps no states that old."""

    place: TicketsContract
    domain: Domain
    block: int
    events: tuple[TicketEvent, ...]
    fold: TicketsFold = field(default_factory=TicketsFold)
    broken: str = ""
    outstanding: dict[tuple[int, int], int] = field(default_factory=dict)
    holdings: int | None = None


async def read_tickets(rpc: str, place: TicketsContract, market: State, *, block: int | None = None) -> TicketsReading:
    """Read the contract's logs up to a block, or to the newest.

    Args:
        market: whose tabs are filled; Tickets of another market are refused.

    Raises:
        WrongChain: the contract is no Tickets, or belongs to another market.
        ChainError: the node cannot be used.
    """
    async with await Chain.connect(rpc, place.contract) as chain:
        last = await chain.block_number() if block is None else block
        events: list[TicketEvent] = []
        for start in range(place.start_block, last + 1, SPAN):
            found = map(parse_ticket_log, await chain.logs(start, min(start + SPAN - 1, last)))
            events += [one for one in found if one is not None]
        reading = TicketsReading(place, chain.domain, last, tuple(events))
        _fold(reading)
        deployed = reading.fold.deployed
        if deployed is None:
            what = f"The contract says nothing of tickets from block {place.start_block} on"
            raise WrongChain(what, place.contract, "Name the Tickets contract, and a block not after it.")
        if market.deployed is None or deployed.bank != market.deployed.contracts.bank:
            what = "The contract fills tabs of another market"
            raise WrongChain(what, place.contract, "Name the contract of this deployment, or its --factory.")
        await _words(rpc, chain, reading, market.deployed.parameters.asset)
    return reading


async def _words(url: str, chain: Chain, reading: TicketsReading, asset: Address) -> None:
    rpc = Rpc(url)
    try:
        held = await holdings(rpc, asset, reading.place.contract, reading.block)
        for epoch, denomination in reading.fold.sold:
            said = await chain.read(messages.outstanding(epoch, denomination), reading.block)
            reading.outstanding[epoch, denomination] = said
        reading.holdings = held
    except (RpcRefused, ChainRejected):
        reading.outstanding.clear()
    finally:
        await rpc.close()


def _fold(reading: TicketsReading) -> None:
    try:
        for event in reading.events:
            reading.fold.take(event)
        reading.fold.require_settled()
    except InvalidField as error:
        reading.broken = str(error)
