"""What can go wrong in a session.

OverlayError
 └─ SessionError
     ├─ OpeningRefused     a path's beginning that is not believed
     ├─ MalformedFrame     bytes that are none of this version, or do not fit their place
     ├─ ReplayedFrame      this frame was seen before
     ├─ TooMuch            the other end holds more open than it was granted
     └─ RequestTooLarge
CircuitFailed
 └─ RequestFailed          a request ended without its whole answer; says whether the destination had it
"""

from __future__ import annotations

from enum import StrEnum

from troth.transport.errors import CircuitFailed, OverlayError


class SessionError(OverlayError):
    """Base of what sessions raise about frames."""

    code = "session"


class OpeningRefused(SessionError):
    """The beginning of a path is not believed."""

    code = "opening_refused"


class MalformedFrame(SessionError):
    """The bytes are no frame of this version, or the frame does not belong where it came."""

    code = "malformed_frame"


class ReplayedFrame(SessionError):
    """The frame was seen before, or is too far behind to tell."""

    code = "replayed_frame"


class TooMuch(SessionError):
    """More sessions, paths or requests are open than this destination allows."""

    code = "too_much"


class RequestTooLarge(SessionError):
    """The request has more bytes than a session carries."""

    code = "request_too_large"


class Delivered(StrEnum):
    """Whether a destination had the request that failed."""

    NO = "no"
    YES = "yes"
    UNKNOWN = "unknown"


class RequestFailed(CircuitFailed):
    """A request ended without its whole answer.

    Args:
        cause: the failure that ended it, with the class of the hop.
        delivered: whether the destination had the request: NO means that sending it again costs nothing twice.
    """

    code = "request_failed"

    def __init__(self, cause: CircuitFailed, delivered: Delivered) -> None:
        super().__init__(cause.hop, cause.position, cause.reason, cause.remedy)
        self.delivered = delivered
