"""Load of one vLLM engine, from the statistics that it hands out after each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from troth.node.engine.interface import Load


class Tally:
    """Counts since the engine's start."""

    def __init__(self) -> None:
        self._running = 0
        self._waiting = 0
        self._used = 0.0
        self._asked = 0
        self._found = 0

    def load(self, blocks: int, block: int) -> Load:
        """What is known now, of a cache of so many blocks of `block` tokens."""
        return Load(self._running, self._waiting, self._used, blocks, block, self._asked, self._found)

    def record(self, statistics: Any) -> None:
        """Note vLLM's SchedulerStats of one step; None says nothing."""
        if statistics is None:
            return
        self._running, self._waiting = statistics.num_running_reqs, statistics.num_waiting_reqs
        self._used = float(statistics.kv_cache_usage)
        self._asked += statistics.prefix_cache_stats.queries
        self._found += statistics.prefix_cache_stats.hits

    def listener(self) -> Callable[..., Any]:
        """What vLLM makes its listener with; only where vLLM is installed."""
        from vllm.v1.metrics.loggers import StatLoggerBase

        tally = self

        class Listener(StatLoggerBase):  # type: ignore[misc, unused-ignore]
            """Hands each step's statistics on."""

            def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
                pass

            def record(self, scheduler_stats: Any, iteration_stats: Any, *rest: Any, **named: Any) -> None:
                tally.record(scheduler_stats)

            def log_engine_initialized(self) -> None:
                pass

        return Listener
