"""Signed envelopes: who says this, to whom, when, and that it is said for the first time.

An envelope is the EIP-712 message Envelope{contentHash, sender, recipient, nonce, timestamp}. What both ends know is
not sent again: the connection fixes the two parties. contentHash is SHA-256, for no contract reads it, and processors
have instructions for it: megabytes of rows are hashed five times faster than with Keccak. On the wire:

    kind 1 | nonce 32 | timestamp 8, big-endian Unix seconds | signature 65 | content …

An answer carries the nonce of its question, and contentHash covers the kind, so no message can pass for another.

The replay window remembers what each sender has sent, in bounded memory. A nonce is 24 random bytes of a session
followed by a counter. A session costs one sliding bit window (RFC 4303 section 3.4.3) whatever the number of its
messages. A session may be forgotten once its last message is older than the timestamp window, for then the timestamp
alone refuses a replay; never earlier, so a full table refuses newcomers.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from troth.protocol import typed_data
from troth.protocol.errors import ProtocolError
from troth.protocol.types import Address, Envelope, Hash32
from troth.transport.errors import ClockSkew, MalformedEnvelope, Replayed, WrongSigner
from troth.transport.event_loop import beside
from troth.transport.identity import Operator

SESSION_BYTES = 24
NONCE_BYTES = 32
WINDOW_BITS = 1024
SESSIONS_PER_SENDER = 256
SENDERS = 4096
ALLOWED_SKEW = 60
_TIMESTAMP = slice(1 + NONCE_BYTES, 1 + NONCE_BYTES + 8)
_SIGNATURE = slice(_TIMESTAMP.stop, _TIMESTAMP.stop + 65)
OVERHEAD = _SIGNATURE.stop
"""Bytes that an envelope adds to its content."""
Clock = Callable[[], float]


class NonceSequence:
    """Nonces of one sending session, never twice the same."""

    def __init__(self) -> None:
        self._session = secrets.token_bytes(SESSION_BYTES)
        self._counter = 0

    def next(self) -> bytes:
        """The next 32-byte nonce."""
        self._counter += 1
        return self._session + self._counter.to_bytes(8, "big")


@dataclass(slots=True)
class _Session:
    highest: int
    seen: int
    last_timestamp: int


class ReplayWindow:
    """Accepts each (sender, nonce) once."""

    def __init__(self, seconds: int, senders: int = SENDERS, sessions_per_sender: int = SESSIONS_PER_SENDER) -> None:
        self._seconds = seconds
        self._senders = senders
        self._sessions_per_sender = sessions_per_sender
        self._table: OrderedDict[str, OrderedDict[bytes, _Session]] = OrderedDict()

    def accept(self, sender: str, nonce: bytes, timestamp: int, now: int) -> None:
        """Note the nonce; raises Replayed if it was noted before or lies behind the window."""
        if len(nonce) != NONCE_BYTES:
            raise MalformedEnvelope(f"A nonce is {NONCE_BYTES} bytes", nonce.hex())
        sessions = self._sessions_of(sender, now)
        prefix, counter = nonce[:SESSION_BYTES], int.from_bytes(nonce[SESSION_BYTES:], "big")
        session = sessions.get(prefix)
        if session is None:
            self._forget_old(sessions, now)
            if len(sessions) >= self._sessions_per_sender:
                raise Replayed(f"{sender} has {len(sessions)} open sessions", remedy=f"Wait {self._seconds} s.")
            sessions[prefix] = _Session(counter, 1, timestamp)
            return
        _advance(session, counter, sender)
        session.last_timestamp = max(session.last_timestamp, timestamp)
        sessions.move_to_end(prefix)
        self._table.move_to_end(sender)

    def _sessions_of(self, sender: str, now: int) -> OrderedDict[bytes, _Session]:
        sessions = self._table.get(sender)
        if sessions is None:
            if len(self._table) >= self._senders:
                self._forget_idle_sender(now)
            sessions = self._table[sender] = OrderedDict()
        return sessions

    def _forget_idle_sender(self, now: int) -> None:
        name, sessions = next(iter(self._table.items()))
        self._forget_old(sessions, now)
        if sessions:
            raise Replayed(f"{self._senders} senders are being remembered", remedy=f"Try again in {self._seconds} s.")
        del self._table[name]

    def _forget_old(self, sessions: OrderedDict[bytes, _Session], now: int) -> None:
        for prefix in [p for p, s in sessions.items() if s.last_timestamp + self._seconds < now]:
            del sessions[prefix]


def _advance(session: _Session, counter: int, sender: str) -> None:
    ahead = counter - session.highest
    if ahead > 0:
        session.seen = ((session.seen << min(ahead, WINDOW_BITS)) | 1) & ((1 << WINDOW_BITS) - 1)
        session.highest = counter
        return
    # The sender chose the number: shifting by a large one would fill the memory.
    bit = 1 << -ahead if -ahead < WINDOW_BITS else 0
    if not bit or session.seen & bit:
        raise Replayed(f"Message {counter} of {sender} was seen before, or is {-ahead} behind its newest")
    session.seen |= bit


class EnvelopeKind(IntEnum):
    """What a message is; covered by the signature."""

    HELLO = 0
    REQUEST = 1
    REPLY = 2


_KINDS = frozenset(int(kind) for kind in EnvelopeKind)


@dataclass(frozen=True, slots=True)
class Sealed:
    """An envelope taken off the wire. `content` is believed only after `check`."""

    kind: EnvelopeKind
    nonce: bytes
    timestamp: int
    signature: bytes
    content: memoryview


def seal(
    operator: Operator, recipient: Address, kind: EnvelopeKind, nonce: bytes, *content: bytes | memoryview, now: int
) -> bytes:
    """The bytes of a signed envelope over content that may come in pieces."""
    message = _message(kind, content, operator.address, recipient, nonce=nonce, timestamp=now)
    signature = operator.sign(message)
    return b"".join((bytes((kind,)), nonce, now.to_bytes(8, "big"), signature, *content))


def take_apart(frame: bytes) -> Sealed:
    """Split a frame into its fields; raises MalformedEnvelope."""
    if len(frame) < OVERHEAD or frame[0] not in _KINDS:
        raise MalformedEnvelope("These bytes are no envelope", frame[:8].hex(), "Both ends must run the same version.")
    return Sealed(
        EnvelopeKind(frame[0]),
        frame[1 : 1 + NONCE_BYTES],
        int.from_bytes(frame[_TIMESTAMP], "big"),
        frame[_SIGNATURE],
        memoryview(frame)[OVERHEAD:],
    )


def check(sealed: Sealed, sender: Address, recipient: Operator, now: int) -> None:
    """Raise ClockSkew or WrongSigner unless `sender` signed this for `recipient` within the last minute."""
    difference = sealed.timestamp - now
    if abs(difference) > ALLOWED_SKEW:
        raise ClockSkew(difference, ALLOWED_SKEW)
    message = _message(
        sealed.kind, (sealed.content,), sender, recipient.address, nonce=sealed.nonce, timestamp=sealed.timestamp
    )
    try:
        signer = typed_data.recover(message, recipient.domain, sealed.signature)
    except ProtocolError as error:
        raise WrongSigner("The envelope carries no valid signature", error) from error
    if signer != sender:
        raise WrongSigner(
            f"The envelope names {sender} as its sender, its signature leads to {signer}",
            remedy="Check that both ends use the same chain, contract address and operator key.",
        )


class Receiver:
    """Checks what arrives at one party: signature, clock and replay window."""

    def __init__(self, operator: Operator, clock: Clock = time.time) -> None:
        self.operator = operator
        self._clock = clock
        # Twice the skew: a message may be stamped a minute ahead and replayed a minute late.
        self._window = ReplayWindow(seconds=2 * ALLOWED_SKEW)

    def now(self) -> int:
        """This machine's Unix time in whole seconds."""
        return int(self._clock())

    def open(self, frame: bytes, sender: Address) -> Sealed:
        """The envelope in `frame` if `sender` signed it for us, now, for the first time."""
        sealed = take_apart(frame)
        now = self.now()
        check(sealed, sender, self.operator, now)
        self._window.accept(sender, sealed.nonce, sealed.timestamp, now)
        return sealed

    async def open_beside(self, frame: bytes, sender: Address) -> Sealed:
        """The same; a large one is hashed in a thread."""
        sealed = take_apart(frame)
        now = self.now()
        await beside(len(frame), check, sealed, sender, self.operator, now)
        self._window.accept(sender, sealed.nonce, sealed.timestamp, now)
        return sealed


def _message(
    kind: EnvelopeKind,
    content: Sequence[bytes | memoryview],
    sender: Address,
    recipient: Address,
    *,
    nonce: bytes,
    timestamp: int,
) -> Envelope:
    hashing = hashlib.sha256(bytes((kind,)))
    for piece in content:
        hashing.update(piece)
    return Envelope(
        content_hash=Hash32(hashing.digest()),
        sender=sender,
        recipient=recipient,
        nonce=Hash32(nonce),
        timestamp=timestamp,
    )
