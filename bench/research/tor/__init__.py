"""Circuits of three relays beside Tor's and beside bare TLS, all in one run and in turns, on loopback.

In turns, since a shared machine is never twice the same: each round asks each of them for a few samples.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import uvloop
from benchmarks.figures import Figure
from support.relay_network import ANSWER_BYTES, RelayNetwork, relay_network

from research.tor.circuits import TrothPeer
from research.tor.floor import FloorCaller, tls_chain
from research.tor.network import INSTALL, tor_version
from research.tor.peer import TorPeer, tor_peer
from troth.overlay.circuits.descriptors import PinnedAddress

LINKS = 4
"""Client to guard, middle, proxy, destination."""
ROUNDS, EACH = 40, 10
SMALL, LARGE = 2000, 30_000
LOAD, LOADS, AT_ONCE = 900_000, 100, 4
SET_UP_REACH, THROUGHPUT_REACH = 12.0, 180.0
TIMES_TOR = 2.0
"""What a request may take, in Tor's."""

_Sample = Callable[[], Awaitable[float]]


def measure() -> list[Figure]:
    """Set-ups, requests, throughput; the peer's column is empty where there is no tor."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="troth-bench-")))
        network = stack.enter_context(relay_network(folder))
        chain = stack.enter_context(tls_chain(folder, LINKS))
        tor = stack.enter_context(tor_peer(folder / "tor")) if tor_version() else None
        return uvloop.run(_figures(network, chain, tor))


async def _figures(network: RelayNetwork, chain: PinnedAddress, tor: TorPeer | None) -> list[Figure]:
    troth, floor = await TrothPeer.connected(network), await FloorCaller.connected(chain)
    figures = await _set_ups(troth, tor)
    for length in (SMALL, LARGE):
        figures += await _requests(troth, floor, tor, os.urandom(length))
    third, first = await _in_turns([lambda: troth.ping(3), lambda: troth.ping(1)], ROUNDS, EACH)
    figures += [
        *_row("of which: small cell to the third hop and back", third),
        *_row("of which: small cell to the first hop and back", first),
    ]
    figures += await _throughput(troth, tor)
    await troth.close()
    floor.close()
    return figures


async def _set_ups(troth: TrothPeer, tor: TorPeer | None) -> list[Figure]:
    actions: list[_Sample] = [troth.set_up, *([tor.set_up] if tor else [])]
    samples = await _in_turns(actions, ROUNDS, 2)
    (cold,) = await _in_turns([troth.first_set_up], 1, 10)
    return [
        *_row("circuit set-up, 3 hops, links open", samples[0], _peer(samples, tor), SET_UP_REACH, tor),
        *_row("the same, with TLS to the guard", cold, reach=SET_UP_REACH),
    ]


async def _requests(troth: TrothPeer, floor: FloorCaller, tor: TorPeer | None, message: bytes) -> list[Figure]:
    actions: list[_Sample] = [lambda: troth.request(message), lambda: floor.request(message)]
    if tor is not None:
        actions.append(lambda: tor.request(message))
    samples = await _in_turns(actions, ROUNDS, EACH)
    peer = _peer(samples, tor)
    reach = TIMES_TOR * statistics.median(peer) if peer else None
    kilobytes = f"{len(message) // 1000} kB, {ANSWER_BYTES // 1000} kB back"
    return [
        *_row(f"request of {kilobytes}, 3 hops", samples[0], peer, reach, tor),
        *_row(f"of which: bare TLS over {LINKS} links, {kilobytes}", samples[1]),
    ]


async def _throughput(troth: TrothPeer, tor: TorPeer | None) -> list[Figure]:
    message = os.urandom(LOAD)
    ours = await troth.throughput(message, LOADS, AT_ONCE)
    peers = await tor.throughput(message, LOADS, AT_ONCE) if tor else [None] * len(ours)
    return [
        Figure(
            f"relay throughput per core, {place}", value, "MB/s", peer, THROUGHPUT_REACH, "MB of cells per CPU second"
        )
        for place, value, peer in zip(("guard", "middle", "proxy"), ours, peers, strict=True)
    ]


def _peer(samples: Sequence[list[float]], tor: TorPeer | None) -> list[float]:
    return samples[-1] if tor else []


async def _in_turns(actions: Sequence[_Sample], rounds: int, each: int) -> list[list[float]]:
    """Samples of each action; the first of each turn only warms caches up."""
    samples: list[list[float]] = [[] for _ in actions]
    for _ in range(rounds):
        for action, taken in zip(actions, samples, strict=True):
            await action()
            taken += [await action() for _ in range(each)]
    return samples


def _row(
    name: str, ours: list[float], peer: Sequence[float] = (), reach: float | None = None, tor: TorPeer | None = None
) -> list[Figure]:
    """Median and 95th percentile, each beside the peer's."""
    note = f"best {min(ours):.2f}"
    if peer and tor is not None:
        note += f"; {tor.name}: best {min(peer):.2f}"
    elif reach is not None and tor_version() is None:
        note += f"; {INSTALL}"
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    return [
        Figure(f"{name}, p50", statistics.median(ours), "ms", statistics.median(peer) if peer else None, reach, note),
        Figure(f"{name}, p95", _p95(ours), "ms", _p95(peer) if peer else None, None, load),
    ]


def _p95(samples: Sequence[float]) -> float:
    return statistics.quantiles(samples, n=20)[-1]
