"""Deploy the market's contracts from the packaged bytecode: a factory, then each part through it by CREATE2."""

from __future__ import annotations

from troth.chain import decoding
from troth.chain.adapter import RECEIPT_TIMEOUT, REQUEST_TIMEOUT, Chain
from troth.chain.errors import WrongChain
from troth.chain.headers import RawHeader, header_of
from troth.chain.keystore import Key
from troth.chain.market import Market, Place
from troth.chain.records import Receipt
from troth.chain.rpc import Rpc
from troth.chain.transactions import Transactions
from troth.protocol.bindings import MARKET_PARTS
from troth.protocol.calls import Call
from troth.protocol.market.addresses import contracts_of, creation_code, factory_code
from troth.protocol.market.calls import PartCall, build_factory
from troth.protocol.market.reverts import decode_error
from troth.protocol.market.types import Parameters
from troth.protocol.types import Address


async def deploy_market(
    url: str,
    parameters: Parameters,
    key: Key,
    *,
    factory: Address | None = None,
    request_timeout: float = REQUEST_TIMEOUT,
    receipt_timeout: float = RECEIPT_TIMEOUT,
) -> tuple[Market, tuple[Receipt, ...]]:
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
        place = Place(maker.factory, contracts_of(maker.factory, parameters), maker.receipts[0].block)
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
        self.receipts: list[Receipt] = []

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

    async def _sent(self, call: Call, to: Address | None) -> Receipt:
        transaction = await self._transactions.send(call, self._key, to)
        receipt = await self._transactions.wait(transaction, 1, self._timeout)
        self.receipts.append(receipt)
        return receipt

    async def _header(self, tag: str) -> RawHeader:
        return header_of(await self._rpc.request("eth_getBlockByNumber", tag, False))
