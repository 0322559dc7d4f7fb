"""Troth's client over three real relay processes: set-ups, requests, pings, loads."""

from __future__ import annotations

import asyncio
import time

from support.relay_network import ANSWER_BYTES, RelayNetwork

from troth.overlay.cells.messages import DESTINATION, CellMessage, fragments
from troth.overlay.circuits.circuit import Circuit
from troth.overlay.circuits.client import CircuitClient


class TrothPeer:
    """A path of three relays, with an echo behind the last one. Made by `connected`."""

    name = "Troth"

    def __init__(self, network: RelayNetwork, client: CircuitClient, circuit: Circuit) -> None:
        self._network = network
        self._client = client
        self._circuit = circuit

    @classmethod
    async def connected(cls, network: RelayNetwork) -> TrothPeer:
        """A client with its first circuit."""
        client = CircuitClient()
        return cls(network, client, await client.build(network.path))

    async def set_up(self) -> float:
        """Milliseconds until another circuit over the same relays is built; their links are open."""
        begun = time.perf_counter()
        circuit = await self._client.build(self._network.path)
        taken = time.perf_counter() - begun
        circuit.close()
        return taken * 1e3

    async def first_set_up(self) -> float:
        """The same by a new client, with TLS to its guard."""
        client = CircuitClient()
        begun = time.perf_counter()
        await client.build(self._network.path)
        taken = time.perf_counter() - begun
        await client.close()
        return taken * 1e3

    async def request(self, message: bytes) -> float:
        """Milliseconds until the answer is back."""
        begun = time.perf_counter()
        answer = await self._circuit.request(self._network.destination.name, message)
        taken = time.perf_counter() - begun
        assert answer == message[:ANSWER_BYTES]
        return taken * 1e3

    async def ping(self, hop: int) -> float:
        """Milliseconds until a hop has answered: one small cell there and back."""
        begun = time.perf_counter()
        await self._circuit.ping(hop)
        return (time.perf_counter() - begun) * 1e3

    async def throughput(self, message: bytes, messages: int, at_once: int) -> list[float]:
        """MB of cells per second of CPU at each relay of the path, under `at_once` circuits."""
        network, name = self._network, self._network.destination.name
        circuits = [await self._client.build(network.path) for _ in range(at_once)]
        before = [relay.cpu_seconds for relay in network.relays]
        for _ in range(messages // at_once):
            await asyncio.gather(*(circuit.request(name, message) for circuit in circuits))
        used = [relay.cpu_seconds - start for relay, start in zip(network.relays, before, strict=True)]
        moved = messages * sum(size for size, _ in fragments(CellMessage(1, message, bytes(DESTINATION)))) / 1e6
        return [moved / seconds for seconds in used]

    async def close(self) -> None:
        """Tear everything down."""
        await self._client.close()
