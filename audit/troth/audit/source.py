"""Evidence from a chain node."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from troth.audit.asking import SPAN, each
from troth.audit.errors import ChainMoved, SourceUnusable
from troth.audit.evidence import Evidence, Header
from troth.audit.transactions import Transaction, from_node
from troth.chain import decoding
from troth.chain.adapter import REQUEST_TIMEOUT, Chain
from troth.chain.errors import ChainError, RpcRefused
from troth.chain.rpc import Rpc
from troth.protocol.calls import views
from troth.protocol.contract_types import Parameters
from troth.protocol.logs import Log, LogMeta
from troth.protocol.types import Address, Hash32


class Source:
    """One contract behind one node. Make it with ``connect``; use ``async with``."""

    def __init__(self, chain: Chain, rpc: Rpc, parameters: Parameters) -> None:
        self._chain = chain
        self._rpc = rpc
        self.parameters = parameters

    @classmethod
    async def connect(cls, url: str, contract: Address) -> Source:
        """Connect; raises SourceUnusable if node or contract cannot be used."""
        try:
            chain = await Chain.connect(url, contract)
        except ChainError as error:
            raise SourceUnusable(error.what, error.value, error.remedy) from error
        try:
            parameters = await chain.read(views.parameters_of())
        except ChainError as error:
            await chain.close()
            raise SourceUnusable(error.what, error.value, "Check that --contract is a Troth contract.") from error
        return cls(chain, Rpc(url, timeout=REQUEST_TIMEOUT), parameters)

    async def __aenter__(self) -> Source:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._chain.close()
        await self._rpc.close()

    async def header(self, number: int | None) -> Header:
        """A header, or the newest; SourceUnusable if the node does not have it."""
        block = await self._chain.block(number)
        if block is None:
            raise SourceUnusable("The node does not have the block", number, "Choose an earlier --to-block.")
        return Header(block.number, block.hash, block.parent_hash, block.timestamp)

    async def logs(self, first: int, last: int) -> tuple[Log, ...]:
        """All logs of the contract, in the order of the chain."""
        spans = [(start, min(start + SPAN - 1, last)) for start in range(first, last + 1, SPAN)]
        parts = await each(spans, lambda span: self._chain.logs(*span))
        found = [log for part in parts for log in part]
        foreign = next((log.address for log in found if log.address != self._chain.contract), None)
        if foreign is not None:
            raise SourceUnusable("The node answered with logs of another contract", foreign, "Use another node.")
        return tuple(sorted(found, key=lambda log: (log.meta.block, log.meta.log_index)))

    async def evidence(
        self, first: int, last: Header, logs: tuple[Log, ...], wanted: Collection[LogMeta], tasks: Iterable[Hash32]
    ) -> Evidence:
        """Evidence with headers and transactions of the logs at ``wanted``, and the contract's word on ``tasks``."""
        headers = await self._headers(wanted)
        transactions = await self._transactions(wanted)
        balance, states = await self._own_words(last.number, tuple(tasks))
        confirmed = await self.header(last.number)
        if confirmed.hash != last.hash:
            raise ChainMoved("The chain was reorganised while it was read", last.number, "Repeat the audit.")
        return Evidence(
            chain_id=self._chain.chain_id,
            contract=self._chain.contract,
            parameters=self.parameters,
            first=first,
            last=last,
            logs=logs,
            headers={header.number: header for header in (*headers, last)},
            transactions={transaction.hash: transaction for transaction in transactions},
            balance=balance,
            task_states=states,
        )

    async def _headers(self, wanted: Collection[LogMeta]) -> list[Header]:
        hashes = {place.block: place.block_hash for place in wanted}
        headers = await each(sorted(hashes), self.header)
        for header in headers:
            if header.hash != hashes[header.number]:
                raise ChainMoved("The chain was reorganised while it was read", header.number, "Repeat the audit.")
        return headers

    async def _transactions(self, wanted: Collection[LogMeta]) -> list[Transaction]:
        hashes = sorted({place.transaction for place in wanted})
        answers = await each(hashes, self._transaction)
        return [answer for answer in answers if answer is not None]

    async def _transaction(self, wanted: Hash32) -> Transaction | None:
        answer: Any = await self._rpc.request("eth_getTransactionByHash", decoding.hexadecimal(wanted))
        found = from_node(answer) if isinstance(answer, dict) else None
        return found if found is not None and found.hash == wanted else None

    async def _own_words(self, block: int, tasks: tuple[Hash32, ...]) -> tuple[int | None, dict[Hash32, Hash32]]:
        """Balance and task states at a block; nothing from a node that keeps no states that old."""
        try:
            answer = await self._rpc.request("eth_getBalance", self._chain.contract, hex(block))
            states = await each(tasks, lambda task: self._chain.read(views.task_state(task), block))
        except RpcRefused:
            return None, {}
        return decoding.quantity(answer), dict(zip(tasks, states, strict=True))
