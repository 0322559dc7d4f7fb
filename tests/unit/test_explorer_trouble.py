"""An explorer whose chain is away: what fails is shown each time, and its log says it once, and when it is over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
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


async def test_a_trouble_that_lasts_is_logged_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    outcomes: Iterator[Exception | None] = iter([OSError("away"), OSError("away"), OSError("full"), None, None])
    index: Any = Index()

    async def work() -> None:
        outcome = next(outcomes, asyncio.CancelledError())
        if outcome is not None:
            raise outcome

    with caplog.at_level(logging.INFO), pytest.raises(asyncio.CancelledError):
        await _again("the audit", work, 0.0, index)
    assert [one.getMessage() for one in caplog.records if one.name == "troth.explorer.reading"] == [
        "the audit failed and is tried again: away",
        "the audit failed and is tried again: full",
        "the audit goes on",
    ]
    assert index.shown == ["away", "away", "full"]


async def test_what_cannot_be_shown_does_not_end_the_reading() -> None:
    class Full(Index):
        def troubled(self, what: str) -> None:
            raise ExplorerError("The disk is full", what, "Make room.")

    tries = 0

    async def work() -> None:
        nonlocal tries
        tries += 1
        raise OSError("away") if tries < 3 else asyncio.CancelledError

    full: Any = Full()
    with pytest.raises(asyncio.CancelledError):
        await _again("the audit", work, 0.0, full)
    assert tries == 3
