"""What layers cost in one thread: the client's whole send, a relay's work on one cell, bytes on the wire."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from benchmarks.figures import Figure
from troth.overlay.cells import messages
from troth.overlay.cells.format import LARGE, SMALL, STACK, onion_headers
from troth.overlay.cells.messages import BODY_OVERHEAD, DESTINATION, CellMessage, Parcel, ParcelKind, fragments
from troth.overlay.cells.onion import KEY, HopKeys, Onion, RelayLayer
from troth.overlay.circuits.link import Link
from troth.overlay.sida import Threshold

HOPS = 3
PROMPT = secrets.token_bytes(30_000)
CLOVE_BYTES = Threshold(4, 3).clove_bytes(len(PROMPT))
BATCH = 300


class _Nowhere:
    """A transport that takes everything."""

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        pass


def measure() -> list[Figure]:
    """Best of a few rounds of CPU time: other work on the machine only adds."""
    return [
        _send(),
        _bare_send(),
        *(_relay(size, forward=forward) for size in (LARGE, SMALL) for forward in (True, False)),
        _wire(),
    ]


def _keys() -> HopKeys:
    return HopKeys(*(secrets.token_bytes(KEY) for _ in range(4)))


def _send() -> Figure:
    onion, headers = Onion(), onion_headers(bytes(8))
    for _ in range(HOPS):
        onion.add(_keys())
    link = Link(None, dialed=True)  # type: ignore[arg-type]
    link._transport = _Nowhere()  # type: ignore[assignment]
    message = CellMessage(1, PROMPT, bytes(DESTINATION))

    def send() -> None:
        for size, fragment in fragments(message):
            link.send(headers[size] + onion.seal(messages.encode(Parcel(ParcelKind.DATA, fragment), size)))
        link.flush()

    cells = sum(1 for _ in fragments(message))
    note = f"{cells} cells of {HOPS} layers, cut, sealed and joined for one write; TLS is not in it"
    return Figure("client's whole send, 30 kB, layers included", _cpu(send, 200), "µs of CPU", reach=100, note=note)


def _bare_send() -> Figure:
    """The AEAD calls of a whole send, and nothing else."""
    cipher, nonce, associated = AESGCM(secrets.token_bytes(KEY)), bytes(12), bytes(STACK)
    payloads = [bytes(size - BODY_OVERHEAD) for size, _ in fragments(CellMessage(1, PROMPT, bytes(DESTINATION)))] * HOPS

    def seal() -> None:
        for payload in payloads:
            cipher.encrypt(nonce, payload, associated)

    return Figure("of which: AES-256-GCM called bare", _cpu(seal, 200), "µs of CPU", note=f"{len(payloads)} calls")


def _relay(size: int, *, forward: bool) -> Figure:
    keys, headers = _keys(), onion_headers(bytes(8))
    onion, relay = Onion(), RelayLayer(keys)
    onion.add(keys)
    payload = messages.encode(Parcel(ParcelKind.PADDING), size)
    rounds = 5
    bodies = iter([onion.seal(payload) for _ in range(BATCH * rounds)] if forward else [])
    wrapped = b"".join(RelayLayer(_keys()).originate(payload))

    def work() -> None:
        for _ in range(BATCH):
            parts = relay.open(next(bodies)) if forward else relay.wrap(wrapped)
            b"".join((headers[size], *parts))

    microseconds = _cpu(work, rounds) / BATCH
    direction = "opened" if forward else "wrapped"
    note = f"{size / microseconds:,.0f} MB/s if layers were all"
    return Figure(f"a relay's layer, cell of {size} {direction}", microseconds, "µs of CPU", note=note)


def _wire() -> Figure:
    sizes = [size for size, _ in fragments(CellMessage(1, bytes(CLOVE_BYTES), bytes(DESTINATION)))]
    ratio = 4 * sum(sizes) / len(PROMPT)
    note = f"on each link: 4 cloves of {CLOVE_BYTES} bytes in {len(sizes)} cells each; prototype 5.35"
    return Figure("wire bytes over message bytes, 30 kB as (4, 3)", ratio, "", paper=5.35, reach=1.5, note=note)


def _cpu(action: Callable[[], None], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        begun = time.process_time_ns()
        action()
        best = min(best, time.process_time_ns() - begun)
    return best / 1e3
