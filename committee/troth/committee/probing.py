"""Whether an address answers with the keys that its descriptor names.

A relay: TLS with its pinned key, and one circuit set-up that only the holder of its handshake key can answer. A
destination: TLS with its pinned key, in the protocol of deliveries.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import OrderedDict

from troth.committee.errors import EntryRefused, Full, Unreachable
from troth.committee.proposal import Checked, CheckedRelay
from troth.overlay.circuits.client import Client
from troth.overlay.circuits.link import link_client_context
from troth.overlay.errors import OverlayError
from troth.overlay.relay.delivery import ALPN as DELIVERY

PROBE_SECONDS = 10.0
AT_ONCE, WAITING = 32, 256
REMEMBERED = 16_384
_Key = tuple[str, int, bytes, bytes]


class Prober:
    """Remembers for `lately` seconds who answered; those are not asked again.

    Args:
        private: whether addresses outside the internet (loopback, 10.0.0.0/8 and so on) may be listed and connected to.
    """

    def __init__(self, lately: float, *, private: bool, seconds: float = PROBE_SECONDS) -> None:
        self._lately = lately
        self._private = private
        self._seconds = seconds
        self._answered: OrderedDict[_Key, float] = OrderedDict()
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def require_answer(self, entry: Checked, *, strangers: bool = False) -> None:
        """Raise Unreachable, or EntryRefused for an address that is nobody's; `strangers` wait in a bounded queue."""
        self.require_public(entry.descriptor.host)
        key = _key(entry)
        answered = self._answered.get(key)
        if answered is not None and time.monotonic() - answered < self._lately:
            return
        if strangers and self._waiting >= WAITING:
            raise Full("Too many descriptors wait to be checked", self._waiting, "Try again in a minute.")
        self._waiting += 1
        try:
            async with self._at_once:
                await self._probe(entry)
        finally:
            self._waiting -= 1
        self._answered[key] = time.monotonic()
        self._answered.move_to_end(key)
        if len(self._answered) > REMEMBERED:
            self._answered.popitem(last=False)

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
    client = Client()
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


def _key(entry: Checked) -> _Key:
    one = entry.descriptor
    bound = one.handshake_key if isinstance(entry, CheckedRelay) else b""  # type: ignore[union-attr]
    return one.host, one.port, one.tls_key_hash, bound
