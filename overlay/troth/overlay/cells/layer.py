"""One hop's layer: what a relay does to a cell's body in each direction (docs/overlay.md, "Layers").

    body = stack 64 | ciphertext | tag 16

Towards the proxy a relay checks the tag over stack and ciphertext, decrypts, and takes the next tag from the stack:
    (next tag | next stack) = (stack | zeros 16) XOR pad
Towards the client it puts the tag that came on top of the stack, whose last slot falls off, and encrypts:
    (next stack | dropped 16) = (tag | stack) XOR pad
The new tag covers the ciphertext and the top of the stack, where the tag below is: all that the client will use.
Both count cells and use the count as nonce, so a cell fits in one place of one circuit only. A relay that speaks
itself starts with a tag and a stack of zeros; a tag of zeros therefore means "this is where it ends".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from troth.overlay.cells.format import STACK, TAG
from troth.overlay.cells.pads import PAD, PadStream
from troth.overlay.errors import CellTampered, QuotaExceeded

KEY = 32
MAX_CELLS = 2**30
"""Cells under one key; NIST SP 800-38D allows 2**32 under counter nonces. A circuit is rotated long before."""
_TAG_BITS = 8 * TAG
NO_TAG = bytes(TAG)
_NO_STACK = bytes(STACK)


@dataclass(frozen=True, slots=True)
class HopKeys:
    """The four secrets that a client shares with one hop: AEAD and pad keys, 32 bytes each, by direction."""

    forward: bytes = field(repr=False)
    forward_pad: bytes = field(repr=False)
    backward: bytes = field(repr=False)
    backward_pad: bytes = field(repr=False)


class Keystream:
    """The AEAD key, pad stream and cell count of one direction of one hop."""

    __slots__ = ("aead", "count", "pads")

    def __init__(self, key: bytes, pad_key: bytes) -> None:
        self.aead = AESGCM(key)
        self.pads = PadStream(pad_key)
        self.count = 0

    def nonce(self) -> bytes:
        """Twelve bytes, never the same twice; raises QuotaExceeded when the key is used up."""
        count = self.count
        if count >= MAX_CELLS:
            raise QuotaExceeded("The key of a layer is used up", count, "Rotate the circuit.")
        self.count = count + 1
        return count.to_bytes(12, "big")


class RelayLayer:
    """A relay's side of one circuit's layer."""

    __slots__ = ("_backward", "_forward")

    def __init__(self, keys: HopKeys) -> None:
        self._forward = Keystream(keys.forward, keys.forward_pad)
        self._backward = Keystream(keys.backward, keys.backward_pad)

    def open(self, body: bytes) -> tuple[bytes, bytes, bytes]:
        """(next stack, payload, next tag) of a body that came from the client's side.

        A next tag of zeros: the payload is for this relay. Raises CellTampered: end the circuit.
        """
        forward, stack = self._forward, body[:STACK]
        try:
            payload = forward.aead.decrypt(forward.nonce(), body[STACK:], stack)
        except InvalidTag:
            raise CellTampered(0) from None
        mixed = ((int.from_bytes(stack, "big") << _TAG_BITS) ^ forward.pads.next()).to_bytes(PAD, "big")
        return mixed[TAG:], payload, mixed[:TAG]

    def wrap(self, body: bytes) -> tuple[bytes, bytes]:
        """(next stack, ciphertext with tag) of a body that came from the proxy's side."""
        return self._wrap(body[-TAG:] + body[:STACK], body[STACK:-TAG])

    def originate(self, payload: bytes) -> tuple[bytes, bytes]:
        """(stack, ciphertext with tag) of a payload of this relay's own."""
        return self._wrap(NO_TAG + _NO_STACK, payload)

    def _wrap(self, tags: bytes, payload: bytes) -> tuple[bytes, bytes]:
        backward = self._backward
        stack = (int.from_bytes(tags, "big") ^ backward.pads.next()).to_bytes(PAD, "big")[:STACK]
        return stack, backward.aead.encrypt(backward.nonce(), payload, stack[:TAG])
