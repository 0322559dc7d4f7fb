"""What a running node is put together from: another engine, or another rule of service, can take a part's place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from troth.chain.adapter import Chain
from troth.chain.keystore import Key
from troth.node.configuration import Configuration
from troth.node.engine.interface import Engine
from troth.node.loading import load_engine
from troth.node.metrics import Metrics
from troth.node.service.bench import Bench
from troth.node.service.node_service import NodeService
from troth.node.traces import TraceStore
from troth.node.watchdog import Watchdog
from troth.protocol.types import ExecutionClass, ModelDescriptor


class EngineLoader(Protocol):
    """Brings an engine up; see `loading.load_engine`."""

    def __call__(
        self,
        configuration: Configuration,
        execution_class: ExecutionClass,
        descriptor: ModelDescriptor,
        *,
        verify: bool,
    ) -> Engine:
        """Seconds of work; called in a thread."""


class TraceKeeper(Protocol):
    """Opens the store of traces; see `traces.TraceStore`."""

    def __call__(self, folder: Path, *, limit: int) -> TraceStore:
        """Called once the model is loaded."""


@dataclass(frozen=True, slots=True)
class Parts:
    """One factory per part; the defaults are the node as it is shipped."""

    engine: EngineLoader = load_engine
    traces: TraceKeeper = TraceStore
    service: Callable[[Bench, Metrics], NodeService] = NodeService
    watchdog: Callable[[Bench, Chain, Key, Metrics], Watchdog] = Watchdog
