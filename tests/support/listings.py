"""Lists of relays that nobody runs, for choices that are pure."""

from __future__ import annotations

from collections.abc import Iterable

from troth.overlay.circuits.descriptors import PinnedAddress, RelayDescriptor
from troth.overlay.directory.listing import ListedRelay, Listing

NOW = 1_800_000_000
DAY = 86_400


def listed(
    number: int, *, host: str = "", operator: str | None = None, bandwidth: int = 1_000, age: int = 30 * DAY, region=""
) -> ListedRelay:
    """Relay `number`; alone in its network and with its operator unless told otherwise."""
    place = PinnedAddress(host or f"{1 + number // 250}.{number % 250}.0.1", 9_000, number.to_bytes(32, "big"))
    runs = f"0x{number:040x}" if operator is None else operator
    return ListedRelay(RelayDescriptor(place, bytes(32), runs), region, bandwidth, NOW - age)


def listing(relays: Iterable[ListedRelay], *, at: int = NOW) -> Listing:
    """A list that is valid for three hours from `at`."""
    return Listing(at, at + 3 * 3_600, tuple(relays), ())


def shares_nothing(paths: Iterable[Iterable[RelayDescriptor]]) -> bool:
    """Whether all these relays differ in name, operator and network, said without the code that is tested."""
    relays = [relay for path in paths for relay in path]
    networks = {".".join(relay.place.host.split(".")[:2]) for relay in relays}
    operators = {relay.operator.lower() for relay in relays}
    return len({relay.name for relay in relays}) == len(networks) == len(operators) == len(relays)
