"""Tickets of several clients in one transaction: what one of them spoils is that one's loss alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from troth.chain.errors import ChainRejected, ChainUnavailable
from troth.protocol.contract_errors import ContractError
from troth.protocol.market.calls import PartCall
from troth.protocol.tickets.messages import Spending, TicketKey, TicketPayment
from troth.protocol.types import ZERO_ADDRESS, Address, address_from_bytes
from troth.scheduler.tabs.tickets import TicketDesk, TicketTerms

FEE = 10


def payment_of(place: int) -> TicketPayment:
    key = TicketKey(0, 0, bytes([place]) * 256)
    return TicketPayment((key,), Spending(ZERO_ADDRESS, address_from_bytes(bytes([place]) * 20), FEE, b"", ()))


class Ledger:
    """A chain that takes no call in which the spoiler's key is."""

    def __init__(self, spoiler: TicketPayment) -> None:
        self.spoiler, self.calls = spoiler, 0
        self.may_answer = asyncio.Event()

    async def execute(self, call: PartCall) -> int:
        self.calls += 1
        await self.may_answer.wait()
        if self.spoiler.keys[0].key in call.call.data:
            raise ChainRejected("spend", ContractError("UnknownKey", {}, "Send others."))
        return 70 + self.calls


async def test_whoever_spoils_a_call_and_has_left_costs_the_others_nothing() -> None:
    first, spoiler, last = (payment_of(place) for place in (1, 2, 3))
    ledger: Any = Ledger(spoiler)
    operator: Any = None
    chain: Any = None
    desk = TicketDesk(TicketTerms(ZERO_ADDRESS, FEE), chain, ledger, operator)
    asked = [asyncio.create_task(desk._carried(one, names(place))) for place, one in enumerate((first, spoiler, last))]
    await asyncio.sleep(0)
    asked[1].cancel()
    ledger.may_answer.set()
    assert await asyncio.gather(asked[0], asked[2]) == [None, None]
    with pytest.raises(asyncio.CancelledError):
        await asked[1]
    assert desk._carrying is not None
    await desk._carrying
    assert not desk._waiting


async def test_a_chain_that_is_away_is_asked_once_for_all() -> None:
    """One after the other a hundred payments would wait for half an hour, and pay for what may be mined already."""

    class Away:
        calls = 0

        async def execute(self, _call: PartCall) -> int:
            self.calls += 1
            raise ChainUnavailable("The node is away", "x", "Wait.")

    ledger: Any = Away()
    nothing: Any = None
    desk = TicketDesk(TicketTerms(ZERO_ADDRESS, FEE), nothing, ledger, nothing)
    asked = [asyncio.create_task(desk._carried(payment_of(place), names(place))) for place in (1, 2, 3)]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in outcomes] == [ChainUnavailable] * 3
    assert ledger.calls == 1


def names(place: int) -> tuple[Address, ...]:
    return (address_from_bytes(bytes([0x10 + place]) * 20),)
