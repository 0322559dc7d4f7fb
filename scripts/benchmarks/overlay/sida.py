"""S-IDA at 30 kB and (4, 3): preparing, recovering, bytes on the wire, beside PlanetServe section 5.2, Figure 12."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import os
from collections.abc import Callable, Sequence

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from benchmarks.figures import Figure, median_milliseconds
from troth.overlay.sida import RecoveredSegment, Threshold, clove, prepare, recover
from troth.overlay.sida.erasure import TableCode, code_for

MESSAGE_BYTES = 30_000
FOUR_THREE = Threshold(4, 3)
IDENTIFIER = bytes(16)
SECRET = bytes(range(32))
PAPER_PREPARE, PAPER_RECOVER = 273.0, 302.0
PROTOTYPE_RATIO = 5.35
"""Wire bytes over message bytes in the authors' published prototype: its cloves are hexadecimal, twice."""


def measure() -> list[Figure]:
    """Medians on one thread of this machine; the paper's are the means it prints (its medians: 280 and 309)."""
    message = os.urandom(MESSAGE_BYTES)
    cloves = prepare(message, FOUR_THREE, IDENTIFIER, secret=SECRET)
    flipped = [cloves[0][:-1] + bytes((cloves[0][-1] ^ 1,)), *cloves[1:]]
    return [
        _microseconds("S-IDA prepare, 30 kB, (4, 3)", _prepare(message), PAPER_PREPARE, 25),
        _microseconds("S-IDA recover from the first three", lambda: _recover(cloves[:3]), PAPER_RECOVER, 25),
        _microseconds("S-IDA recover, over all three of four", _every_three(cloves), PAPER_RECOVER, 25),
        _microseconds("S-IDA recover, one of four bad and named", lambda: _recover(flipped), PAPER_RECOVER),
        _microseconds("of which, to prepare: ciphers, hashes and code called bare", _bare(message)),
        Figure(
            "wire bytes over message bytes, (4, 3)",
            sum(map(len, cloves)) / MESSAGE_BYTES,
            "",
            paper=PROTOTYPE_RATIO,
            note="cloves without cells; the code alone is 1.333",
        ),
        *_codes(message),
        *_other_sizes(message),
    ]


def _prepare(message: bytes) -> Callable[[], object]:
    return lambda: prepare(message, FOUR_THREE, IDENTIFIER, secret=SECRET)


def _bare(message: bytes) -> Callable[[], object]:
    """What preparing must call in any case, on values made before: key, cipher, code, tags, commitments, cloves."""
    cipher, code, head = AESGCM(SECRET), code_for(4, 3), bytes(141)

    def calls() -> None:
        hmac.digest(SECRET, hmac.digest(SECRET, SECRET, "sha256"), "sha256")
        for fragment in code.encode(cipher.encrypt(bytes(12), message, head)):
            cipher.encrypt(bytes(12), b"", fragment)
            hashlib.sha256(head).digest()
            b"".join((head, fragment))

    return calls


def _every_three(cloves: list[bytes]) -> Callable[[], object]:
    """Each call recovers from another three of the four: one in four needs no decoding."""
    subsets = itertools.cycle(itertools.combinations(cloves, 3))
    return lambda: _recover(next(subsets))


def _recover(cloves: Sequence[bytes]) -> RecoveredSegment:
    """As if the message had never been seen: headers that were parsed before are forgotten first."""
    clove._announced.cache_clear()
    return recover(cloves, SECRET)


def _codes(message: bytes) -> list[Figure]:
    figures = [
        _microseconds(f"erasure code alone: {name}", lambda code=code: code.encode(message))  # type: ignore[misc]
        for name, code in (
            (type(code_for(4, 3)).__name__, code_for(4, 3)),
            ("tables, where pyeclib has no wheel", TableCode(4, 3)),
        )
    ]
    try:
        import zfec
    except ImportError:
        return figures
    pieces = [message[at : at + MESSAGE_BYTES // 3] for at in range(0, MESSAGE_BYTES, MESSAGE_BYTES // 3)]
    encoder = zfec.Encoder(3, 4)
    return [*figures, _microseconds("erasure code alone: zfec (other bytes)", lambda: encoder.encode(pieces))]


def _other_sizes(message: bytes) -> list[Figure]:
    token = os.urandom(20)
    small = prepare(token, FOUR_THREE, IDENTIFIER, secret=SECRET)
    wide = Threshold(32, 16)
    cloves = prepare(message, wide, IDENTIFIER, secret=SECRET)
    return [
        _microseconds("prepare, 20 bytes", lambda: prepare(token, FOUR_THREE, IDENTIFIER, secret=SECRET)),
        _microseconds("recover, 20 bytes", lambda: _recover(small[:3])),
        Figure("clove of 20 bytes", len(small[0]), "bytes", note="a token; cells pad it anyway"),
        _microseconds("prepare, 30 kB, (32, 16)", lambda: prepare(message, wide, IDENTIFIER, secret=SECRET)),
        _microseconds("recover from the last sixteen, 30 kB, (32, 16)", lambda: _recover(cloves[16:])),
    ]


def _microseconds(
    name: str, action: Callable[[], object], paper: float | None = None, reach: float | None = None
) -> Figure:
    return Figure(name, median_milliseconds(action, repeats=2000, warm_up=100) * 1e3, "µs", paper=paper, reach=reach)
