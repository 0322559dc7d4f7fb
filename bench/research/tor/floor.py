"""The least that a path costs on this platform: TLS 1.3 and uvloop in Python processes that only hand bytes on.

As many links and processes as a request through three relays has; no cells, no layers, no set-up.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar, cast

from support.relay_network import ANSWER_BYTES, start_python, wait_for

from research.tor.echo import Echo, Pipe, framed
from troth.overlay.circuits.descriptors import PinnedAddress
from troth.testnet.ports import free_port
from troth.transport.identity import create_identity, load_identity
from troth.transport.tls import pinned_context, server_context

_Protocol = TypeVar("_Protocol", bound=asyncio.BaseProtocol)
_SERVE = "from research.tor.floor import serve; serve()"


@contextmanager
def tls_chain(folder: Path, links: int) -> Iterator[PinnedAddress]:
    """The first of `links` processes in a row, the last of which echoes."""
    with ExitStack() as stack:
        following: PinnedAddress | None = None
        for number in range(links):
            home = folder / f"link{number}"
            place = PinnedAddress("127.0.0.1", free_port(), create_identity(home).spki_sha256)
            on = [] if following is None else [str(following.port), following.name.hex()]
            process = start_python("-c", _SERVE, str(home), str(place.port), *on)
            stack.callback(process.wait)
            stack.callback(process.kill)
            wait_for(place, [process])
            following = place
        assert following is not None
        yield following


class FloorCaller(asyncio.Protocol):
    """The near end of a chain."""

    @classmethod
    async def connected(cls, place: PinnedAddress) -> FloorCaller:
        """A caller whose chain is open to its last link."""
        _, caller = await _dial(cls, place)
        await caller.request(bytes(ANSWER_BYTES))
        return caller

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._left = 0

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if not self._left:
            self._answered.set_result(None)

    async def request(self, message: bytes) -> float:
        """Milliseconds until the whole answer is back; the message has ANSWER_BYTES or more."""
        self._answered = asyncio.get_running_loop().create_future()
        self._left = ANSWER_BYTES
        begun = time.perf_counter()
        self._transport.write(framed(message))
        await self._answered
        return (time.perf_counter() - begun) * 1e3

    def close(self) -> None:
        """End the chain's connections."""
        self._transport.close()


class _Forwarder(asyncio.Protocol):
    """One accepted connection and the one to the next process."""

    def __init__(self, following: PinnedAddress) -> None:
        self._following = following
        self._early: list[bytes] = []
        self._next: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        self._next, _ = await _dial(lambda: Pipe(lambda: self._transport), self._following)
        self._next.writelines(self._early)

    def data_received(self, data: bytes) -> None:
        if self._next is None:
            self._early.append(data)
        else:
            self._next.write(data)


async def _dial(protocol: Callable[[], _Protocol], place: PinnedAddress) -> tuple[asyncio.Transport, _Protocol]:
    return await asyncio.get_running_loop().create_connection(
        protocol, place.host, place.port, ssl=pinned_context(place.tls_key_hash), server_hostname=""
    )


def serve() -> None:
    """One process of a chain: its arguments are the folder of its TLS key, its port, the next one's port and key."""
    import uvloop

    following = PinnedAddress("127.0.0.1", int(sys.argv[3]), bytes.fromhex(sys.argv[4])) if len(sys.argv) > 3 else None

    async def run() -> None:
        context = server_context(load_identity(Path(sys.argv[1])))
        protocol = Echo if following is None else lambda: _Forwarder(following)
        await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", int(sys.argv[2]), ssl=context)
        await asyncio.Event().wait()

    uvloop.run(run())
