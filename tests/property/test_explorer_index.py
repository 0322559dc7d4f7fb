"""The explorer's index: however it grew, through reorganisations and kills, it holds what one made at once does."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.explorer_stage import Stage, bring_up, examine, forked, stage, tables
from support.market_record import PLACE
from support.market_scene import DOMAIN

from troth.explorer.index import ExplorerIndex

pytestmark = pytest.mark.slow

LAST = 2_060
STEPS = st.tuples(st.sampled_from(["advance", "fork", "kill", "examine"]), st.integers(0, 40), st.integers(0, 40))


def opened(folder: str, name: str) -> ExplorerIndex:
    return ExplorerIndex.open(Path(folder) / name, DOMAIN.chain_id, PLACE)


def place(chain: Stage, number: int) -> int:
    """A block at, or just after, one in which something happened."""
    blocks = chain.blocks
    return blocks[number % len(blocks)] + number % 2


ALL = 30
"""The place of the last block in which something happened."""


@settings(max_examples=12)
@example([("advance", ALL, 0), ("examine", 0, 0), ("fork", 3, 20)])
@example([("advance", ALL, 0), ("examine", 0, 0), ("kill", 0, 0), ("fork", 27, ALL), ("examine", 0, 0)])
@example([("advance", 26, 0), ("examine", 0, 0), ("fork", 24, 28), ("advance", ALL, 0)])
@given(st.lists(STEPS, max_size=8))
def test_an_index_that_grew_is_one_made_at_once(steps: list[tuple[str, int, int]]) -> None:
    chain, at = stage(), 0
    with tempfile.TemporaryDirectory() as folder:
        grown = opened(folder, "grown.sqlite")
        for number, (what, one, other) in enumerate(steps):
            if what == "advance":
                at = max(at, place(chain, one))
                bring_up(grown, chain, at)
            elif what == "fork":
                first = place(chain, one)
                chain = forked(chain, first, place(chain, other), f"fork {number}")
                at = max(place(chain, other), 1)
                bring_up(grown, chain, at)
            elif what == "kill":
                # As after kill -9: the file is opened by another process, without a word from the one before.
                grown = opened(folder, "grown.sqlite")
            elif at:
                examine(grown, chain, at)
        bring_up(grown, chain, LAST)
        examine(grown, chain, LAST)
        once = opened(folder, "once.sqlite")
        bring_up(once, chain, LAST)
        examine(once, chain, LAST)
        assert tables(grown) == tables(once)


def test_the_examples_reach_the_last_block() -> None:
    assert stage().blocks[ALL:] == [2_040]


def test_a_log_that_a_chain_node_left_out_is_found_later() -> None:
    chain = stage()
    lacking = Stage(tuple(log for log in chain.logs if log.meta.block != 2_040), chain.served)
    with tempfile.TemporaryDirectory() as folder:
        grown, once = opened(folder, "grown.sqlite"), opened(folder, "once.sqlite")
        bring_up(grown, lacking, LAST)
        for index in (grown, once):
            bring_up(index, chain, LAST)
            examine(index, chain, LAST)
        assert tables(grown) == tables(once)
