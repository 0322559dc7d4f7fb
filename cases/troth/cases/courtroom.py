"""The chain as a case needs it: what stands there, headers, hints, and sending what would not fail.

``Courtroom`` is the seam; ``LiveCourtroom`` is a deployment behind a node, with a follower and one account that sends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from troth.chain.errors import ChainError, ChainRejected, FollowTimeout
from troth.chain.headers import RawHeader
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.chain.market_follower import MarketFollower
from troth.chain.records import Simulation
from troth.protocol.errors import TrothError
from troth.protocol.market.calls import PartCall, PartView
from troth.protocol.market.state import State
from troth.protocol.market.types import NO_ADDRESS, Contracts, DrawRequest
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32

DRAWS_KEPT = 64
"""Draws of cases that a courtroom remembers."""
AWAY = (ChainError, OSError)
"""The chain cannot be asked now: nothing was decided, and the next look may succeed."""


class CallRefused(TrothError):
    """A call that would fail was not sent: ``name`` of the contract's error. The chain has moved on, or will.

    No CaseError: the case goes on.
    """

    def __init__(self, function: str, name: str, words: str) -> None:
        remedy = "Nothing was sent; look at the chain again."
        super().__init__(f"{function} would fail now", words.removesuffix("."), remedy)
        self.function = function
        self.name = name


@dataclass(frozen=True, slots=True)
class ChainView:
    """The folded chain up to ``block``; a call that is sent now is mined in a later one."""

    state: State
    block: int

    @property
    def next(self) -> int:
        """The first block in which a call can be mined."""
        return self.block + 1


@dataclass(frozen=True, slots=True)
class Mined:
    """A call that stands on the chain."""

    transaction: Hash32
    block: int


class Courtroom(Protocol):
    """What carries a case on needs of the chain."""

    @property
    def contracts(self) -> Contracts:
        """Addresses of the deployment."""

    @property
    def domain(self) -> Domain:
        """Of every signature."""

    @property
    def account(self) -> Address:
        """Who sends."""

    async def seen(self) -> ChainView:
        """The newest state."""

    async def header(self, number: int) -> RawHeader:
        """A block's header."""

    async def hints(self, request: DrawRequest) -> bytes:
        """With which a draw is repeated cheaply now."""

    async def drawn(self, request: DrawRequest) -> tuple[Address, ...]:
        """Whom a request draws, a seat each, in their order; raises Refused where too few are found."""

    async def input_of(self, transaction: Hash32) -> bytes:
        """A transaction's calldata."""

    async def read(self, view: PartView[Any]) -> Any:
        """A contract's own word."""

    async def base_fee(self) -> int:
        """Of the next block, wei per gas."""

    async def simulate(self, call: PartCall) -> Simulation:
        """What a call would do and cost now, without sending it."""

    async def send(self, call: PartCall) -> Mined:
        """Send and wait; raises CallRefused, unsent, for what would fail."""

    async def after(self, block: int, timeout: float) -> None:
        """Return once a block after this one was followed, or the time is over."""


@dataclass(slots=True)
class LiveCourtroom:
    """A deployment behind a node; ``follower`` may run in the background or not."""

    market: Market
    follower: MarketFollower
    key: Key
    _drawn: dict[DrawRequest, tuple[Address, ...]] = field(init=False, default_factory=dict)

    @property
    def contracts(self) -> Contracts:
        """Addresses of the deployment."""
        return self.market.contracts

    @property
    def domain(self) -> Domain:
        """Of every signature."""
        return self.market.domain

    @property
    def account(self) -> Address:
        """Who sends."""
        return self.key.address

    async def seen(self) -> ChainView:
        """The newest state, as of the last poll: several watchers of one party look at each block together."""
        state = await self.follower.recent()
        return ChainView(state, self.follower.block)

    async def header(self, number: int) -> RawHeader:
        """A block's header."""
        return await self.market.header(number)

    async def hints(self, request: DrawRequest) -> bytes:
        """With which a draw is repeated cheaply now."""
        return (await self._draw(request))[1]

    async def drawn(self, request: DrawRequest) -> tuple[Address, ...]:
        """Whom a request draws, a seat each, in their order; raises Refused where too few are found."""
        if request not in self._drawn:
            # What a past block draws never changes: every look at a case asks for it.
            self._drawn = dict(list(self._drawn.items())[1 - DRAWS_KEPT :])
            self._drawn[request] = (await self._draw(request))[0]
        return self._drawn[request]

    async def _draw(self, request: DrawRequest) -> tuple[tuple[Address, ...], bytes]:
        try:
            return await self.market.drawn(request)
        except ChainRejected as error:
            raise CallRefused("draw", error.name, str(error)) from error

    async def input_of(self, transaction: Hash32) -> bytes:
        """A transaction's calldata."""
        return await self.market.chain.transaction_input(transaction)

    async def read(self, view: PartView[Any]) -> Any:
        """A contract's own word."""
        return await self.market.read(view)

    async def base_fee(self) -> int:
        """Of the next block, wei per gas."""
        fees = await self.market.fees()
        return (fees.maximum - fees.priority) // 2

    async def simulate(self, call: PartCall) -> Simulation:
        """What a call would do and cost now, without sending it."""
        return await self.market.simulate(call, self.account)

    async def send(self, call: PartCall) -> Mined:
        """Send and wait; raises CallRefused for what would fail, unsent, and for what failed where it was mined."""
        try:
            receipt = await self.market.execute(call, self.key)
        except ChainRejected as error:
            # Somebody else's call may be what it was refused for, in the very block that it was mined in.
            await self.follower.catch_up()
            raise CallRefused(call.call.function, error.name, str(error)) from error
        await self.follower.catch_up()
        return Mined(receipt.transaction, receipt.block)

    async def after(self, block: int, timeout: float) -> None:
        """Return once a block after this one was followed, or the time is over."""
        try:
            await self.follower.reach(block + 1, timeout)
        except FollowTimeout:
            return


def value_of(seen: ChainView, amount: int) -> int:
    """What goes with a call that puts up an amount: nothing where the asset is a token, which the Bank collects."""
    deployed = seen.state.deployed
    return amount if deployed is not None and deployed.parameters.asset == NO_ADDRESS else 0
