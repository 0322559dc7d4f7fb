"""The wire format does not change by accident: frozen vectors, and an independent reading of the layer's definition."""

from __future__ import annotations

import json
from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from support import overlay_vectors

VECTORS = json.loads((Path(__file__).parent / "data" / "overlay_vectors.json").read_text(encoding="utf-8"))


def test_the_frozen_vectors_still_hold() -> None:
    assert overlay_vectors.make() == VECTORS


def test_a_first_cell_opens_by_the_document_alone() -> None:
    """docs/reference/overlay.md, "Layers", written again with slices and without this package."""
    body = bytes.fromhex(VECTORS["layers"][2]["first"])
    for hop in (1, 2, 3):
        key, pad_key = (overlay_vectors.secret(f"hop {hop} {name}") for name in ("forward", "forward pad"))
        pad = Cipher(algorithms.AES256(pad_key), modes.CTR(bytes(16))).encryptor().update(bytes(80))
        stack, sealed = body[:64], body[64:]
        payload = AESGCM(key).decrypt(bytes(12), sealed, stack)
        mixed = bytes(a ^ b for a, b in zip(stack + bytes(16), pad, strict=True))
        body = mixed[16:] + payload + mixed[:16]
    assert mixed[:16] == bytes(16)
    assert payload == b"\x03\x00\x64" + bytes([1024 % 251]) * 100 + bytes(935 - 103)
