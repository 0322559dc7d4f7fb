"""Whether an address answers with the keys that its descriptor names.

A relay: TLS with its pinned key, and one circuit set-up that only the holder of its handshake key can answer. A
destination: TLS with its pinned key, in the protocol of deliveries.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Iterable

from troth.committee.directory.proposal import Checked, CheckedRelay
from troth.committee.errors import EntryRefused, Full, Unreachable
from troth.overlay.circuits.client import CircuitClient
from troth.overlay.circuits.link import link_client_context
from troth.overlay.relay.delivery import ALPN as DELIVERY
from troth.transport.errors import OverlayError

PROBE_SECONDS = 5.0
PAUSE_SECONDS = 1.0
"""Before who did not answer is asked once more."""
AT_ONCE, WAITING = 64, 256
REMEMBERED = 16_384
_Key = tuple[str, int, bytes, bytes]


class Prober:
    """Remembers who answered for `lately` seconds, and who did not for a sixth of that: neither is asked again.

    One probe that fails may be a lost packet, and a relay that is not listed loses its age: who is known is asked once
    more before it counts, after all others were asked.

    Whoever answered is asked again in the background at half of that time. So when a list is due nearly all answers are
    there, and a crowd that falls silent at once cannot hold it up.

    Args:
        private: whether addresses outside the internet (loopback, 10.0.0.0/8 and so on) may be listed and connected to.
    """

    def __init__(self, lately: float, *, private: bool, seconds: float = PROBE_SECONDS) -> None:
        self._lately = lately
        self._private = private
        self._seconds = seconds
        self._answered: OrderedDict[_Key, float] = OrderedDict()
        self._silent: OrderedDict[_Key, float] = OrderedDict()
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def require_answer(self, entry: Checked, *, strangers: bool = False) -> None:
        """Raise Unreachable, or EntryRefused for an address that is nobody's; `strangers` wait in a bounded queue."""
        self.require_public(entry.descriptor.host)
        key = _key(entry)
        if self._age(self._answered, key) < self._lately:
            return
        if not strangers and self._age(self._silent, key) < self._lately / 6:
            raise Unreachable("It did not answer a short time ago", f"{entry.descriptor.host}:{entry.descriptor.port}")
        await self._ask(entry, key, strangers=strangers)

    async def ask_again(self, entries: Iterable[Checked]) -> None:
        """Ask those whose answer is half forgotten; who does not answer any more is taken off."""
        due = [one for one in entries if self._lately / 2 <= self._age(self._answered, _key(one)) < float("inf")]
        await asyncio.gather(*(self._ask(one, _key(one), strangers=False) for one in due), return_exceptions=True)

    async def _ask(self, entry: Checked, key: _Key, *, strangers: bool) -> None:
        if strangers and self._waiting >= WAITING:
            raise Full("Too many descriptors wait to be checked", self._waiting, "Try again in a minute.")
        self._waiting += 1
        try:
            await (self._once(entry) if strangers else self._twice(entry))
        except Unreachable:
            self._answered.pop(key, None)
            _remember(self._silent, key)
            raise
        finally:
            self._waiting -= 1
        self._silent.pop(key, None)
        _remember(self._answered, key)

    async def _twice(self, entry: Checked) -> None:
        try:
            await self._once(entry)
        except Unreachable:
            await asyncio.sleep(PAUSE_SECONDS)
            # Behind whoever waits already: a silent crowd's second probes delay nobody's first.
            await self._once(entry)

    async def _once(self, entry: Checked) -> None:
        async with self._at_once:
            await self._probe(entry)

    @staticmethod
    def _age(known: OrderedDict[_Key, float], key: _Key) -> float:
        return time.monotonic() - known.get(key, float("-inf"))

    def require_public(self, host: str) -> None:
        """Raise EntryRefused for an address that cannot be reached over the internet, unless those are allowed."""
        address = ipaddress.ip_address(host)
        if not self._private and (not address.is_global or address.is_multicast):
            raise EntryRefused("The address cannot be reached from elsewhere", host, "Publish a public address.")

    async def _probe(self, entry: Checked) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await (_set_up(entry) if isinstance(entry, CheckedRelay) else _connect(entry))
        except (OverlayError, OSError, TimeoutError, ValueError) as error:
            place = f"{entry.descriptor.host}:{entry.descriptor.port}"
            remedy = "It must be reachable from outside under the published address and keys."
            raise Unreachable(f"{place} did not answer as published", getattr(error, "what", error), remedy) from error


async def _set_up(entry: CheckedRelay) -> None:
    client = CircuitClient()
    try:
        await client.build([entry.relay], PROBE_SECONDS)
    finally:
        await client.close()


async def _connect(entry: Checked) -> None:
    one = entry.descriptor
    context = link_client_context(one.tls_key_hash, DELIVERY)
    _, writer = await asyncio.open_connection(one.host, one.port, ssl=context, server_hostname="")
    try:
        tls = writer.get_extra_info("ssl_object")
        if tls is None or tls.selected_alpn_protocol() != DELIVERY:
            raise Unreachable("The destination does not speak the protocol of deliveries", DELIVERY)
    finally:
        writer.transport.abort()


def _remember(known: OrderedDict[_Key, float], key: _Key) -> None:
    known[key] = time.monotonic()
    known.move_to_end(key)
    if len(known) > REMEMBERED:
        known.popitem(last=False)


def _key(entry: Checked) -> _Key:
    one = entry.descriptor
    bound = one.handshake_key if isinstance(entry, CheckedRelay) else b""  # type: ignore[union-attr]
    return one.host, one.port, one.tls_key_hash, bound
