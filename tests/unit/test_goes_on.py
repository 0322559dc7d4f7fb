"""What goes on for ever in a process: an error that nobody foresaw is said, and ends none of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.toy_tab_stage import toy_stage
from support.waiting import eventually
from unit.test_tabs_asking import asked

from troth.client.orders import keeping
from troth.client.orders.keeping import OrderKeeper
from troth.committee import running as member_running
from troth.committee.tickets.turns import TicketTurns

NOTHING: Any = None


class Fails:
    """Fails the first time, with what nobody catches by name; afterwards it gives what it was made with."""

    def __init__(self, given: object = None) -> None:
        self.given, self.times = given, 0

    async def __call__(self, *_arguments: object) -> Any:
        return self.at_once()

    def at_once(self) -> Any:
        """The same where nothing is awaited."""
        self.times += 1
        if self.times == 1:
            raise KeyError("what nobody foresaw")
        return self.given


async def goes_on(work: Any, fails: Fails) -> None:
    running = asyncio.create_task(work)
    await eventually(lambda: fails.times > 1 or running.done())
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_member_goes_on_dealing_keys(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    fails = Fails()
    turns = TicketTurns(NOTHING, "", NOTHING, NOTHING, NOTHING, 0.01, 1.0)
    monkeypatch.setattr(turns, "turn", fails)
    await goes_on(turns.run(), fails)
    assert "keeping keys of tickets failed and is tried again" in caplog.text


async def test_a_member_goes_on_reading_who_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    fails, member = Fails("others"), type("Holder", (), {"membership": "others"})()
    monkeypatch.setattr(member_running, "membership_on", fails)
    await goes_on(member_running.follow_membership(NOTHING, member, 0.01), fails)


@pytest.mark.parametrize("broken", ["_acknowledge_claimed", "_look_after_orders", "_deliver", "_watch_claim"])
async def test_a_client_objects_to_claims_whatever_another_tab_does(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails of one tab, a key that is gone say, keeps no claim of another from being objected to."""
    looked: list[bytes] = []
    silence: list[bool] = []
    async with toy_stage(tmp_path, schedulers=2) as stage:
        keeper = OrderKeeper(stage.session)
        plain = getattr(keeper, broken)

        def watch(record: Any) -> None:
            looked.append(record.identifier)

        def fails_on_the_first(record: Any) -> None:
            if record.identifier == stage.tabs[0]:
                raise KeyError("what nobody foresaw")
            (watch if broken == "_watch_claim" else plain)(record)

        monkeypatch.setattr(keeper, "_watch_claim", watch)
        monkeypatch.setattr(keeper, "_end_silence", lambda: silence.append(True))
        monkeypatch.setattr(keeper, broken, fails_on_the_first)
        await keeper.once()
        assert stage.tabs[1] in looked
        assert (stage.tabs[0] in looked) is (broken != "_watch_claim")
        assert silence == [True]


async def test_a_client_objects_to_claims_whatever_an_order_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One order's unforeseen error keeps neither the next one nor a claim waiting, and does not end the keeper."""
    looked: list[bytes] = []
    async with toy_stage(tmp_path) as stage:
        await asked(stage)
        keeper = OrderKeeper(stage.session)

        def broken(*_arguments: object) -> None:
            raise KeyError("what nobody foresaw")

        def watch(record: Any) -> None:
            looked.append(record.identifier)

        monkeypatch.setattr(stage.session.journal, "due", lambda *_: stage.session.journal.all())
        monkeypatch.setattr(keeping, "owed_now", broken)
        monkeypatch.setattr(keeper, "_watch_claim", watch)
        await keeper.once()
        assert looked == [stage.tab]
        monkeypatch.setattr(keeping, "INTERVAL", 0.01)
        fails = Fails()
        monkeypatch.setattr(keeper, "_round", fails.at_once)
        await goes_on(keeper._run(), fails)
