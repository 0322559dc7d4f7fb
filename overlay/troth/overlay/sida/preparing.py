"""From content to cloves: encrypt, cut, share the key, tag (PlanetServe section 3.2, "Using S-IDA", steps 1 to 4)."""

from __future__ import annotations

import os
from collections.abc import Callable

from troth.overlay.sida import shamir
from troth.overlay.sida.clove import SHARE_BYTES, Segment, Threshold, check_length, commitment, with_index
from troth.overlay.sida.erasure import code_for
from troth.overlay.sida.sealing import SegmentKey, check_secret

RandomBytes = Callable[[int], bytes]


def prepare(
    content: bytes,
    threshold: Threshold,
    message_id: bytes,
    *,
    number: int = 0,
    last: bool = True,
    secret: bytes = b"",
    random_bytes: RandomBytes = os.urandom,
) -> list[bytes]:
    """The n cloves of one segment, as they travel.

    Args:
        content: at most 1 MiB.
        threshold: n and k.
        message_id: 16 bytes, fresh for a message and equal in its segments.
        number: the segment's place, from 0.
        last: whether the message ends here.
        secret: what only the two ends know; with it, k paths together still read nothing.
        random_bytes: another source than the system's is for frozen vectors alone.

    Raises:
        WrongThreshold: for a short secret, or none with k = 1.
        ContentTooLarge: for more than 1 MiB.
    """
    check_length(content)
    check_secret(threshold, secret)
    segment = Segment(threshold, message_id, number, last, len(content))
    associated = segment.associated
    randomness = random_bytes(threshold.k * SHARE_BYTES)
    shared_key, coefficients = randomness[:SHARE_BYTES], randomness[SHARE_BYTES:]
    key = SegmentKey(shared_key, secret)
    fragments = code_for(threshold.n, threshold.k).encode(key.seal(content, associated))
    shares = shamir.split(shared_key, threshold.n, threshold.k, coefficients)
    tags = [key.tag(index, fragment) for index, fragment in enumerate(fragments)]
    committed = [commitment(associated, index, shares[index], tags[index]) for index in range(threshold.n)]
    announced = b"".join((associated, *committed))
    return [
        b"".join((with_index(announced, index), shares[index], tags[index], fragment))
        for index, fragment in enumerate(fragments)
    ]
