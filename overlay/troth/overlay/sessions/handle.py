"""A reply handle: one exchange that a client lent its destination, through one proxy, for one answer.

It is the proxy's random exchange id that leads back; the destination never learns where to. It serves once: after its
final answer, or when the proxy or the client ends it, nothing goes through it any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from troth.overlay.sessions.frames import AnswerKind, PathKeys

MOST_WAITING = 64
"""Above the 48 segments that are not acknowledged: what a slow proxy did not take by then came on other paths."""


class Handle:
    """Where clove `index` of an answer goes.

    Args:
        keys: of the path that it belongs to.
        counter: of the frame that lent it.
    """

    def __init__(self, keys: PathKeys, counter: int, index: int) -> None:
        self.index = index
        self.open = True
        self._sealer = keys.sealer(counter)
        self._waiting: deque[tuple[AnswerKind, bytes, bool]] = deque(maxlen=MOST_WAITING)
        self._woken = asyncio.Event()

    def put(self, clove: bytes, *, final: bool = False) -> None:
        """Send a clove as soon as the connection takes it."""
        self._put(AnswerKind.CLOVE, clove, final)

    def end(self, kind: AnswerKind = AnswerKind.DONE) -> None:
        """Send a last word; nothing follows."""
        self._put(kind, b"", True)

    def _put(self, kind: AnswerKind, content: bytes, final: bool) -> None:
        if self.open:
            self._waiting.append((kind, content, final))
            self.open = not final
            self._woken.set()

    async def answers(self) -> AsyncIterator[tuple[bytes, bool]]:
        """Sealed answers, each with whether it is the last."""
        final = False
        try:
            while not final:
                while not self._waiting:
                    self._woken.clear()
                    await self._woken.wait()
                kind, content, final = self._waiting.popleft()
                yield self.seal(kind, content), final
        finally:
            # Also when the proxy is gone: whoever answers must not believe that this still leads anywhere.
            self.open = False
            self._waiting.clear()

    def seal(self, kind: AnswerKind, content: bytes = b"") -> bytes:
        """The next answer's bytes."""
        return self._sealer.seal(bytes((kind,)) + content)
