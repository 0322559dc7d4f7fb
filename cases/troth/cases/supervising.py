"""Long-lived watching that no single fault ends: what looks at the chain again and again runs in here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from troth.cases.courtroom import Courtroom
from troth.chain.duty import Duty
from troth.chain.errors import ChainError
from troth.protocol.types import Hash32

BLOCK_TIMEOUT = 15.0
"""Seconds after which it looks again, though no block came."""
LOOKED_TOGETHER = 64
"""Cases that are looked at side by side."""
PAUSE = 1.0
"""Seconds after a look that failed."""

_log = logging.getLogger(__name__)


async def watch_blocks(look: Callable[[], Awaitable[None]], courtroom: Courtroom, what: str) -> None:
    """``look`` once for each block until cancelled; a chain that is away, or any error, is waited out."""

    async def look_once() -> None:
        await look()
        await courtroom.after((await courtroom.seen()).block, BLOCK_TIMEOUT)

    await Duty(what, look_once, every=0.0, retry=PAUSE, longest=PAUSE, private=True).run()


async def apart(case_id: Hash32, work: Awaitable[object]) -> None:
    """One case's part of a look: what fails of it keeps no other case waiting. A chain that is away is away for all.

    Raises:
        ChainError: the chain cannot be asked now.
    """
    try:
        await work
    except ChainError:
        raise
    except Exception as error:  # noqa: BLE001 - deadlines of other cases go on; a message may hold a prompt
        _log.error("case %s failed and is tried again: %s", case_id.hex(), type(error).__name__)


async def each(cases: Iterable[Hash32], look: Callable[[Hash32], Awaitable[object]]) -> None:
    """One look at each of many cases, side by side: one after the other, with a block for what each sends, the last of
    those that were opened together would have no window left. Raises as ``apart`` does.
    """
    places, away = asyncio.Semaphore(LOOKED_TOGETHER), list[ChainError]()

    async def one(case_id: Hash32) -> None:
        async with places:
            if away:
                return
            try:
                await apart(case_id, look(case_id))
            except ChainError as error:
                away.append(error)

    await asyncio.gather(*[one(case_id) for case_id in cases])
    if away:
        raise away[0]
