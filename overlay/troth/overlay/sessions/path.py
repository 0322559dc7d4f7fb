"""A client's end of one path of a session."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from troth.overlay.circuits.circuit import Circuit
from troth.overlay.circuits.exchange import Exchange
from troth.overlay.directory.listing import ListedDestination
from troth.overlay.sessions.errors import MalformedFrame
from troth.overlay.sessions.frames import AnswerKind, PathKeys, encode_known, encode_opening, split_answer
from troth.overlay.sessions.opening import PathHandshake
from troth.overlay.sida import Threshold
from troth.protocol.errors import TrothError
from troth.transport.errors import CircuitFailed


@dataclass(frozen=True, slots=True)
class Trust:
    """What all paths of a session share."""

    destination: ListedDestination
    session_secret: bytes
    threshold: Threshold


class Unsealed(TrothError):
    """The last answer was not sealed: the destination does not know the path, or the proxy says so."""

    def __init__(self) -> None:
        super().__init__("The last answer of a path was not sealed", None, "Open the path anew.")


class SessionPath:
    """Frames over one circuit. Until an answer shows that the destination knows the path, each brings the opening."""

    def __init__(self, circuit: Circuit, trust: Trust, now: int) -> None:
        self.circuit = circuit
        self.renewed = False
        self.uploading = asyncio.Lock()
        self._trust = trust
        self.begin(now)

    def begin(self, now: int) -> None:
        """Fresh secrets and a fresh id: for a new circuit, or for a destination that has forgotten the old ones."""
        self._opening = PathHandshake.new(self._trust.session_secret, now, self._trust.threshold)
        self._sealed = self._opening.seal(self._trust.destination.seal_key, self._trust.destination.place.name)
        self._keys = PathKeys(self._opening)
        self._counter = 0
        self._known = False

    @property
    def id(self) -> bytes:
        """Names the path to the destination, and as the source of cloves."""
        return self._opening.path_id

    async def send(self, plain: bytes) -> Answers:
        """Send a frame; raises CircuitFailed."""
        counter, self._counter = self._counter, self._counter + 1
        sealed = self._keys.seal_frame(counter, plain)
        if self._known:
            delivery = encode_known(self._opening.path_id, counter, sealed)
        else:
            delivery = encode_opening(self._sealed, counter, sealed)
        exchange = await self.circuit.send(self._trust.destination.place.name, delivery)
        return Answers(self, self._keys, exchange, counter)

    def confirmed(self, keys: PathKeys) -> None:
        """An answer under these keys came."""
        if keys is self._keys:
            self._known, self.renewed = True, False


class Answers:
    """What comes back for one frame, opened and in order."""

    def __init__(self, path: SessionPath, keys: PathKeys, exchange: Exchange, counter: int) -> None:
        self._path = path
        self._keys = keys
        self._exchange = exchange
        self._opener = keys.opener(counter)

    async def next(self) -> tuple[AnswerKind, bytes, bool]:
        """Kind, content, and whether it was the last.

        Raises:
            Unsealed: the exchange ended with an empty answer.
            CircuitFailed: the circuit or the delivery failed, or the answer is none of the destination's.
        """
        message = await self._exchange.answer()
        if not message.content and message.final:
            raise Unsealed
        try:
            plain = self._opener.open(message.content)
            kind, content = split_answer(plain)
        except MalformedFrame as error:
            length = len(self._path.circuit.path)
            raise CircuitFailed("proxy", length, f"it changed or made up an answer: {error.what}") from error
        self._path.confirmed(self._keys)
        return kind, content, message.final
