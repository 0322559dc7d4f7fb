"""The client's side of all layers of a circuit: builds what each hop will find, and peels what comes back.

A hop's stack is the one before it, shifted by a slot and XORed with a pad. So the client runs the pads through first
to learn which slots the last hop will find filled, then goes back towards the first hop and adds tag by tag.
"""

from __future__ import annotations

import secrets

from cryptography.exceptions import InvalidTag

from troth.overlay.cells.format import MAX_HOPS, STACK, TAG
from troth.overlay.cells.layer import KEY, HopKeys, Keystream
from troth.overlay.cells.pads import PadStream
from troth.overlay.errors import CellTampered, MalformedCell

_STACK_BITS, _TAG_BITS = 8 * STACK, 8 * TAG
_STACK_MASK = (1 << _STACK_BITS) - 1
_BELOW_TOP = (1 << (_STACK_BITS - _TAG_BITS)) - 1


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
