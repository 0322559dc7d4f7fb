"""One path's part in one request: send its cloves, read its cloves of the answer, notice when the path is no good."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from troth.overlay.sessions.errors import Delivered, RequestFailed
from troth.overlay.sessions.frames import AnswerKind, FrameKind, HandleFrame, handle_frame
from troth.overlay.sessions.path import Answers, SessionPath
from troth.overlay.sida import Clove, parse
from troth.overlay.sida.errors import MalformedClove
from troth.overlay.sida.sending import SEGMENT_BYTES
from troth.transport.errors import CircuitFailed, CircuitSilent

QUIET_SECONDS = 3.0
"""After so long without a word on a path it is asked whether it is alive, and compared with the others."""
PING_SECONDS = 5.0
IN_FLIGHT = 8
"""Parts of a long request on one path at a time, and of one request at a time: a proxy takes 64 exchanges."""
_CLOVE = bytes((FrameKind.CLOVE,))
_ENDINGS = {
    AnswerKind.UNKNOWN: ("it does not know the request any more", Delivered.YES),
    AnswerKind.BUSY: ("it takes no more requests now", Delivered.NO),
    AnswerKind.REFUSED: ("it broke the answer off", Delivered.YES),
}


class CarriedRequest(Protocol):
    """The request that paths work for."""

    id: bytes

    @property
    def heard(self) -> bool:
        """Whether anything of the answer has come."""

    @property
    def next_number(self) -> int:
        """The segment that is awaited."""

    @property
    def ended(self) -> bool:
        """Whether the answer is whole."""

    def take(self, clove: Clove, source: bytes, index: int) -> None:
        """A clove of the answer."""

    def behind(self, index: int) -> bool:
        """Whether what the other paths brought a while ago has not come on this one."""


class Carrying:
    """Clove `index` of request and answer over one path."""

    def __init__(self, gathering: CarriedRequest, path: SessionPath, index: int) -> None:
        self._gathering = gathering
        self._path = path
        self._index = index
        self._hops = len(path.circuit.path)

    async def run(self, cloves: Sequence[bytes]) -> None:
        """Until the answer's last clove has come.

        Args:
            cloves: this path's, one for each segment of the request.

        Raises:
            CircuitFailed: this path is no good.
            RequestFailed: the destination said, under its seal, that there will be no answer.
            Unsealed: the destination does not know the path.
        """
        if self._gathering.heard:
            wanted = HandleFrame(self._gathering.id, self._index, self._gathering.next_number)
            await self._read(await self._path.send(handle_frame(wanted)))
            return
        answers = await self._path.send(_CLOVE + cloves[0])
        rest = asyncio.ensure_future(self._send(cloves[1:]))
        reading = asyncio.ensure_future(self._read(answers))
        try:
            await asyncio.wait({rest, reading}, return_when=asyncio.FIRST_EXCEPTION)
            if rest.done():
                rest.result()
            await reading
        finally:
            rest.cancel()
            reading.cancel()

    async def _send(self, cloves: Sequence[bytes]) -> None:
        """What follows the first segment of a long request, a few at a time."""
        if not cloves:
            return
        under_way: list[Answers] = []
        async with self._path.uploading:
            for clove in cloves:
                if len(under_way) == IN_FLIGHT:
                    await under_way.pop(0).next()
                under_way.append(await self._path.send(_CLOVE + clove))
            for answers in under_way:
                await answers.next()

    async def _read(self, answers: Answers) -> None:
        while True:
            kind, content, final = await self._next(answers)
            if kind is AnswerKind.CLOVE:
                clove = self._parsed(content)
                self._gathering.take(clove, self._path.id, self._index)
                if clove.segment.last:
                    return
            elif kind is not AnswerKind.DONE:
                reason, delivered = _ENDINGS[kind]
                raise RequestFailed(CircuitFailed("destination", 0, reason), delivered)
            elif self._gathering.ended:
                return
            if final:
                raise CircuitFailed("proxy", self._hops, "it ended the answer before its end")

    def _parsed(self, content: bytes) -> Clove:
        try:
            clove = parse(content, SEGMENT_BYTES)
        except MalformedClove as error:
            raise CircuitFailed("destination", 0, f"it sent what is no clove: {error.what}") from error
        if clove.index != self._index:
            raise CircuitFailed("destination", 0, "it sent another path's clove")
        return clove

    async def _next(self, answers: Answers) -> tuple[AnswerKind, bytes, bool]:
        waiting = asyncio.ensure_future(answers.next())
        try:
            while not (await asyncio.wait({waiting}, timeout=QUIET_SECONDS))[0]:
                await self._check()
            return waiting.result()
        finally:
            waiting.cancel()

    async def _check(self) -> None:
        """A quiet path: is it alive, and does it bring what the others bring?"""
        circuit = self._path.circuit
        try:
            async with asyncio.timeout(PING_SECONDS):
                await circuit.ping(self._hops)
        except TimeoutError:
            raise await circuit.silence(QUIET_SECONDS, PING_SECONDS) from None
        if self._gathering.behind(self._index):
            raise CircuitSilent("proxy", self._hops, "answers that came on other paths did not come on this one")
