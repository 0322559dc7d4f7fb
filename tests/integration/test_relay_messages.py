"""What strangers can make a proxy, a destination and a client hold: each bound ends what is over it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.overlay_stage import overlay_stage

from troth.overlay.cells.messages import CAPACITY, FIRST, Parcel, ParcelKind
from troth.overlay.circuits.circuit import Circuit
from troth.overlay.circuits.link import link_client_context
from troth.overlay.relay.limits import RelayLimits
from troth.transport.errors import CircuitFailed

SECONDS = 60.0


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what must come."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class Destination:
    """Answers a message when told to, and notes what became of each."""

    def __init__(self, answer: bytes = b"", pause: float = 0.0) -> None:
        self.answer = answer
        self.pause = pause
        self.begun = 0
        self.cancelled = 0

    async def answers(self, _message: bytes) -> AsyncIterator[tuple[bytes, bool]]:
        self.begun += 1
        try:
            while True:
                await asyncio.sleep(self.pause)
                if self.answer:
                    yield self.answer, False
        finally:
            self.cancelled += 1


def begin_message(circuit: Circuit, number: int, destination: bytes) -> None:
    """The first cell of a message of 1 MiB, and no more."""
    head = number.to_bytes(4, "big") + bytes([FIRST]) + (2**20).to_bytes(4, "big") + destination
    circuit._send.take()
    circuit._say(Parcel(ParcelKind.DATA, head.ljust(CAPACITY[4096], b"m")), size=4096)
    circuit.link.flush()


async def test_answers_wait_at_the_proxy_up_to_a_limit(tmp_path: Path) -> None:
    """Nobody gives credits, so nothing leaves the proxy after a window."""
    destination = Destination(bytes(900_000))
    async with overlay_stage(tmp_path, limits=RelayLimits(reply_bytes=2**21), answers=destination.answers) as stage:
        circuit = await stage.client.build(stage.path)
        circuit._receive = SimpleNamespace(received=lambda: None)  # type: ignore[assignment]
        await circuit.send(stage.destination.name, b"prompt")
        await until(lambda: circuit.failure is not None)
        assert circuit.failure is not None
        assert circuit.failure.hop == "proxy"
        assert "used up its share" in circuit.failure.reason


async def test_answers_that_nobody_reads_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("troth.overlay.circuits.circuit.UNREAD_BYTES", 10_000)
    destination = Destination(bytes(3000), pause=0.01)
    async with overlay_stage(tmp_path, answers=destination.answers) as stage:
        circuit = await stage.client.build(stage.path)
        exchange = await circuit.send(stage.destination.name, b"prompt")
        await until(lambda: circuit.failure is not None)
        assert circuit.failure is not None
        assert "more than is read" in circuit.failure.reason
        assert exchange.unread == 12_000
        await until(lambda: destination.cancelled == 1)


async def test_unfinished_messages_of_all_circuits_are_bounded(tmp_path: Path) -> None:
    async with overlay_stage(tmp_path, limits=RelayLimits(messages_bytes=10_000)) as stage:
        proxy = stage.relays[2].switch
        circuits = [await stage.client.build(stage.path) for _ in range(3)]
        for number, circuit in enumerate(circuits):
            begin_message(circuit, 1, stage.destination.name)
            await until(lambda number=number: proxy.message_bytes > 3900 * min(number + 1, 2))  # type: ignore[misc]
        await until(lambda: circuits[0].failure is not None)
        assert [circuit.failure is None for circuit in circuits] == [False, True, True]
        for circuit in circuits:
            circuit.close()
        await until(lambda: not proxy.circuits)
        assert proxy.message_bytes == 0


async def test_messages_under_way_in_one_circuit_are_bounded(tmp_path: Path) -> None:
    async with overlay_stage(tmp_path, limits=RelayLimits(open_messages=2)) as stage:
        circuit = await stage.client.build(stage.path)
        for number in range(3):
            begin_message(circuit, number, stage.destination.name)
        await until(lambda: circuit.failure is not None)
        assert "used up its share" in str(circuit.failure)


async def test_an_empty_fragment_ends_the_circuit(tmp_path: Path) -> None:
    async with overlay_stage(tmp_path) as stage:
        circuit = await stage.client.build(stage.path)
        begin_message(circuit, 1, stage.destination.name)
        circuit._say(Parcel(ParcelKind.DATA, (1).to_bytes(4, "big") + b"\0"))
        circuit.link.flush()
        await until(lambda: circuit.failure is not None)


async def test_messages_that_wait_for_answers_are_bounded(tmp_path: Path) -> None:
    destination = Destination(pause=0.01)
    async with overlay_stage(
        tmp_path, limits=RelayLimits(exchanges_per_circuit=2), answers=destination.answers
    ) as stage:
        circuit = await stage.client.build(stage.path)
        for _ in range(2):
            await circuit.send(stage.destination.name, b"prompt")
        with pytest.raises(CircuitFailed, match="busy"):
            await circuit.request(stage.destination.name, b"prompt", SECONDS)
        assert circuit.failure is None


async def test_a_closed_circuit_cancels_what_it_asked_for(tmp_path: Path) -> None:
    destination = Destination(pause=0.01)
    async with overlay_stage(tmp_path, answers=destination.answers) as stage:
        circuit = await stage.client.build(stage.path)
        await circuit.send(stage.destination.name, b"prompt")
        await until(lambda: destination.begun == 1)
        circuit.close()
        await until(lambda: destination.cancelled == 1)
        assert len(stage.relays[2].switch.deliveries) == 0


async def test_a_destination_that_breaks_off_is_told(tmp_path: Path) -> None:
    destination = Destination(pause=0.01)
    async with overlay_stage(tmp_path, answers=destination.answers) as stage:
        circuit = await stage.client.build(stage.path)
        exchange = await circuit.send(stage.destination.name, b"prompt")
        await until(lambda: destination.begun == 1)
        await stage.server.stop()
        with pytest.raises(CircuitFailed, match="unreachable"):
            await exchange.answer()
        assert circuit.failure is None


async def test_a_middle_relay_cannot_answer_in_the_proxys_place(tmp_path: Path) -> None:
    async with overlay_stage(tmp_path, answers=Destination(pause=0.01).answers) as stage:
        circuit = await stage.client.build(stage.path)
        await circuit.send(stage.destination.name, b"prompt")
        middle = stage.relays[1].switch
        content = (1).to_bytes(4, "big") + b"\x07" + (2).to_bytes(4, "big") + b"no"
        middle.tell(next(iter(middle.circuits)), Parcel(ParcelKind.DATA, content))
        middle.batch_ended()
        await until(lambda: circuit.failure is not None)
        assert circuit.failure is not None
        assert circuit.failure.hop == "middle"


async def test_an_exchange_belongs_to_one_destination(tmp_path: Path) -> None:
    async with overlay_stage(tmp_path, answers=Destination(pause=0.01).answers) as stage:
        circuit = await stage.client.build(stage.path)
        await circuit.send(stage.destination.name, b"prompt")
        deliveries = stage.relays[2].switch.deliveries
        await until(lambda: len(deliveries) == 1)
        stranger = type(next(iter(deliveries._exchanges.values())).connection)(deliveries, 100)
        exchange = next(iter(deliveries._exchanges))
        stranger.data_received(b"\x02" + exchange + (2).to_bytes(4, "big") + b"no")
        assert len(deliveries) == 1


async def test_a_peer_of_another_version_is_let_in_nowhere(tmp_path: Path) -> None:
    async with overlay_stage(tmp_path) as stage:
        place = stage.path[0].place
        context = link_client_context(place.tls_key_hash, "troth-cells/2")
        reader, writer = await asyncio.open_connection(place.host, place.port, ssl=context, server_hostname="")
        async with asyncio.timeout(SECONDS):
            with contextlib.suppress(ssl.SSLError, ConnectionError):
                assert await reader.read() == b""
        assert not stage.relays[0].listener.links
        writer.transport.abort()


async def _deliverer(stage) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    place = stage.destination
    context = link_client_context(place.tls_key_hash, "troth-delivery/1")
    return await asyncio.open_connection(place.host, place.port, ssl=context, server_hostname="")


async def test_refusals_that_a_proxy_does_not_read_do_not_pile_up(tmp_path: Path) -> None:
    async with overlay_stage(tmp_path) as stage:
        reader, writer = await _deliverer(stage)
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        # Frames that only a destination sends: each is refused.
        junk = (b"\x01" + bytes(20)) * 10_000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                for _ in range(200):
                    writer.write(junk)
                    await writer.drain()
        proxy = next(iter(stage.server.open))
        assert proxy._transport is not None
        assert proxy._transport.get_write_buffer_size() < 2**21
        writer.transport.abort()


async def test_connections_that_bring_nothing_keep_no_proxy_out(tmp_path: Path) -> None:
    async with overlay_stage(tmp_path) as stage:
        stage.server.limit = 2
        silent = [await _deliverer(stage) for _ in range(2)]
        circuit = await stage.client.build(stage.path)
        assert await circuit.request(stage.destination.name, b"prompt", SECONDS)
        for _, writer in silent:
            writer.transport.abort()
