"""The engine of a dishonest node: honest but in the orders that its notes are about.

All nodes of a process share one set of weights; each has caches of its own, under names that hold its address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from adversaries.sessions import Session
from adversaries.workshop import Workshop
from troth.node.engine.interface import Computed, SessionKey
from troth.protocol.hashing import keccak256
from troth.protocol.types import Address, Segment

SessionFor = Callable[[Workshop, SessionKey, SessionKey], Session]
"""From the workshop, the session's own name, and the name of its cache."""


class Impostor:
    """See `troth.node.engine.interface.Engine`."""

    def __init__(self, shop: Workshop, me: Address, session_for: SessionFor) -> None:
        self._shop = shop
        self._me = me.encode()
        self._session_for = session_for
        self._sessions: dict[SessionKey, Session] = {}
        self._chosen_from: dict[bytes, tuple[Session, int]] = {}

    @property
    def slice(self) -> Segment:
        return self._shop.honest.slice

    @property
    def layers(self) -> int:
        return self._shop.honest.layers

    @property
    def hidden_size(self) -> int:
        return self._shop.honest.hidden_size

    @property
    def vocabulary(self) -> int:
        return self._shop.honest.vocabulary

    @property
    def dtype(self) -> int:
        return self._shop.honest.dtype

    @property
    def tokenizer(self) -> str:
        return self._shop.honest.tokenizer

    @property
    def cache_bytes(self) -> int:
        return self._shop.honest.cache_bytes

    def holds(self, segment: Segment) -> bool:
        return self._shop.honest.holds(segment)

    async def rehost(self, hosted: Segment, keep: Sequence[Segment] = ()) -> None:
        await self._shop.honest.rehost(hosted, keep)

    async def forward(self, key: SessionKey, segment: Segment, start: int, inputs: NDArray[Any]) -> Computed:
        if key not in self._sessions:
            self._sessions[key] = self._session_for(self._shop, key, self._own(key))
        session = self._sessions[key]
        computed = await session.forward(segment, start, inputs)
        self._chosen_from[computed.rows[-1].tobytes()] = (session, start + len(inputs) - 1)
        return computed

    async def reference(self, segment: Segment, inputs: NDArray[Any]) -> NDArray[Any]:
        return await self._shop.honest.reference(segment, inputs)

    async def logits(self, rows: NDArray[Any]) -> Computed:
        """The head is honest; a session may change what it says of the row that a token is chosen from."""
        honest = await self._shop.honest.logits(rows)
        made = self._chosen_from.get(rows[-1].tobytes()) if len(rows) == 1 else None
        return honest if made is None else await made[0].logits(made[1], honest)

    async def forget(self, key: SessionKey) -> None:
        session = self._sessions.pop(key, None)
        self._chosen_from = {row: made for row, made in self._chosen_from.items() if made[0] is not session}
        await self._shop.honest.forget(self._own(key))
        await self._shop.forget(self._own(key))

    async def release(self, task_id: bytes) -> None:
        for key in [key for key in self._sessions if key.task_id == task_id]:
            await self.forget(key)

    async def close(self) -> None:
        """Others of this process go on with the same weights."""

    def _own(self, key: SessionKey) -> SessionKey:
        return key._replace(task_id=keccak256(self._me + key.task_id))
