"""The sessions and paths that a destination knows, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict

from troth.overlay.sessions.answering import Answering
from troth.overlay.sessions.errors import OpeningRefused, TooMuch
from troth.overlay.sessions.frames import AnswerKind, CounterWindow, PathKeys
from troth.overlay.sessions.limits import SessionLimits
from troth.overlay.sessions.opening import PathHandshake
from troth.overlay.sida import Threshold

REMEMBERED_REQUESTS = 64
KEPT_ANSWERS = 16
"""Of a session: sent whole, not acknowledged whole. A path that broke at their end may still be replaced."""


class KnownPath:
    """One path of a session, from its opening on."""

    __slots__ = ("id", "keys", "secret", "session", "window")

    def __init__(self, opening: PathHandshake, session: KnownSession) -> None:
        self.id = opening.path_id
        self.secret = opening.path_secret
        self.session = session
        self.keys = PathKeys(opening)
        self.window = CounterWindow()


class KnownSession:
    """What one client shares with this destination. Nothing in here says who it is."""

    def __init__(self, secret: bytes, threshold: Threshold) -> None:
        self.secret = secret
        self.threshold = threshold
        self.paths: OrderedDict[bytes, KnownPath] = OrderedDict()
        self.requests: dict[bytes, Answering] = {}
        self.last_used = 0.0
        self._ended: OrderedDict[bytes, AnswerKind] = OrderedDict()

    def under_way(self) -> int:
        """Requests whose answer has not been sent whole."""
        return sum(not answering.reply.ended for answering in self.requests.values())

    def served(self) -> bool:
        """Whether any request of it was whole."""
        return any(answering.started for answering in self.requests.values())

    def word_on(self, request: bytes) -> AnswerKind | None:
        """What is said to what still comes of a request that ended here lately, which starts nothing."""
        return self._ended.get(request)

    def refuse(self, request: bytes) -> AnswerKind:
        """Its other cloves hear the same, also when there is a place for them: who hears BUSY may ask anew for free."""
        return self._note(request, AnswerKind.BUSY)

    def forget(self, request: bytes, kind: AnswerKind) -> None:
        """The request is over."""
        if self.requests.pop(request, None) is not None:
            self._note(request, AnswerKind.BUSY if kind is AnswerKind.BUSY else AnswerKind.UNKNOWN)

    def _note(self, request: bytes, kind: AnswerKind) -> AnswerKind:
        self._ended[request] = kind
        if len(self._ended) > REMEMBERED_REQUESTS:
            self._ended.popitem(last=False)
        return kind


class SessionTable:
    """All sessions of one destination."""

    def __init__(self, limits: SessionLimits) -> None:
        self._limits = limits
        self._paths: dict[bytes, KnownPath] = {}
        self._incomplete: OrderedDict[tuple[bytes, bytes], int] = OrderedDict()
        self._incomplete_bytes = 0
        self.sessions: OrderedDict[bytes, KnownSession] = OrderedDict()

    def path(self, path_id: bytes) -> KnownPath | None:
        """The path of this id, if it is known."""
        return self._paths.get(path_id)

    def open(self, opening: PathHandshake) -> KnownPath:
        """The path that an opening begins, or has begun before; raises OpeningRefused, TooMuch."""
        known = self._paths.get(opening.path_id)
        if known is not None:
            if known.secret != opening.path_secret or known.session.secret != opening.session_secret:
                raise OpeningRefused("Another path has this id", opening.path_id.hex(), "Draw another one.")
            return known
        session = self.sessions.get(opening.session_secret) or self._begin(opening)
        if session.threshold != opening.threshold:
            raise OpeningRefused("A session has one threshold", opening.threshold, "Open another session.")
        if len(session.paths) >= self._limits.paths_per_session:
            del self._paths[session.paths.popitem(last=False)[0]]
        path = self._paths[opening.path_id] = session.paths[opening.path_id] = KnownPath(opening, session)
        return path

    def used(self, session: KnownSession, now: float) -> None:
        """The client is there."""
        session.last_used = now
        self.sessions.move_to_end(session.secret)

    def add(self, session: KnownSession, request: bytes, answering: Answering) -> None:
        """A request began. Too many that are not whole: the oldest of them goes, and may be sent again."""
        session.requests[request] = answering
        sent = [name for name, known in session.requests.items() if known.reply.ended]
        if len(sent) > KEPT_ANSWERS:
            self._drop(session, sent[0], AnswerKind.UNKNOWN)
        self._incomplete[session.secret, request] = 0
        if len(self._incomplete) > self._limits.inbox.messages:
            self._drop_oldest_incomplete()

    def grew(self, session: KnownSession, request: bytes, length: int) -> None:
        """So many more bytes of a request that is not whole are kept. Too many: the oldest of them goes."""
        self._incomplete[session.secret, request] += length
        self._incomplete_bytes += length
        while self._incomplete_bytes > self._limits.incomplete_bytes:
            self._drop_oldest_incomplete()

    def whole(self, session: KnownSession, request: bytes) -> None:
        """All of a request has come."""
        self._incomplete_bytes -= self._incomplete.pop((session.secret, request), 0)

    def busy(self, session: KnownSession, request: bytes) -> None:
        """The request is whole, and there is no place to serve it."""
        self._drop(session, request, AnswerKind.BUSY)

    def _drop_oldest_incomplete(self) -> None:
        secret, oldest = next(iter(self._incomplete))
        self._drop(self.sessions.get(secret), oldest, AnswerKind.BUSY)

    def running(self) -> int:
        """Requests that are being served now."""
        sessions = (session for session in self.sessions.values() if session.requests)
        return sum(answering.running for session in sessions for answering in session.requests.values())

    def end(self, session: KnownSession) -> None:
        """Forget a session, its paths and its requests."""
        self.sessions.pop(session.secret, None)
        for path in session.paths:
            self._paths.pop(path, None)
        for request in list(session.requests):
            self._drop(session, request, AnswerKind.DONE)

    def _begin(self, opening: PathHandshake) -> KnownSession:
        if len(self.sessions) >= self._limits.sessions:
            self._make_room()
        session = self.sessions[opening.session_secret] = KnownSession(opening.session_secret, opening.threshold)
        return session

    def _make_room(self) -> None:
        idle = next((session for session in self.sessions.values() if not session.requests), None)
        # A request that has only begun costs its sender one clove: it holds no place against newcomers.
        idle = idle or next((session for session in self.sessions.values() if not session.served()), None)
        if idle is None:
            raise TooMuch("Every session here has a request under way", len(self.sessions), "Try again in a minute.")
        self.end(idle)

    def sweep(self, now: float) -> None:
        """Forget sessions that were silent for too long, and requests that nobody waits for."""
        for session in list(self.sessions.values()):
            for request, answering in list(session.requests.items()):
                if self._has_ended(answering, now):
                    self._drop(session, request, AnswerKind.UNKNOWN)
            if not session.requests and now - session.last_used > self._limits.idle_seconds:
                self.end(session)
        self._drop_kept()

    def _drop_kept(self) -> None:
        """Answers that were sent whole wait for their acknowledgement, but not in any memory."""
        kept = [
            (answering.began, session, request, answering.reply.held_bytes)
            for session in self.sessions.values()
            for request, answering in session.requests.items()
            if answering.reply.ended
        ]
        held = sum(one[-1] for one in kept)
        for _, session, request, length in sorted(kept, key=lambda one: one[0]):
            if held <= self._limits.kept_bytes:
                return
            self._drop(session, request, AnswerKind.UNKNOWN)
            held -= length

    def drop(self, session: KnownSession, request: bytes) -> None:
        """The client has given a request up."""
        self._drop(session, request, AnswerKind.DONE)

    def _drop(self, session: KnownSession | None, request: bytes, kind: AnswerKind) -> None:
        answering = session.requests.get(request) if session is not None else None
        if session is None or answering is None:
            return
        self.whole(session, request)
        answering.stop(kind)
        session.forget(request, kind)

    def _has_ended(self, answering: Answering, now: float) -> bool:
        """Whether nobody waits for an answer any more; notes since when nobody has attended to it."""
        if not answering.started:
            return answering.outcome is not None or now - answering.began > self._limits.inbox.seconds
        reply = answering.reply
        if answering.over:
            return True
        if reply.attended and not reply.waits_for_reader:
            reply.unattended_since = None
            return False
        if reply.unattended_since is None:
            reply.unattended_since = now
        return now - reply.unattended_since > self._limits.unattended_seconds
