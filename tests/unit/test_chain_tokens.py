"""Approvals of a token: only what is missing, and taken back first where the token wants that."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from eth_abi.abi import decode, encode

from troth.chain.market import Market
from troth.chain.tokens import approvals, approvals_beside, approvals_in_asset, read_asset, selector
from troth.client.orders import objecting, summoning
from troth.client.orders.objecting import Objector
from troth.client.orders.summoning import AutomaticSummons
from troth.protocol.amounts import Asset
from troth.protocol.market.proceedings import SummonsKind
from troth.protocol.types import Address

TOKEN, BANK, OWNER = (Address("0x" + digit * 40) for digit in "123")


class ToyMarket:
    """One token; ``strict``: it refuses to change an allowance that is not zero."""

    def __init__(self, allowed: int, *, strict: bool = False) -> None:
        self.contracts = SimpleNamespace(bank=BANK)
        self.allowed = allowed
        self.strict = strict

    async def call(self, _token: Address, _data: bytes) -> bytes:
        return self.allowed.to_bytes(32)

    async def simulate(self, call: Any, _sender: Address) -> Any:
        refused = self.strict and self.allowed and amount_of(call)
        return SimpleNamespace(rejection="not from one to another" if refused else None)

    async def read(self, _view: Any) -> Address:
        return Address("0x" + "0" * 40)


def amount_of(call: Any) -> int:
    spender, amount = decode(["address", "uint256"], call.call.data[4:])
    assert str(spender).lower() == BANK
    return int(amount)


@pytest.mark.parametrize(
    ("allowed", "strict", "wanted"),
    [(0, False, [70]), (0, True, [70]), (69, False, [70]), (69, True, [0, 70]), (70, True, []), (99, False, [])],
)
async def test_what_is_missing_is_approved(allowed: int, strict: bool, wanted: list[int]) -> None:
    market = cast(Market, ToyMarket(allowed, strict=strict))
    calls = await approvals(market, TOKEN, OWNER, 70)
    assert [amount_of(call) for call in calls] == wanted
    assert {call.to for call in calls} <= {TOKEN}


class BusyToken(ToyMarket):
    """One whose calls take a while: ``taken`` is what they took, in order."""

    def __init__(self, allowed: int) -> None:
        super().__init__(allowed)
        self.taken: list[int] = []
        self.header: Any = None

    async def execute(self, call: Any, _key: Any) -> Any:
        await asyncio.sleep(0)
        if isinstance(call, int):
            assert self.allowed >= call, "the allowance is another call's"
            self.allowed -= call
            self.taken.append(call)
        else:
            self.allowed = amount_of(call)
        await asyncio.sleep(0)
        return SimpleNamespace(transaction=b"\x01" * 32)


async def test_summonses_objections_and_cases_take_no_allowance_of_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack 206: a false answer's case was approved, and could not be opened after a summons had taken of it."""
    market, key, token = cast(Market, BusyToken(1_000)), cast(Any, SimpleNamespace(address=OWNER)), Asset(TOKEN, "T", 6)

    async def deposit_of(*_words: Any) -> int:
        return 50

    async def deposit_for(*_words: Any) -> int:
        return 60

    async def beside(amount: int) -> tuple[Any, ...]:
        return (*await approvals_beside(market, TOKEN, OWNER, amount), amount)

    monkeypatch.setattr(summoning, "deposit_of", deposit_of)
    monkeypatch.setattr(summoning, "calls_of", lambda *words: beside(words[4]))
    monkeypatch.setattr(objecting, "object_calls", lambda *_: beside(60))
    monkeypatch.setattr(Objector, "_sender", AsyncMock(return_value=key))
    monkeypatch.setattr(Objector, "_too_dear", AsyncMock(return_value=""))
    due = SimpleNamespace(kind=SummonsKind.CHECK)
    found = SimpleNamespace(number=lambda: 1, excess=9, record=SimpleNamespace(identifier=TOKEN.encode()))
    summons, objector = AutomaticSummons(market, token, key, 1_000), Objector(market, token, 1_000)
    session = cast(Any, SimpleNamespace(state=None))
    await asyncio.gather(
        *(summons.summon(cast(Any, None), cast(Any, due)) for _ in range(3)),
        *(objector._object(session, cast(Any, found), 9) for _ in range(3)),
    )
    toy = cast(BusyToken, market)
    assert sorted(toy.taken) == [50] * 3 + [60] * 3
    assert toy.allowed == 1_000, "what was approved for a case is still there"


async def test_the_coin_needs_none() -> None:
    assert await approvals_in_asset(cast(Market, ToyMarket(0)), OWNER, 70) == ()


class ToyToken:
    """Answers decimals() and symbol() with the bytes that it was given."""

    def __init__(self, symbol: bytes) -> None:
        self.answers = {selector("decimals()"): encode(["uint8"], [6]), selector("symbol()"): symbol}

    async def call(self, _to: Address, data: bytes) -> bytes:
        return self.answers[data]


@pytest.mark.parametrize(
    ("symbol", "shown"),
    [
        (encode(["string"], ["USDC"]), "USDC"),
        (encode(["string"], ["\x1b[2J US-DC.e"]), "JUSDCe"),
        (encode(["string"], ["gwei"]), "token"),
        (encode(["string"], [""]), "token"),
        (b"MKR".ljust(32, b"\0"), "token"),
        (b"", "token"),
    ],
)
async def test_a_token_is_called_by_its_letters_or_not_by_its_own_name(symbol: bytes, shown: str) -> None:
    asset = await read_asset(ToyToken(symbol), TOKEN)
    assert (asset.token, asset.symbol, asset.decimals) == (TOKEN, shown, 6)
