"""Disputes as an explorer shows them: a list, and the life of each in lanes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.dispute_events import ACCUSER, BOND, WINDOW, dispute_events
from support.explorer_stage import CASES, home_of, lines
from support.market_record import PLACE
from support.market_scene import DOMAIN, hash_of

from troth.explorer.disputes import ReadDisputes, told
from troth.explorer.errors import NothingHere
from troth.explorer.finding import page_of
from troth.explorer.index import ExplorerIndex
from troth.explorer.reading import INDEX_FILE
from troth.explorer.site import Site
from troth.protocol.disputes.calls import DisputeLost, DisputeMoot, DisputeWon, NodesShown


def three() -> ReadDisputes:
    """One that was won by a part of a sum, one that the accuser gave up after a defence, one that became moot."""
    events = [
        *dispute_events("won", DisputeWon),
        *dispute_events("lost", DisputeLost, start=2_100, nudge=4),
        *dispute_events("moot", DisputeMoot, start=2_200),
    ]
    return told(events, WINDOW)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = home_of(tmp_path_factory.mktemp("explorer"))
    index = ExplorerIndex.open(home / INDEX_FILE, DOMAIN.chain_id, PLACE)
    index.disputed(three())
    index.close()
    made = Site.open(home / INDEX_FILE)
    yield made
    made.close()


def test_a_dispute_is_listed_with_its_outcome_and_where_the_sides_differ(site: Site) -> None:
    rows = json.loads(site.figure("disputes", {}).as_json())["rows"]
    assert [(one["outcome"], one["rounds"], one["differs"]) for one in rows] == [
        ("moot", 0, ""),
        ("accuser_silent", 1, ""),
        ("convicted", 3, "down of layer 1"),
    ]
    won = rows[-1]
    assert (won["accused"], won["accuser"], won["row"], won["bond"]) == (CASES.node, ACCUSER, 2, str(BOND))
    assert won["order"] == lines()[0].order
    assert json.loads(site.figure("disputes", {"state": "live"}).as_json())["rows"] == []


def test_it_is_found_by_the_beginning_of_its_id(site: Site) -> None:
    name = f"0x{hash_of('won').hex()}"
    assert page_of(site.database, name[:14]) == f"disputes/{name}"


def test_its_life_stands_in_lanes(site: Site) -> None:
    page = site.page(f"disputes/0x{hash_of('won').hex()}")
    for words in (
        "names row 2 of segment 0, which the accused signed",
        "shows 16 nodes of the tree over all tensors",
        "names the first tensor that differs: down of layer 1",
        "shows 32 nodes of down of layer 1",
        "names a word, and asks for the parts of its number 3",
        "gives 12 parts of the sum",
        "convicted: one part of a sum is not the sum of its terms",
        "bond and reward to the accuser",
    ):
        assert words in page, words
    # Opened in block 2,035: fifty blocks are a turn.
    assert "the accused has until block 2,085" in page
    lost = site.page(f"disputes/0x{hash_of('lost').hex()}")
    assert "defends its row by nudge 4: rounding alone moves it as far" in lost
    assert "bond to the accused" in lost
    assert "another conviction came first" in site.page(f"disputes/0x{hash_of('moot').hex()}")


def test_a_dispute_under_way_says_whose_turn_it_is() -> None:
    events = dispute_events("won", DisputeWon)
    (row,) = told(events[:1], WINDOW).disputes
    assert "the accused's" in row
    (row,) = told(events[:2], WINDOW).disputes
    assert "the accuser's" in row


def test_pages_lead_to_it(site: Site) -> None:
    link = f"disputes/0x{hash_of('won').hex()}"
    assert link in site.page("cases")
    assert link in site.page(f"nodes/{CASES.node}")
    assert link not in site.page("cases", {"state": "live"})
    with pytest.raises(NothingHere):
        site.page("disputes/0x00")


def test_one_whose_events_do_not_fit_is_left_to_the_audit() -> None:
    events = dispute_events("won", DisputeWon)
    shown, call = events[3]
    assert isinstance(shown, NodesShown)
    forged = (*shown.nodes[:-1], hash_of("another"))
    broken = [*events[:3], (replace(shown, nodes=forged), call), *events[4:]]
    assert told(broken, WINDOW).disputes == ()
    assert told(events[1:], WINDOW).disputes == ()
    other = dispute_events("other", DisputeMoot)
    assert len(told([*broken, *other], WINDOW).disputes) == 1
