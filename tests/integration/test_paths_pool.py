"""A pool over real relays and TLS: what fails is replaced, and what an attacker does is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from support.listings import shares_nothing
from support.paths_stage import QUICK, pool_stage

from troth.overlay.circuits.rotation import Rotation
from troth.overlay.paths.errors import NoCircuits

SECONDS = 60.0


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what must come."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def disjoint(circuits) -> bool:
    return shares_nothing(circuit.path for circuit in circuits)


async def test_taken_circuits_share_nothing_and_carry_messages(tmp_path: Path) -> None:
    async with pool_stage(tmp_path) as at:
        circuits = await at.pool.take(4, SECONDS)
        assert disjoint(circuits)
        guards = [guard.name for guard in at.guards.kept]
        assert all(circuit.path[0].name.hex() in guards for circuit in circuits)
        for circuit in circuits:
            assert await circuit.request(at.stage.destination.name, b"hello") == b"hello"
        await until(lambda: at.pool.status.live == 6)
        assert at.pool.status.held == 4


async def test_a_killed_relay_is_repaired_around_and_a_spare_comes_at_once(tmp_path: Path) -> None:
    async with pool_stage(tmp_path) as at:
        circuits = await at.pool.take(4, SECONDS)
        await until(lambda: at.pool.status.live == 6)
        dead = circuits[0].path[1]
        await at.kill(dead)
        await asyncio.wait_for(circuits[0].ended.wait(), SECONDS)
        spare = await at.pool.replace(circuits[0], 0)
        assert disjoint([spare, *circuits[1:]])
        assert await spare.request(at.stage.destination.name, b"hello") == b"hello"
        await until(lambda: at.pool.status.live == 6)
        after = len(at.client.tried)
        assert all(dead not in circuit.path for circuit in await at.pool.take(6, SECONDS))
        assert len(at.client.tried) == after


async def test_all_guards_down_tries_are_bounded_and_it_recovers(tmp_path: Path) -> None:
    async with pool_stage(tmp_path) as at:
        await until(lambda: at.pool.status.live == 6)
        guards = [
            relay.descriptor
            for relay in at.stage.relays
            if relay.descriptor.name.hex() in {guard.name for guard in at.guards.kept}
        ]
        for guard in guards:
            await at.kill(guard)
        await until(lambda: at.pool.status.live == 0)
        before, began = len(at.client.tried), asyncio.get_running_loop().time()
        with pytest.raises(NoCircuits, match="guard of the circuit failed"):
            await at.pool.take(4, 1.5)
        passed = asyncio.get_running_loop().time() - began
        # In a row they wait 0.1 to 0.2 s at last; the first few come sooner.
        assert len(at.client.tried) - before <= 12 + passed / 0.1
        assert {path[0] for path in at.client.tried} <= set(guards)
        assert sum(guard.tried is not None for guard in at.guards.kept) == 6
        for guard in guards:
            at.revive(guard)
        circuits = await at.pool.take(4, SECONDS)
        assert disjoint(circuits)
        assert {circuit.path[0] for circuit in circuits} <= set(guards)


async def test_rotation_builds_first_and_closes_when_its_user_lets_go(tmp_path: Path) -> None:
    async with pool_stage(tmp_path, rotation=Rotation(seconds=1.0)) as at:
        held = await at.pool.take(4, SECONDS)
        await until(lambda: all(circuit.due for circuit in held) and len(at.client.tried) >= 12)
        await until(lambda: at.pool.status.live == 6)
        for circuit in held:
            assert await circuit.request(at.stage.destination.name, b"still here") == b"still here"
        renewed = await at.pool.take(4, SECONDS)
        assert not set(renewed) & set(held)
        # Also with those that the first user still holds, but for the guard of the place that each came from.
        for old in held:
            strangers = [circuit for circuit in renewed if circuit.path[0] != old.path[0]]
            assert disjoint([old, *strangers])
        for circuit in held:
            at.pool.release(circuit)
        assert all(circuit.failure is not None and circuit.failure.hop == "client" for circuit in held)


async def test_two_users_of_the_same_circuits_both_get_others(tmp_path: Path) -> None:
    async with pool_stage(tmp_path) as at:
        first = await at.pool.take(4, SECONDS)
        second = await at.pool.take(4, SECONDS)
        assert set(first) == set(second)
        for circuit in first:
            at.client._forget(circuit)
            circuit.link.abort()
        await asyncio.gather(*(asyncio.wait_for(circuit.ended.wait(), 1) for circuit in first), return_exceptions=True)
        for circuit in first:
            circuit.close()
        for held in (first, second):
            for index, circuit in enumerate(list(held)):
                held[index] = await at.pool.replace(circuit, SECONDS)
            assert disjoint(held)
        assert at.pool.status.held >= 4


async def test_a_circuit_is_closed_only_when_both_users_let_go(tmp_path: Path) -> None:
    async with pool_stage(tmp_path) as at:
        first = await at.pool.take(4, SECONDS)
        await at.pool.take(4, SECONDS)
        bad = first[0]
        other = await at.pool.replace(bad, SECONDS)
        assert other is not bad
        assert bad.failure is None
        assert bad not in await at.pool.take(5, SECONDS)
        at.pool.release(bad)
        assert bad.failure is not None


async def test_a_relay_that_goes_silent_is_noticed_before_anybody_needs_it(tmp_path: Path) -> None:
    async with pool_stage(tmp_path, paths=2, spare=0) as at:
        circuits = await at.pool.take(2, SECONDS)
        for circuit in circuits:
            at.pool.release(circuit)
        middle, silent = circuits[0].path[1:]
        for link in at.relay(middle).switch.pool.links():
            # The connection stands, and nothing comes over it any more.
            link._transport.pause_reading()
        await asyncio.wait_for(circuits[0].ended.wait(), SECONDS)
        assert circuits[0].failure is not None
        assert circuits[0].failure.position == 3
        assert all(silent not in circuit.path for circuit in await at.pool.take(2, SECONDS))


async def test_a_small_network_has_no_spares_and_says_so(tmp_path: Path) -> None:
    async with pool_stage(tmp_path, relays=12) as at:
        circuits = await at.pool.take(4, SECONDS)
        assert disjoint(circuits)
        await until(lambda: "are needed" in at.pool.status.shortage)
        assert at.pool.status.live == 4
        began = asyncio.get_running_loop().time()
        with pytest.raises(NoCircuits, match=r"No 5 disjoint paths of 3 relays exist.*12 relays are listed"):
            await at.pool.take(5, SECONDS)
        # No circuit more can come of waiting.
        assert asyncio.get_running_loop().time() - began < SECONDS / 4
        # No spare: the same place is built again.
        circuits[0].close()
        renewed = await at.pool.replace(circuits[0], SECONDS)
        assert disjoint([renewed, *circuits[1:]])


async def test_relays_that_the_directory_drops_are_left_gently(tmp_path: Path) -> None:
    async with pool_stage(tmp_path) as at:
        held = await at.pool.take(4, SECONDS)
        dropped = held[0].path[1].name
        at.list_without(dropped)
        await until(lambda: held[0] not in [slot.current.circuit for slot in at.pool._slots if slot.current])
        assert held[0].failure is None
        assert await held[0].request(at.stage.destination.name, b"hello") == b"hello"
        at.pool.release(held[0])
        assert held[0].failure is not None
        everybody = await at.pool.take(6, SECONDS)
        assert all(relay.name != dropped for circuit in everybody for relay in circuit.path)


async def test_more_than_the_pool_keeps_is_refused_at_once(tmp_path: Path) -> None:
    async with pool_stage(tmp_path, paths=1, spare=0, relays=3) as at:
        with pytest.raises(NoCircuits, match="keeps 1"):
            await at.pool.take(2, SECONDS)


async def test_closing_ends_circuits_builds_and_waits(tmp_path: Path) -> None:
    async with pool_stage(tmp_path, pace=QUICK) as at:
        circuits = await at.pool.take(4, SECONDS)
        circuits[0].close()
        waiting = asyncio.create_task(at.pool.take(6, SECONDS))
        await asyncio.sleep(0)
        await at.pool.close()
        with pytest.raises(NoCircuits, match="closed"):
            await waiting
        assert all(circuit.failure is not None for circuit in circuits)
        mine = asyncio.current_task()
        assert not [task for task in asyncio.all_tasks() if task is not mine and "CircuitPool" in repr(task)]


async def test_what_nobody_foresaw_is_told_and_stops_no_pool(tmp_path: Path) -> None:
    async with pool_stage(tmp_path, pace=QUICK, paths=1, spare=0, relays=3) as at:
        (circuit,) = await at.pool.take(1, SECONDS)
        kept, at.listing = at.listing, None  # type: ignore[assignment]
        with pytest.raises(NoCircuits, match="building circuits failed: 'NoneType'"):
            await at.pool.replace(circuit, 1)
        at.listing = kept
        assert await at.pool.take(1, SECONDS)


async def test_two_pings_at_once_are_one(tmp_path: Path) -> None:
    async with pool_stage(tmp_path, paths=1, spare=0, relays=3) as at:
        (circuit,) = await at.pool.take(1, SECONDS)
        await asyncio.gather(*(circuit.ping(3) for _ in range(3)), circuit.ping(1))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await circuit.ping(2)
        await circuit.ping(2)
        await circuit.ping(2)
        assert await circuit.request(at.stage.destination.name, b"hello") == b"hello"
