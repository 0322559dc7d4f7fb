"""``Market``: one deployment of the market's contracts on one chain, over one node.

It reads and sends to any of them, collects the logs of all in the order of the chain, proves a block's RANDAO by its
header, and finds the hints with which a draw is checked cheaply.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from troth.chain import decoding
from troth.chain.adapter import RECEIPT_TIMEOUT, Chain
from troth.chain.errors import ChainRejected, RpcRefused, WrongChain
from troth.chain.headers import RawHeader, header_of
from troth.chain.keystore import Key
from troth.chain.records import Fees, Simulation, TransactionReceipt
from troth.chain.rpc import Rpc
from troth.chain.transactions import Transactions, as_rejection, message
from troth.protocol.bindings import named
from troth.protocol.calls import Call
from troth.protocol.logs import EventLog, decoder
from troth.protocol.market.calls import PartCall, PartView, view
from troth.protocol.market.events import Deployed, Event, parse_log
from troth.protocol.market.messages import market_domain
from troth.protocol.market.parts import FACTORY, Part
from troth.protocol.market.reverts import decode_error
from troth.protocol.market.types import Contracts, DrawRequest
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32

log = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class DeploymentPlace:
    """Where a deployment is: the factory that made it, its contracts, and the block in which they came to stand."""

    factory: Address
    contracts: Contracts
    block: int = 0


async def find_place(rpc_url: str, factory: Address, bank: Address | None = None, start: int = 0) -> DeploymentPlace:
    """The deployment of a factory, or that of them whose Bank is named; WrongChain if there is not exactly one."""
    found = await find_deployed(rpc_url, factory, bank, start)
    return DeploymentPlace(factory, found.contracts, found.meta.block)


async def find_deployed(rpc_url: str, factory: Address, bank: Address | None = None, start: int = 0) -> Deployed:
    """What the factory said when that deployment stood, its parameters among it."""
    rpc = Rpc(rpc_url)
    try:
        found = await _deployments(rpc, factory, bank, start)
        mine = [one for one in found if bank in {None, one.contracts.bank}]
        if not mine:
            raise await _nothing_there(rpc, factory, start)
    finally:
        await rpc.close()
    if len(mine) != 1:
        what = f"The factory has {len(mine)} deployments that fit"
        raise WrongChain(what, factory, "Name one of them by its Bank, and a start block not after it.")
    return mine[0]


async def _nothing_there(rpc: Rpc, factory: Address, start: int) -> WrongChain:
    """Mostly because the chain node is one of another chain, so its address and its chain are named."""
    chain = decoding.quantity(await rpc.request("eth_chainId"))
    what = f"No network was created at this factory on chain {chain}" + f", since block {start}" * (start > 0)
    remedy = (
        "Name a node of the network's chain, by --rpc or in the configuration's [chain], "
        "and check factory and start block: the network's file has them."
    )
    return WrongChain(what, f"{factory}, asked at {rpc.place}", remedy)


async def _deployments(rpc: Rpc, factory: Address, bank: Address | None, start: int) -> list[Deployed]:
    """What the factory said from a block on, up to this Bank's deployment; in parts where the node limits ranges."""
    event = named("event", FACTORY)["Deployed"]
    read, topics = decoder(Deployed, event), [decoding.hexadecimal(event.topic)]
    newest, found = decoding.quantity(await rpc.request("eth_blockNumber")), list[Deployed]()
    async for logs in _in_parts(rpc, {"address": factory, "topics": topics}, start, newest):
        found += [read.event(one) for one in logs]
        if any(one.contracts.bank == bank for one in found):
            break
    return found


async def founding(rpc_url: str, place: DeploymentPlace, start: int) -> list[tuple[Hash32, int]]:
    """Transactions in which a factory made a deployment, with their blocks, from a block on: parameters, then parts."""
    deployed = await find_deployed(rpc_url, place.factory, place.contracts.bank, place.block)
    wanted = {"address": place.factory, "topics": [None, decoding.hexadecimal(deployed.deployment)]}
    rpc, found = Rpc(rpc_url), dict[Hash32, int]()
    try:
        async for logs in _in_parts(rpc, wanted, start, place.block):
            found |= {one.meta.transaction: one.meta.block for one in logs}
    finally:
        await rpc.close()
    return list(found.items())


async def _in_parts(rpc: Rpc, wanted: dict[str, Any], first: int, last: int) -> AsyncIterator[list[EventLog]]:
    """Logs of a range of blocks, in parts where the node limits ranges."""
    blocks = last - first + 1
    while first <= last:
        end = min(first + blocks - 1, last)
        try:
            logs = decoding.logs(
                await rpc.request("eth_getLogs", {**wanted, "fromBlock": hex(first), "toBlock": hex(end)})
            )
        except RpcRefused:
            if first == end:
                raise
            blocks = (end - first + 1) // 2
            continue
        yield list(logs)
        first = end + 1


class Market:
    """Make it with ``connect`` or ``deploy``; close it, or use ``async with``."""

    def __init__(self, chain: Chain, rpc: Rpc, place: DeploymentPlace) -> None:
        self.chain = chain
        self.place = place
        self._rpc = rpc
        self._transactions = Transactions(rpc, chain.chain_id, decode_error)

    @classmethod
    async def connect(
        cls, url: str, place: DeploymentPlace, *, chain_id: int | None = None, timeout: float | None = None
    ) -> Market:
        """Connect; WrongChain if the node is on another chain or has no Bank at its address."""
        chain = await Chain.connect(url, place.contracts.bank, chain_id=chain_id, timeout=timeout)
        return cls(chain, Rpc(url, timeout=timeout), place)

    async def __aenter__(self) -> Market:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.chain.close()
        await self._rpc.close()

    @property
    def contracts(self) -> Contracts:
        """The contracts' addresses, which builders of calls take."""
        return self.place.contracts

    @property
    def domain(self) -> Domain:
        """The EIP-712 domain of every signature of the deployment."""
        return market_domain(self.chain.chain_id, self.contracts.bank)

    async def read(self, view: PartView[Result], block: int | None = None) -> Result:
        """Result of a read at a block, or now; ChainRejected if it reverts."""
        return await self.read_at(view, "latest" if block is None else hex(block))

    async def read_at(self, view: PartView[Result], tag: str) -> Result:
        """The same at a tag, for example "pending": what the next block would see."""
        asked = PartCall.of(view)
        try:
            returned = await self._rpc.request("eth_call", message(asked.call, None, asked.to), tag)
        except RpcRefused as error:
            raise as_rejection(view.view.function, error, explain=decode_error) from error
        return view.view.result(decoding.data(returned))

    async def call(self, to: Address, data: bytes, tag: str = "latest") -> bytes:
        """What any contract answers, such as the asset; ChainRejected if it reverts."""
        try:
            return decoding.data(await self._rpc.request("eth_call", message(Call("call", data), None, to), tag))
        except RpcRefused as error:
            raise as_rejection("call", error, explain=decode_error) from error

    async def simulate(self, call: PartCall, sender: Address) -> Simulation:
        """What ``call`` would do now, without sending it."""
        fees = await self.fees()
        try:
            gas = await self._transactions.estimate(call.call, sender, call.to)
        except ChainRejected as error:
            return Simulation(call.call.function, sender, call.call.value, 0, 0, error.error)
        return Simulation(call.call.function, sender, call.call.value, gas, gas * fees.maximum, None)

    async def code(self, account: Address) -> bytes:
        """The code at an address; empty where there is none."""
        return decoding.data(await self._rpc.request("eth_getCode", account, "latest"))

    async def fees(self) -> Fees:
        """What a transaction would offer per gas now."""
        return await self._transactions.fees()

    async def send(self, call: PartCall, key: Key, *, gas: int | None = None) -> Hash32:
        """Send and do not wait; without ``gas`` it is estimated first, and a call that would revert is not sent."""
        return await self._transactions.send(call.call, key, call.to, gas)

    async def wait_for_receipt(
        self, transaction: Hash32, *, confirmations: int = 1, timeout: float = RECEIPT_TIMEOUT
    ) -> TransactionReceipt:
        """The receipt; ChainRejected if the transaction failed, TransactionTimeout if it is not mined in time."""
        return await self._transactions.wait(transaction, confirmations, timeout)

    async def execute(
        self, call: PartCall, key: Key, *, gas: int | None = None, timeout: float = RECEIPT_TIMEOUT
    ) -> TransactionReceipt:
        """Send and wait for the receipt; anew if another program with this key has taken the transaction's nonce.

        ChainRejected if it fails, unsent if ``gas`` is left to an estimate.
        """
        return await self._transactions.execute(call.call, key, call.to, timeout, gas)

    def parse(self, log: EventLog) -> Event:
        """The event that a log of the deployment is."""
        return parse_log(log, self.contracts, self.place.factory)

    @property
    def addresses(self) -> frozenset[Address]:
        """Of the factory and of all parts: whose logs are collected."""
        return frozenset((self.place.factory, *(part.of(self.contracts) for part in Part)))

    async def logs(self, first: int, last: int) -> list[EventLog]:
        """Logs of all contracts in blocks ``first`` to ``last``, in the order of the chain; long ranges are halved.

        The factory's other deployments are left out.
        """
        if last < first:
            return []
        span = {"address": sorted(self.addresses), "fromBlock": hex(first), "toBlock": hex(last)}
        try:
            found = decoding.logs(await self._rpc.request("eth_getLogs", span))
        except RpcRefused:
            if first >= last:
                raise
            middle = (first + last) // 2
            return [*await self.logs(first, middle), *await self.logs(middle + 1, last)]
        return self._sorted(found)

    async def logs_of_block(self, block_hash: Hash32) -> list[EventLog]:
        """Logs of all contracts in exactly this block; RpcRefused if a reorganisation took it away."""
        wanted = {"address": sorted(self.addresses), "blockHash": decoding.hexadecimal(block_hash)}
        return self._sorted(decoding.logs(await self._rpc.request("eth_getLogs", wanted)))

    def _sorted(self, logs: list[EventLog]) -> list[EventLog]:
        own = [log for log in logs if log.address != self.place.factory or self._own(log)]
        return sorted(own, key=lambda log: (log.meta.block, log.meta.log_index))

    def _own(self, log: EventLog) -> bool:
        """Whether a log of the factory is of this deployment."""
        return getattr(self.parse(log), "contracts", None) == self.contracts

    async def events(self, first: int, last: int) -> list[Event]:
        """Events of all contracts in blocks ``first`` to ``last``, in the order of the chain."""
        return [self.parse(log) for log in await self.logs(first, last)]

    async def drawn(self, request: DrawRequest) -> tuple[tuple[Address, ...], bytes]:
        """Who a request draws, and the hints with which the contracts repeat the draw cheaply."""
        asked = view(self.contracts, Part.LENS, "draw", request, returns=(tuple[Address, ...], bytes))
        found: tuple[tuple[Address, ...], bytes] = await self.read(asked)
        return found

    async def header(self, number: int | None = None) -> RawHeader:
        """A block's header as the bytes that its hash is of: what draws and seeds of a case are proven with."""
        tag = "latest" if number is None else hex(number)
        found: Any = await self._rpc.request("eth_getBlockByNumber", tag, False)
        if found is None:
            raise WrongChain("The node does not have the block", number, "Wait for it, or use another node.")
        return header_of(found)

    async def headers(self, numbers: Collection[int]) -> dict[int, RawHeader]:
        """Headers of several blocks."""
        return {number: await self.header(number) for number in sorted(set(numbers))}
