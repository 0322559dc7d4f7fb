"""What the client asks of a scheduler, whichever way the calls take to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Protocol

from troth.client.language import LanguageFiles
from troth.protocol.types import Address, Hash32


class SchedulerCalls(Protocol):
    """Calls to one scheduler: over HTTPS, through its overlay entry (`api`), or through a node (`direct.calls`)."""

    async def classes(self) -> dict[Hash32, tuple[int, ...]]:
        """The classes it serves, each with the ends of its segments."""

    async def language(self, identifier: Hash32) -> LanguageFiles:
        """Tokenizer, template and configuration of a class's model, not yet checked."""

    async def task(self, identifier: Hash32, salt: Hash32) -> dict[str, Any]:
        """The scheduler's receipt of a task; the salt shows that the caller is the one who ordered it."""

    def order(self, body: dict[str, object]) -> AsyncGenerator[dict[str, Any], None]:
        """Send an order and yield the lines of its stream."""

    def near(self, node: Address) -> SchedulerCalls:
        """The same calls, which enter at this node where that can be chosen."""
