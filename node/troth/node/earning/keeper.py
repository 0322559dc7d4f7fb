"""Looks after what is owed on chain: redeems, claims, answers objections, settles, and reports who does not pay.

Everything is decided anew from the followed chain and the books at each look, so that a restart misses nothing: the
deadlines are blocks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from troth.chain.errors import ChainError, ChainRejected
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.node.earning import claiming, redeeming
from troth.node.earning.books import NodeBooks, NodeLedger
from troth.node.earning.claiming import ClaimContext
from troth.node.earning.claims_record import ClaimsRecord, Filed
from troth.node.earning.policy import EarningPolicy
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.parts import Part
from troth.protocol.market.state import ClaimRecord, TabRecord
from troth.protocol.market.views import parameters_of
from troth.protocol.types import Hash32

log = logging.getLogger(__name__)

PAUSE_BLOCKS = 5
"""Blocks before a call that the contract refused is tried again."""
REFUSED_KEPT = 64
ANSWERED_TOGETHER = 64
"""Objections that are answered at once, over all tabs."""
_NEVER = float("inf")
FORGOTTEN_SECONDS = 3600.0
"""A claim that is not on chain after so long was never mined."""

Write = Callable[[Callable[[], Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class EarningContext:
    """What the keeper works with. ``ledger`` gives the chain as it is now, ``write`` runs a job on the records' thread,
    ``reached`` waits until a block was followed."""

    wallet: Market
    key: Key
    ledger: Callable[[], NodeLedger]
    books: NodeBooks
    claims: ClaimsRecord
    policy: EarningPolicy
    write: Write
    reached: Callable[[int], Awaitable[Any]]
    clock: Callable[[], float]


class EarningKeeper:
    """``step`` looks once; a `Duty` does so again and again."""

    def __init__(self, tools: EarningContext) -> None:
        self._tools = tools
        self.sent: dict[str, int] = {}
        """How often each call was sent."""
        self._refused: dict[bytes, int] = {}
        self._answering = asyncio.Semaphore(ANSWERED_TOGETHER)

    async def step(self) -> None:
        """Send what is due now; deadlines first. What fails of one tab keeps no other waiting, and is raised then."""
        due, failures = self._due(), list[Exception]()
        tabs = sorted(self._own_tabs(due.ledger), key=lambda one: _nearest_deadline(one[1]))
        asked = [one for one in tabs if _nearest_deadline(one[1]) < _NEVER]
        # Not one tab after the other: of many schedulers that object in one block the last would see no answer in time.
        looks = [_apart(failures, self._look_after_claim(tab, record, due)) for tab, record in asked]
        for failed in await asyncio.gather(*looks, return_exceptions=True):
            if isinstance(failed, BaseException):
                raise failed
        for tab, record in tabs[len(asked) :]:
            await _apart(failures, self._look_after_claim(tab, record, due))
        await _apart(failures, self._redeem())
        for tab, record in self._own_tabs(self._due().ledger):
            await _apart(failures, self._collect(tab, record))
        if failures:
            raise failures[0]

    async def _collect(self, tab: Hash32, record: TabRecord) -> None:
        await self._claim(tab, record)
        await self._report_shortfall(record)

    def _due(self) -> ClaimContext:
        tools, ledger = self._tools, self._tools.ledger()
        return ClaimContext(ledger, parameters_of(ledger.state), tools.wallet.contracts, tools.policy)

    def _own_tabs(self, ledger: NodeLedger) -> list[tuple[Hash32, TabRecord]]:
        return [(tab, record) for tab, record in ledger.state.tabs.items() if record.tab.payee == ledger.me]

    # ------------------------------------------------------------------------------------------------ a claim under way

    async def _look_after_claim(self, tab: Hash32, record: TabRecord, due: ClaimContext) -> None:
        tools = self._tools
        for filed in await tools.write(lambda: tools.claims.of(tab)):
            under_way = record.claim
            if under_way is not None and under_way.state.claim.root == filed.root:
                await self._defend(record, under_way, filed, due)
            elif under_way is None and record.known:
                await self._close(record, filed)

    async def _defend(self, record: TabRecord, under_way: ClaimRecord, filed: Filed, due: ClaimContext) -> None:
        """Answer every objection in time, and settle once the delay is over."""
        tools, objections = self._tools, under_way.objections
        unseen = set(objections) - set(filed.objected)
        if unseen:
            await tools.write(lambda: tools.claims.note_objections(filed, unseen))
        asked = sorted((one.deadline, number) for number, one in objections.items() if due.ledger.block < one.deadline)
        # Not one a block: a payer that asks on many tabs for more than a window has blocks would have the rest struck.
        answers = [self._show(record, under_way, filed, number) for _, number in asked]
        for failed in await asyncio.gather(*answers, return_exceptions=True):
            if isinstance(failed, BaseException):
                raise failed
        if not objections and due.ledger.block + 1 >= under_way.state.settles_at:
            await self._send(claiming.settle_call(record, under_way, due.contracts))

    async def _show(self, record: TabRecord, under_way: ClaimRecord, filed: Filed, number: int) -> None:
        async with self._answering:
            await self._send(await self._answer(record, under_way, filed, number))

    async def _answer(self, record: TabRecord, under_way: ClaimRecord, filed: Filed, number: int) -> PartCall:
        tools = self._tools

        def made() -> PartCall:
            leaf = tools.books.numbered(filed.tab, number)
            answer = claiming.answer_to(under_way.state.claim, filed, number, leaf)
            return claiming.answer_call(record, under_way, answer, tools.wallet.contracts)

        call: PartCall = await tools.write(made)
        return call

    async def _close(self, record: TabRecord, filed: Filed) -> None:
        """A claim that is gone, or that was kept and never reached the chain."""
        tools, struck = self._tools, claiming.was_struck(record, filed)
        if struck and not filed.objected and tools.clock() - filed.filed_at < FORGOTTEN_SECONDS:
            return  # its transaction may be on its way
        if struck and filed.objected:
            log.warning("a claim was struck; numbers %s are not claimed again", filed.objected)
            await tools.write(lambda: tools.books.give_up(filed.tab, filed.objected))
        await tools.write(lambda: tools.claims.over(filed))

    # ------------------------------------------------------------------------------------------------- asking for money

    async def _redeem(self) -> None:
        tools, due = self._tools, self._due()
        found = await tools.write(lambda: redeeming.redeemable(tools.books, due.ledger))
        if not found:
            return
        price = redeeming.gas_price(await tools.wallet.fees(), due.parameters)
        chosen = redeeming.worthwhile(found, price, due.policy)
        if chosen:
            await self._send(redeeming.redeem_call(chosen, due.contracts))

    async def _claim(self, tab: Hash32, record: TabRecord) -> None:
        tools, due = self._tools, self._due()
        made = await tools.write(lambda: claiming.claim_due(tools.books, tab, record, due))
        if made is None:
            return
        price = redeeming.gas_price(await tools.wallet.fees(), due.parameters)
        cost = redeeming.gas_cost(redeeming.CLAIM_GAS, price)
        pressing = claiming.is_pressing(record, due.ledger) and made.gain > cost
        if pressing or due.policy.is_worth(made.gain, cost):
            filed = replace(made.filed, filed_at=tools.clock())
            await tools.write(lambda: tools.claims.keep(filed))
            await self._send(made.call)

    async def _report_shortfall(self, record: TabRecord) -> None:
        """A settled claim that the tab did not cover: the scheduler's own stake stands for it."""
        payer = self._due().ledger.state.parties.get(record.tab.payer)
        if record.short and payer is not None:
            await self._send(build(self._tools.wallet.contracts, Part.EVIDENCE, "convictPayer", record.tab))

    async def _send(self, call: PartCall) -> None:
        """Send; a call that the contract refuses was somebody else's already, or is due with another state."""
        tools, name, block = self._tools, call.call.function, self._tools.ledger().block
        if block < self._refused.get(call.call.data, 0) + PAUSE_BLOCKS:
            return
        try:
            receipt = await tools.wallet.execute(call, tools.key)
        except ChainRejected as error:
            log.info("%s was not sent: %s", name, error)
            others = [one for one in self._refused.items() if one[0] != call.call.data]
            self._refused = {call.call.data: block, **dict(others[:REFUSED_KEPT])}
            return
        self.sent[name] = self.sent.get(name, 0) + 1
        log.info("%s is in block %d and cost %d", name, receipt.block, receipt.cost)
        await tools.reached(receipt.block)


def _nearest_deadline(record: TabRecord) -> float:
    """Of what is asked about a claim on a tab."""
    asked = () if record.claim is None else record.claim.objections.values()
    return min((one.deadline for one in asked), default=_NEVER)


async def _apart(failures: list[Exception], work: Awaitable[None]) -> None:
    """Note why one part failed; raises ChainError, since a chain that is away is away for all."""
    try:
        await work
    except ChainError:
        raise
    except Exception as error:  # noqa: BLE001 - told by the caller once all tabs were looked after
        failures.append(error)
