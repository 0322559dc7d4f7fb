"""What a member takes from strangers: descriptors, one check after the other, the cheap ones first.

It also bounds how many entries one party can bring into the directory.
"""

from __future__ import annotations

import contextlib
import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from troth.committee.directory.probing import Prober
from troth.committee.directory.proposal import Checked, CheckedDestination, CheckedRelay, Entries
from troth.committee.directory.schedule import Schedule
from troth.committee.directory.store import MemberStore
from troth.committee.directory.vouching import Vouching
from troth.committee.errors import EntryRefused, Full
from troth.overlay.directory.descriptors import SignedDestination, SignedRelay, decode_descriptor, operator_of
from troth.overlay.directory.errors import DescriptorRefused
from troth.overlay.relay.limits import TokenBucket
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address

HOSTS = 4096
"""Addresses whose rate of posts is remembered."""
Bonded = Callable[[Address, str], bool]
"""Whether an operator is registered on chain as this kind, with its stake, and not leaving."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Relays (and as many schedulers, and nodes) of one operator, one IP address, one network; both kinds in all."""

    per_operator: int
    per_host: int
    per_network: int
    relays: int
    destinations: int


@dataclass(frozen=True, slots=True)
class EntryClaim:
    """Who wants an entry, as what (empty: as a relay), and where."""

    operator: str
    host: str
    kind: str = ""

    def at(self, place: str) -> str:
        """A place as it is counted. Nodes behind a scheduler's tunnels have its address, and do not keep it out."""
        return f"{self.kind} {place}".strip()


def require_room(claims: Iterable[EntryClaim], bounds: Bounds, total: int) -> None:
    """Raise Full if these claims together exceed a bound."""
    kept = list(claims)
    if len(kept) > total:
        raise Full(f"The directory takes {total} of these", len(kept), "Try again later.")
    limits = {
        "operator": (Counter(claim.operator for claim in kept), bounds.per_operator),
        "address": (Counter(claim.at(claim.host) for claim in kept), bounds.per_host),
        "network": (Counter(claim.at(network_of(claim.host)) for claim in kept), bounds.per_network),
    }
    for name, (counts, limit) in limits.items():
        for value, count in counts.most_common(1):
            if count > limit:
                raise Full(f"One {name} has at most {limit} entries", f"{value}: {count}", "Use fewer of them.")


@lru_cache(maxsize=16_384)
def network_of(host: str) -> str:
    """The /16 of an IPv4 address, the /32 of an IPv6 one: what one provider gives to many customers."""
    address = ipaddress.ip_address(host)
    return str(ipaddress.ip_network((address, 16 if address.version == 4 else 32), strict=False))


class Posts:
    """How often strangers may post: a rate for each address and one for all together."""

    def __init__(self, per_second: float, per_second_per_host: float) -> None:
        self._per_host = per_second_per_host
        self._all = TokenBucket(per_second, 4 * per_second, time.monotonic())
        self._hosts: OrderedDict[object, TokenBucket] = OrderedDict()

    def require_newcomer(self) -> None:
        """Use a permit of those for unknown names together; raises Full. Who is known is not kept out by a crowd."""
        if not self._all.take(time.monotonic()):
            raise Full("Too many newcomers publish", None, "Try again in a minute.")

    def require(self, host: object) -> None:
        """Use a permit of this address; raises Full if there is none."""
        now = time.monotonic()
        bucket = self._hosts.get(host)
        if bucket is None:
            bucket = self._hosts[host] = TokenBucket(self._per_host, max(16, 16 * self._per_host), now)
            if len(self._hosts) > HOSTS:
                self._hosts.popitem(last=False)
        self._hosts.move_to_end(host)
        if not bucket.take(now):
            raise Full("Too many descriptors come from one address", host, "Publish every half an hour.")


class DescriptorAdmission:
    """The descriptors that this member would list."""

    def __init__(
        self,
        store: MemberStore,
        prober: Prober,
        bonded: Bonded,
        bounds: Bounds,
        schedule: Schedule,
        *,
        vouching: Vouching,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._prober = prober
        self._bonded = bonded
        self._bounds = bounds
        self.vouching = vouching
        # A descriptor lasts as long as a list: whoever is silent for that long is gone.
        self._lifetime = schedule.valid
        self._skew = schedule.skew
        self._clock = clock
        self._relays: dict[bytes, CheckedRelay] = {}
        self._destinations: dict[bytes, CheckedDestination] = {}

    def load(self, domain: Domain) -> None:
        """Take up what was kept on disk."""
        self._store.drop_before(int(self._clock() - self._lifetime))
        for kind in ("relay", "destination"):
            for data in self._store.descriptors(kind):
                # One that was signed for another committee is left out.
                with contextlib.suppress(DescriptorRefused):
                    entry = check(data, kind, domain)
                    self._known(entry)[entry.name] = entry

    def entries(self) -> Entries:
        """Those that have not expired."""
        self._forget_expired()
        return Entries(tuple(self._relays.values()), tuple(self._destinations.values()))

    def knows(self, data: bytes, kind: str) -> bool:
        """Whether an entry of this name is held; its signatures are not looked at. Raises DescriptorRefused."""
        if kind == "relay":
            return decode_descriptor(data, SignedRelay).tls_key_hash in self._relays
        return decode_descriptor(data, SignedDestination).tls_key_hash in self._destinations

    async def take(self, data: bytes, kind: str, domain: Domain) -> None:
        """Keep a posted descriptor; raises DescriptorRefused, EntryRefused or Full."""
        entry = check(data, kind, domain)
        self.require_fresh(entry)
        self._require_standing(entry)
        self._forget_expired()
        known = self._known(entry)
        before = known.get(entry.name)
        if before is not None and before.descriptor.issued >= entry.descriptor.issued:
            if before.data == entry.data:
                return
            raise EntryRefused("A later descriptor of this name is known", before.descriptor.issued, "Set the clock.")
        self._require_room(entry, known)
        await self._prober.require_answer(entry, strangers=True)
        # While it was probed others may have come.
        known = self._known(entry)
        self._require_room(entry, known)
        newest = known.get(entry.name)
        if newest is None or newest.descriptor.issued < entry.descriptor.issued:
            known[entry.name] = entry
            self._store.put(kind, entry.name, entry.descriptor.issued, data)

    async def ask_again(self) -> None:
        """See that those who answered still do."""
        entries = self.entries()
        await self._prober.ask_again((*entries.relays, *entries.destinations))

    async def require_acceptable(self, entry: Checked) -> None:
        """Raise EntryRefused unless this member would list an entry that a leader proposes."""
        self.require_fresh(entry)
        self._require_standing(entry)
        await self._prober.require_answer(entry)

    def require_bounds(self, entries: Entries) -> None:
        """Raise Full if entries together exceed a bound."""
        require_room(_claims(entries.relays), self._bounds, self._bounds.relays)
        require_room(_claims(entries.destinations), self._bounds, self._bounds.destinations)

    def require_fresh(self, entry: Checked) -> None:
        """Raise EntryRefused for a descriptor that is too old, or from the future."""
        age = self._clock() - entry.descriptor.issued
        if not -self._skew <= age < self._lifetime:
            raise EntryRefused(
                f"A descriptor holds for {self._lifetime:g} s",
                f"issued {age:.0f} s ago",
                "Sign it anew; set the clock.",
            )

    def _require_standing(self, entry: Checked) -> None:
        """A destination is registered on chain, and its machine is what it says."""
        if not isinstance(entry, CheckedDestination):
            return
        if not self._bonded(entry.operator, entry.descriptor.kind):
            raise EntryRefused(
                f"The operator is not bonded as a {entry.descriptor.kind}",
                entry.operator,
                "Register it on chain first.",
            )
        self.vouching.require(entry)

    def _require_room(self, entry: Checked, known: dict[bytes, Checked]) -> None:
        others = [one for name, one in known.items() if name != entry.name]
        total = self._bounds.relays if isinstance(entry, CheckedRelay) else self._bounds.destinations
        require_room(_claims([*others, entry]), self._bounds, total)

    def _known(self, entry: Checked) -> dict[bytes, Checked]:
        return self._relays if isinstance(entry, CheckedRelay) else self._destinations  # type: ignore[return-value]

    def _forget_expired(self) -> None:
        oldest = self._clock() - self._lifetime
        self._relays = {name: one for name, one in self._relays.items() if one.descriptor.issued > oldest}
        self._destinations = {name: one for name, one in self._destinations.items() if one.descriptor.issued > oldest}
        self._store.drop_before(int(oldest))


def check(data: bytes, kind: str, domain: Domain) -> Checked:
    """A descriptor whose form and signatures are right; raises DescriptorRefused."""
    if kind == "relay":
        relay = decode_descriptor(data, SignedRelay)
        return CheckedRelay(relay, operator_of(relay, domain), data)
    destination = decode_descriptor(data, SignedDestination)
    return CheckedDestination(destination, operator_of(destination, domain), data)


def _claims(entries: Iterable[Checked]) -> list[EntryClaim]:
    return [EntryClaim(entry.operator, entry.descriptor.host, _kind_of(entry)) for entry in entries]


def _kind_of(entry: Checked) -> str:
    return entry.descriptor.kind if isinstance(entry, CheckedDestination) else ""
