"""A start of vLLM that nobody waits for any more leaves no engine and no folder."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from troth.node.engine.vllm import core
from troth.node.engine.vllm.cache_events import Audience
from troth.node.engine.vllm.settings import EngineSettings


class Made:
    """Stands for vLLM's AsyncLLM."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def shutdown(self) -> None:
        self.ended.set()


def test_an_engine_whose_start_was_cancelled_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    began, go_on, made, folders = threading.Event(), threading.Event(), Made(), list[Path]()

    def construct(_settings: EngineSettings, folder: Path, _tally: core.Tally) -> Made:
        folders.append(folder)
        began.set()
        go_on.wait(5)
        return made

    async def cancelled_while_it_starts() -> None:
        start = asyncio.create_task(core.Core.start(EngineSettings(tmp_path, 1), Audience()))
        await asyncio.to_thread(began.wait, 5)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        go_on.set()
        assert await asyncio.to_thread(made.ended.wait, 5)
        for _ in range(100):
            if not folders[0].exists():
                break
            await asyncio.sleep(0.02)
        assert not folders[0].exists()

    monkeypatch.setattr(core, "_construct", construct)
    asyncio.run(cancelled_while_it_starts())
