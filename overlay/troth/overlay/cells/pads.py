"""The pad of a layer's tag stack: 80 bytes of AES-256-CTR keystream for each cell, in order.

One call makes the pads of 32 cells, so that a cell pays a slice for it.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from troth.overlay.cells.format import STACK, TAG

PAD = STACK + TAG
_BATCH = 32 * PAD
_ZEROS = bytes(_BATCH)


class PadStream:
    """Pads in the order of the cells; one stream per hop and direction, never rewound."""

    __slots__ = ("_encryptor", "_offset", "_stream")

    def __init__(self, key: bytes) -> None:
        self._encryptor = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
        self._stream = b""
        self._offset = _BATCH

    def next(self) -> int:
        """The next pad as a 640-bit integer, big-endian."""
        offset = self._offset
        if offset == _BATCH:
            self._stream = self._encryptor.update(_ZEROS)
            offset = 0
        self._offset = offset + PAD
        return int.from_bytes(self._stream[offset : offset + PAD], "big")
