"""Which open orders need not be looked at again: none, once the chain voids anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from troth.protocol.market.state import State
from troth.protocol.types import Address, Hash32
from troth.scheduler.orders.context import StandingOrders

TAB, ORDER = Hash32(bytes(31) + b"\1"), Hash32(bytes(31) + b"\2")
PARTY = Address("0x" + "11" * 20)


@pytest.mark.parametrize(
    ("field", "key", "value"), [("voided", (ORDER, 0), True), ("summons", ORDER, None), ("convictions", PARTY, ())]
)
def test_orders_are_looked_at_again_when_what_the_chain_voids_changes(field: str, key: Any, value: Any) -> None:
    standing, state = StandingOrders(), State()
    assert standing.of(state, TAB) == set()
    standing.numbers[TAB] = {1}
    assert standing.of(replace(state), TAB) == {1}
    container = getattr(state, field)
    grown = container | {key} if isinstance(container, frozenset) else container.set(key, value)
    later = replace(state, **{field: grown})
    assert standing.of(later, TAB) == set()
    # A reorganisation takes it back: they are looked at once more.
    standing.numbers[TAB] = {1}
    assert standing.of(state, TAB) == set()
