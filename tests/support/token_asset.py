"""A deployment's asset that is a token: one of the mocks of the contracts' tests, on a real chain."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from eth_abi.abi import encode

from troth.chain.deployment import submit
from troth.chain.keystore import Key
from troth.protocol.calls import Call
from troth.protocol.hashing import keccak256
from troth.protocol.types import Address

MOCKS = Path(__file__).parents[2] / "artifacts/contracts/test/market/support/BankMocks.sol"
PLENTY = 10**24


class Vice(IntEnum):
    """What BadToken does to transfers, once it is told to (BankMocks.sol)."""

    NONE = 0
    TAKES_FEE = 3
    TAKES_FROM_SENDER = 5
    TAKES_UNIT = 9


@dataclass(frozen=True, slots=True)
class TokenAsset:
    """A token at ``address``; anybody mints and sets its vice."""

    anvil: Any
    address: Address

    async def provide(self, owner: Key, *spenders: Address) -> None:
        """Give an account tokens, and have it allow these contracts to take them."""
        await self._send(owner, "mint", ["address", "uint256"], owner.address, PLENTY)
        for spender in spenders:
            await self._send(owner, "approve", ["address", "uint256"], spender, 2**255)

    async def give(self, account: Address, amount: int) -> None:
        """Make so many units for an account that is not ours."""
        await self._send(self.anvil.keys[0], "mint", ["address", "uint256"], account, amount)

    async def tell(self, account: Address) -> None:
        """A HookToken tells this account of its transfers."""
        await self._send(self.anvil.keys[0], "tell", ["address"], account)

    async def turn(self, vice: Vice) -> None:
        """From now on transfers are like this."""
        await self._send(self.anvil.keys[0], "set", ["uint8"], int(vice))

    def balance(self, account: Address) -> int:
        """What an account holds, in the smallest unit."""
        data = keccak256(b"balanceOf(address)")[:4] + encode(["address"], [account])
        call = {"to": self.address, "data": "0x" + data.hex()}
        return int(self.anvil.rpc("eth_call", call, "latest"), 16)

    async def _send(self, key: Key, function: str, types: list[str], *arguments: object) -> None:
        self.anvil.fund(key)
        data = keccak256(f"{function}({','.join(types)})".encode())[:4] + encode(types, arguments)
        await submit(self.anvil.url, Call(function, data), key, self.address)


async def bad_token(anvil: Any) -> TokenAsset:
    """One that behaves until it is told not to."""
    anvil.mine(3)
    code = bytes.fromhex(json.loads((MOCKS / "BadToken.json").read_text())["bytecode"].removeprefix("0x"))
    created = (await submit(anvil.url, Call("deployment of a token", code), anvil.keys[0])).created
    assert created is not None
    return TokenAsset(anvil, created)
