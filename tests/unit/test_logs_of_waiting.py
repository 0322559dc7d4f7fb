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
from troth.node.earning.supervision import Supervised

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

    async def look() -> None:
        outcome = next(outcomes, asyncio.CancelledError())
        if outcome is not None:
            raise outcome

    with caplog.at_level(logging.INFO), pytest.raises(asyncio.CancelledError):
        await watch_blocks(look, courtroom, "reviewing")
    waits = "reviewing waits, the chain is away"
    assert said(caplog) == [waits, "reviewing goes on", waits]


@pytest.mark.parametrize(("error", "traced"), [(AWAY, False), (ZeroDivisionError("division by zero"), True)])
async def test_only_what_nobody_foresaw_is_logged_with_its_trace(
    error: Exception, traced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []

    async def step() -> None:
        tries.append(1)
        raise error if len(tries) < 3 else asyncio.CancelledError

    with caplog.at_level(logging.INFO), pytest.raises(asyncio.CancelledError):
        await Supervised("following the chain", step, interval=0.0).run()
    (record,) = caplog.records
    assert record.getMessage() == f"following the chain failed and is tried again: {error}"
    assert bool(record.exc_info) == traced
