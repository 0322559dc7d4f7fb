"""Paths that share no relay, no operator and no network: drawn by weight, searched where drawing got stuck.

One operator, or one who listens in one network, then sees at most one hop of all that a client uses at a time.

Relays that share neither operator nor network are a matching in the graph whose two sides are operators and networks
and whose edges are relays. So a maximum matching (augmenting paths: Kuhn 1955) decides it.

A relay says itself how much bandwidth it offers, so the word is worth at most four times what is usual: a lie cannot
buy traffic. A relay counts fully only after a week in the directory: a crowd that arrives today takes little today,
and its operators pay for a week first. The usual bandwidth is the median by age, so that the same crowd cannot move
that either.
"""

from __future__ import annotations

import ipaddress
import socket
from bisect import bisect
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, combinations, islice
from random import Random, SystemRandom

from troth.overlay.circuits.descriptors import RelayDescriptor
from troth.overlay.directory.listing import ListedRelay
from troth.overlay.paths.errors import NoDisjointPaths

MOST_MEDIANS = 4
FULL_AGE = 7 * 86_400
"""Seconds until a relay counts fully."""
YOUNGEST = 0.05
"""What a new relay counts. Not zero: in a network that is new itself, all are young."""
_GUARD_SETS = 256
"""Choices of guards that are looked at: more than four or six of eight have."""
_Edges = dict[str, dict[str, RelayDescriptor]]
Path = tuple[RelayDescriptor, ...]
HOPS = 3
REGION_MINIMUM = 1_000
"""A smaller region would say too much about who is in it (PlanetServe section 3.1)."""
_QUICK_DRAWS = 32
_ATTEMPTS = 4


def weights(relays: Sequence[ListedRelay], now: int) -> list[float]:
    """One positive weight per relay: min(bandwidth, 4 x median) x age factor. `now` in Unix seconds."""
    ages = [min(1.0, max(YOUNGEST, (now - listed.since) / FULL_AGE)) for listed in relays]
    offered = [max(1, listed.bandwidth) for listed in relays]
    most = MOST_MEDIANS * _median(offered, ages)
    return [min(bandwidth, most) * age for bandwidth, age in zip(offered, ages, strict=True)]


def _median(values: Sequence[int], shares: Sequence[float]) -> int:
    half = sum(shares) / 2
    for value, share in sorted(zip(values, shares, strict=True)):
        half -= share
        if half <= 0:
            return value
    return max(values, default=1)


@lru_cache(maxsize=65_536)
def network_of(host: str) -> str:
    """The /16 of an IPv4 address, the /32 of an IPv6 one, or the last two labels of a name.

    Every way to write an IPv4 address that a resolver takes counts as that address ("10.1", "0x0a000001", IPv6 around
    it): another spelling must not make another network. Two labels are too few for some registries ("co.uk"): that
    takes names together that belong to different parties, never the other way round.
    """
    address = _address(host)
    if address is None:
        return ".".join(host.rstrip(".").lower().split(".")[-2:])
    if isinstance(address, ipaddress.IPv4Address):
        return str(ipaddress.IPv4Network((address, 16), strict=False))
    return str(ipaddress.IPv6Network((address, 32), strict=False))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    bare = host.strip("[]").rstrip(".")
    try:
        address = ipaddress.ip_address(bare.split("%")[0])
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(bare))
        except (OSError, UnicodeError):
            return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address.sixtofour or address
    return address


def matched(
    relays: Sequence[RelayDescriptor], guards: Sequence[RelayDescriptor], heads: int, others: int
) -> tuple[list[RelayDescriptor], list[RelayDescriptor]] | None:
    """`heads` of the guards and `others` of the relays, all of different operators and networks; None if impossible."""
    edges = _edges(relays)
    if len(_matching(_edges([*relays, *guards]), set(), set(), heads + others)) < heads + others:
        return None
    for chosen in islice(combinations(guards, heads), _GUARD_SETS):
        operators = {guard.operator.lower() for guard in chosen}
        networks = {network_of(guard.place.host) for guard in chosen}
        if len(operators) < heads or len(networks) < heads:
            continue
        found = _matching(edges, operators, networks, others)
        names = {guard.name for guard in chosen} | {relay.name for relay in found}
        if len(found) == others and len(names) == heads + others:
            return list(chosen), found
    return None


def _edges(relays: Sequence[RelayDescriptor]) -> _Edges:
    """One relay for each operator and network it is in; the order given decides which."""
    edges: _Edges = {}
    for relay in relays:
        edges.setdefault(relay.operator.lower(), {}).setdefault(network_of(relay.place.host), relay)
    return edges


def _matching(edges: _Edges, operators: set[str], networks: set[str], size: int) -> list[RelayDescriptor]:
    """Up to `size` relays that share nothing, none of these operators and networks."""
    holder: dict[str, str] = {}

    def place(operator: str, tried: set[str]) -> bool:
        for network in edges[operator]:
            if network in networks or network in tried:
                continue
            tried.add(network)
            # Whoever holds this network may be able to move to another one.
            if network not in holder or place(holder[network], tried):
                holder[network] = operator
                return True
        return False

    for operator in edges:
        if len(holder) == size:
            break
        if operator not in operators:
            place(operator, set())
    return [edges[operator][network] for network, operator in holder.items()]


class RelaysInUse:
    """Relays in use, as names, operators and networks that nothing further may have.

    An empty operator is one operator like any other: who does not say who runs it gains nothing by that.
    """

    def __init__(self, relays: Iterable[RelayDescriptor] = ()) -> None:
        self.names: set[bytes] = set()
        self.operators: set[str] = set()
        self.networks: set[str] = set()
        for relay in relays:
            self.add(relay)

    def add(self, relay: RelayDescriptor) -> None:
        """This one is in use now."""
        self.names.add(relay.name)
        self.operators.add(operator_of(relay))
        self.networks.add(network_of(relay.place.host))

    def free(self, relay: RelayDescriptor) -> bool:
        """Whether it shares nothing with those in use."""
        return (
            relay.name not in self.names
            and operator_of(relay) not in self.operators
            and network_of(relay.place.host) not in self.networks
        )

    def copy(self) -> RelaysInUse:
        """The same, to be changed apart."""
        other = RelaysInUse()
        other.names, other.operators, other.networks = set(self.names), set(self.operators), set(self.networks)
        return other


def operator_of(relay: RelayDescriptor) -> str:
    """The operator's address in one spelling: checksummed and plain hex are the same party."""
    return relay.operator.lower()


class Crowd:
    """The relays of one list, ready to be drawn from. Made once per list; drawing is then logarithmic.

    Args:
        relays: all of the list.
        now: Unix seconds, for the relays' age.
        region: drawn from alone, if it has at least `minimum` relays; else the whole list is.
    """

    def __init__(
        self, relays: Iterable[ListedRelay], now: int, *, region: str = "", minimum: int = REGION_MINIMUM
    ) -> None:
        unique = {listed.relay.name: listed for listed in relays}
        self._by_name = {name: listed.relay for name, listed in unique.items()}
        inside = [listed for listed in unique.values() if region and listed.region == region]
        self.regional = bool(inside) and len(inside) >= minimum
        chosen = inside if self.regional else list(unique.values())
        self._weights = weights(chosen, now)
        self._cumulative = list(accumulate(self._weights))
        self.relays = tuple(listed.relay for listed in chosen)

    def named(self, name: bytes) -> RelayDescriptor | None:
        """The relay of that name, of any region."""
        return self._by_name.get(name)

    def draw(self, taken: RelaysInUse, avoid: frozenset[bytes], random: Random) -> RelayDescriptor | None:
        """One free relay, by weight; None if there is none."""
        for _ in range(_QUICK_DRAWS if self.relays else 0):
            point = random.random() * self._cumulative[-1]
            relay = self.relays[min(bisect(self._cumulative, point), len(self.relays) - 1)]
            if relay.name not in avoid and taken.free(relay):
                return relay
        left = [
            (relay, weight)
            for relay, weight in zip(self.relays, self._weights, strict=True)
            if relay.name not in avoid and taken.free(relay)
        ]
        if not left:
            return None
        return random.choices([relay for relay, _ in left], [weight for _, weight in left])[0]


def choose(
    crowd: Crowd,
    guards: Sequence[RelayDescriptor],
    count: int,
    *,
    hops: int = HOPS,
    used: Iterable[Sequence[RelayDescriptor]] = (),
    avoid: frozenset[bytes] = frozenset(),
    random: Random | None = None,
) -> list[Path]:
    """`count` paths, disjoint from each other and from those in use.

    Args:
        guards: who may be first, in order of preference: the first that fit are taken.
        used: paths in use.
        avoid: names of relays not to be used after the guard; guards have rules of their own (`guards`).

    Raises:
        NoDisjointPaths: there is no such choice (found out exactly, for up to eight guards).
    """
    random = random or SystemRandom()
    taken = RelaysInUse(relay for path in used for relay in path)
    reserved = avoid | {guard.name for guard in guards}
    # Guards are left to be guards where others can be the further hops.
    for shunned in (reserved,) * _ATTEMPTS + (avoid,) * _ATTEMPTS:
        found = _drawn(crowd, guards, count, hops, taken=taken, shunned=shunned, random=random)
        if found:
            return found
    candidates = [relay for relay in crowd.relays if relay.name not in avoid and taken.free(relay)]
    random.shuffle(candidates)
    fitting = [guard for guard in guards if taken.free(guard)]
    exact = matched(candidates, fitting, count, (hops - 1) * count)
    if exact is None:
        raise _impossible(candidates, fitting, count, hops)
    return _dealt(*exact, hops)


def _drawn(
    crowd: Crowd,
    guards: Sequence[RelayDescriptor],
    count: int,
    hops: int,
    *,
    taken: RelaysInUse,
    shunned: frozenset[bytes],
    random: Random,
) -> list[Path] | None:
    """Guards in their order, the others by weight one after the other; None where that got stuck."""
    taken = taken.copy()
    heads: list[RelayDescriptor] = []
    for guard in guards:
        if len(heads) < count and taken.free(guard):
            heads.append(guard)
            taken.add(guard)
    if len(heads) < count:
        return None
    others: list[RelayDescriptor] = []
    for _ in range((hops - 1) * count):
        relay = crowd.draw(taken, shunned, random)
        if relay is None:
            return None
        others.append(relay)
        taken.add(relay)
    return _dealt(heads, others, hops)


def _dealt(heads: Sequence[RelayDescriptor], others: Sequence[RelayDescriptor], hops: int) -> list[Path]:
    each = hops - 1
    return [(head, *others[each * place : each * (place + 1)]) for place, head in enumerate(heads)]


def _impossible(
    candidates: Sequence[RelayDescriptor], guards: Sequence[RelayDescriptor], count: int, hops: int
) -> NoDisjointPaths:
    free = [*candidates, *guards]
    have = (
        f"{len({relay.name for relay in free})} relays of {len({operator_of(relay) for relay in free})} operators "
        f"in {len({network_of(relay.place.host) for relay in free})} networks are free, {len(guards)} of them guards"
    )
    return NoDisjointPaths(
        f"No {count} disjoint paths of {hops} relays exist: {have}; {count * hops} relays of as many operators in as "
        f"many networks are needed, {count} of them guards",
        remedy="Use fewer paths, or wait until the directory lists more relays of other operators and networks.",
    )
