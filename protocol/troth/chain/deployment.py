"""Deploying from packaged bytecode: the market by its factory, and the directory's committee."""

from __future__ import annotations

from collections.abc import Sequence

from troth.chain import decoding
from troth.chain.adapter import RECEIPT_TIMEOUT, REQUEST_TIMEOUT, Chain
from troth.chain.errors import WrongChain
from troth.chain.headers import RawHeader, header_of
from troth.chain.keystore import Key
from troth.chain.market import DeploymentPlace, Market
from troth.chain.records import Simulation, TransactionReceipt
from troth.chain.rpc import Rpc
from troth.chain.transactions import Transactions
from troth.protocol.bindings import COMMITTEE, MARKET_PARTS, named, read_resource
from troth.protocol.bindings.structs import encode_parameters
from troth.protocol.calls import Call
from troth.protocol.committee import CommitteeMember
from troth.protocol.market.addresses import contracts_of, creation_code, factory_code
from troth.protocol.market.calls import PartCall, build_factory
from troth.protocol.market.reverts import decode_error
from troth.protocol.market.types import Parameters
from troth.protocol.types import Address


def committee_creation(members: Sequence[CommitteeMember]) -> Call:
    """What creates a Committee with these first members (1 to 32)."""
    code = _unhex(read_resource("committee.bytecode.json")["bytecode"])
    inputs = named("constructor", COMMITTEE)["constructor"].inputs
    return Call("deployment of Committee", code + encode_parameters(inputs, [list(members)]))


async def submit(
    url: str, call: Call, key: Key, to: Address | None = None, *, receipt_timeout: float = RECEIPT_TIMEOUT
) -> TransactionReceipt:
    """Send a creation, or a call, and wait.

    Raises ChainRejected if the contract refuses it.
    """
    rpc = Rpc(url, timeout=REQUEST_TIMEOUT)
    try:
        transactions = Transactions(rpc, decoding.quantity(await rpc.request("eth_chainId")))
        transaction = await transactions.send(call, key, to, None)
        return await transactions.wait(transaction, 1, receipt_timeout)
    finally:
        await rpc.close()


async def estimate_creation(url: str, creation: Call, sender: Address) -> Simulation:
    """What a creation would cost, without sending it."""
    rpc = Rpc(url, timeout=REQUEST_TIMEOUT)
    try:
        transactions = Transactions(rpc, decoding.quantity(await rpc.request("eth_chainId")))
        fees, gas = await transactions.fees(), await transactions.estimate(creation, sender, None)
    finally:
        await rpc.close()
    return Simulation(creation.function, sender, 0, gas, gas * fees.maximum, None)


def _unhex(digits: str) -> bytes:
    return bytes.fromhex(digits.removeprefix("0x"))


async def deploy_market(
    url: str,
    parameters: Parameters,
    key: Key,
    *,
    factory: Address | None = None,
    request_timeout: float = REQUEST_TIMEOUT,
    receipt_timeout: float = RECEIPT_TIMEOUT,
) -> tuple[Market, tuple[TransactionReceipt, ...]]:
    """Deploy from ``key``, through ``factory`` or a new one; the connected market, and a receipt per transaction.

    Raises ChainRejected if the factory refuses parameters, chain or code.
    """
    rpc = Rpc(url, timeout=request_timeout)
    try:
        chain_id = decoding.quantity(await rpc.request("eth_chainId"))
        maker = _Maker(rpc, Transactions(rpc, chain_id, decode_error), key, receipt_timeout)
        maker.factory = factory or await maker.create_factory()
        await maker.begin(parameters)
        for index, part in enumerate(MARKET_PARTS):
            made = build_factory(maker.factory, "create", parameters, index, creation_code(part))
            await maker.send(made, f"creation of the {part}")
        place = DeploymentPlace(maker.factory, contracts_of(maker.factory, parameters), maker.receipts[0].block)
        chain = Chain(Rpc(url, timeout=request_timeout), chain_id, place.contracts.bank)
    except BaseException:
        await rpc.close()
        raise
    return Market(chain, rpc, place), tuple(maker.receipts)


class _Maker:
    """One deployment under way."""

    def __init__(self, rpc: Rpc, transactions: Transactions, key: Key, timeout: float) -> None:
        self._rpc = rpc
        self._transactions = transactions
        self._key = key
        self._timeout = timeout
        self.factory = Address("")
        self.receipts: list[TransactionReceipt] = []

    async def create_factory(self) -> Address:
        """The factory of exactly the packaged parts."""
        receipt = await self._sent(Call("deployment of the factory", factory_code()), None)
        if receipt.created is None:
            raise WrongChain(
                "The receipt of a creation names no contract", receipt.transaction.hex(), "Use another node."
            )
        return receipt.created

    async def begin(self, parameters: Parameters) -> None:
        """Parameters, and the headers of two blocks that show that this chain's RANDAO changes."""
        newest = await self._header("latest")
        before = await self._header(hex(newest.number - 1))
        await self.send(build_factory(self.factory, "begin", parameters, newest.raw, before.raw), "begin")

    async def send(self, call: PartCall, what: str) -> None:
        """A transaction to the factory, mined."""
        await self._sent(Call(what, call.call.data), call.to)

    async def _sent(self, call: Call, to: Address | None) -> TransactionReceipt:
        transaction = await self._transactions.send(call, self._key, to)
        receipt = await self._transactions.wait(transaction, 1, self._timeout)
        self.receipts.append(receipt)
        return receipt

    async def _header(self, tag: str) -> RawHeader:
        return header_of(await self._rpc.request("eth_getBlockByNumber", tag, False))
