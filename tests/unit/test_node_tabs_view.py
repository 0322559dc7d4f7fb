"""What `troth node tabs` says of a tab: whether it is open, and of a claim only where one is filed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.order_market import DOMAIN, SCHEDULER, with_tab

from troth.node.earning import view
from troth.node.earning.books import NodeBooks, NodeLedger
from troth.node.earning.database import NodeDatabase
from troth.protocol import typed_data
from troth.protocol.amounts import lines, readable
from troth.protocol.market.messages import tab_id
from troth.protocol.market.state import ClaimRecord, State
from troth.protocol.market.types import Claim, ClaimState, Tab, Voucher
from troth.protocol.types import ZERO_HASH

ME = typed_data.address_of(b"\x77" * 32)
TAB = Tab(SCHEDULER, ME, SCHEDULER)
BLOCK = 50


@pytest.fixture
def books(tmp_path: Path) -> Iterator[NodeBooks]:
    database = NodeDatabase(tmp_path / "books.sqlite")
    yield NodeBooks(database)
    database.close()


def ledger(**changes: Any) -> NodeLedger:
    state = with_tab(State(), TAB)
    record = replace(state.tabs[tab_id(TAB)], **changes)
    return NodeLedger(replace(state, tabs=state.tabs.set(tab_id(TAB), record)), DOMAIN, ME, BLOCK)


def shown(books: NodeBooks, ledger: NodeLedger) -> dict[str, Any]:
    (one,) = view.tabs_view(books, ledger)
    return one.shown()


@pytest.mark.parametrize(
    ("changes", "said"),
    [({}, "open"), ({"closes_at": 812}, "closes at block 812"), ({"known": False}, "closed")],
    ids=["open", "closing", "closed"],
)
def test_a_tab_says_whether_it_is_open(books: NodeBooks, changes: dict[str, Any], said: str) -> None:
    words = shown(books, ledger(**changes))
    assert words["state"] == said
    assert "claim" not in words
    printed = [" ".join(line.split()) for line in lines(readable({"tabs": [words]}))]
    assert f"state {said}" in printed
    assert not [line for line in printed if line in {"claim", "closes at 0"}]


def test_a_claim_is_named_where_one_is_filed(books: NodeBooks) -> None:
    claim, voucher = Claim(1, 1, 0, 10, ZERO_HASH), Voucher(tab_id(TAB), 0, 10, 1, 0, 0)
    filed = ClaimState(claim, voucher, owed=10, settles_at=77, claimer=ME)
    assert shown(books, ledger(claim=ClaimRecord(ZERO_HASH, filed)))["claim"] == "settles at block 77"


def test_only_an_open_tab_brings_work(books: NodeBooks) -> None:
    (tab,) = view.tabs_view(books, ledger())
    (closing,) = view.tabs_view(books, ledger(closes_at=812))
    assert (tab.is_open, closing.is_open) == (True, False)
