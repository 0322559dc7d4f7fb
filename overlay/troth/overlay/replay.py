"""The replay window: remembers what each sender has sent, in bounded memory.

A nonce is 24 random bytes of a session followed by a counter. A session costs one sliding bit window (RFC 4303
section 3.4.3) whatever the number of its messages. A session may be forgotten once its last message is older than
the timestamp window, for then the timestamp alone refuses a replay; never earlier, so a full table refuses newcomers.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass

from troth.overlay.errors import MalformedEnvelope, Replayed

SESSION_BYTES = 24
NONCE_BYTES = 32
WINDOW_BITS = 1024
SESSIONS_PER_SENDER = 256
SENDERS = 4096


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
    bit = 1 << -ahead
    if -ahead >= WINDOW_BITS or session.seen & bit:
        raise Replayed(f"Message {counter} of {sender} was seen before, or is {-ahead} behind its newest")
    session.seen |= bit
