"""The layers of a cell: what a relay does to its own, and what the client builds and peels for all of them.

One call makes the pads of 32 cells, so that a cell only takes one off a list.

    body = stack 64 | ciphertext | tag 16

Towards the proxy a relay checks the tag over stack and ciphertext, decrypts, and takes the next tag from the stack:
    (next tag | next stack) = (stack | zeros 16) XOR pad
Towards the client it puts the tag that came on top of the stack, whose last slot falls off, and encrypts:
    (next stack | dropped 16) = (tag | stack) XOR pad
The new tag covers the ciphertext and the top of the stack, where the tag below is: all that the client will use.
Both count cells and use the count as nonce, so a cell fits in one place of one circuit only. A relay that speaks
itself starts with a tag and a stack of zeros; a tag of zeros therefore means "this is where it ends".

A hop's stack is the one before it, shifted by a slot and XORed with a pad. So the client runs the pads through first
to learn which slots the last hop will find filled, then goes back towards the first hop and adds tag by tag.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from troth.overlay.cells.format import MAX_HOPS, STACK, TAG
from troth.transport.errors import CellTampered, MalformedCell, QuotaExceeded

PAD = STACK + TAG
_BATCH = 32 * PAD
_ZEROS = bytes(_BATCH)

KEY = 32
MAX_CELLS = 2**30
"""Cells under one key; NIST SP 800-38D allows 2**32 under counter nonces. A circuit is rotated long before."""
NO_TAG = bytes(TAG)
_NO_STACK = bytes(STACK)
_STACK_BITS, _TAG_BITS = 8 * STACK, 8 * TAG
_STACK_MASK = (1 << _STACK_BITS) - 1
_BELOW_TOP = (1 << (_STACK_BITS - _TAG_BITS)) - 1


class PadStream:
    """Pads in the order of the cells; one stream per hop and direction, never rewound."""

    __slots__ = ("_encryptor", "_pads")

    def __init__(self, key: bytes) -> None:
        self._encryptor = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
        self._pads: list[int] = []

    def next(self) -> int:
        """The next pad as a 640-bit integer, big-endian."""
        if not self._pads:
            stream = self._encryptor.update(_ZEROS)
            self._pads = [int.from_bytes(stream[end - PAD : end], "big") for end in range(_BATCH, 0, -PAD)]
        return self._pads.pop()


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


class Onion:
    """The layers of one circuit, in the order of the path. Hops are numbered from 1.

    `noise` is a 32-byte key of the client's own for the slots that no hop reads; random unless a test fixes it.
    """

    def __init__(self, noise: bytes | None = None) -> None:
        self._forward: list[Keystream] = []
        self._backward: list[Keystream] = []
        self._noise = PadStream(noise or secrets.token_bytes(KEY))

    def __len__(self) -> int:
        return len(self._forward)

    def add(self, keys: HopKeys) -> None:
        """Append the layer of the next hop; raises MalformedCell beyond MAX_HOPS."""
        if len(self) == MAX_HOPS:
            raise MalformedCell(f"A circuit has at most {MAX_HOPS} hops", len(self) + 1)
        self._forward.append(Keystream(keys.forward, keys.forward_pad))
        self._backward.append(Keystream(keys.backward, keys.backward_pad))

    def forget(self) -> None:
        """Drop every key. Nothing can be sealed or peeled after it."""
        self._forward.clear()
        self._backward.clear()

    def seal(self, payload: bytes, hop: int = 0) -> bytes:
        """The body of a cell whose payload hop number `hop` will find (0: the last one).

        Only hops up to that one use up a nonce, as only they see the cell.
        """
        hops = self._forward[: hop or None]
        pads = [stream.pads.next() for stream in hops]
        stack = self._last_stack(pads)
        body = hops[-1].aead.encrypt(hops[-1].nonce(), payload, stack.to_bytes(STACK, "big"))
        for index in range(len(hops) - 2, -1, -1):
            tag = int.from_bytes(body[-TAG:], "big")
            stack = (((tag << _STACK_BITS) | stack) ^ pads[index]) >> _TAG_BITS
            stream = hops[index]
            body = stream.aead.encrypt(stream.nonce(), body[:-TAG], stack.to_bytes(STACK, "big"))
        return stack.to_bytes(STACK, "big") + body

    def peel(self, body: bytes) -> tuple[int, bytes]:
        """(hop, payload): who spoke, and what. Raises CellTampered naming the first layer that does not fit."""
        stack, content = int.from_bytes(body[:STACK], "big"), body[STACK:]
        for hop, stream in enumerate(self._backward, 1):
            top = (stack >> (_STACK_BITS - _TAG_BITS)).to_bytes(TAG, "big")
            try:
                payload = stream.aead.decrypt(stream.nonce(), content, top)
            except InvalidTag:
                raise CellTampered(hop) from None
            mixed = (stack << _TAG_BITS) ^ stream.pads.next()
            tag = mixed >> _STACK_BITS
            if not tag:
                return hop, payload
            stack = mixed & _STACK_MASK
            content = payload + tag.to_bytes(TAG, "big")
        raise CellTampered(len(self))

    def _last_stack(self, pads: list[int]) -> int:
        """The stack that the last of these hops will find: noise and pads below, on top what it reads as no tag."""
        stack = self._noise.next() & _STACK_MASK
        for pad in pads[:-1]:
            stack = ((stack << _TAG_BITS) ^ pad) & _STACK_MASK
        no_tag = (pads[-1] >> _STACK_BITS) << (_STACK_BITS - _TAG_BITS)
        return no_tag | (stack & _BELOW_TOP)
