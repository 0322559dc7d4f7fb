"""Approvals of a token: only what is missing, and taken back first where the token wants that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from eth_abi.abi import decode, encode

from troth.chain.market import Market
from troth.chain.tokens import approvals, approvals_in_asset, read_asset, selector
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
