"""What a scheduler's log says that it earned in one lag, beside its stake: exact, and shown where clients look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
from support.explorer_stage import Stage, entry_of, events_of_record, home_of, lines, mined
from support.market_logs import META
from support.market_record import SCHEDULER

from troth.explorer.earning import NEWEST, most_in_lag
from troth.explorer.figures import QUERIES
from troth.explorer.reading import INDEX_FILE
from troth.explorer.site import Site
from troth.protocol.market import log_data
from troth.protocol.market.proceedings import LogCounts
from troth.protocol.market.state import LoggedEntry
from troth.protocol.types import ZERO_HASH


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site.open(home_of(tmp_path_factory.mktemp("explorer"), earning()) / INDEX_FILE)
    yield made
    made.close()


@cache
def earning() -> Stage:
    """The deployment of the explorer's stage, whose scheduler logs that it earned 3,000 units."""
    data, event = entry_of(1, lines(), ZERO_HASH)
    counts = replace(event.counts, fees=3_000)
    chain = log_data.next_chain(ZERO_HASH, 1, event.root, counts, event.data_hash)
    logged = replace(event, counts=counts, chain=chain)
    return Stage(mined([*events_of_record(), (1_020, logged)]), {(SCHEDULER, 1): data})


def posted(number: int, block: int, fees: int) -> LoggedEntry:
    counts = LogCounts(1, 1, 0, 0, 0, 0, fees)
    return LoggedEntry(number, ZERO_HASH, counts, ZERO_HASH, ZERO_HASH, replace(META, block=block))


def test_the_fees_of_an_entry_are_spread_over_the_blocks_that_it_covers() -> None:
    assert most_in_lag((), since=10, lag=50) == 0
    # 300 blocks, of which a lag is a sixth; a part of a unit counts whole.
    assert most_in_lag((posted(1, 310, 600),), since=10, lag=50) == 100
    assert most_in_lag((posted(1, 310, 601),), since=10, lag=50) == 101


def test_an_entry_that_covers_less_than_a_lag_counts_whole() -> None:
    assert most_in_lag((posted(1, 20, 600),), since=10, lag=50) == 600
    assert most_in_lag((posted(1, 10, 600),), since=10, lag=50) == 600
    assert most_in_lag((posted(1, 10, 600), posted(2, 10, 7)), since=10, lag=50) == 607


def test_entries_of_one_lag_count_together_wherever_it_begins() -> None:
    burst = (posted(1, 1_000, 1_000), posted(2, 1_020, 400), posted(3, 1_040, 400), posted(4, 2_040, 1_000))
    # The lag that ends with entry 3: both of the burst, and ten of the thousand blocks before it.
    assert most_in_lag(burst, since=0, lag=50) == 810
    # One that begins where a dear entry begins.
    assert most_in_lag((posted(1, 1_000, 0), posted(2, 1_200, 2_000), posted(3, 1_300, 0)), since=0, lag=100) == 1_000


def test_only_the_newest_entries_count() -> None:
    old, new = posted(1, 100, 10**6), [posted(2 + n, 200 + 100 * n, 10) for n in range(NEWEST)]
    assert most_in_lag((old, *new), since=0, lag=100) == 10
    assert most_in_lag((old, *new[1:]), since=0, lag=100) == 10**6


def test_it_stands_beside_the_stake(site: Site) -> None:
    figure = site.figure("schedulers", {})
    names = [one.name for one in figure.columns]
    assert names.index("most_earned_in_lag") == names.index("stake") + 1
    (row,) = [dict(zip(names, row, strict=True)) for row in figure.rows if row[0] == SCHEDULER]
    state = earning().state(2_060)
    assert state.deployed is not None
    lag, since = state.deployed.parameters.lag, state.parties[SCHEDULER].registered.block
    expected = most_in_lag(state.logs[SCHEDULER], since, lag)
    assert 0 < expected <= 3_000
    assert int(row["most_earned_in_lag"]) == expected
    assert "Most earned in a lag" in site.page(f"schedulers/{SCHEDULER}")
    assert "Most earned in a lag" in site.page("")
    assert QUERIES["schedulers"].columns[2].kind == "amount"
