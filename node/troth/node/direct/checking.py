"""A check at its client's entry: the scheduler's lines, and what the verifiers themselves say where it says nothing.

Every word is signed by its verifier, so that the client need not know who passed it on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Literal, TypeVar

from troth.node.direct.hearing import WORD_LIMIT, AnswerReader
from troth.node.direct.lines import committed_line, read_line, verdicts_line, verifiers_of
from troth.node.errors import NodeError, SchedulerAway
from troth.protocol.errors import ProtocolError
from troth.protocol.market import canonical
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import TraceCommitment, Verdict
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_group import Recall
from troth.transport.errors import OverlayError

log = logging.getLogger(__name__)

Word = TypeVar("Word", TraceCommitment, Verdict)

MOST_LINES = 1024
UNREAD_LINES = 64
CHECK_SECONDS = 300.0
"""A check that takes longer is late long since."""


class ServingCheck:
    """One check of an order of one segment."""

    def __init__(self, order: Hash32, hearing: AnswerReader) -> None:
        self._order, self._hearing = order, hearing
        self._out: asyncio.Queue[bytes | None] = asyncio.Queue(UNREAD_LINES)
        self._committed = False
        self._asking: asyncio.Task[None] | None = None

    async def lines(self, upstream: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Every line for the client, until it has read enough."""
        reading = asyncio.create_task(self._read(upstream))
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                while (line := await self._out.get()) is not None:
                    yield line + b"\n"
        except TimeoutError:
            log.warning("a check lasts too long: %g s", CHECK_SECONDS)
        finally:
            under_way = [reading] if self._asking is None else [reading, self._asking]
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _read(self, upstream: AsyncIterator[bytes]) -> None:
        count = 0
        try:
            async for raw in upstream:
                count += 1
                if count > MOST_LINES:
                    raise SchedulerAway("The scheduler's stream does not end", count, "Use another one.")
                await self._take(raw)
        except (NodeError, OverlayError, ProtocolError) as error:
            log.info("a check's stream broke; the verifiers are asked all the same: %s", error)
            if self._asking is not None:
                await asyncio.wait((self._asking,))
        except Exception:
            log.exception("a check's stream broke")
        await self._out.put(None)

    async def _take(self, raw: bytes) -> None:
        line = read_line(raw)
        match line.get("type"):
            case "checking" if self._asking is None:
                await self._out.put(raw)
                self._asking = asyncio.create_task(self._ask(verifiers_of(line)))
            case "committed":
                await self._commit(raw)
            case _:
                await self._out.put(raw)

    async def _commit(self, raw: bytes) -> None:
        """Once: whoever comes first, the scheduler or all verifiers, and verdicts only after it."""
        if not self._committed:
            self._committed = True
            await self._out.put(raw)

    async def _ask(self, verifiers: Sequence[Address]) -> None:
        """Every verifier's words from itself; a client passes over what it has."""
        try:
            if not verifiers:
                return
            commitments = await self._words(verifiers, "commitment", TraceCommitment)
            await self._commit(committed_line(commitments))
            await self._out.put(verdicts_line(await self._words(verifiers, "verdict", Verdict)))
        except (NodeError, OverlayError, ProtocolError) as error:
            log.info("a verifier cannot be asked; the scheduler tells what it said: %s", error)
        except Exception:
            log.exception("asking verifiers failed; the scheduler tells what they said")

    async def _words(
        self, verifiers: Sequence[Address], kind: Literal["commitment", "verdict"], of: type[Word]
    ) -> list[Signed[Word]]:
        return await asyncio.gather(*(self._word(one, kind, of) for one in verifiers))

    async def _word(self, verifier: Address, kind: Literal["commitment", "verdict"], of: type[Word]) -> Signed[Word]:
        while True:
            word = await self._hearing.recall(verifier, Recall(self._order, 0, kind))
            if word:
                read: Signed[Word] = canonical.decode(Signed[of], word, WORD_LIMIT)  # type: ignore[valid-type]
                return read
            await asyncio.sleep(0.1)
