"""Follow a contract's events and keep the folded state, through restarts, reorganisations and a node that is away."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from troth.chain.duty import Duty
from troth.chain.errors import ChainError, ChainUnavailable, FollowTimeout, NotFollowed, RpcRefused
from troth.chain.records import Block
from troth.chain.rounds import rounds
from troth.chain.store import WINDOW, EventStore
from troth.protocol.errors import ProtocolError
from troth.protocol.logs import EventLog
from troth.protocol.types import Address, Hash32

POLL_INTERVAL = 0.5
"""Seconds between two looks at the newest block."""

SPAN = 2_000
"""Blocks asked for at once while catching up; public nodes often refuse more."""

LONGEST_BACKOFF = 30.0
"""Seconds between two tries while the node is away."""

STALE_SECONDS = 60.0
"""Without having been at the newest block for so long, who follows is not ready, whatever holds it up."""

TOGETHER = 16
"""Blocks whose headers, and then logs, are asked for at once: a slow node takes as long for one, and a public node
refuses many more."""
SLOW_SECONDS = 1.0
"""A node that takes so long for its newest header is asked for all recent blocks at once. In parts, as many blocks may
come while it answers as are asked for, and its newest one is never reached."""

REWINDS = 4
"""Reorganisations in a row that one look at the chain follows before it gives up for now."""

_log = logging.getLogger(__name__)
Folded = TypeVar("Folded")
Asked = TypeVar("Asked")


class _Reorganised(Exception):
    """The node's chain no longer contains the block that was followed last."""


class LogSource(Protocol):
    """Whose logs are followed: one contract, or all parts of a deployment, on one chain."""

    @property
    def chain_id(self) -> int:
        """Of the chain."""

    @property
    def contract(self) -> Address:
        """Names the followed contract, or deployment, in the file."""

    @property
    def place(self) -> str:
        """The chain node, in words."""

    async def require_chain(self) -> None:
        """WrongChain if the node is not on that chain any more."""

    async def block(self, number: int | None = None) -> Block | None:
        """Header of a block, or of the newest; None if the node does not have it."""

    async def logs(self, first: int, last: int) -> list[EventLog]:
        """Logs of blocks ``first`` to ``last``."""

    async def logs_of_block(self, block_hash: Hash32) -> list[EventLog]:
        """Logs of exactly this block; RpcRefused if a reorganisation took it away."""


@dataclass(frozen=True, slots=True)
class Folding(Generic[Folded]):
    """How logs become a state: what nothing folds to, and the state after one log."""

    nothing: Folded
    after: Callable[[EventLog, Folded], Folded]


class Follower(Generic[Folded]):
    """Use it with ``async with``: it follows in the background. ``state`` is always that of block ``block``.

    ``failure`` is the last error while the node is away or the file takes nothing, else None; readiness checks show
    it. No error ends the following: a full disk may have room again.
    """

    def __init__(
        self,
        chain: LogSource,
        folding: Folding[Folded],
        path: Path | None = None,
        *,
        start_block: int = 0,
        poll_interval: float = POLL_INTERVAL,
    ) -> None:
        self._chain = chain
        self._folding = folding
        self._store = EventStore(path, chain.chain_id, chain.contract)
        self._start_block = start_block
        self._poll_interval = poll_interval
        self._states: OrderedDict[int, Folded] = OrderedDict()
        self._changed = asyncio.Condition()
        self._catching_up = asyncio.Lock()
        self._following = Duty("reading the chain's events", self._turn, every=poll_interval, longest=LONGEST_BACKOFF)
        self._doubted = False
        self._began = time.monotonic()
        self._caught_up = float("-inf")
        self.failure: ChainError | None = None
        self.state = self._refolded()
        self.block = self._tip_number()

    async def __aenter__(self) -> Self:
        self._following.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop following and close the file."""
        await self._following.stop()
        self._store.close()

    @property
    def age(self) -> float:
        """Seconds since this was last at the chain's newest block."""
        return time.monotonic() - max(self._caught_up, self._began)

    @property
    def trouble(self) -> str:
        """Why readiness says no, with the age of what is known; empty while the chain is followed."""
        if self.failure is None and self.age < STALE_SECONDS:
            return ""
        why = self.failure or "its node does not answer, or too slowly"
        return f"the chain was last followed {self.age:.0f} s ago: {why}"

    def logs(self, after: int = -1) -> list[EventLog]:
        """Every log that was folded, or those of blocks above ``after``, in the order of the chain."""
        return list(self._store.logs(after))

    async def wait_until(self, condition: Callable[[Folded], bool], timeout: float) -> Folded:
        """The first state that fulfils ``condition``; FollowTimeout after ``timeout`` seconds."""
        return await self._wait(lambda: condition(self.state), timeout, "The awaited event did not come")

    async def reach(self, block: int, timeout: float) -> Folded:
        """The state once ``block`` has been followed, for example the block of an own receipt."""
        self._following.hurry()
        return await self._wait(lambda: self.block >= block, timeout, f"Block {block} was not reached")

    async def _wait(self, fulfilled: Callable[[], bool], timeout: float, what: str) -> Folded:
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(fulfilled)
        except TimeoutError as error:
            reason = str(self.failure) if self.failure else "See what the transaction's receipt says."
            raise FollowTimeout(f"{what} within {timeout:g} s", f"at block {self.block}", reason) from error
        return self.state

    async def catch_up(self) -> Folded:
        """Follow to the newest block now.

        ChainUnavailable if the node is away, WrongChain if it is on another chain by now, NotFollowed if the disk is
        full; the state stays what it was.
        """
        try:
            return await self._catch_up()
        except (sqlite3.Error, OSError) as error:
            raise _not_followed(error) from error

    async def _catch_up(self) -> Folded:
        async with self._catching_up:
            for _ in range(REWINDS):
                try:
                    await self._follow_head()
                except _Reorganised:
                    await self._rewind()
                except ProtocolError as error:
                    await self._forget_recent()
                    raise ChainUnavailable(
                        f"The chain node's logs do not follow from each other: {error.what}",
                        self._chain.place,
                        "They are asked for again; if this goes on, use another node.",
                    ) from error
                else:
                    self._doubted = False
                    self._caught_up = time.monotonic()
                    return self.state
        raise ChainUnavailable(
            "The chain node changes its newest blocks faster than they can be followed",
            self._chain.place,
            "Use one node, not several behind one address.",
        )

    async def recent(self) -> Folded:
        """The state of at most one poll ago while this follows in the background: for watchers that look together.

        Raises as ``catch_up``.
        """
        if self._following.is_running and time.monotonic() - self._caught_up < self._poll_interval:
            return self.state
        return await self.catch_up()

    async def _turn(self) -> None:
        try:
            await self.catch_up()
        except Exception as error:
            self.failure = error if isinstance(error, ChainError) else _not_followed(error)
            raise
        self.failure = None

    async def _follow_head(self) -> None:
        asked = time.monotonic()
        head = await self._header(None)
        together = TOGETHER if time.monotonic() - asked < SLOW_SECONDS else WINDOW
        tip = self._store.tip()
        if tip == (head.number, head.hash):
            return
        settled = head.number - WINDOW
        # Each of the blocks that follow one at a time names the one before: only where none does, the node is asked.
        if tip is not None and not settled <= tip[0] < head.number:
            followed = await self._chain.block(tip[0])
            if followed is None or followed.hash != tip[1]:
                raise _Reorganised
        await self._follow_settled(settled)
        await self._follow_recent(head, together)

    async def _follow_settled(self, last: int) -> None:
        """Blocks too old to be reorganised, many at a time."""
        first = self._next_block()
        while first <= last:
            end = min(first + SPAN - 1, last)
            asked = asyncio.ensure_future(self._chain.logs(first, end))
            try:
                header = await self._header(end)
                logs = await asked
            finally:
                asked.cancel()
            await self._advance(header, logs)
            await self._announce()
            first = end + 1

    async def _follow_recent(self, head: Block, together: int) -> None:
        """Blocks that may still be reorganised: each linked to the one before, its logs by its hash."""
        for first in range(self._next_block(), head.number + 1, together):
            last = min(first + together - 1, head.number)
            before = await _all(*(self._header(number) for number in range(first, min(last + 1, head.number))))
            headers = [*before, head] if last == head.number else before
            self._require_linked(headers)
            logs = await _all(*(self._logs_of(header) for header in headers))
            for header, found in zip(headers, logs, strict=True):
                await self._advance(header, found)
                await self._announce()

    def _require_linked(self, headers: Sequence[Block]) -> None:
        tip = self._store.tip()
        before = None if tip is None else tip[1]
        for header in headers:
            if before is not None and header.parent_hash != before:
                raise _Reorganised
            before = header.hash

    async def _logs_of(self, header: Block) -> list[EventLog]:
        try:
            return await self._chain.logs_of_block(header.hash)
        except RpcRefused as error:
            raise _Reorganised from error

    async def _rewind(self) -> None:
        """Go back to the newest followed block that the node still has; to the start if none of them is left."""
        # Behind an address there may be another chain all at once. It has none of these blocks, which is no reason to
        # forget stakes, tabs and orders.
        await self._chain.require_chain()
        ancestor = self._start_block - 1
        for number, block_hash in self._store.recent_blocks():
            header = await self._chain.block(number)
            if header is not None and header.hash == block_hash:
                ancestor = number
                break
        _log.warning("reorganisation: %d blocks taken back to %d", self.block - ancestor, ancestor)
        await self._go_back(ancestor)

    async def _forget_recent(self) -> None:
        """Ask again for what was followed last, and the second time for everything: a log was left out somewhere."""
        recent = [number for number, _ in self._store.recent_blocks()]
        await self._go_back(self._start_block - 1 if self._doubted else min(recent, default=self._start_block - 1))
        self._doubted = True

    async def _go_back(self, ancestor: int) -> None:
        state = self._states.get(ancestor)
        if state is None:
            left = takewhile(lambda log: log.meta.block <= ancestor, self._store.logs())
            state = await self._after(left, self._folding.nothing)
        self._store.rewind(ancestor)
        self._states = OrderedDict((number, state) for number, state in self._states.items() if number <= ancestor)
        self.state, self.block = state, ancestor
        await self._announce()

    async def _advance(self, header: Block, logs: list[EventLog]) -> None:
        ordered = sorted(logs, key=lambda log: (log.meta.block, log.meta.log_index))
        state = await self._after(ordered, self.state)
        self._store.append(header.number, header.hash, ordered)
        self.state, self.block = state, header.number
        self._states[header.number] = state
        if len(self._states) > WINDOW:
            self._states.popitem(last=False)

    async def _after(self, logs: Iterable[EventLog], state: Folded) -> Folded:
        """``state`` and what logs make of it; there may be thousands, and whatever else the process does goes on."""
        for log in logs:
            state = self._folding.after(log, state)
            await rounds.give_way()
        return state

    async def _announce(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _header(self, number: int | None) -> Block:
        header = await self._chain.block(number)
        if header is None:
            raise _Reorganised
        return header

    def _refolded(self) -> Folded:
        state = self._folding.nothing
        for log in self._store.logs():
            state = self._folding.after(log, state)
        return state

    def _tip_number(self) -> int:
        tip = self._store.tip()
        return self._start_block - 1 if tip is None else tip[0]

    def _next_block(self) -> int:
        return self._tip_number() + 1


async def _all(*work: Coroutine[Any, Any, Asked]) -> list[Asked]:
    """What all of it gives; with the first failure the rest is not waited for."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _not_followed(error: Exception) -> NotFollowed:
    what = f"What the chain says cannot be kept: {error or type(error).__name__}"
    return NotFollowed(what, type(error).__name__, "Look at the disk; following goes on by itself.")
