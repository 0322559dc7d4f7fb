"""How long a client waits until its chain node shows a block that the scheduler names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from troth.chain import waiting
from troth.client.orders.session import SEEN_SECONDS, PayerSession


@pytest.mark.parametrize(
    ("slow", "limit", "seconds"),
    [("", "60", SEEN_SECONDS), ("waiting for the chain node", "20", 60.0), ("waiting for the chain node", "5", 30.0)],
)
async def test_a_slow_chain_node_is_given_three_of_its_answers(
    slow: str, limit: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its newest block, headers and logs each take one; the answer was lost to its payer after half a minute."""
    waited: list[float] = []

    async def reach(_block: int, timeout: float) -> None:
        waited.append(timeout)

    monkeypatch.setenv(waiting.LIMIT_VARIABLE, limit)
    monkeypatch.setattr("troth.client.orders.session.slowness", lambda: slow)
    session: Any = SimpleNamespace(block=5, follower=SimpleNamespace(reach=reach))
    await PayerSession.seen(session, 5)
    assert waited == []
    await PayerSession.seen(session, 9)
    assert waited == [seconds]
