"""A bound on recursion while a stranger's input is parsed.

web3 imports py_ecc, which raises the interpreter's limit to 100,000 for the whole process. From there deeply nested
input overflows the C stack, and the process dies without an exception.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

LIMIT = 1000
"""Python's own default; no honest tokenizer, template or stream nests a tenth as deep."""


@contextmanager
def bounded_recursion() -> Iterator[None]:
    """Inside, input that nests too deeply raises RecursionError. For the client's one thread only."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(min(before, LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
