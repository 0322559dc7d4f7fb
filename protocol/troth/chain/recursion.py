"""Python's own bound on recursion, which importing web3 takes away.

web3 and eth_keyfile import py_ecc, which raises the interpreter's limit to 100,000 for the whole process. From there a
stranger's deeply nested JSON overflows the C stack and the process dies without an exception. Every module that imports
them calls `restore_recursion_limit` right afterwards.
"""

from __future__ import annotations

import sys

LIMIT = 1000
"""Python's default; nothing honest in the protocol nests a tenth as deep."""


def restore_recursion_limit() -> None:
    """Set the limit back to what Python starts with; threads and tasks of the process all share it."""
    sys.setrecursionlimit(LIMIT)
