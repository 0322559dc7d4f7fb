"""A relay and an entry publish themselves again before the committee forgets them, whatever members say."""

from __future__ import annotations

import pytest
from support.duties import pauses_of

from troth.overlay.directory.errors import DescriptorRefused, DirectoryUnavailable
from troth.overlay.directory.publishing import Published, Taken, keep_publishing, require_enough


async def pauses(
    monkeypatch: pytest.MonkeyPatch, *results: Published | Exception, again: float = 1800.0
) -> list[float]:
    left = list(results)

    async def once() -> Published:
        result = left.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    return await pauses_of(keep_publishing(once, 1800.0, 30.0), len(results), monkeypatch)


async def test_what_a_committee_holds_for_ten_minutes_is_published_three_times_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The local network's lists hold for 600 s, and the usual pause is 1,800 s: nobody was listed any more."""
    assert await pauses(monkeypatch, Published(4, 600), Published(4, 600)) == [200.0, 200.0]


async def test_the_configured_pause_is_kept_where_it_is_the_shorter_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await pauses(monkeypatch, Published(4, 3 * 3600), Published(4, 1)) == [1800.0, 1.0]


async def test_who_did_not_take_it_is_told_again_soon_and_ever_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lists that such a member leads leave the entry out: a scheduler came and went for minutes."""
    missed = Published(3, 600, ("m4: its chain is a block behind",))
    assert await pauses(monkeypatch, missed, missed, Published(4, 600), missed) == [1.0, 2.0, 200.0, 1.0]
    assert (await pauses(monkeypatch, *[missed] * 10))[-3:] == [128.0, 200.0, 200.0]


async def test_a_failure_is_repeated_soon_and_at_least_every_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that was up before its committee was listed half a minute after it, and its network was not ready."""
    away = DirectoryUnavailable("away")
    assert await pauses(monkeypatch, away, away, Published(3, 600), away) == [1.0, 2.0, 200.0, 1.0]
    assert (await pauses(monkeypatch, *[away] * 8))[-3:] == [30.0, 30.0, 30.0]


def test_a_minority_of_members_that_lie_does_not_make_anybody_late_or_busy() -> None:
    honest = {f"m{number}": Taken(taken=True, holds_seconds=600) for number in range(5)}
    lies = {"x": Taken(taken=True, holds_seconds=86_400), "y": Taken(taken=True, holds_seconds=1)}
    assert require_enough(honest | lies) == (7, 600, ())
    assert require_enough({**honest, "x": DirectoryUnavailable("it is away")}).reasons == ("x: it is away",)


def test_too_few_members_are_not_enough() -> None:
    refused = DirectoryUnavailable("away")
    with pytest.raises(DescriptorRefused, match="2 of 3"):
        require_enough({"a": Taken(taken=True, holds_seconds=9), "b": Taken(taken=True, holds_seconds=9), "c": refused})
