"""Objecting on chain to claims that show more than is owed, and striking those that their payee cannot show.

The wallet sends it, or the tab's own key where that account has coins; nobody else may. The deposit, which pays the
answer's gas, comes out of the tab wherever that holds enough; a strike gives it back and charges the payee what both
calls cost. So one objection is always worth its gas. More of them are sent only while all together cost less than what
is claimed too much, where the two can be compared: in a deployment in the coin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.chain.tokens import approvals_beside
from troth.client.home import Home
from troth.client.orders.claimed import Overclaim, overclaim
from troth.client.orders.session import PayerSession
from troth.client.orders.summoning import base_fee
from troth.client.tabs.books import OwnTab
from troth.client.tabs.spending import spending
from troth.protocol.amounts import COIN, Asset
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.parts import Part
from troth.protocol.market.prices import PER
from troth.protocol.market.state import State
from troth.protocol.market.types import ClaimState, Parameters
from troth.protocol.market.views import parameters_of, strikes_due
from troth.protocol.types import Address

OPEN_AT_ONCE = 4
"""Objections to one claim whose answers are waited for side by side."""
ANSWER_GAS = 130_000
"""Gas for which an objection deposits: of the dearest answer, that with an order (Bank.sol)."""
MARGIN = 5, 4
"""By which the base fee may have risen until an objection is mined."""
GAS_AT_HAND = 300_000
"""Gas that an account must be able to pay for before it objects: an objection and its strike."""


def no_wallet() -> Key | None:
    """The wallet is not at hand."""
    return None


def overdue(state: State, record: OwnTab, block: int) -> tuple[tuple[ClaimState, int], ...]:
    """What is to be struck on a tab: claims, with the numbers that were asked for and not shown."""
    standing = state.tabs.get(record.identifier)
    return () if standing is None else strikes_due(standing, state, block)


def strike_calls(market: Market, record: OwnTab, strikes: Sequence[tuple[ClaimState, int]]) -> tuple[PartCall, ...]:
    """The first one strikes the claim; the others return the deposits of what else was asked for."""
    contracts = market.contracts
    return tuple(build(contracts, Part.BANK, "strike", record.tab, claimed, number) for claimed, number in strikes)


async def object_calls(  # noqa: PLR0917
    market: Market, asset: Asset, state: State, found: Overclaim, number: int, sender: Address
) -> tuple[PartCall, ...]:
    """Ask to see one number; where the tab does not hold the deposit beside what is claimed, the sender adds it."""
    claim, tab = found.claim, found.record.tab
    held = state.tab_state(found.record.identifier)
    deposit = await deposit_for(market, asset, parameters_of(state))
    covered = held.balance >= max(claim.state.owed - held.redeemed, 0) + deposit
    value = deposit if asset.is_coin and not covered else 0
    call = build(market.contracts, Part.BANK, "object", tab, claim.state, number, value=value)
    before = () if asset.is_coin or covered else await approvals_beside(market, asset.token, sender, deposit)
    return (*before, call)


async def deposit_for(market: Market, asset: Asset, parameters: Parameters) -> int:
    """The most that an objection deposits now, in the asset's smallest unit: one of it where gas is free."""
    price = parameters.gas_price
    if asset.is_coin:
        price = min(price, await base_fee(market) * MARGIN[0] // MARGIN[1] * PER)
    return max(ANSWER_GAS * price // PER, 1)


def object_command(record: OwnTab) -> str:
    """The command that does by hand what is not done by itself."""
    return f"troth client object 0x{record.identifier.hex()[:10]} --broadcast"


@dataclass
class Objector:
    """Objects by itself while the gas for one claim is at most ``most`` wei; ``wallet`` is opened when it is needed.

    Several processes of one client may do this: the chain takes an objection to a number once.
    """

    market: Market
    asset: Asset
    most: int
    wallet: Callable[[], Key | None] = no_wallet
    home: Home | None = None
    _opened: list[Key | None] = field(default_factory=list)

    async def look(self, session: PayerSession, record: OwnTab) -> list[str]:
        """Everything that is due about the claim on one tab; what was done, or why not, in lines."""
        late = overdue(session.state, record, session.block)
        if late:
            return await self._strike(session, record, late)
        found = overclaim(session.state, session.journal, record)
        if found is None:
            return []
        _doubt(session, found)
        first, last = found.first(session.parameters), found.last(session.parameters)
        is_time = first <= session.block + 1 <= last and len(found.claim.objections) < OPEN_AT_ONCE
        return [await self._object(session, found, last)] if is_time else []

    async def _strike(self, session: PayerSession, record: OwnTab, late: Sequence[tuple[ClaimState, int]]) -> list[str]:
        key = await self._sender(session, record)
        if key is None:
            return [f"a claim can be struck, and nothing here can send it: `{object_command(record)}`"]
        calls = strike_calls(self.market, record, late)
        sent = [await self.market.execute(call, key) for call in calls]
        about = f"the claim on tab 0x{record.identifier.hex()[:10]}"
        return [f"{about} was not shown when it was asked for: struck by 0x{sent[0].transaction.hex()}"]

    async def _object(self, session: PayerSession, found: Overclaim, last: int) -> str:
        number, excess = found.number(), self.asset.show(found.excess)
        about = f"a claim on tab 0x{found.record.identifier.hex()[:10]} shows {excess} more than is known to be owed"
        if number is None:
            return f"{about}, and all of it was shown on chain: it will be paid"
        by_hand = f"`{object_command(found.record)}` until block {last}"
        key = await self._sender(session, found.record)
        if key is None:
            return f"{about}, and neither wallet nor tab key can pay the gas here: {by_hand}"
        async with spending(self.market, self.asset, self.home):
            calls = await object_calls(self.market, self.asset, session.state, found, number, key.address)
            refusal = await self._too_dear(found, calls, key)
            if refusal:
                return f"{about}; {refusal}: {by_hand}"
            sent = [await self.market.execute(call, key) for call in calls]
        return f"{about}: number {number} is asked for by 0x{sent[-1].transaction.hex()}"

    async def _too_dear(self, found: Overclaim, calls: tuple[PartCall, ...], key: Key) -> str:
        """Why no more is spent on this claim; empty: it is. Each objection is taken to cost what this one does."""
        simulated = await self.market.simulate(calls[0], key.address)
        total = (simulated.maximum_cost + calls[-1].call.value) * (found.count() + 1)
        if total > self.most:
            return f"objecting costs {COIN.show(total)}, and [market] objections allows {COIN.show(self.most)}"
        if found.count() and self.asset.is_coin and total > found.excess:
            return f"one more objection would make it {COIN.show(total)} of gas, more than that"
        return ""

    async def _sender(self, session: PayerSession, record: OwnTab) -> Key | None:
        """The wallet where it is the payer's, else the tab's key: the first that has coins for an objection."""
        if not self._opened:
            self._opened.append(self.wallet())
        keys = [one for one in self._opened if one is not None and one.address == record.tab.payer]
        keys.append(session.keyring.key(record.tab.key))
        needed = GAS_AT_HAND * (await self.market.fees()).maximum
        for key in keys:
            if await self.market.chain.balance(key.address) >= needed:
                return key
        return None


def _doubt(session: PayerSession, found: Overclaim) -> None:
    """No more is ordered on a tab whose payee claims what is not owed, or knows of what this client does not."""
    if not found.record.doubt and not found.asked_after:
        name = "0x" + found.claim.claim_id.hex()[:10]
        why = f"it claims {found.excess} units more on chain than are known to be owed (claim {name})"
        session.books.doubt(found.record.identifier, why)
