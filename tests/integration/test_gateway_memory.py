"""Memory of a gateway over thousands of small requests: what grows with each of them does not stay."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.client_network import client_side, network
from support.gateway_stage import MESSAGES, MODEL, Gateway, serving_gateway

pytestmark = [pytest.mark.chain, pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(900)]
REQUESTS, ROUND, AT_ONCE = 2_000, 250, 8
MEBIBYTE = 1 << 20
GROWTH = 12 * MEBIBYTE
"""Over the second half of all requests: 12 KiB for each would be seen."""


def memory_of(gateway: Gateway) -> int:
    """Bytes that it has for itself and holds now."""
    for line in Path(f"/proc/{gateway.process.pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("Linux says nothing of its memory")


async def test_memory_of_a_gateway_is_flat_over_two_thousand_requests(anvil: Any, tmp_path: Path) -> None:
    async with network(anvil, tmp_path) as scene:
        side = await client_side(scene, tmp_path / "home")
        async with serving_gateway(side, "--check", "always") as gateway, gateway.client as client:
            free = asyncio.Semaphore(AT_ONCE)

            async def one(number: int) -> None:
                body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 2, "stream": bool(number % 2)}
                async with free:
                    answer = await client.post("/v1/chat/completions", json=body)
                    assert answer.status_code == 200, answer.text

            seen = [memory_of(gateway)]
            # A chain of tests has its blocks so quickly that answers of a busy machine would be drawn too late.
            with scene.still():
                for asked in range(0, REQUESTS, ROUND):
                    await asyncio.gather(*(one(number) for number in range(ROUND)))
                    seen.append(memory_of(gateway))
                    print(f"\nafter {asked + ROUND} requests {seen[-1] / MEBIBYTE:.1f} MiB", flush=True)
            assert seen[-1] - seen[len(seen) // 2] < GROWTH
