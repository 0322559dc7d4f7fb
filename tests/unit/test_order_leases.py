"""Which process works on an order: whoever gave a sign of life lately, by a clock that may be set."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from troth.client.orders.journal import LEASE_SECONDS, OrderJournal, Phase
from troth.client.tabs.store import TabStore
from troth.protocol.types import Hash32

ORDER, TAB = Hash32(b"\x01" * 32), Hash32(b"\x02" * 32)


class Clock:
    """Unix time, set by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "time", made)
    return made


@pytest.fixture
def journal(tmp_path: Path, clock: Clock) -> Iterator[OrderJournal]:
    store = TabStore(tmp_path / "tabs.sqlite")
    store.execute("PRAGMA foreign_keys=OFF")  # the order of a tab that is not here
    made = OrderJournal(store)
    made.add(ORDER, TAB, 1, 5, question="q", mode="own", phase=Phase.ORDERED)
    yield made
    store.close()


def test_an_order_belongs_to_its_process_until_the_lease_is_over(journal: OrderJournal, clock: Clock) -> None:
    clock.now += LEASE_SECONDS - 1
    assert not journal.take(ORDER)
    clock.now += 2
    assert journal.take(ORDER)
    assert not journal.take(ORDER)
    journal.release(ORDER)
    assert journal.take(ORDER)


def test_a_clock_that_is_set_back_holds_no_order_up(journal: OrderJournal, clock: Clock) -> None:
    """Its check has deadlines: an order that waits for the clock to come that far again would miss them."""
    clock.now -= 86_400
    assert journal.take(ORDER)
    assert not journal.take(ORDER)
