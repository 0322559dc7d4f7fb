"""A client's process. It reads one order in JSON from its standard input, asks, and prints the answer in JSON.

Ways to ask: "session" is the product's. The others are what the test must be able to notice: "unsealed" hands the
prompt to two proxies as it is, "direct" goes to the destination without the overlay and without TLS.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from troth.overlay.circuits.circuit import Circuit
from troth.overlay.circuits.client import CircuitClient
from troth.overlay.circuits.descriptors import PinnedAddress, RelayDescriptor
from troth.overlay.directory.listing import ListedDestination
from troth.overlay.sessions.messages import HttpRequest
from troth.overlay.sessions.session import opened
from troth.transport.errors import CircuitFailed


class GivenCircuits:
    """Circuits over the paths that the order names, in this order."""

    def __init__(self, client: CircuitClient, paths: list[list[RelayDescriptor]]) -> None:
        self._client = client
        self._paths = iter(paths)

    async def take(self, count: int, seconds: float) -> list[Circuit]:
        return [await self._client.build(next(self._paths), seconds) for _ in range(count)]

    async def replace(self, failed: Circuit, seconds: float) -> Circuit:
        raise CircuitFailed("path", 0, "the order names no other path") from failed.failure

    def release(self, circuit: Circuit) -> None:
        circuit.close()


async def over_a_session(order: dict[str, Any], client: CircuitClient) -> str:
    """The body of the answer."""
    circuits = GivenCircuits(client, _paths(order))
    listed = ListedDestination(_place(order["destination"]), bytes.fromhex(order["seal_key"]), "", "scheduler", 0, b"")
    session = await opened(circuits, listed)
    response = await session.request(HttpRequest("POST", order["target"], (), order["prompt"].encode()))
    body = b"".join([piece async for piece in response.body])
    await session.close()
    return body.decode()


async def unsealed(order: dict[str, Any], client: CircuitClient) -> str:
    """The same message through two circuits, readable for their proxies."""
    name = _place(order["destination"]).name
    for path in _paths(order)[:2]:
        circuit = await client.build(path)
        await circuit.request(name, order["prompt"].encode())
    return ""


async def direct(order: dict[str, Any], _: CircuitClient) -> str:
    """What the destination makes of it does not matter."""
    place = _place(order["destination"])
    _, writer = await asyncio.open_connection(place.host, place.port)
    writer.write(order["prompt"].encode())
    await writer.drain()
    writer.close()
    return ""


WAYS = {"session": over_a_session, "unsealed": unsealed, "direct": direct}


async def ask(order: dict[str, Any]) -> str:
    """Carry the order out."""
    client = CircuitClient()
    try:
        return await WAYS[order["way"]](order, client)
    finally:
        await client.close()


def _paths(order: dict[str, Any]) -> list[list[RelayDescriptor]]:
    return [
        [RelayDescriptor(_place(relay), bytes.fromhex(relay["handshake_key"])) for relay in path]
        for path in order["paths"]
    ]


def _place(entry: dict[str, Any]) -> PinnedAddress:
    return PinnedAddress(entry["host"], entry["port"], bytes.fromhex(entry["name"]))


def main() -> None:
    """See the module."""
    order = json.loads(sys.stdin.readline())
    print(json.dumps({"answer": asyncio.run(ask(order))}), flush=True)
