"""The last hop of a circuit: puts messages together, hands them to their destination, cuts answers into cells."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from troth.overlay.cells.format import EndReason
from troth.overlay.cells.messages import (
    CellMessage,
    Parcel,
    ParcelKind,
    Reassembly,
    ReceiveWindow,
    SendWindow,
    fragments,
)
from troth.overlay.relay.circuit import RelayCircuit, Relaying
from troth.overlay.relay.deliveries import Deliveries


class Delivering(Relaying, Protocol):
    """A relay that hands messages to destinations."""

    delivers: bool
    deliveries: Deliveries
    message_bytes: int


class ProxySide:
    """Messages of one circuit."""

    def __init__(self, switch: Delivering, circuit: RelayCircuit) -> None:
        limits = switch.limits
        self._switch = switch
        self._circuit = circuit
        self.reassembly = Reassembly(named=True, largest=limits.message_bytes, open_messages=limits.open_messages)
        self._receive = ReceiveWindow()
        self._send = SendWindow()
        self._answers: deque[tuple[int, Iterator[tuple[int, bytes]]]] = deque()
        self._answer_bytes = 0
        self._exchanges: dict[int, bytes] = {}
        self._starting: dict[int, asyncio.Task[None]] = {}

    @property
    def busy(self) -> bool:
        """Whether an answer is still expected or under way."""
        return bool(self._exchanges or self._starting or self._answers)

    def heard(self, parcel: Parcel) -> None:
        """DATA or CREDIT; raises CellRefused: end the circuit."""
        if parcel.kind is ParcelKind.CREDIT:
            self._send.credited(parcel.content)
            self._pump()
            return
        credit = self._receive.received()
        if credit is not None:
            self._switch.tell(self._circuit, Parcel(ParcelKind.CREDIT, credit))
            if self._circuit.layer is None:
                return
        before = self.reassembly.held
        message = self.reassembly.add(parcel.content, asyncio.get_running_loop().time())
        self._switch.message_bytes += self.reassembly.held - before
        if message is not None:
            self._begin(message)
        elif self._switch.message_bytes > self._switch.limits.messages_bytes:
            self._switch.close(self._oldest_message(), EndReason.EVICTED)

    def _oldest_message(self) -> RelayCircuit:
        begun = {
            circuit: circuit.proxy.reassembly.oldest()
            for circuit in self._switch.circuits
            if circuit.proxy is not None and circuit.proxy.reassembly.held
        }
        return min(begun, key=begun.__getitem__)

    def _begin(self, message: CellMessage) -> None:
        place = self._switch.directory.destinations.get(message.destination)
        waiting = len(self._exchanges) + len(self._starting)
        if place is None or not self._switch.delivers:
            self._failed(message.number, EndReason.UNKNOWN_RELAY)
        elif (
            waiting >= self._switch.limits.exchanges_per_circuit
            or message.number in self._exchanges
            or message.number in self._starting
        ):
            self._failed(message.number, EndReason.BUSY)
        elif not self._switch.deliveries.begin_now(place, message, self):
            task = asyncio.create_task(self._switch.deliveries.begin(place, message, self))
            self._starting[message.number] = task
            task.add_done_callback(lambda _: self._starting.pop(message.number, None))

    # -- what deliveries tell --------------------------------------------------------------------------------------

    def begun(self, number: int, exchange: bytes) -> None:
        """The message is on its way."""
        self._exchanges[number] = exchange
        self._switch.metrics.messages.labels("delivered").inc()

    def answered(self, number: int, content: bytes, *, final: bool) -> None:
        """An answer came from the destination."""
        if final:
            self._exchanges.pop(number, None)
        self._answer_bytes += len(content)
        if self._answer_bytes > self._switch.limits.reply_bytes:
            self._switch.close(self._circuit, EndReason.QUOTA)
            return
        self._answers.append((len(content), fragments(CellMessage(number, content, final=final))))
        self._pump()

    def failed(self, number: int, reason: EndReason) -> None:
        """The destination cannot be reached, or broke off."""
        self._exchanges.pop(number, None)
        self._failed(number, reason)

    def _failed(self, number: int, reason: EndReason) -> None:
        self._switch.metrics.messages.labels(reason.name.lower()).inc()
        if self._circuit.layer is not None:
            self._switch.tell(self._circuit, Parcel(ParcelKind.FAILED, number.to_bytes(4, "big") + bytes((reason,))))

    def _pump(self) -> None:
        """Send as many cells of waiting answers as the window allows, in the order the answers came."""
        while self._answers and self._send.left and self._circuit.layer is not None:
            length, cells = self._answers[0]
            following = next(cells, None)
            if following is None:
                self._answers.popleft()
                self._answer_bytes -= length
                continue
            size, content = following
            self._send.take()
            self._switch.tell(self._circuit, Parcel(ParcelKind.DATA, content), size)

    def close(self) -> None:
        """The circuit is over: nothing is delivered or awaited any more."""
        self._switch.message_bytes -= self.reassembly.held
        for task in self._starting.values():
            task.cancel()
        for exchange in self._exchanges.values():
            self._switch.deliveries.cancel(exchange)
        self._exchanges.clear()
        self._answers.clear()
