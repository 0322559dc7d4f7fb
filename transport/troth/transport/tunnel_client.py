"""The side of a node that nobody can connect to: it asks who came to the endpoint that it is lent, and fetches them.

All connections go outwards, to the TLS key of the lender that the chain names. Each visitor is joined to the node's own
server on this machine, byte by byte: the visitor's TLS ends there, and the lender reads nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection, connect

from troth.chain.duty import Duty
from troth.protocol.errors import ProtocolError
from troth.protocol.types import Address
from troth.protocol.wire_tunnel import VISITORS_LIMIT, Attend, Visited
from troth.transport.channel import Channel, ChannelPatience
from troth.transport.errors import OverlayError, RemoteFailure
from troth.transport.identity import Operator
from troth.transport.tls import pinned_context
from troth.transport.tunnel_server import BROKEN, PIECE, TUNNEL_PATH, first_ended

log = logging.getLogger(__name__)

QUESTION_SECONDS = 30.0
"""Longer than a lender leaves a question open; a line that is dead longer is replaced."""
REFUSED_PAUSE, BROKEN_PAUSE = 15.0, 1.0
ANSWERED_PAUSE, EMPTY_PAUSE = 0.02, 0.2
"""So that a lender that answers at once, and always, does not keep this machine busy."""
FETCH_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class Lender:
    """Who lends the endpoint, as the chain has it."""

    operator: Address
    endpoint: str
    tls_key_hash: bytes


class Tunnel:
    """Keeps a node reachable through a lender from ``start`` to ``close``.

    Args:
        lender: as it is on chain now; None where it is registered no more.
        host: on which the node's own server listens on this machine.
    """

    def __init__(self, operator: Operator, lender: Callable[[], Lender | None], host: str) -> None:
        self._operator = operator
        self._lender = lender
        self._place = host, 0
        self._lending: tuple[Lender, Channel] | None = None
        self._pause = REFUSED_PAUSE
        self._asking = Duty(
            "fetching visitors", self._turn, every=lambda: self._pause, retry=REFUSED_PAUSE, longest=REFUSED_PAUSE
        )
        self._session = time.time_ns() // 1000
        self._visits: set[asyncio.Task[None]] = set()
        self._patience = ChannelPatience(request=QUESTION_SECONDS, frame=64 * 1024)
        self._told = "the tunnel is not open yet"

    @property
    def trouble(self) -> str:
        """Why nobody comes through; empty where the tunnel is open."""
        failed = self._asking.trouble
        return f"the tunnel failed: {failed}" if failed else self._told

    @property
    def visits(self) -> int:
        """Visitors that are joined to the node now."""
        return len(self._visits)

    def start(self, port: int) -> None:
        """Have visitors joined to the server at ``port``."""
        self._place = self._place[0], port
        self._asking.start()

    async def close(self) -> None:
        """Fetch nobody any more, and let go of who is there."""
        await self._asking.stop()
        for visit in self._visits:
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)
        if self._lending is not None:
            await self._lending[1].close()

    async def _turn(self) -> None:
        lender, lending = self._lender(), self._lending
        if lending is not None and lending[0] != lender:
            self._lending = None
            await lending[1].close()
        if self._lending is None and lender is not None and (channel := self._channel_to(lender)) is not None:
            self._lending = lender, channel
        self._pause = await self._ask()

    def _channel_to(self, lender: Lender) -> Channel | None:
        try:
            return Channel(
                lender.endpoint,
                lender.tls_key_hash,
                self._operator,
                lender.operator,
                patience=self._patience,
                path=TUNNEL_PATH,
            )
        except OverlayError as error:
            self._say(str(error))
            return None

    async def _ask(self) -> float:
        """One question; seconds until the next one."""
        if self._lending is None:
            self._say("the scheduler of the tunnel is not registered: troth node reach --tunnel, with another one")
            return REFUSED_PAUSE
        lender, channel = self._lending
        try:
            answer = (await channel.request(Attend(self._session))).header
        except RemoteFailure as error:
            self._say(f"the tunnel is refused: {error}")
            return REFUSED_PAUSE
        except (OverlayError, ProtocolError) as error:
            self._say(f"the tunnel is broken: {error}")
            return BROKEN_PAUSE
        if not isinstance(answer, Visited):
            self._say(f"{lender.endpoint} answers with {type(answer).__name__}")
            return REFUSED_PAUSE
        if self.trouble:
            log.info("reached through %s", lender.endpoint)
        self._told = ""
        for ticket in answer.tickets[: max(VISITORS_LIMIT - len(self._visits), 0)]:
            visit = asyncio.create_task(self._visit(lender, ticket))
            self._visits.add(visit)
            visit.add_done_callback(self._visits.discard)
        return ANSWERED_PAUSE if answer.tickets else EMPTY_PAUSE

    def _say(self, trouble: str) -> None:
        if trouble != self._told:
            log.warning("%s", trouble)
        self._told = trouble

    async def _visit(self, lender: Lender, ticket: bytes) -> None:
        """Fetch one visitor, and join it to the node's server."""
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                reader, writer = await asyncio.open_connection(*self._place, limit=PIECE)
                socket = await _fetched(lender, ticket)
            async with socket:
                await first_ended(_pass_on(socket, writer), _pass_back(reader, socket))
        except (*BROKEN, TimeoutError) as error:
            log.debug("a visitor was not fetched: %s", error)
        finally:
            if writer is not None:
                writer.close()


async def _fetched(lender: Lender, ticket: bytes) -> ClientConnection:
    return await connect(
        f"wss://{lender.endpoint.removeprefix('https://').rstrip('/')}{TUNNEL_PATH}/{ticket.hex()}",
        ssl=pinned_context(lender.tls_key_hash),
        compression=None,
        max_size=PIECE,
        max_queue=2,
        open_timeout=FETCH_SECONDS,
        proxy=None,
    )


async def _pass_on(socket: ClientConnection, writer: asyncio.StreamWriter) -> None:
    async for piece in socket:
        if not isinstance(piece, bytes):
            raise ConnectionResetError("text came through the tunnel, where there are bytes")
        writer.write(piece)
        await writer.drain()


async def _pass_back(reader: asyncio.StreamReader, socket: ClientConnection) -> None:
    while piece := await reader.read(PIECE):
        await socket.send(piece)
