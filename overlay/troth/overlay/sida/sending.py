"""Long messages, and messages that are not finished yet: one segment after the other, each with a key of its own.

Header and number of a segment are its associated data, and the last one says that it is the last. So a segment in
another place, of another message, or after the end is refused, and a message without its last segment is not whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from troth.overlay.sida.clove import MESSAGE_ID_BYTES, Threshold
from troth.overlay.sida.errors import MessageEnded
from troth.overlay.sida.preparing import RandomBytes, prepare
from troth.overlay.sida.sealing import check_secret

SEGMENT_BYTES = 64 * 1024
"""What both ends hold of a long message at a time; small enough that a lost path costs little."""
MOST_SEGMENTS = 1 << 32


class Sender:
    """Makes the cloves of one message, a segment at a time. Raises WrongThreshold as `prepare` does."""

    def __init__(self, threshold: Threshold, secret: bytes = b"", random_bytes: RandomBytes = os.urandom) -> None:
        check_secret(threshold, secret)
        self._threshold = threshold
        self._secret = secret
        self._random_bytes = random_bytes
        self._number = 0
        self._ended = False
        self.message_id = random_bytes(MESSAGE_ID_BYTES)

    def send(self, content: bytes, *, last: bool = False) -> list[bytes]:
        """The n cloves of the next segment, clove `index` for path `index`; an empty last one is fine.

        Raises:
            MessageEnded: after the last segment.
            ContentTooLarge: for more than 1 MiB.
        """
        if self._ended or self._number >= MOST_SEGMENTS:
            raise MessageEnded("This message has had its last segment", self._number, "Use a new Sender.")
        cloves = prepare(
            content,
            self._threshold,
            self.message_id,
            number=self._number,
            last=last,
            secret=self._secret,
            random_bytes=self._random_bytes,
        )
        self._number += 1
        self._ended = last
        return cloves

    def cut(self, message: bytes, segment_bytes: int = SEGMENT_BYTES) -> Iterator[list[bytes]]:
        """The cloves of a whole message, segment after segment; the last one is marked."""
        for at in range(0, max(len(message), 1), segment_bytes):
            yield self.send(message[at : at + segment_bytes], last=at + segment_bytes >= len(message))
