"""A directory that was fetched while its destination was away is fetched anew, once, before a session fails."""

from __future__ import annotations

from typing import Any

import pytest

from troth.overlay.directory.errors import DirectoryUnavailable
from troth.overlay.sessions import sessions as module
from troth.overlay.sessions.sessions import SessionRotation
from troth.transport.errors import OverlayError


class Directory:
    """Lists nothing until it was refreshed ``late`` times."""

    def __init__(self, late: int) -> None:
        self.late, self.refreshed = late, 0

    def destination(self) -> Any:
        if self.refreshed < self.late:
            raise DirectoryUnavailable("The directory does not list it")
        return "listed"

    async def refresh(self) -> None:
        self.refreshed += 1


@pytest.fixture(autouse=True)
def opening(monkeypatch: pytest.MonkeyPatch) -> None:
    async def opened(_circuits: Any, destination: Any) -> Any:
        return f"session with {destination}"

    monkeypatch.setattr(module, "opened", opened)


async def test_a_newer_list_is_looked_for_before_a_session_fails() -> None:
    directory = Directory(late=1)
    sessions = SessionRotation(None, directory.destination, refresh=directory.refresh)  # type: ignore[arg-type]
    assert await sessions.current() == "session with listed"  # type: ignore[comparison-overlap]
    assert directory.refreshed == 1


async def test_a_destination_that_stays_away_is_not_looked_for_with_every_request() -> None:
    directory = Directory(late=10)
    sessions = SessionRotation(None, directory.destination, refresh=directory.refresh)  # type: ignore[arg-type]
    for _ in range(3):
        with pytest.raises(DirectoryUnavailable):
            await sessions.current()
    assert directory.refreshed == 1


async def test_a_refresh_that_fails_hides_no_reason() -> None:
    directory = Directory(late=1)

    async def fails() -> None:
        raise OverlayError("no member answers")

    sessions = SessionRotation(None, directory.destination, refresh=fails)  # type: ignore[arg-type]
    with pytest.raises(DirectoryUnavailable, match="does not list"):
        await sessions.current()
