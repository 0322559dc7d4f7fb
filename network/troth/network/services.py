"""What may stand beside a market: Tickets, Reputation, Organisations; how a file names them, and what they must be.

A contract's immutables cannot be read off its code, so true code may serve another committee, or pay out to somebody's
own contract. What created it is therefore looked at, as for the factory: a plain transaction with exactly the shipped
code, and with this network's committee, Bank and Registry as arguments. An account's nonce is used once, so no other
code was ever at that address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from troth.chain import decoding
from troth.chain.deployment import (
    ServiceRules,
    organisations_creation,
    reputation_creation,
    service_arguments,
    tickets_creation,
)
from troth.chain.errors import RpcRefused
from troth.chain.rpc import Rpc
from troth.network.errors import CreationRefused
from troth.network.probing import creation_gas
from troth.protocol.bindings import ORGANISATIONS, REPUTATION, TICKET_PAYER, TICKETS
from troth.protocol.calls import Call
from troth.protocol.hashing import keccak256
from troth.protocol.market.types import Contracts
from troth.protocol.runtime_code import runtime_of
from troth.protocol.types import ZERO_ADDRESS, Address, Hash32

SERVICES = {"tickets": TICKETS, "reputation": REPUTATION, "organisations": ORGANISATIONS}
"""The contracts that may stand beside a market, in the order in which they are deployed, and their bindings."""
CHECK_NUMBERS = {"tickets": "N9", "reputation": "N10", "organisations": "N11"}
GAS_A_BYTE, CONSTRUCTOR_GAS, PRICE_GAS = (
    200,
    {"tickets": 170_000, "reputation": 260_000, "organisations": 60_000},
    6_000,
)
DISTRUST = "Trust it with nothing. Where you expected your own: is this the chain, and the release, of its file?"


@dataclass(frozen=True, slots=True)
class ServicePlace:
    """A contract beside the market, keccak256 of its code, and the transaction that created it (None: not known)."""

    address: Address
    code: Hash32
    created_by: Hash32 | None


Services = Mapping[str, ServicePlace]
"""By the names of ``SERVICES``; what a network does not have is left out."""


def require_services(rules: ServiceRules, committee: bool) -> None:
    """CreationRefused where what is asked for lacks what it stands on."""
    if rules.asked and not committee:
        remedy = "Name its first members with --member, or one that stands with --committee."
        raise CreationRefused("Tickets, ratings and organisations need a committee", ", ".join(rules.asked), remedy)
    if rules.organisations and rules.reputation is None:
        remedy = "Ask for ratings, too: --member-bond."
        raise CreationRefused("Organisations earn credits for what members rated", "--organisations", remedy)


def planned_gas(rules: ServiceRules) -> dict[str, int]:
    """About what each service's creation costs, in the order in which they are sent."""
    calls = {
        "tickets": None if rules.tickets is None else tickets_creation(ZERO_ADDRESS, ZERO_ADDRESS, rules.tickets),
        "reputation": rules.reputation and reputation_creation(ZERO_ADDRESS, ZERO_ADDRESS, rules.reputation),
        "organisations": organisations_creation(ZERO_ADDRESS) if rules.organisations else None,
    }
    prices = () if rules.tickets is None else rules.tickets.prices
    more = {"tickets": PRICE_GAS * len(prices)}
    return {name: _gas(name, call) + more.get(name, 0) for name, call in calls.items() if isinstance(call, Call)}


def _gas(name: str, call: Call) -> int:
    own = creation_gas(len(call.data), runtime_of(SERVICES[name]).length) + CONSTRUCTOR_GAS[name]
    # Its constructor deploys the code of all payers.
    return own + GAS_A_BYTE * runtime_of(TICKET_PAYER).length if name == "tickets" else own


@dataclass(frozen=True, slots=True)
class ServiceVerdict:
    """What was found of one service; ``ok`` None where it could not be decided."""

    ok: bool | None
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class ServiceVerifier:
    """The services of one network under examination."""

    services: Services
    contracts: Contracts
    committee: Address | None
    rpc: Rpc

    async def verdict(self, name: str) -> ServiceVerdict:
        """Code, its hash, and the transaction that created it."""
        place, binding = self.services[name], SERVICES[name]
        code = decoding.data(await self.rpc.request("eth_getCode", place.address, "latest"))
        if not runtime_of(binding).fits(code):
            what = f"no code at {place.address}" if not code else f"other code at {place.address}, {len(code):,} bytes"
            return ServiceVerdict(False, what, DISTRUST)
        if keccak256(code) != place.code:
            return ServiceVerdict(False, "the file says another hash", "Get the file again from who runs the network.")
        return await self._created(name, place)

    async def _created(self, name: str, place: ServicePlace) -> ServiceVerdict:
        if place.created_by is None:
            return ServiceVerdict(None, "the file names no transaction", "Ask the founder for a file that does.")
        created_by = decoding.hexadecimal(place.created_by)
        try:
            sent: Any = await self.rpc.request("eth_getTransactionByHash", created_by)
            receipt: Any = await self.rpc.request("eth_getTransactionReceipt", created_by)
        except RpcRefused as error:
            return ServiceVerdict(None, f"the node refuses: {error.message}", "Use another node.")
        if not isinstance(sent, dict) or not isinstance(receipt, dict):
            return ServiceVerdict(
                None, f"the node does not know {created_by}", "Use a node that keeps old transactions."
            )
        made = decoding.receipt(receipt)
        if made.created != place.address or sent.get("to") is not None:
            return ServiceVerdict(False, f"{created_by} created {made.created or 'nothing'}", DISTRUST)
        given = service_arguments(name, decoding.data(sent.get("input")))
        if given is None:
            return ServiceVerdict(False, f"{created_by} created it with other code", DISTRUST)
        for found, expected in zip(given, self._expected(name), strict=False):
            if found != expected:
                return ServiceVerdict(False, f"it was made for {found} and not for {expected}", DISTRUST)
        return ServiceVerdict(True, f"at {place.address}, since block {made.block:,}")

    def _expected(self, name: str) -> tuple[Address | None, ...]:
        """The first arguments of its constructor."""
        if name == "organisations":
            reputation = self.services.get("reputation")
            return (None if reputation is None else reputation.address,)
        market = self.contracts.bank if name == "tickets" else self.contracts.registry
        return self.committee, market
