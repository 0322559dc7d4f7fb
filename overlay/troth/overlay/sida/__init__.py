"""S-IDA: a message as n cloves, any k of which give it back, fewer nothing.

Source: PlanetServe, section 3.2; docs/reference/sida.md has the format.
"""

from troth.overlay.sida.assembly import SegmentContent
from troth.overlay.sida.clove import Clove, CloveSegment, Threshold, parse
from troth.overlay.sida.gathering import BadClove, Gathering, RecoveredSegment, recover
from troth.overlay.sida.inbox import Inbox, InboxLimits, Lost
from troth.overlay.sida.sending import Sender, prepare

__all__ = [
    "BadClove",
    "Clove",
    "CloveSegment",
    "Gathering",
    "Inbox",
    "InboxLimits",
    "Lost",
    "RecoveredSegment",
    "SegmentContent",
    "Sender",
    "Threshold",
    "parse",
    "prepare",
    "recover",
]
