"""The pad of a layer's tag stack: 80 bytes of AES-256-CTR keystream for each cell, in order.

One call makes the pads of 32 cells, so that a cell only takes one off a list.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from troth.overlay.cells.format import STACK, TAG

PAD = STACK + TAG
_BATCH = 32 * PAD
_ZEROS = bytes(_BATCH)


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
