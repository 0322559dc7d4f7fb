"""The market's chain as a running scheduler sees it: followed state, and transactions that are waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from troth.cases.courtroom import LiveCourtroom
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.chain.market_follower import MarketFollower
from troth.chain.records import TransactionReceipt
from troth.chain.tokens import approvals_in_asset
from troth.protocol.market import views
from troth.protocol.market.calls import PartCall, view
from troth.protocol.market.parts import Part
from troth.protocol.market.prices import PER
from troth.protocol.market.state import State
from troth.protocol.market.types import NO_ADDRESS, Contracts, Parameters
from troth.protocol.types import Address

ANSWER_GAS = 130_000
"""Gas for which an objection deposits: of the dearest answer, that with an order (Bank.sol)."""
FOLLOW_SECONDS = 60.0
"""Until the block of an own receipt has been followed."""


@dataclass(slots=True)
class _Approved:
    """A call that takes tokens, and what becomes of it."""

    call: PartCall
    spends: int
    sent: asyncio.Future[TransactionReceipt] = field(default_factory=asyncio.Future)


class MarketLedger:
    """Reads what was followed; sends with the operator's key. ``courtroom``: the chain as cases need it."""

    def __init__(self, market: Market, follower: MarketFollower, key: Key) -> None:
        self._market = market
        self._follower = follower
        self._key = key
        self._sender: asyncio.Task[None] | None = None
        self._waiting: list[_Approved] = []
        self._is_closed = False
        self.courtroom = LiveCourtroom(market, follower, key)

    @property
    def state(self) -> State:
        """Folded up to ``block``."""
        return self._follower.state

    @property
    def block(self) -> int:
        """The newest block that was followed."""
        return self._follower.block

    @property
    def contracts(self) -> Contracts:
        """The deployment's."""
        return self._market.contracts

    @property
    def parameters(self) -> Parameters:
        """The deployment's."""
        return views.parameters_of(self._follower.state)

    @property
    def trouble(self) -> str:
        """Why the chain is not followed; empty while it is."""
        return self._follower.trouble

    @property
    def age(self) -> float:
        """Seconds since the chain's newest block was followed."""
        return self._follower.age

    async def catch_up(self) -> None:
        """Follow to the newest block; raises ChainError."""
        await self._follower.catch_up()

    async def execute(self, call: PartCall, spends: int = 0) -> int:
        """Send, and follow to the receipt's block; raises ChainError.

        ``spends``: what it takes of the asset, for which a token is approved first.
        """
        if spends and self.parameters.asset != NO_ADDRESS:
            receipt = await self._execute_approved(call, spends)
        else:
            receipt = await self._market.execute(call, self._key)
        await self._follower.reach(receipt.block, FOLLOW_SECONDS)
        return receipt.block

    async def close(self) -> None:
        """Stop sending; whoever waits is cancelled, and whoever comes later."""
        self._is_closed = True
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])

    async def _execute_approved(self, call: PartCall, spends: int) -> TransactionReceipt:
        """One approval replaces another, so one is made for all calls that wait, and these are sent side by side: one
        after the other, the last of many objections would come too late.

        No caller's task sends: one that is cancelled would take the others' calls with it, some of them on their way
        already, and these would be sent twice.
        """
        if self._is_closed:
            raise asyncio.CancelledError
        own = _Approved(call, spends)
        self._waiting.append(own)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_waiting())
        return await own.sent

    async def _send_waiting(self) -> None:
        """Send until nothing waits. A call whose caller was cancelled before it was sent stays unsent."""
        together: list[_Approved] = []
        try:
            while self._waiting:
                together, self._waiting = self._waiting, []
                if ready := [one for one in together if not one.sent.done()]:
                    await self._send_approved(ready)
        finally:
            for one in together + self._waiting:
                one.sent.cancel()
            self._waiting = []

    async def _send_approved(self, together: Sequence[_Approved]) -> None:
        total = sum(one.spends for one in together)
        try:
            for approval in await approvals_in_asset(self._market, self._key.address, total):
                await self._market.execute(approval, self._key)
        except Exception as error:  # noqa: BLE001 -- nobody may wait for ever
            first, *others = together
            if not first.sent.done():
                first.sent.set_exception(error)
            self._waiting = [*others, *self._waiting]  # what failed once may succeed for them
            return
        together = [one for one in together if not one.sent.done()]
        sending = [self._market.execute(one.call, self._key) for one in together]
        outcomes = await asyncio.gather(*sending, return_exceptions=True)
        for one, outcome in zip(together, outcomes, strict=True):
            if one.sent.done():
                continue  # its caller is gone
            if isinstance(outcome, BaseException):
                one.sent.set_exception(outcome)
            else:
                one.sent.set_result(outcome)

    async def is_contract(self, account: Address) -> bool:
        """Whether code lies at an address; whatever is sent to another does nothing, and is paid for."""
        return bool(await self._market.code(account))

    async def pass_deposit(self) -> int:
        """What Summons asks for now of a scheduler that passes a summons on, at half as much base fee again: the
        contract takes up to twice the least, as the fee moves until the block."""
        asked = view(self.contracts, Part.SUMMONS, "passDepositFor", await self._soon(), returns=int)
        return await self._market.read(asked)

    async def objection_deposit(self) -> int:
        """What the Bank takes of who objects, at half as much base fee again; of a token, at the ceiling price.

        A unit at least: it takes no call for nothing, also where gas is free.
        """
        ceiling = self.parameters.gas_price
        is_coin = self.parameters.asset == NO_ADDRESS
        price = min(ceiling, await self._soon() * PER) if is_coin else ceiling
        return max(-(-ANSWER_GAS * price // PER), 1)

    async def _soon(self) -> int:
        """The base fee that a block of the next ones may have, in wei."""
        fees = await self._market.fees()
        return (fees.maximum - fees.priority) // 2 * 3 // 2
