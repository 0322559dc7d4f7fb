"""A node's duties towards several schedulers: what fails of one tab or summons costs it nothing with the others."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from support.market_logs import CONTRACTS

from troth.chain.errors import ChainRejected, ChainUnavailable
from troth.node.earning.keeper import PAUSE_BLOCKS, EarningKeeper
from troth.node.orders import duties
from troth.node.orders.duties import NodeDuties
from troth.protocol.contract_errors import ContractError
from troth.protocol.market.calls import build
from troth.protocol.market.parts import Part
from troth.protocol.types import Address

NOTHING: Any = None
BROKEN, WHOLE = b"\x01" * 32, b"\x02" * 32


class Keeper(EarningKeeper):
    """One that looks after two tabs, of which the first fails."""

    def __init__(self, error: Exception) -> None:
        super().__init__(NOTHING)
        self.error = error
        self.done: list[tuple[str, bytes]] = []

    def _due(self) -> Any:
        return SimpleNamespace(ledger=None)

    def _own_tabs(self, _ledger: Any) -> Any:
        return [(BROKEN, SimpleNamespace(claim=None)), (WHOLE, SimpleNamespace(claim=None))]

    async def _look_after_claim(self, tab: Any, _record: Any, _due: Any) -> None:
        self._did("defended", tab)

    async def _redeem(self) -> None:
        self.done.append(("redeemed", b""))

    async def _claim(self, tab: Any, _record: Any) -> None:
        self._did("claimed", tab)

    async def _report_shortfall(self, _record: Any) -> None:
        pass

    def _did(self, what: str, tab: bytes) -> None:
        if tab == BROKEN:
            raise self.error
        self.done.append((what, tab))


async def test_what_fails_of_one_tab_keeps_no_other_waiting_and_is_told() -> None:
    keeper = Keeper(KeyError("what nobody foresaw"))
    with pytest.raises(KeyError):
        await keeper.step()
    assert keeper.done == [("defended", WHOLE), ("redeemed", b""), ("claimed", WHOLE)]


async def test_vouchers_that_cannot_be_redeemed_keep_no_claim_waiting() -> None:
    class Unredeemable(Keeper):
        async def _redeem(self) -> None:
            raise self.error

    keeper = Unredeemable(KeyError("what nobody foresaw"))
    with pytest.raises(KeyError):
        await keeper.step()
    assert keeper.done == [("defended", WHOLE), ("claimed", WHOLE)]


async def test_a_chain_that_is_away_is_not_asked_for_every_tab() -> None:
    keeper = Keeper(ChainUnavailable("The node is away", "x", "Wait."))
    with pytest.raises(ChainUnavailable):
        await keeper.step()
    assert keeper.done == []


async def test_a_call_that_is_refused_twice_is_left_alone_for_some_blocks_each_time() -> None:
    chain, tried = SimpleNamespace(block=10), list[int]()

    async def execute(_call: Any, _key: Any) -> Any:
        tried.append(chain.block)
        raise ChainRejected("settle", ContractError("TooEarly", {}, "Wait."))

    tools: Any = SimpleNamespace(ledger=lambda: chain, key=None, wallet=SimpleNamespace(execute=execute))
    keeper, call = EarningKeeper(tools), build(CONTRACTS, Part.LOG, "headOf", Address(CONTRACTS.bank))
    for chain.block in range(10, 10 + 3 * PAUSE_BLOCKS):
        await keeper._send(call)
    assert tried == [10, 10 + PAUSE_BLOCKS, 10 + 2 * PAUSE_BLOCKS]


async def test_what_fails_of_one_summons_keeps_no_other_waiting_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence convicts: a record that cannot be read costs this summons alone."""
    sent: list[bytes] = []

    def response(summons_id: bytes, *_arguments: object) -> bytes:
        if summons_id == BROKEN:
            raise KeyError("what nobody foresaw")
        return summons_id

    async def write(job: Any) -> Any:
        return job()

    async def execute(call: bytes, _key: Any) -> Any:
        sent.append(call)
        return SimpleNamespace(block=7)

    async def reached(_block: int) -> None:
        pass

    summons = SimpleNamespace(order=BROKEN)
    monkeypatch.setattr(duties, "passed_to", lambda *_: ((BROKEN, summons), (WHOLE, summons)))
    monkeypatch.setattr(duties, "response", response)
    ground, stores = SimpleNamespace(state=None, block=1), SimpleNamespace(words=None)
    context: Any = SimpleNamespace(ground=ground, me=None, stores=stores, write=write)
    wallet: Any = SimpleNamespace(contracts=None, execute=execute)
    looking = NodeDuties(context, wallet, NOTHING, NOTHING, reached)
    with pytest.raises(KeyError):
        await looking.answer_summons()
    assert (sent, looking.responded) == ([WHOLE], 1)


async def test_objections_to_a_claim_are_answered_together() -> None:
    """The same for a claim on a scheduler's tab, on which it may ask for 32 numbers in one block (attack 202)."""
    sent, block = list[Any](), asyncio.Event()

    class Answering(EarningKeeper):
        async def _answer(self, _record: Any, _under_way: Any, _filed: Any, number: int) -> Any:
            return number

        async def _send(self, call: Any) -> None:
            sent.append(call)
            if len(sent) == 32:
                block.set()  # all of them are in one block
            async with asyncio.timeout(5):
                await block.wait()

    async def write(_job: Any) -> None:
        pass

    claim: Any = SimpleNamespace(objections={one: SimpleNamespace(deadline=60 - one) for one in range(32)})
    tools: Any = SimpleNamespace(write=write)
    filed: Any = SimpleNamespace(objected=())
    due: Any = SimpleNamespace(ledger=SimpleNamespace(block=1))
    await Answering(tools)._defend(NOTHING, claim, filed, due)
    assert sent == sorted(range(32), reverse=True)


async def test_claims_on_many_tabs_are_answered_together() -> None:
    """Attack 205: each of thirty schedulers asks for one number of the claim on its tab, and a window has 20 blocks."""
    sent, block = list[int](), asyncio.Event()

    class Answering(EarningKeeper):
        def _due(self) -> Any:
            return SimpleNamespace(ledger=SimpleNamespace(block=1))

        def _own_tabs(self, _ledger: Any) -> Any:
            claims = [SimpleNamespace(objections={0: SimpleNamespace(deadline=60 - one)}) for one in range(30)]
            return [(one, SimpleNamespace(claim=claim)) for one, claim in enumerate(claims)]

        async def _look_after_claim(self, tab: Any, record: Any, due: Any) -> None:
            await self._defend(tab, record.claim, SimpleNamespace(objected=()), due)  # type: ignore[arg-type]

        async def _answer(self, tab: Any, _under_way: Any, _filed: Any, _number: int) -> Any:
            return tab

        async def _send(self, call: Any) -> None:
            sent.append(call)
            if len(sent) == 30:
                block.set()  # all of them are in one block
            async with asyncio.timeout(5):
                await block.wait()

        async def _redeem(self) -> None:
            pass

        async def _collect(self, _tab: Any, _record: Any) -> None:
            pass

    async def write(_job: Any) -> None:
        pass

    await Answering(SimpleNamespace(write=write)).step()  # type: ignore[arg-type]
    assert sent == list(reversed(range(30))), "those with the nearest deadline first"


async def test_summons_that_are_passed_on_together_are_answered_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window has 20 blocks: of thirty that are answered a block after the other ten would be silence."""
    names = [bytes([number]) * 32 for number in range(30)]
    sent, block = list[bytes](), asyncio.Event()

    async def write(job: Any) -> Any:
        return job()

    async def execute(call: bytes, _key: Any) -> Any:
        sent.append(call)
        if len(sent) == len(names):
            block.set()  # all of them are in one block
        await asyncio.wait_for(block.wait(), 1)
        return SimpleNamespace(block=7)

    async def reached(_block: int) -> None:
        pass

    monkeypatch.setattr(duties, "passed_to", lambda *_: tuple((one, SimpleNamespace(order=one)) for one in names))
    monkeypatch.setattr(duties, "response", lambda summons_id, *_: summons_id)
    ground, stores = SimpleNamespace(state=None, block=1), SimpleNamespace(words=None)
    context: Any = SimpleNamespace(ground=ground, me=None, stores=stores, write=write)
    wallet: Any = SimpleNamespace(contracts=None, execute=execute)
    looking = NodeDuties(context, wallet, NOTHING, NOTHING, reached)
    await looking.answer_summons()
    assert (sent, looking.responded) == (names, 30)  # those with the nearest deadline are sent first
