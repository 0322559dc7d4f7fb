"""Choosing paths among 10,000 relays (docs/explanation/paths.md)."""

from __future__ import annotations

from benchmarks.figures import Figure, median_milliseconds
from troth.overlay.circuits.descriptors import PinnedAddress, RelayDescriptor
from troth.overlay.directory.listing import ListedRelay
from troth.overlay.paths.choice import Crowd, choose

RELAYS = 10_000
_NOW = 1_800_000_000


def measure() -> list[Figure]:
    """Medians on one thread of this machine."""
    relays = [_relay(number) for number in range(RELAYS)]
    crowd, guards = Crowd(relays, _NOW), [listed.relay for listed in relays[:8]]
    return [
        Figure(
            "choose 4 disjoint paths of 3 among 10,000 relays",
            median_milliseconds(lambda: choose(crowd, guards, 4)),
            "ms",
            reach=5,
        ),
        Figure(
            "prepare a list of 10,000 relays for that",
            median_milliseconds(lambda: Crowd(relays, _NOW), repeats=20, warm_up=2),
            "ms",
            note="once per list",
        ),
    ]


def _relay(number: int) -> ListedRelay:
    place = PinnedAddress(f"{1 + number % 200}.{number // 200}.0.1", 9_000, number.to_bytes(32, "big"))
    bandwidth = 100 + number * 7_919 % 10_000
    return ListedRelay(
        RelayDescriptor(place, bytes(32), f"0x{number % 3_000:040x}"), "", bandwidth, _NOW - number * 600
    )
