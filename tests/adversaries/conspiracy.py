"""The rules of service that a dishonest verifier breaks: what it says, what it keeps as its trace, what it opens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from adversaries.deceits import Deceit
from adversaries.notes import Notes
from troth.node.errors import Busy
from troth.node.metrics import Metrics
from troth.node.service.bench import Bench
from troth.node.service.node_service import Answer, NodeService
from troth.node.traces import StoredTrace, TraceStore
from troth.node.watchdog import Watchdog
from troth.protocol.identifiers import verdict_commitment
from troth.protocol.types import Address, Hash32
from troth.protocol.wire import Compare, NodeRequest, Open, Opened

DeceitOf = Callable[[bytes], Deceit]


class ConspiringTraces(TraceStore):
    """Keeps the verdict that the cheat wants, over the trace that the cheat wants."""

    def __init__(self, *arguments: Any, me: Address, deceit_of: DeceitOf, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._me = me
        self._deceit_of = deceit_of
        self._shown: dict[tuple[bytes, int], tuple[bytes, bytes]] = {}

    def note_shown(self, header: Compare, rows: bytes) -> None:
        """Remember the root and the rows of the inferencer."""
        if header.root is not None:
            self._shown[header.task_id, header.segment] = (header.root, rows)

    def decide(self, trace: StoredTrace, *, verdict: bool, commitment: bytes, judged: bytes) -> StoredTrace:
        deceit = self._deceit_of(trace.task_id)
        said = verdict if deceit.verdict is None else deceit.verdict
        if deceit.copies:
            root, rows = self._shown[trace.task_id, trace.segment]
            trace = replace(trace, root=root)
            self.keep(trace, np.frombuffer(rows, dtype="<f4").reshape(trace.positions, trace.columns))
        task, root, salt = Hash32(trace.task_id), Hash32(trace.root), Hash32(trace.salt)
        hidden = verdict_commitment(task, trace.segment, self._me, root=root, verdict=said, salt=salt)
        return super().decide(trace, verdict=said, commitment=hidden, judged=judged)


class ConspiringService(NodeService):
    """Answers as the shipped service does, but for what its notes say about openings."""

    def __init__(self, bench: Bench, metrics: Metrics, *, notes: Notes, deceit_of: DeceitOf) -> None:
        super().__init__(bench, metrics)
        self._traces = bench.traces
        self._notes = notes
        self._deceit_of = deceit_of

    async def handle(self, sender: Address, header: NodeRequest, payload: memoryview) -> Answer:
        deceit = self._deceit_of(header.task_id)
        if isinstance(header, Compare) and isinstance(self._traces, ConspiringTraces):
            self._traces.note_shown(header, bytes(payload))
        if isinstance(header, Open) and deceit.opening == "silent":
            raise Busy("this node opens nothing", None, "Ask for ever.")
        if isinstance(header, Open) and deceit.opening == "copied":
            return await self._copied(header.task_id)
        answer = await super().handle(sender, header, payload)
        if isinstance(header, Open) and deceit.opening == "leaked":
            opened, tiles = answer
            self._notes.share(header.task_id, msgspec.msgpack.encode((msgspec.msgpack.encode(opened), bytes(tiles))))
        return answer

    async def _copied(self, task: bytes) -> Answer:
        leaked = self._notes.shared(task)
        if leaked is None:
            raise Busy("nothing was leaked yet", None, "Ask again.")
        opened, tiles = msgspec.msgpack.decode(leaked, type=tuple[bytes, bytes])
        return msgspec.msgpack.decode(opened, type=Opened), tiles


class ConspiringWatchdog(Watchdog):
    """Does not reveal by itself what the notes say to hide."""

    def __init__(self, *arguments: Any, deceit_of: DeceitOf) -> None:
        super().__init__(*arguments)
        self._deceit_of = deceit_of

    async def _look_after(self, trace: StoredTrace) -> None:
        if self._deceit_of(trace.task_id).opening in {"own", "leaked"}:
            await super()._look_after(trace)
