"""Attacks on a path of three relays over real TLS sockets.

Each ends where docs/reference/overlay.md says, and is told.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.overlay_stage import overlay_stage
from support.overlay_tap import Once, Place, Tap
from support.relay_circuits import SECONDS, all_closed, failure_of, staged, until

from troth.overlay.cells.format import HEADER, SMALL, Command, EndReason, control_cell, destroy_cell, new_circuit_id
from troth.overlay.circuits.handshake import ClientShare
from troth.transport.errors import CircuitFailed, CircuitSilent


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
