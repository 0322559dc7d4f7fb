"""S-IDA: a message as n cloves, any k of which give it back, fewer nothing.

Source: PlanetServe, section 3.2; docs/reference/sida.md has the format.
"""

from troth.overlay.sida.assembly import Part
from troth.overlay.sida.clove import Clove, Segment, Threshold, parse
from troth.overlay.sida.gathering import BadClove, Gathering, Recovered, recover
from troth.overlay.sida.inbox import Inbox, Limits, Lost
from troth.overlay.sida.sending import Sender, prepare

__all__ = [
    "BadClove",
    "Clove",
    "Gathering",
    "Inbox",
    "Limits",
    "Lost",
    "Part",
    "Recovered",
    "Segment",
    "Sender",
    "Threshold",
    "parse",
    "prepare",
    "recover",
]
