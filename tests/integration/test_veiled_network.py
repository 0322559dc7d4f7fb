"""A veiled class over whole processes with a real engine: verifiers cast their ballots over TLS, and a scheduler that
is killed between them asks for those that it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from support.fault_network import FaultNetwork, fault_network

from troth.client.orders.journal import Phase
from troth.protocol import rings
from troth.protocol.market import canonical
from troth.scheduler.orders.steps import CastStep

pytestmark = [pytest.mark.chain, pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(600)]
QUESTION = (3, 14, 15, 9, 26)


def cast(network: FaultNetwork) -> dict[bytes, list[CastStep]]:
    """Ballots that the scheduler has on its disk, by order."""
    found: dict[bytes, list[CastStep]] = {}
    for order, data in network.read("scheduler", "market.sqlite", "SELECT order_id, data FROM steps WHERE kind='Cast'"):
        found.setdefault(order, []).append(canonical.decode(CastStep, data, 1 << 20))
    return found


async def test_ballots_are_cast_over_tls_and_outlive_a_kill_between_them(anvil: Any, tmp_path: Path) -> None:
    async with fault_network(anvil, tmp_path, class_name="toy float32/veiled") as network:
        network.plan.set("scheduler", "after", "Cast")
        client = network.asking(QUESTION)
        await network.until(lambda: not network.plan.waits or not client.alive, "a verifier casts its ballot")
        assert not network.plan.waits, client.tail()
        assert await network.revive() == ["scheduler"]
        await network.ended(client)
        (entry,) = network.entries()
        assert entry.phase is Phase.CHECKED
        spoken = "SELECT COUNT(*) FROM steps WHERE kind='Judged'"

        def whole() -> bool:
            ((verdicts,),) = network.read("scheduler", "market.sqlite", spoken)
            return len(next(iter(cast(network).values()))) == verdicts

        await network.until(whole, "all ballots are cast")
        (ballots,) = cast(network).values()
        (ring,) = {one.ring for one in ballots}
        assert len(ballots) == len({one.verifier for one in ballots}) == len(ring) >= rings.FEWEST
        assert len({one.signature[:33] for one in ballots}) == len(ring)
        await network.nothing_lost()
