"""Attacks on a path of three relays over real TLS sockets.

Each ends where docs/reference/overlay.md says, and is told.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.overlay_stage import Stage, overlay_stage
from support.overlay_tap import Once, Place, Tap

from troth.overlay.cells.format import HEADER, SMALL, Command, EndReason, control_cell, destroy_cell, new_circuit_id
from troth.overlay.cells.messages import Parcel, ParcelKind
from troth.overlay.circuits.circuit import Circuit
from troth.overlay.circuits.descriptors import PinnedAddress, RelayDescriptor
from troth.overlay.circuits.handshake import ClientShare
from troth.overlay.circuits.rotation import Rotation
from troth.overlay.relay.limits import RelayLimits
from troth.transport.errors import CircuitFailed, CircuitSilent, MalformedCell

SECONDS = 60.0


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what must come."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@asynccontextmanager
async def staged(
    folder: Path, patch: pytest.MonkeyPatch, limits: RelayLimits | None = None
) -> AsyncIterator[tuple[Stage, Tap, Circuit]]:
    async with overlay_stage(folder, limits=limits) as stage:
        tap = Tap(stage, patch)
        yield stage, tap, await built(stage)


async def built(stage: Stage) -> Circuit:
    """A circuit, once the cell that follows its set-up has arrived: from then on every cell is the test's."""
    circuit = await stage.client.build(stage.path)
    await until(lambda: all(one.proven for relay in stage.relays for one in relay.switch.circuits))
    return circuit


async def failure_of(circuit: Circuit, stage: Stage, message: bytes = b"prompt") -> CircuitFailed:
    """What the client learns when it sends a message."""
    with pytest.raises(CircuitFailed) as caught:
        await circuit.request(stage.destination.name, message, SECONDS)
    return caught.value


async def all_closed(stage: Stage) -> None:
    """Every relay has forgotten every circuit and its keys."""
    await until(lambda: not any(relay.switch.circuits for relay in stage.relays))


def flipped(cell: bytes, place: int) -> bytes:
    return cell[:place] + bytes([cell[place] ^ 1]) + cell[place + 1 :]


async def test_messages_of_every_size_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged(tmp_path, monkeypatch) as (stage, _, circuit):
        for length in (0, 1, 800, 3000, 30_000, 1_000_000):
            message = b"m" * length
            assert await circuit.request(stage.destination.name, message, 20) == message


async def test_many_messages_at_once_share_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged(tmp_path, monkeypatch) as (stage, _, circuit):
        messages = [bytes([number]) * 400_000 for number in range(6)]
        answers = await asyncio.gather(*(circuit.request(stage.destination.name, one, 20) for one in messages))
        assert answers == messages


async def test_answers_stream_in_order(tmp_path: Path) -> None:
    async def count(message: bytes) -> AsyncIterator[tuple[bytes, bool]]:
        for number in range(int(message)):
            yield b"%d" % number, False

    async with overlay_stage(tmp_path, answers=count) as stage:
        circuit = await stage.client.build(stage.path)
        exchange = await circuit.send(stage.destination.name, b"300")
        assert [part async for part in exchange.answers()] == [b"%d" % number for number in range(300)] + [b""]


async def test_no_two_links_carry_equal_bytes_or_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged(tmp_path, monkeypatch) as (stage, tap, circuit):
        await circuit.request(stage.destination.name, bytes(9000), SECONDS)
        ids = [
            {cell[1:HEADER] for place in tap.seen if place.link == link for cell in tap.seen[place]}
            for link in range(3)
        ]
        assert [len(one) for one in ids] == [1, 1, 1]
        assert len(set.union(*ids)) == 3
        windows = {
            place: {cell[start : start + 12] for cell in cells for start in range(HEADER, len(cell) - 11)}
            for place, cells in tap.seen.items()
        }
        places = list(windows)
        assert len(places) == 6
        for index, one in enumerate(places):
            for other in places[index + 1 :]:
                assert not windows[one] & windows[other]
        sizes = [[len(cell) for cell in tap.onions(Place(link, True))][-4:] for link in range(3)]
        assert sizes[0] == sizes[1] == sizes[2]


async def test_ids_cannot_be_found_by_trying_identities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's path id is H(user, proxy): whoever knows the directory tries all pairs. Here the same path of the
    same user has other ids each time, on every link, so no function of identities gives them."""
    async with staged(tmp_path, monkeypatch) as (stage, tap, _):
        for _ in range(5):
            await stage.client.build(stage.path)
        ids = {cell[1:HEADER] for cells in tap.seen.values() for cell in cells}
        assert len(ids) == 6 * 3
        names = [relay.name for relay in stage.path] + [b"127.0.0.1", b"client"]
        guesses = {hashlib.sha256(one + other).digest()[:8] for one in names for other in names}
        assert not guesses & ids


@pytest.mark.parametrize("place", [HEADER, HEADER + 63, HEADER + 64, SMALL - 1])
@pytest.mark.parametrize("link", [0, 1, 2])
async def test_a_tagged_cell_crosses_no_honest_relay(
    link: int, place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(tmp_path, monkeypatch) as (stage, tap, circuit):
        tap.alter = Once(Place(link, True), lambda cell: [flipped(cell, place)])
        before = len(tap.onions(Place(link + 1, True)))
        failure = await failure_of(circuit, stage)
        assert failure.position == max(link, 1)
        assert len(tap.onions(Place(link + 1, True))) == before
        await all_closed(stage)


@pytest.mark.parametrize("link", [0, 1, 2])
@pytest.mark.parametrize("action", ["repeat", "swap", "drop"])
async def test_cells_out_of_their_order_end_the_circuit(
    action: str, link: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[bytes] = []

    def hold(cell: bytes) -> list[bytes]:
        held.append(cell)
        return []

    async with staged(tmp_path, monkeypatch) as (stage, tap, circuit):
        if action == "repeat":
            tap.alter = Once(Place(link, True), lambda cell: [cell, cell])
        else:
            first = Once(Place(link, True), hold)
            second = Once(Place(link, True), lambda cell: [cell, *held] if action == "swap" else [cell])
            tap.alter = lambda at, cell: second(at, cell) if first.done else first(at, cell)
        failure = await failure_of(circuit, stage, bytes(8000))
        assert failure.position == max(link, 1)
        await all_closed(stage)


@pytest.mark.parametrize("link", [0, 1, 2])
async def test_a_cell_changed_on_its_way_back_is_named_by_its_layer(
    link: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(tmp_path, monkeypatch) as (stage, tap, circuit):
        tap.alter = Once(Place(link, False), lambda cell: [flipped(cell, 500)])
        failure = await failure_of(circuit, stage)
        assert (failure.position, failure.hop) == (link + 1, ("guard", "middle", "proxy")[link])
        await all_closed(stage)


async def test_a_cell_of_one_circuit_fits_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged(tmp_path, monkeypatch) as (stage, tap, first):
        second = await stage.client.build(stage.path)
        await first.request(stage.destination.name, b"prompt", SECONDS)
        stolen = tap.onions(Place(0, True))[-1]
        first.link.send(stolen[:1] + second.circuit_id + stolen[HEADER:])
        first.link.flush()
        await until(lambda: second.failure is not None)
        assert await first.request(stage.destination.name, b"again", SECONDS) == b"again"


async def test_a_repeated_set_up_costs_no_key_and_makes_no_circuit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(tmp_path, monkeypatch) as (stage, tap, circuit):
        create = next(cell for cell in tap.seen[Place(0, True)] if cell[0] == Command.CREATE)
        circuit.link.send(create[:1] + new_circuit_id() + create[HEADER:])
        circuit.link.flush()
        await until(lambda: tap.seen[Place(0, False)][-1][0] == Command.DESTROY)
        assert tap.seen[Place(0, False)][-1][HEADER] == EndReason.PROTOCOL
        assert len(stage.relays[0].switch.circuits) == 1


async def test_an_id_used_twice_closes_the_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged(tmp_path, monkeypatch) as (stage, _, circuit):
        share = ClientShare.new(stage.path[0])
        circuit.link.send(control_cell(Command.CREATE, circuit.circuit_id, share.request()))
        circuit.link.flush()
        await until(lambda: circuit.failure is not None)
        assert circuit.failure is not None
        assert circuit.failure.hop == "guard"
        await all_closed(stage)


@pytest.mark.parametrize("claimant", [1, 2, 3])
async def test_a_forged_destroy_names_the_pair_it_came_from(
    claimant: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relay `claimant` ends the circuit towards the client, and blames nobody or whomever it likes."""
    async with staged(tmp_path, monkeypatch) as (stage, tap, circuit):
        place = Place(claimant - 1, False)
        link, circuit_id = tap.links[place], tap.seen[place][-1][1:HEADER]
        link.send(destroy_cell(circuit_id, EndReason.UNREACHABLE))
        link.flush()
        await until(lambda: circuit.failure is not None)
        assert circuit.failure is not None
        assert circuit.failure.position == claimant
        await until(lambda: all(not relay.switch.circuits for relay in stage.relays[: claimant - 1]))


async def test_a_destroy_for_an_unknown_circuit_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(tmp_path, monkeypatch) as (stage, _, circuit):
        circuit.link.send(destroy_cell(new_circuit_id(), EndReason.FINISHED))
        circuit.link.flush()
        assert await circuit.request(stage.destination.name, b"prompt", SECONDS) == b"prompt"


async def test_closing_erases_the_keys_at_every_hop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged(tmp_path, monkeypatch) as (stage, _, circuit):
        circuits = [next(iter(relay.switch.circuits)) for relay in stage.relays]
        circuit.close()
        await all_closed(stage)
        assert all(one.layer is None for one in circuits)
        assert circuit.hops == 0
        with pytest.raises(CircuitFailed, match="closed by this client"):
            await circuit.send(stage.destination.name, b"late")


@pytest.mark.parametrize("broken", [0, 1, 2])
async def test_a_relay_that_goes_away_is_named(broken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged(tmp_path, monkeypatch) as (stage, _, circuit):
        for link in list(stage.relays[broken].listener.links):
            link.abort()
        await until(lambda: circuit.failure is not None)
        assert circuit.failure is not None
        assert (circuit.failure.position, circuit.failure.hop) == (broken + 1, ("guard", "middle", "proxy")[broken])
        await all_closed(stage)


@pytest.mark.parametrize("silent", [1, 2, 3])
async def test_a_relay_that_swallows_everything_is_found(
    silent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(tmp_path, monkeypatch) as (stage, tap, circuit):
        tap.alter = lambda place, cell: [] if place == Place(silent - 1, False) else [cell]
        with pytest.raises(CircuitSilent) as caught:
            await circuit.request(stage.destination.name, b"prompt", 1.0)
        assert caught.value.position == silent


async def test_a_destination_that_is_slow_costs_no_circuit(tmp_path: Path) -> None:
    async def slow(message: bytes) -> AsyncIterator[tuple[bytes, bool]]:
        if message == b"slow":
            await asyncio.sleep(60)
        yield message, True

    async with overlay_stage(tmp_path, answers=slow) as stage:
        circuit = await stage.client.build(stage.path)
        with pytest.raises(CircuitSilent) as caught:
            await circuit.request(stage.destination.name, b"slow", 1.0)
        assert caught.value.hop == "destination"
        assert await circuit.request(stage.destination.name, b"prompt", SECONDS) == b"prompt"


async def test_a_set_up_that_is_given_up_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with overlay_stage(tmp_path) as stage:
        tap = Tap(stage, monkeypatch)
        tap.alter = lambda place, cell: [] if place == Place(2, False) else [cell]
        building = asyncio.create_task(stage.client.build(stage.path))
        await until(lambda: bool(stage.relays[2].switch.circuits))
        building.cancel()
        await all_closed(stage)


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
        await down.listener.stop_listening()
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
