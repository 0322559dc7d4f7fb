"""What a member takes of other members' dealings, without a chain."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.lending import DOMAIN, NODE, OTHER, SCHEDULER

from troth.committee.errors import TicketsRefused
from troth.committee.tickets.keys import TicketKeyMember, TicketKeyStore


def test_a_member_that_has_left_is_dealt_nothing(tmp_path: Path) -> None:
    stores = [TicketKeyStore(tmp_path / name) for name in ("dealer", "left")]
    dealer, left = (
        TicketKeyMember(one.secret, DOMAIN, 1, store) for one, store in zip((NODE, OTHER), stores, strict=True)
    )
    members = [NODE.address, SCHEDULER.address]
    given = dealer.deal(0, members)[SCHEDULER.address]
    with pytest.raises(TicketsRefused, match="no member"):
        left.take(dealer.operator, given, members)
    assert left.holdings(0) == {}
    for store in stores:
        store.close()
