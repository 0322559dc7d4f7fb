"""Connections that are used again."""

from __future__ import annotations

from troth.transport.https import KEPT_SECONDS, pinned_client, pinned_sync_client
from troth.transport.server import IDLE_SECONDS


async def test_a_client_lets_go_of_an_idle_connection_long_before_the_server_does() -> None:
    assert 2 * KEPT_SECONDS < IDLE_SECONDS
    with pinned_sync_client("https://127.0.0.1:1", bytes(32)) as client:
        assert client._transport._pool._keepalive_expiry == KEPT_SECONDS  # type: ignore[attr-defined]
    async with pinned_client("https://127.0.0.1:1", bytes(32)) as other:
        assert other._transport._pool._keepalive_expiry == KEPT_SECONDS  # type: ignore[attr-defined]
