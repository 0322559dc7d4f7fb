"""Real relays at their limits: set-ups, windows, links and messages that somebody uses beyond what is allowed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.overlay_stage import overlay_stage
from support.overlay_tap import Place, Tap
from support.relay_circuits import SECONDS, all_closed, built, failure_of, staged, until

from troth.overlay.cells.format import Command, control_cell, new_circuit_id
from troth.overlay.cells.messages import Parcel, ParcelKind
from troth.overlay.circuits.descriptors import PinnedAddress, RelayDescriptor
from troth.overlay.circuits.handshake import ClientShare
from troth.overlay.circuits.rotation import Rotation
from troth.overlay.relay.limits import RelayLimits
from troth.transport.errors import CircuitFailed, CircuitSilent, MalformedCell


async def test_a_set_up_that_takes_too_long_names_its_hop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with overlay_stage(tmp_path) as stage:
        tap = Tap(stage, monkeypatch)
        tap.alter = lambda place, cell: [] if place == Place(1, False) else [cell]
        with pytest.raises(CircuitSilent) as caught:
            await stage.client.build(stage.path, seconds=4.0)
        assert caught.value.hop == "middle"
        await all_closed(stage)


async def test_an_impostor_on_the_path_is_named(tmp_path: Path) -> None:
    async with overlay_stage(tmp_path) as stage:
        first, second, third = stage.path
        forged = RelayDescriptor(second.place, third.handshake_key)
        with pytest.raises(CircuitFailed, match="registered key") as caught:
            await stage.client.build([first, forged, third])
        assert caught.value.hop == "middle"


async def test_one_host_cannot_take_every_handshake(tmp_path: Path) -> None:
    limits = RelayLimits(tls_handshakes=64, tls_handshakes_per_host=2, tls_seconds=60)
    async with overlay_stage(tmp_path, limits=limits) as stage:
        place = stage.path[0].place
        opened = [await asyncio.open_connection(place.host, place.port) for _ in range(5)]
        await until(lambda: stage.relays[0].switch.metrics.turned_away._value.get() == 3)
        for _, writer in opened:
            writer.close()


@pytest.mark.parametrize("position", [1, 2, 3])
async def test_a_relay_that_is_down_is_named_while_building(position: int, tmp_path: Path) -> None:
    async with overlay_stage(tmp_path) as stage:
        down = stage.relays[position - 1]
        down.listener.stop_listening()
        with pytest.raises(CircuitFailed) as caught:
            await stage.client.build(stage.path)
        assert caught.value.position == position


async def test_a_relay_extends_to_nobody_outside_its_directory(tmp_path: Path) -> None:
    async with overlay_stage(tmp_path) as stage:
        stranger = RelayDescriptor(PinnedAddress("127.0.0.1", 9, b"s" * 32), stage.path[1].handshake_key)
        with pytest.raises(CircuitFailed, match="directory does not name"):
            await stage.client.build([stage.path[0], stranger])


async def test_a_proxy_delivers_to_nobody_outside_its_directory(tmp_path: Path) -> None:
    async with overlay_stage(tmp_path) as stage:
        circuit = await stage.client.build(stage.path)
        with pytest.raises(CircuitFailed, match="unknown_relay") as caught:
            await circuit.request(b"s" * 32, b"prompt", SECONDS)
        assert caught.value.hop == "destination"
        assert await circuit.request(stage.destination.name, b"prompt", SECONDS) == b"prompt"


async def test_a_relay_that_is_no_proxy_delivers_nothing(tmp_path: Path) -> None:
    async with overlay_stage(tmp_path) as stage:
        stage.relays[2].switch.delivers = False
        circuit = await stage.client.build(stage.path)
        with pytest.raises(CircuitFailed, match="unknown_relay"):
            await circuit.request(stage.destination.name, b"prompt", SECONDS)


async def test_a_destination_that_is_down_is_told(tmp_path: Path) -> None:
    async with overlay_stage(tmp_path) as stage:
        await stage.server.stop()
        circuit = await stage.client.build(stage.path)
        with pytest.raises(CircuitFailed, match="unreachable"):
            await circuit.request(stage.destination.name, b"prompt", SECONDS)
        assert circuit.failure is None


async def test_a_message_beyond_the_limit_ends_the_circuit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged(tmp_path, monkeypatch, RelayLimits(message_bytes=5000)) as (stage, _, circuit):
        assert (await failure_of(circuit, stage, bytes(5001))).hop == "proxy"
        await all_closed(stage)
        assert [relay.switch.message_bytes for relay in stage.relays] == [0, 0, 0]


async def test_a_client_that_ignores_its_window_ends_its_circuit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(tmp_path, monkeypatch) as (stage, tap, circuit):
        tap.alter = lambda place, cell: [] if place == Place(2, False) else [cell]
        circuit._send.left = 10**6
        for _ in range(300):
            circuit._say(
                Parcel(ParcelKind.DATA, bytes(4) + b"\x01" + (2**20).to_bytes(4, "big") + stage.destination.name)
            )
        circuit.link.flush()
        await until(lambda: not stage.relays[2].switch.circuits)


@pytest.mark.parametrize("kind", [ParcelKind.EXTENDED, ParcelKind.BROKEN, ParcelKind.FAILED, ParcelKind.PONG])
async def test_words_that_a_client_may_not_say_end_the_circuit(
    kind: ParcelKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(tmp_path, monkeypatch) as (stage, _, circuit):
        circuit._say(Parcel(kind, bytes(5)))
        circuit.link.flush()
        await until(lambda: circuit.failure is not None)
        await all_closed(stage)


@pytest.mark.parametrize("garbage", [b"\x7f" + bytes(2000), b"\x02" + bytes(1023) + b"\x09" * 10])
async def test_bytes_that_are_no_cells_close_the_link(
    garbage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(tmp_path, monkeypatch) as (stage, _, circuit):
        circuit.link.send(garbage)
        circuit.link.flush()
        await until(lambda: circuit.failure is not None)
        assert not stage.relays[0].listener.links


async def test_a_set_up_flood_is_cut_off_by_link(tmp_path: Path) -> None:
    limits = RelayLimits(link_setup_burst=5, link_setups_per_second=0.001)
    async with overlay_stage(tmp_path, limits=limits) as stage:
        for _ in range(5):
            await stage.client.build(stage.path[:1])
        with pytest.raises(CircuitFailed, match="takes no more circuits"):
            await stage.client.build(stage.path[:1])


async def test_a_set_up_flood_is_cut_off_for_all_links_together(tmp_path: Path) -> None:
    limits = RelayLimits(setup_burst=4, setups_per_second=0.001)
    async with overlay_stage(tmp_path, limits=limits) as stage:
        for _ in range(4):
            await stage.client.build(stage.path[:1])
        with pytest.raises(CircuitFailed, match="takes no more circuits"):
            await stage.client.build(stage.path[:1])


async def test_half_open_circuits_are_bounded_and_spare_those_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(tmp_path, monkeypatch, RelayLimits(half_open=10)) as (stage, _, circuit):
        for _ in range(50):
            request = ClientShare.new(stage.path[0]).request()
            circuit.link.send(control_cell(Command.CREATE, new_circuit_id(), request))
        circuit.link.flush()
        guard = stage.relays[0].switch
        await until(lambda: guard.metrics.setups.labels("created")._value.get() == 51)
        assert len(guard.circuits) == 11
        assert await circuit.request(stage.destination.name, b"prompt", SECONDS) == b"prompt"


async def test_cells_for_a_link_that_does_not_read_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The middle relay stops reading: the guard holds its limit of cells, then ends the oldest circuit."""
    async with staged(tmp_path, monkeypatch, RelayLimits(backlog_bytes=100_000)) as (stage, tap, old):
        young = await built(stage)
        guard, stuck = stage.relays[0].switch, tap.links[Place(1, True)]
        stuck.full = True
        for circuit in (old, young, young):
            await circuit.send(stage.destination.name, bytes(40_000))
        await until(lambda: old.failure is not None)
        assert old.failure is not None
        assert "memory was full" in old.failure.reason
        assert young.failure is None
        assert 0 < guard.backlog_bytes <= 100_000
        stuck.full = False
        guard.link_ready(stuck)
        assert await young.request(stage.destination.name, b"prompt", SECONDS) == b"prompt"
        assert guard.backlog_bytes == 0


async def test_connections_without_tls_are_few_and_short(tmp_path: Path) -> None:
    async with overlay_stage(tmp_path, limits=RelayLimits(tls_handshakes=3, tls_seconds=3.0)) as stage:
        place = stage.path[0].place
        opened = [await asyncio.open_connection(place.host, place.port) for _ in range(8)]
        refused = stage.relays[0].switch.metrics.turned_away._value
        await until(lambda: refused.get() == 5)
        async with asyncio.timeout(SECONDS):
            assert [await reader.read() for reader, _ in opened] == [b""] * 8
        await stage.client.build(stage.path)
        for _, writer in opened:
            writer.close()


async def test_links_of_one_host_are_bounded(tmp_path: Path) -> None:
    async with overlay_stage(tmp_path, limits=RelayLimits(links_per_host=1)) as stage:
        await stage.client.build(stage.path[:1])
        place = stage.path[0].place
        reader, writer = await asyncio.open_connection(place.host, place.port)
        assert await reader.read() == b""
        assert stage.relays[0].switch.metrics.turned_away._value.get() == 1
        writer.close()


async def test_a_circuit_that_carried_its_share_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged(tmp_path, monkeypatch, RelayLimits(circuit_bytes=40_000)) as (stage, _, circuit):
        failure = await failure_of(circuit, stage, bytes(60_000))
        assert "used up its share" in failure.reason


async def test_a_path_is_one_to_four_different_relays(tmp_path: Path) -> None:
    async with overlay_stage(tmp_path) as stage:
        for path in ([], [stage.path[0], stage.path[0]], stage.path * 2):
            with pytest.raises(MalformedCell):
                await stage.client.build(path)


async def test_a_circuit_says_when_it_is_due(tmp_path: Path) -> None:
    async with overlay_stage(tmp_path) as stage:
        stage.client._rotation = Rotation(3600, 20_000)
        circuit = await stage.client.build(stage.path)
        assert not circuit.due
        circuit.pad(30)
        assert circuit.due
        assert await circuit.request(stage.destination.name, b"prompt", SECONDS) == b"prompt"
