"""Tor's client: circuits by its control port, requests and loads through its SOCKS port."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.relay_network import ANSWER_BYTES, start_python, wait_for

from research.tor.echo import framed
from research.tor.network import TorNetwork, tor_network
from troth.overlay.circuits.descriptors import PinnedAddress
from troth.testnet.ports import free_port

CELL, CELL_CONTENT = 514, 498
"""Bytes of a cell on a link, and of a stream in it."""
_GREETING = bytes((5, 1, 0))
_SECONDS = 60.0


class TorPeer:
    """A path of three relays, with an echo behind the last one."""

    def __init__(self, network: TorNetwork, target: int) -> None:
        self.name = network.name
        self._network = network
        self._target = target
        self._stream = self._open()

    async def set_up(self) -> float:
        """Milliseconds until another circuit over the same relays is built; their links are open."""
        control = self._network.control
        begun = time.perf_counter()
        circuit = control.build(self._network.path)
        taken = time.perf_counter() - begun
        control.close_circuit(circuit)
        return taken * 1e3

    async def request(self, message: bytes) -> float:
        """Milliseconds until the answer is back, on a stream that is open. Blocks: nothing else is measured now."""
        begun = time.perf_counter()
        _exchange(self._stream, message)
        return (time.perf_counter() - begun) * 1e3

    async def throughput(self, message: bytes, messages: int, at_once: int) -> list[float]:
        """MB of cells per second of CPU at each relay of the path, under `at_once` circuits."""
        streams = [self._open() for _ in range(at_once)]
        before = self._network.cpu_seconds
        for _ in range(messages // at_once):
            await asyncio.gather(*(asyncio.to_thread(_exchange, stream, message) for stream in streams))
        used = [after - start for after, start in zip(self._network.cpu_seconds, before, strict=True)]
        for stream in streams:
            stream.close()
        moved = messages * -(-len(message) // CELL_CONTENT) * CELL / 1e6
        return [moved / seconds for seconds in used]

    def _open(self) -> socket.socket:
        """A stream to the echo on a circuit of its own (SOCKS 5, RFC 1928)."""
        control = self._network.control
        circuit = control.build(self._network.path)
        stream = socket.create_connection(("127.0.0.1", self._network.socks_port), _SECONDS)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.sendall(_GREETING)
        _read(stream, 2)
        stream.sendall(bytes((5, 1, 0, 1, 127, 0, 0, 1)) + self._target.to_bytes(2, "big"))
        control.attach(self._target, circuit)
        reply = _read(stream, 10)
        if reply[1]:
            raise ConnectionError(f"Tor's exit does not connect: SOCKS reply {reply[1]}")
        return stream


@contextmanager
def tor_peer(folder: Path) -> Iterator[TorPeer]:
    """Tor's network with an echoing process; takes about a minute to begin."""
    target = free_port()
    echo = start_python("-c", "from research.tor.echo import serve; serve()", str(target))
    try:
        wait_for(PinnedAddress("127.0.0.1", target, bytes(32)), [echo])
        with tor_network(folder) as network:
            yield TorPeer(network, target)
    finally:
        echo.kill()
        echo.wait()


def _exchange(stream: socket.socket, message: bytes) -> None:
    stream.sendall(framed(message))
    assert _read(stream, min(len(message), ANSWER_BYTES)) == message[:ANSWER_BYTES]


def _read(stream: socket.socket, length: int) -> bytes:
    held = b""
    while len(held) < length:
        data = stream.recv(length - len(held))
        if not data:
            raise ConnectionError("Tor closed a stream")
        held += data
    return held
