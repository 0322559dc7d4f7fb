"""What a destination does with a request: the seam between the overlay and whoever answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from troth.overlay.sessions.messages import HttpRequest, ResponseHead


class Responder(Protocol):
    """Where an answer goes; each call raises Abandoned when the client is gone."""

    async def head(self, head: ResponseHead) -> None:
        """Status and headers, once and first."""

    async def body(self, content: bytes) -> None:
        """More of the body."""


Serve = Callable[[HttpRequest, Responder], Awaitable[None]]
"""Answers one request; the body ends when it returns."""
