"""What a process logs while its chain is away: each thing that waits says it once, in words, and that it goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from troth.cases import supervising
from troth.cases.supervising import watch_blocks
from troth.chain.errors import ChainUnavailable

AWAY = ChainUnavailable("The chain node cannot be reached", "http://127.0.0.1:9", "Check that the node runs.")


class Courtroom:
    """A chain with one block."""

    async def seen(self) -> Any:
        return type("Seen", (), {"block": 1})

    async def after(self, block: int, timeout: float) -> None:
        del block, timeout


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage().split(":")[0] for one in caplog.records]


async def test_a_chain_that_is_away_is_said_once_and_so_is_its_return(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "PAUSE", 0.0)
    outcomes: Iterator[Exception | None] = iter([AWAY, AWAY, AWAY, None, None, AWAY])
    courtroom: Any = Courtroom()

    over = asyncio.Event()

    async def look() -> None:
        outcome = next(outcomes, over)
        if outcome is over:
            over.set()
        elif outcome is not None:
            raise outcome

    with caplog.at_level(logging.INFO):
        watching = asyncio.create_task(watch_blocks(look, courtroom, "reviewing"))
        await over.wait()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    failed = "reviewing failed and is tried again"
    assert said(caplog) == [failed, "reviewing goes on", failed, "reviewing goes on"]
