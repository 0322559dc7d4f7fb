"""An explorer whose chain is away: what fails is shown each time, and its log says it once, and when it is over."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from troth.explorer.errors import ExplorerError
from troth.explorer.reading import _again


class Index:
    """What is shown of troubles."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def troubled(self, what: str) -> None:
        self.shown.append(what)


async def work_through(outcomes: list[Exception | None], index: Any) -> None:
    """One turn with each outcome; the end comes from outside, as in the process."""
    left, over = list(outcomes), asyncio.Event()

    async def work() -> None:
        if not left:
            over.set()
            await asyncio.sleep(60)
        outcome = left.pop(0)
        if outcome is not None:
            raise outcome

    reading = asyncio.create_task(_again("the audit", work, 0.0, index))
    await over.wait()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


async def test_a_trouble_that_lasts_is_logged_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    index = Index()
    with caplog.at_level(logging.INFO):
        await work_through([OSError("away"), OSError("away"), OSError("full"), None, None], index)
    assert [one.getMessage() for one in caplog.records] == [
        "the audit failed and is tried again: away",
        "the audit failed and is tried again: full",
        "the audit goes on",
    ]
    assert index.shown == ["away", "away", "full"]


async def test_what_cannot_be_shown_does_not_end_the_reading() -> None:
    class Full(Index):
        def troubled(self, what: str) -> None:
            raise ExplorerError("The disk is full", what, "Make room.")

    await work_through([OSError("away"), OSError("away")], Full())
