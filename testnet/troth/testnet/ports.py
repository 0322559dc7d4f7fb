"""Ports of this machine for programs that must be told theirs before they start."""

from __future__ import annotations

import random
import socket

FIRST, LAST = 10_000, 32_767
"""Below what systems give to outgoing connections (Linux from 32768, others from 49152): none of those can take a port
between the moment it is given out and that when its program binds it."""

ATTEMPTS = 10_000
_reserved: list[socket.socket] = []


def free_port() -> int:
    """A TCP port that nothing listens on and that nobody else gets from here, in whatever process, while this one runs.

    The same number of UDP, which no program of Troth uses, is the sign that it is taken: the system frees it with the
    process. Raises OSError if almost none is left.
    """
    for _ in range(ATTEMPTS):
        port = random.randint(FIRST, LAST)  # noqa: S311 - no secret
        reservation = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            reservation.bind(("127.0.0.1", port))
            _require_silence(port)
        except OSError:
            reservation.close()
        else:
            _reserved.append(reservation)
            return port
    raise OSError(f"The ports from {FIRST} to {LAST} are in use; end some of the programs that listen there")


def _require_silence(port: int) -> None:
    """OSError if a program listens there, on any address of this machine."""
    with socket.socket() as probe:
        # As servers do: connections that ended there a moment ago are no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", port))
