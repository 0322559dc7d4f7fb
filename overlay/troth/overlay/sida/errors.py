"""What can be wrong with a clove or a message of cloves.

OverlayError
 └─ SidaError
     ├─ WrongThreshold       n, k or secret that S-IDA cannot work with
     ├─ ContentTooLarge      more bytes than one segment may carry
     ├─ MessageEnded         the sender was asked for a segment after the last one
     └─ CloveRefused         the receiver dropped a clove; `code` is the reason, for logs and metrics
         ├─ MalformedClove
         ├─ LateClove        of a message that has ended, was given up, or is over already
         ├─ OutOfWindow      its segment is too far ahead
         └─ TooManyCloves    the source, or the segment, has had its share
"""

from __future__ import annotations

from troth.transport.errors import OverlayError


class SidaError(OverlayError):
    """Base of what S-IDA raises."""

    code = "sida"


class WrongThreshold(SidaError):
    """n, k or secret that S-IDA cannot work with."""

    code = "wrong_threshold"


class ContentTooLarge(SidaError):
    """More bytes than one segment may carry."""

    code = "content_too_large"


class MessageEnded(SidaError):
    """A segment was asked for after the last one."""

    code = "message_ended"


class CloveRefused(SidaError):
    """The receiver dropped a clove; nothing else of the message suffers."""

    code = "clove_refused"


class MalformedClove(CloveRefused):
    """The bytes are no clove of this version."""

    code = "malformed_clove"


class LateClove(CloveRefused):
    """Its message, or its segment, is over already."""

    code = "late_clove"


class OutOfWindow(CloveRefused):
    """Its segment is further ahead than the receiver keeps segments."""

    code = "out_of_window"


class TooManyCloves(CloveRefused):
    """The source, or the segment, has had its share of cloves."""

    code = "too_many_cloves"
