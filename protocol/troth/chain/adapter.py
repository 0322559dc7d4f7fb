"""``Chain``: the one object through which Troth reads and writes a chain."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import TypeVar

from troth.chain import decoding
from troth.chain.errors import ChainRejected, RpcRefused, TransactionDropped, WrongChain
from troth.chain.keystore import Key
from troth.chain.records import Block, Fees, Receipt, Simulation
from troth.chain.rpc import ATTEMPTS, Rpc
from troth.chain.transactions import Transactions, as_rejection, message
from troth.protocol.calls import Call, View
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32

log = logging.getLogger(__name__)

Result = TypeVar("Result")

REQUEST_TIMEOUT = 10.0
"""Seconds for one answer of the node."""

SEND_ATTEMPTS = 3
"""How often a call is sent whose transaction was replaced by another program's."""

RECEIPT_TIMEOUT = 120.0
"""Seconds for a transaction to be mined: some ten slots of Ethereum."""


class Chain:
    """One contract on one chain, over one node. Make it with ``connect``; close it, or use ``async with``."""

    def __init__(self, rpc: Rpc, chain_id: int, contract: Address) -> None:
        self._rpc = rpc
        self._transactions = Transactions(rpc, chain_id)
        self.chain_id = chain_id
        self.contract = contract

    @classmethod
    async def connect(
        cls,
        url: str,
        contract: Address,
        *,
        chain_id: int | None = None,
        timeout: float = REQUEST_TIMEOUT,
        attempts: int = ATTEMPTS,
    ) -> Chain:
        """Connect; WrongChain if the node is on another chain than ``chain_id`` or has no code at ``contract``."""
        rpc = Rpc(url, timeout=timeout, attempts=attempts)
        try:
            found = decoding.quantity(await rpc.request("eth_chainId"))
            if chain_id is not None and found != chain_id:
                raise WrongChain(
                    f"The node is on chain {found}, not {chain_id}", rpc.place, "Use a node of that chain."
                )
            if not decoding.data(await rpc.request("eth_getCode", contract, "latest")):
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

    async def block_number(self) -> int:
        """Number of the newest block."""
        return decoding.quantity(await self._rpc.request("eth_blockNumber"))

    async def block(self, number: int | None = None) -> Block | None:
        """Header of a block, or of the newest; None if the node does not have it."""
        tag = "latest" if number is None else hex(number)
        found = await self._rpc.request("eth_getBlockByNumber", tag, False)
        return None if found is None else decoding.block(found)

    async def unmined(self, account: Address) -> int:
        """Transactions of an account that the node holds and no block has: what a restarted process may have sent."""
        mined, all_sent = await asyncio.gather(
            self._rpc.request("eth_getTransactionCount", account, "latest"),
            self._rpc.request("eth_getTransactionCount", account, "pending"),
        )
        return max(0, decoding.quantity(all_sent) - decoding.quantity(mined))

    async def balance(self, account: Address) -> int:
        """Wei that an account holds outside the contract."""
        return decoding.quantity(await self._rpc.request("eth_getBalance", account, "latest"))

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

    async def fees(self) -> Fees:
        """What a transaction would offer per gas now."""
        return await self._transactions.fees()

    async def simulate(self, call: Call, sender: Address) -> Simulation:
        """What ``call`` would do now, without sending it."""
        fees, estimated = await asyncio.gather(
            self.fees(), self._transactions.estimate(call, sender, self.contract), return_exceptions=True
        )
        if isinstance(fees, BaseException):
            raise fees
        if isinstance(estimated, ChainRejected):
            return Simulation(call.function, sender, call.value, 0, 0, estimated.error)
        if isinstance(estimated, BaseException):
            raise estimated
        return Simulation(call.function, sender, call.value, estimated, estimated * fees.maximum, None)

    async def send(self, call: Call, key: Key, *, gas: int | None = None) -> Hash32:
        """Send and do not wait; without ``gas`` it is estimated first, and a call that would revert is not sent."""
        return await self._transactions.send(call, key, self.contract, gas)

    async def wait_for_receipt(
        self, transaction: Hash32, *, confirmations: int = 1, timeout: float = RECEIPT_TIMEOUT
    ) -> Receipt:
        """The receipt; ChainRejected if the transaction failed, TransactionTimeout if it is not mined in time."""
        return await self._transactions.wait(transaction, confirmations, timeout)

    async def execute(
        self,
        call: Call,
        key: Key,
        *,
        gas: int | None = None,
        confirmations: int = 1,
        timeout: float = RECEIPT_TIMEOUT,
    ) -> Receipt:
        """Send and wait for the receipt; anew if another program with this key has taken the transaction's nonce."""
        attempt = 1
        while True:
            transaction = await self.send(call, key, gas=gas)
            try:
                return await self.wait_for_receipt(transaction, confirmations=confirmations, timeout=timeout)
            except TransactionDropped as error:
                if attempt == SEND_ATTEMPTS:
                    raise
                log.warning("sending again: %s", error)
            attempt += 1
