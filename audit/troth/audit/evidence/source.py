"""Evidence of a deployment from a chain node, which is asked a bounded number of questions at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import Any, TypeVar

from troth.audit.errors import ChainMoved, SourceUnusable
from troth.audit.evidence.history import History
from troth.audit.evidence.transactions import Transaction, from_node
from troth.audit.evidence.types import AuditEvidence, GetterAnswer
from troth.chain import decoding
from troth.chain.adapter import Chain
from troth.chain.errors import ChainError, ChainUnavailable, RpcRefused
from troth.chain.headers import RawHeader
from troth.chain.market import DeploymentPlace, Market
from troth.chain.rpc import Rpc
from troth.chain.tokens import holdings
from troth.protocol.logs import EventLog
from troth.protocol.market.events import CaseOpened, CaseRestarted, ReviewsCommitted
from troth.protocol.market.getters import GetterQuestion, GetterQuestions
from troth.protocol.market.types import NO_ADDRESS, Parameters
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32

SPAN = 2_000
"""Blocks asked for at once; public nodes often refuse more."""

CONCURRENCY = 16
"""Requests under way at once."""

Item = TypeVar("Item")

Told = TypeVar("Told")
PAST_BLOCKS = 3
"""Past blocks at which groups are compared beside the last one."""


async def each(items: Collection[Item], ask: Callable[[Item], Awaitable[Told]]) -> list[Told]:
    """Answers in the order of ``items``, a bounded number of questions at a time."""
    gate = asyncio.Semaphore(CONCURRENCY)

    async def one(item: Item) -> Told:
        async with gate:
            return await ask(item)

    asked = [asyncio.ensure_future(one(item)) for item in items]
    try:
        return await asyncio.gather(*asked)
    finally:
        for question in asked:
            question.cancel()


class Source:
    """One deployment behind one node. Make it with ``connect``; use ``async with``."""

    def __init__(self, market: Market, rpc: Rpc) -> None:
        self._market = market
        self._rpc = rpc

    @classmethod
    async def connect(cls, url: str, place: DeploymentPlace) -> Source:
        """Connect; raises SourceUnusable if node or contracts cannot be used."""
        try:
            market = await Market.connect(url, place)
        except ChainError as error:
            raise SourceUnusable(error.what, error.value, error.remedy) from error
        return cls(market, Rpc(url))

    async def __aenter__(self) -> Source:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._market.close()
        await self._rpc.close()

    @property
    def place(self) -> DeploymentPlace:
        """The deployment that is read."""
        return self._market.place

    @property
    def domain(self) -> Domain:
        """The EIP-712 domain of every signature of the deployment."""
        return self._market.domain

    async def header(self, number: int | None) -> RawHeader:
        """A header, or the newest; SourceUnusable if the node does not have it."""
        try:
            return await self._market.header(number)
        except ChainError as error:
            away = isinstance(error, ChainUnavailable)
            remedy = error.remedy if away else "Choose an earlier --to-block, or another chain node."
            raise SourceUnusable(error.what, error.value, remedy) from error

    async def logs(self, first: int, last: int) -> tuple[EventLog, ...]:
        """All logs of the deployment, in the order of the chain."""
        spans = [(start, min(start + SPAN - 1, last)) for start in range(first, last + 1, SPAN)]
        parts = await each(spans, lambda span: self._market.logs(*span))
        found = [log for part in parts for log in part]
        foreign = next((log.address for log in found if log.address not in self._market.addresses), None)
        if foreign is not None:
            raise SourceUnusable("The node answered with logs of another contract", foreign, "Use another node.")
        return tuple(sorted(found, key=lambda log: (log.meta.block, log.meta.log_index)))

    async def with_prover(self, logs: tuple[EventLog, ...], prover: Address, last: int) -> tuple[EventLog, ...]:
        """The deployment's logs with those of its prover since it was made, in the order of the chain."""
        if prover == NO_ADDRESS:
            return logs
        found = await self.told(prover, self.place.block, last)
        return tuple(sorted((*logs, *found), key=lambda log: (log.meta.block, log.meta.log_index)))

    async def told(self, prover: Address, first: int, last: int) -> tuple[EventLog, ...]:
        """The logs of a deployment's prover from block ``first`` to ``last``."""
        chain = Chain(self._rpc, self._market.chain.chain_id, prover)
        spans = [(start, min(start + SPAN - 1, last)) for start in range(first, last + 1, SPAN)]
        parts = await each(spans, lambda span: chain.logs(*span))
        return tuple(log for part in parts for log in part if log.address == prover)

    async def evidence(
        self, first: int, last: RawHeader, logs: tuple[EventLog, ...], history: History, *, ask: bool = True
    ) -> AuditEvidence:
        """Evidence with the headers and transactions of all logs and of every draw, and the contracts' own words."""
        plain = self._plain(first, last, logs, history)
        parameters = plain.parameters
        blocks = {log.meta.block for log in logs} | drawing_blocks(history, parameters, last.number)
        headers = {header.number: header for header in await each(sorted(blocks), self.header)} | {last.number: last}
        for log in logs:
            if headers[log.meta.block].hash != log.meta.block_hash:
                raise ChainMoved("The chain was reorganised while it was read", log.meta.block, "Repeat the audit.")
        hashes = sorted({log.meta.transaction for log in logs})
        transactions = [found for found in await each(hashes, self._transaction) if found is not None]
        answers, holdings = await self._words(history, parameters, last.number) if ask else ((), None)
        await self._require_unmoved(last)
        return replace(
            plain,
            headers=headers,
            transactions={transaction.hash: transaction for transaction in transactions},
            answers=answers,
            holdings=holdings,
        )

    async def record(self, first: int, last: RawHeader, logs: tuple[EventLog, ...], history: History) -> AuditEvidence:
        """Evidence of the events alone: all that a scheduler's log or a receipt is compared with. No log costs a
        question to the node."""
        await self._require_unmoved(last)
        return self._plain(first, last, logs, history)

    def _plain(self, first: int, last: RawHeader, logs: tuple[EventLog, ...], history: History) -> AuditEvidence:
        return AuditEvidence(
            chain_id=self._market.chain.chain_id,
            place=self.place,
            parameters=parameters_of(history),
            first=first,
            last=last,
            logs=logs,
            headers={last.number: last},
            transactions={},
        )

    async def _require_unmoved(self, last: RawHeader) -> None:
        confirmed = await self.header(last.number)
        if confirmed.hash != last.hash:
            raise ChainMoved("The chain was reorganised while it was read", last.number, "Repeat the audit.")

    async def _transaction(self, wanted: Hash32) -> Transaction | None:
        return await fetched(self._rpc, wanted)

    async def _words(
        self, history: History, parameters: Parameters, block: int
    ) -> tuple[tuple[GetterAnswer, ...], int | None]:
        """Every getter's answer at a block; nothing from a node that keeps no states that old."""
        blocks = [block - back for back in range(PAST_BLOCKS + 1) if block - back >= 0]
        words = list(GetterQuestions(self.place.contracts, history.state, blocks).words())
        try:
            held = await holdings(self._rpc, parameters.asset, self.place.contracts.bank, block)
            return tuple(await each(words, lambda word: self._answer(word, block))), held
        except RpcRefused:
            return (), None

    async def _answer(self, word: GetterQuestion, block: int) -> GetterAnswer:
        answered = await self._market.read(word.view, block)
        return GetterAnswer(word.about, word.part.value, word.expected, answered)


async def fetched(rpc: Rpc, wanted: Hash32) -> Transaction | None:
    """A transaction as it was signed; None where the node has it not, or not as the hash says."""
    answer: Any = await rpc.request("eth_getTransactionByHash", decoding.hexadecimal(wanted))
    found = from_node(answer) if isinstance(answer, dict) else None
    return found if found is not None and found.hash == wanted else None


def parameters_of(history: History) -> Parameters:
    """The deployment's parameters, from its own event; SourceUnusable if it is not among the logs."""
    if history.state.deployed is None:
        raise SourceUnusable(
            "The deployment's own event is not among the logs", "Deployed", "Start at the block in which it was made."
        )
    return history.state.deployed.parameters


def drawing_blocks(history: History, parameters: Parameters, last: int) -> set[int]:
    """Blocks whose RANDAO draws reviewers or tiles: a lookahead after an opening and after the commitments."""
    begun = {
        step.event.meta.block + parameters.lookahead
        for step in history.steps
        if isinstance(step.event, CaseOpened | CaseRestarted | ReviewsCommitted)
    }
    return {block for block in begun if block <= last}
