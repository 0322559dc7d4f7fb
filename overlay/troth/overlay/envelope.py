"""Signed envelopes: who says this, to whom, when, and that it is said for the first time.

An envelope is the EIP-712 message Envelope{contentHash, sender, recipient, nonce, timestamp}. What both ends know is
not sent again: the connection fixes the two parties. On the wire:

    kind 1 | nonce 32 | timestamp 8, big-endian Unix seconds | signature 65 | content …

An answer carries the nonce of its question, and contentHash covers the kind, so no message can pass for another.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from troth.overlay.errors import ClockSkew, MalformedEnvelope, WrongSigner
from troth.overlay.operator import Operator
from troth.overlay.replay import NONCE_BYTES, ReplayWindow
from troth.protocol import typed_data
from troth.protocol.errors import ProtocolError
from troth.protocol.hashing import keccak256
from troth.protocol.types import Address, Envelope, Hash32

ALLOWED_SKEW = 60
_TIMESTAMP = slice(1 + NONCE_BYTES, 1 + NONCE_BYTES + 8)
_SIGNATURE = slice(_TIMESTAMP.stop, _TIMESTAMP.stop + 65)
OVERHEAD = _SIGNATURE.stop
"""Bytes that an envelope adds to its content."""

Clock = Callable[[], float]


class Kind(IntEnum):
    """What a message is; covered by the signature."""

    HELLO = 0
    REQUEST = 1
    REPLY = 2


_KINDS = frozenset(int(kind) for kind in Kind)


@dataclass(frozen=True, slots=True)
class Sealed:
    """An envelope taken off the wire. `content` is believed only after `check`."""

    kind: Kind
    nonce: bytes
    timestamp: int
    signature: bytes
    content: bytes


def seal(operator: Operator, recipient: Address, kind: Kind, nonce: bytes, content: bytes, *, now: int) -> bytes:
    """The bytes of a signed envelope."""
    message = _message(kind, content, operator.address, recipient, nonce=nonce, timestamp=now)
    signature = operator.sign(message)
    return b"".join((bytes((kind,)), nonce, now.to_bytes(8, "big"), signature, content))


def take_apart(frame: bytes) -> Sealed:
    """Split a frame into its fields; raises MalformedEnvelope."""
    if len(frame) < OVERHEAD or frame[0] not in _KINDS:
        raise MalformedEnvelope("These bytes are no envelope", frame[:8].hex(), "Both ends must run the same version.")
    return Sealed(
        Kind(frame[0]),
        frame[1 : 1 + NONCE_BYTES],
        int.from_bytes(frame[_TIMESTAMP], "big"),
        frame[_SIGNATURE],
        frame[OVERHEAD:],
    )


def check(sealed: Sealed, sender: Address, recipient: Operator, now: int) -> None:
    """Raise ClockSkew or WrongSigner unless `sender` signed this for `recipient` within the last minute."""
    difference = sealed.timestamp - now
    if abs(difference) > ALLOWED_SKEW:
        raise ClockSkew(difference, ALLOWED_SKEW)
    message = _message(
        sealed.kind, sealed.content, sender, recipient.address, nonce=sealed.nonce, timestamp=sealed.timestamp
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


def _message(
    kind: Kind, content: bytes, sender: Address, recipient: Address, *, nonce: bytes, timestamp: int
) -> Envelope:
    return Envelope(
        content_hash=Hash32(keccak256(bytes((kind,)) + content)),
        sender=sender,
        recipient=recipient,
        nonce=Hash32(nonce),
        timestamp=timestamp,
    )
