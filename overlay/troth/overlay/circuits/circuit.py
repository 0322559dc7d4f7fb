"""A client's circuit: set up hop by hop, used for messages, torn down; says which class of hop failed.

All state belongs to one event loop. A circuit that failed stays failed: every wait ends with the same CircuitFailed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from troth.overlay.cells import messages
from troth.overlay.cells.format import (
    SMALL,
    Cell,
    Command,
    EndReason,
    control_cell,
    destroy_cell,
    onion_headers,
    reason_of,
)
from troth.overlay.cells.messages import (
    CellMessage,
    Parcel,
    ParcelKind,
    Reassembly,
    ReceiveWindow,
    SendWindow,
    fragments,
)
from troth.overlay.cells.onion import Onion
from troth.overlay.circuits import blame
from troth.overlay.circuits.descriptors import RelayDescriptor
from troth.overlay.circuits.exchange import Exchange
from troth.overlay.circuits.handshake import ClientShare
from troth.overlay.circuits.link import Link
from troth.overlay.circuits.rotation import Rotation
from troth.transport.errors import (
    CellRefused,
    CellTampered,
    CircuitFailed,
    HandshakeRefused,
    MalformedCell,
    QuotaExceeded,
)

ANSWER_BYTES = 2**20
OPEN_ANSWERS = 16
UNREAD_BYTES = 16 * 2**20
"""Answers to one message that came and were not read; a proxy that sends more ends the circuit."""


class Circuit:
    """One path of relays. Made by `Client.build`; `path[0]` is the guard, `path[-1]` the proxy."""

    def __init__(
        self,
        link: Link,
        circuit_id: bytes,
        path: Sequence[RelayDescriptor],
        rotation: Rotation,
        on_end: Callable[[Circuit], None],
    ) -> None:
        self.path = tuple(path)
        self.link = link
        self.circuit_id = circuit_id
        self.failure: CircuitFailed | None = None
        self.ended = asyncio.Event()
        self.carried = 0
        self._on_end = on_end
        self._headers = onion_headers(circuit_id)
        self._onion = Onion()
        self._rotation = rotation.drawn()
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._reply: asyncio.Future[bytes] | None = None
        self._reassembly = Reassembly(named=False, largest=ANSWER_BYTES, open_messages=OPEN_ANSWERS)
        self._receive, self._send = ReceiveWindow(), SendWindow()
        self._room = asyncio.Event()
        self._exchanges: dict[int, Exchange] = {}
        self._pongs: dict[int, asyncio.Future[int]] = {}
        self._number = 0

    @property
    def due(self) -> bool:
        """Whether it has served long enough and is to be replaced."""
        return self._rotation.due(self._loop.time() - self._began, self.carried)

    @property
    def hops(self) -> int:
        """How many hops hold keys with this client."""
        return len(self._onion)

    # -- setting up ------------------------------------------------------------------------------------------------

    async def establish(self) -> None:
        """Agree on keys with each hop in turn; raises CircuitFailed naming the one that failed."""
        for relay in self.path:
            share = ClientShare.new(relay)
            self._reply = self._loop.create_future()
            if not len(self._onion):
                self.link.send(control_cell(Command.CREATE, self.circuit_id, share.request()))
            else:
                self._say(Parcel(ParcelKind.EXTEND, share.request()))
            self.link.flush()
            reply = await self._reply
            try:
                self._onion.add(share.finish(reply))
            except HandshakeRefused as error:
                position = len(self._onion) + 1
                raise self.fail(
                    CircuitFailed(blame.hop_class(position, len(self.path)), position, error.what)
                ) from error
        # Proves to the last hop that we hold its keys, and that it is the last one looks no different for the others.
        self.pad()

    # -- using -----------------------------------------------------------------------------------------------------

    async def send(self, destination: bytes, content: bytes) -> Exchange:
        """Send a message to the destination of that name (32 bytes); waits while the window is empty.

        Raises CircuitFailed.
        """
        self._number += 1
        number = self._number
        exchange = self._exchanges[number] = Exchange(number)
        for size, fragment in fragments(CellMessage(number, content, destination)):
            while not self._send.left or self.link.full:
                await self._wait_for_room()
            self._require_open()
            self._send.take()
            self._say(Parcel(ParcelKind.DATA, fragment), size=size)
        self.link.flush()
        return exchange

    async def request(self, destination: bytes, content: bytes, seconds: float = 60.0) -> bytes:
        """The first answer to a message; raises CircuitFailed, or CircuitSilent after `seconds`.

        A message that is cut short by the time limit while it waits for the window makes the proxy end the circuit.
        """
        try:
            async with asyncio.timeout(seconds):
                exchange = await self.send(destination, content)
                return (await exchange.answer()).content
        except TimeoutError:
            raise await self.silence(seconds, min(seconds, 5.0)) from None

    def pad(self, cells: int = 1, hop: int = 0) -> None:
        """Send cells that say nothing to a hop (0: the last one), as cover."""
        self._require_open()
        for _ in range(cells):
            self._say(Parcel(ParcelKind.PADDING), hop=hop)
        self.link.flush()

    async def ping(self, hop: int) -> None:
        """Wait until hop number `hop` has answered; raises CircuitFailed.

        One ping to a hop is under way at a time: whoever asks meanwhile, or again after giving up, waits for its
        answer.
        """
        self._require_open()
        pong = self._pongs.get(hop)
        if pong is None:
            pong = self._pongs[hop] = self._loop.create_future()
            self._say(Parcel(ParcelKind.PING, hop.to_bytes(4, "big")), hop=hop)
            self.link.flush()
        if await asyncio.shield(pong) != hop:
            raise self.fail(blame.false_layer(hop, len(self.path)))

    async def silence(self, waited: float, seconds: float) -> CircuitFailed:
        """Ping each hop to find the first that does not answer; the failure is returned, and the circuit closed.

        If all of them answer, the destination is silent (or the proxy swallows its answers): the circuit stays open.
        """
        alive = 0
        try:
            # The first that stays silent ends the search: it comes after the last one alive.
            with suppress(TimeoutError):
                for hop in range(1, len(self._onion) + 1):
                    async with asyncio.timeout(seconds):
                        await self.ping(hop)
                    alive = hop
        except CircuitFailed as failure:
            return failure
        found = blame.silent(alive, waited, len(self.path))
        return found if alive == len(self.path) else self.fail(found)

    def close(self) -> None:
        """Tear down: every hop forgets its keys. Closing twice is allowed."""
        if self.failure is None:
            self.fail(CircuitFailed("client", 0, "it was closed by this client", "Build another circuit."))

    def _require_open(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def _wait_for_room(self) -> None:
        self._require_open()
        self.link.flush()
        self._room.clear()
        await self._room.wait()

    def _say(self, parcel: Parcel, *, hop: int = 0, size: int = SMALL) -> None:
        body = self._onion.seal(messages.encode(parcel, size), hop)
        self.carried += size
        self.link.send(self._headers[size] + body)

    # -- what comes back -------------------------------------------------------------------------------------------

    def cell_came(self, cell: Cell) -> None:
        """A cell with this circuit's id came from the guard."""
        if self.failure is not None:
            return
        self.carried += cell.size
        try:
            self._came(cell)
        except CellTampered as error:
            self.fail(blame.false_layer(error.layer, len(self.path)))
        except CellRefused as error:
            length = len(self.path)
            self.fail(CircuitFailed(blame.hop_class(length, length), length, error.what))

    def _came(self, cell: Cell) -> None:
        if cell.command is Command.ONION and len(self._onion):
            hop, payload = self._onion.peel(cell.body)
            self._heard(hop, messages.decode(payload))
        elif cell.command is Command.CREATED and not len(self._onion):
            self._answer_setup(cell.body)
        elif cell.command is Command.DESTROY:
            self.fail(blame.guard_ended(reason_of(cell.body[0]), len(self.path)), tell=False)
        else:
            self.fail(blame.guard_ended(EndReason.PROTOCOL, len(self.path)))

    def _heard(self, hop: int, parcel: Parcel) -> None:
        """A parcel that hop number `hop` said, as its layer proves."""
        if parcel.kind is ParcelKind.BROKEN:
            self.fail(blame.claimed(hop, reason_of(parcel.content[0] if parcel.content else 1), len(self.path)))
        elif parcel.kind is ParcelKind.PONG:
            self._ponged(hop, parcel.content)
        elif parcel.kind is ParcelKind.PADDING:
            return
        elif hop != len(self._onion):
            raise CellTampered(hop)
        elif parcel.kind is ParcelKind.DATA:
            self._data(parcel.content)
        elif parcel.kind is ParcelKind.CREDIT:
            self._send.credited(parcel.content)
            self._room.set()
        elif parcel.kind is ParcelKind.EXTENDED:
            self._answer_setup(parcel.content)
        elif parcel.kind is ParcelKind.FAILED:
            self._message_failed(parcel.content)
        else:
            raise MalformedCell("A relay does not say this", parcel.kind.name)

    def _answer_setup(self, reply: bytes) -> None:
        if self._reply is None or self._reply.done():
            raise MalformedCell("An answer to a set-up that nobody asked for")
        self._reply.set_result(reply)

    def _ponged(self, hop: int, content: bytes) -> None:
        pong = self._pongs.pop(hop, None)
        if pong is None or content != hop.to_bytes(4, "big"):
            raise CellTampered(hop)
        if not pong.done():
            pong.set_result(hop)

    def _data(self, content: bytes) -> None:
        credit = self._receive.received()
        if credit is not None:
            self._say(Parcel(ParcelKind.CREDIT, credit))
        message = self._reassembly.add(content, self._loop.time())
        if message is None:
            return
        exchange = self._exchanges.get(message.number)
        if exchange is None:
            raise MalformedCell("An answer to a message that was never sent", message.number)
        if message.final:
            del self._exchanges[message.number]
        exchange.came(message)
        if exchange.unread > UNREAD_BYTES:
            raise QuotaExceeded("A proxy sends more than is read", exchange.unread)

    def _message_failed(self, content: bytes) -> None:
        exchange = self._exchanges.pop(int.from_bytes(content[:4], "big"), None)
        if len(content) != 5 or exchange is None:
            raise MalformedCell("A failure of a message that was never sent")
        reason = reason_of(content[4])
        exchange.failed(
            CircuitFailed("destination", 0, f"the proxy could not deliver: {reason.name.lower()}", "Try another proxy.")
        )

    # -- the end ---------------------------------------------------------------------------------------------------

    def fail(self, failure: CircuitFailed, *, tell: bool = True) -> CircuitFailed:
        """End with this failure unless it ended before; returns what it ended with."""
        if self.failure is not None:
            return self.failure
        self.failure = failure
        self.ended.set()
        self._onion.forget()
        if tell and self.link.open:
            self.link.send(destroy_cell(self.circuit_id, EndReason.FINISHED))
            self.link.flush()
        waiting = [self._reply, *self._pongs.values()]
        for future in waiting:
            if future is not None and not future.done():
                future.set_exception(failure)
                # Nobody may be waiting any more.
                future.exception()
        for exchange in self._exchanges.values():
            exchange.failed(failure)
        self._exchanges.clear()
        self._room.set()
        self._on_end(self)
        return failure

    def link_ready(self) -> None:
        """The guard's link takes cells again."""
        self._room.set()
