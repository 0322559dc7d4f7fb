"""`scripts/bench market --rows orders` still finds all that it needs: a chain, a scheduler, nodes and clients run."""

from __future__ import annotations

import pytest
from benchmarks.market.running import command

pytestmark = [pytest.mark.chain, pytest.mark.slow, pytest.mark.timeout(300)]


def test_orders_of_a_toy_network_are_answered() -> None:
    whole, by_core = command.measure(["--rows", "orders", "--orders", "16"])
    assert "16 orders" in whole.note
    assert (whole.unit, whole.reach) == ("1/s", 200)
    assert 0 < whole.value < 16 / 0.001
    assert by_core.value > 0
