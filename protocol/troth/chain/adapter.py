"""``Chain``: one contract as it is read through a node; ``market.Market`` reads and writes those of a deployment."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TypeVar

from troth.chain import decoding
from troth.chain.errors import RpcRefused, WrongChain
from troth.chain.records import Block
from troth.chain.rpc import ATTEMPTS, Rpc
from troth.chain.transactions import as_rejection, message
from troth.protocol.calls import Call, View
from troth.protocol.logs import EventLog
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32

Result = TypeVar("Result")

_SHOWS_CHAIN = "0x4660005260206000f3"
"""CHAINID, PUSH1 0, MSTORE, PUSH1 32, PUSH1 0, RETURN: a program that is called where no contract is."""

RECEIPT_TIMEOUT = 120.0
"""Seconds for a transaction to be mined: some ten slots of Ethereum."""


async def require_chain(rpc: Rpc, chain_id: int | None) -> int:
    """The id of the chain that a node is on; WrongChain if it is not ``chain_id``, where one is given."""
    found = decoding.quantity(await rpc.request("eth_chainId"))
    if chain_id is not None and found != chain_id:
        raise WrongChain(f"The node is on chain {found}, not {chain_id}", rpc.place, "Use a node of that chain.")
    return found


class Chain:
    """One contract on one chain, over one node. Make it with ``connect``; close it, or use ``async with``."""

    def __init__(self, rpc: Rpc, chain_id: int, contract: Address) -> None:
        self._rpc = rpc
        self.chain_id = chain_id
        self.contract = contract

    @classmethod
    async def connect(
        cls,
        url: str,
        contract: Address,
        *,
        chain_id: int | None = None,
        timeout: float | None = None,
        attempts: int = ATTEMPTS,
    ) -> Chain:
        """Connect; WrongChain if the node is on another chain than ``chain_id`` or has no code at ``contract``."""
        rpc = Rpc(url, timeout=timeout, attempts=attempts)
        try:
            # At once: a slow node takes as long for both as for one.
            code = asyncio.ensure_future(rpc.request("eth_getCode", contract, "latest"))
            try:
                found = await require_chain(rpc, chain_id)
                there = decoding.data(await code)
            finally:
                code.cancel()
                await asyncio.gather(code, return_exceptions=True)
            if not there:
                raise WrongChain(f"No contract lives there on chain {found}", contract, "Check --contract and --rpc.")
        except BaseException:
            await rpc.close()
            raise
        return cls(rpc, found, contract)

    async def __aenter__(self) -> Chain:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._rpc.close()

    @property
    def domain(self) -> Domain:
        """The EIP-712 domain of the contract."""
        return Domain(self.chain_id, self.contract)

    @property
    def place(self) -> str:
        """The node's URL without credentials."""
        return self._rpc.place

    async def require_chain(self) -> None:
        """WrongChain if the node has come to be on another chain."""
        await require_chain(self._rpc, self.chain_id)

    async def counted_chain(self) -> int:
        """The id that contracts see (EIP-1344), and by which they check signatures; nodes may say another one."""
        return int.from_bytes(decoding.data(await self._rpc.request("eth_call", {"data": _SHOWS_CHAIN}, "latest")))

    async def block_number(self) -> int:
        """Number of the newest block."""
        return decoding.quantity(await self._rpc.request("eth_blockNumber"))

    async def block(self, number: int | None = None) -> Block | None:
        """Header of a block, or of the newest; None if the node does not have it."""
        tag = "latest" if number is None else hex(number)
        found = await self._rpc.request("eth_getBlockByNumber", tag, False)
        return None if found is None else decoding.block(found)

    async def balance(self, account: Address) -> int:
        """Wei that an account holds outside the contract."""
        return decoding.quantity(await self._rpc.request("eth_getBalance", account, "latest"))

    async def transactions_sent(self, account: Address) -> int:
        """How many transactions of an account are in blocks: its nonce."""
        return decoding.quantity(await self._rpc.request("eth_getTransactionCount", account, "latest"))

    async def read(self, view: View[Result], block: int | None = None) -> Result:
        """Result of a view at a block, or now; ChainRejected if it reverts."""
        call = Call(view.function, view.data)
        tag = "latest" if block is None else hex(block)
        try:
            returned = await self._rpc.request("eth_call", message(call, None, self.contract), tag)
        except RpcRefused as error:
            raise as_rejection(view.function, error) from error
        return view.result(decoding.data(returned))

    async def transaction_input(self, transaction: Hash32) -> bytes:
        """Calldata of a transaction, from which auditors read openings."""
        found = await self._rpc.request("eth_getTransactionByHash", decoding.hexadecimal(transaction))
        if found is None:
            raise WrongChain("The node has no such transaction", decoding.hexadecimal(transaction), "Use another node.")
        return decoding.data(found.get("input"))

    async def logs(self, first: int, last: int) -> list[EventLog]:
        """The contract's logs of blocks ``first`` to ``last``; long ranges are halved where the node refuses them."""
        if last < first:
            return []
        span = {"address": self.contract, "fromBlock": hex(first), "toBlock": hex(last)}
        try:
            return decoding.logs(await self._rpc.request("eth_getLogs", span))
        except RpcRefused:
            if first >= last:
                raise
            middle = (first + last) // 2
            return [*await self.logs(first, middle), *await self.logs(middle + 1, last)]

    async def logs_of_block(self, block_hash: Hash32) -> list[EventLog]:
        """The same of exactly this block; RpcRefused if a reorganisation took it away."""
        wanted = {"address": self.contract, "blockHash": decoding.hexadecimal(block_hash)}
        return decoding.logs(await self._rpc.request("eth_getLogs", wanted))
