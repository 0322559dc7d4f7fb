"""Kinds of structs that msgspec decodes, made known to it by one thread at a time.

msgspec looks at a struct's fields when it decodes into one for the first time. While one thread does, another one that
decodes into the same kind finds fields without a type, and the process ends with a segmentation fault (msgspec 0.22).
So whatever may be decoded in threads is made known before, and only once.
"""

from __future__ import annotations

import threading
from typing import TypeVar

import msgspec

Kind = TypeVar("Kind")

_LOCK = threading.Lock()
_KNOWN: set[object] = set()


def prepared(kind: type[Kind]) -> type[Kind]:
    """The same kind, of which msgspec knows all fields."""
    if kind not in _KNOWN:
        with _LOCK:
            msgspec.json.Decoder(kind)
            _KNOWN.add(kind)
    return kind
