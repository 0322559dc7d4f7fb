"""The entry's way to a scheduler: pinned to the key that is on chain, bounded, and to bonded schedulers only."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from troth.node.errors import IntakeRefused, SchedulerAway
from troth.overlay.directory.vouched import VouchedMachines
from troth.protocol.errors import ProtocolError
from troth.protocol.market.errors import InvalidOrder
from troth.protocol.market.state import Party, State
from troth.protocol.market.views import scheduler_of
from troth.protocol.types import Address, to_address
from troth.transport.errors import OverlayError
from troth.transport.https import naming_errors, pinned_client

LARGEST_LINE = 256 * 1024
"""Bytes of a line of a stream: the commitments of a segment, or the results of all."""
LARGEST_REFUSAL = 64 * 1024
LINE_SECONDS = 600.0
"""The longest pause between two lines: a long prompt on a slow machine."""
HEAD_SECONDS = 60.0
"""Until it says whether it takes an order: it may have to catch up with the chain."""
CONNECT_SECONDS = 5.0
SEND_SECONDS = 30.0
MOST_WAYS = 64
"""Schedulers to which connections are kept; those used longest ago go first."""
SALT_HEADER, PREFERRED_HEADER = "troth-salt", "troth-preferred"
# No compression: a few kilobytes of it may unfold to gigabytes before anyone can count them.
HEADERS = {"accept-encoding": "identity"}
_REMEDY = "Try again, or order from another scheduler."


@dataclass(frozen=True, slots=True)
class RelayedRefusal:
    """What a scheduler answers instead of serving: status, JSON body as it came, seconds to wait if it names them."""

    status: int
    body: bytes
    retry_after: str | None


@dataclass(slots=True, eq=False)
class _Way:
    """A client to a scheduler as it is registered, and how many requests it carries."""

    endpoint: str
    tls_key_hash: bytes
    client: httpx.AsyncClient
    users: int = 0

    def leads_to(self, scheduler: Party) -> bool:
        return (self.endpoint, self.tls_key_hash) == (scheduler.endpoint, scheduler.tls_key_hash)


class SchedulerSide:
    """Clients to the schedulers of the folded chain, kept for the next order; a stake stands behind every one.

    Args:
        state: the newest folded state.
        machines: at a confidential entry, the only machines to which an order is given.
    """

    def __init__(self, state: Callable[[], State], machines: VouchedMachines | None = None) -> None:
        self._state = state
        self._machines = machines
        self._ways: OrderedDict[Address, _Way] = OrderedDict()
        self._former: set[_Way] = set()
        """Ways that are given up and still carry something."""

    def bonded(self, name: str) -> Party:
        """The scheduler with this address; raises IntakeRefused unless it is bonded now, and attested where it must
        be."""
        try:
            return self._vouched(scheduler_of(self._state(), to_address(name)))
        except InvalidOrder as error:
            what = "This scheduler is not bonded, by this node's view of the chain"
            remedy = "Order from another one, or wait for a block."
            raise IntakeRefused("unknown_scheduler", 404, what, name[:80], remedy) from error
        except ProtocolError as error:
            raise IntakeRefused("bad_request", 400, error.what, name[:80], error.remedy) from error

    def _vouched(self, party: Party) -> Party:
        if self._machines is not None and self._machines.entry(party.operator, "scheduler", party.tls_key_hash) is None:
            what = "The committee does not vouch for this scheduler's machine, and this entry is confidential"
            raise IntakeRefused("not_attested", 403, what, party.operator, "Order from an attested one.")
        return party

    @asynccontextmanager
    async def order(
        self, scheduler: Party, body: bytes, preferred: Sequence[Address]
    ) -> AsyncIterator[AsyncIterator[bytes] | RelayedRefusal]:
        """Give an order with the nodes that should serve it, the best first; the lines of its stream, or why it was not
        taken. Raises SchedulerAway."""
        headers = {PREFERRED_HEADER: ",".join(preferred)} if preferred else {}
        async with self._streamed(scheduler, "POST", "/v1/orders", body, headers) as answer:
            yield answer

    @asynccontextmanager
    async def again(
        self, scheduler: Party, path: str, salt: str
    ) -> AsyncIterator[AsyncIterator[bytes] | RelayedRefusal]:
        """The lines of an order that was taken before; raises SchedulerAway."""
        async with self._streamed(scheduler, "GET", path, b"", {SALT_HEADER: salt}) as answer:
            yield answer

    @asynccontextmanager
    async def check(
        self, scheduler: Party, path: str, body: bytes
    ) -> AsyncIterator[AsyncIterator[bytes] | RelayedRefusal]:
        """Show a first secret; the lines of the check. Raises SchedulerAway."""
        async with self._streamed(scheduler, "POST", path, body, {}) as answer:
            yield answer

    @asynccontextmanager
    async def _streamed(
        self, scheduler: Party, method: str, path: str, body: bytes, more: dict[str, str]
    ) -> AsyncIterator[AsyncIterator[bytes] | RelayedRefusal]:
        timeout = httpx.Timeout(SEND_SECONDS, connect=CONNECT_SECONDS, read=LINE_SECONDS)
        headers = HEADERS | ({"content-type": "application/json"} if body else {}) | more
        with _away():
            async with self._client(scheduler) as client:
                request = client.build_request(method, path, content=body or None, headers=headers, timeout=timeout)
                try:
                    async with asyncio.timeout(HEAD_SECONDS):
                        response = await client.send(request, stream=True)
                except TimeoutError as error:
                    raise SchedulerAway("The scheduler does not answer", f"{HEAD_SECONDS:g} s", _REMEDY) from error
                async with aclosing(response):
                    if response.status_code == httpx.codes.OK:
                        yield _lines(response)
                    else:
                        yield await refusal(response)

    @asynccontextmanager
    async def fetch(self, scheduler: Party, path: str, body: bytes = b"") -> AsyncIterator[httpx.Response]:
        """The answer to a GET, or to a POST of a body, its own body still to be read; raises SchedulerAway."""
        headers = HEADERS | ({"content-type": "application/json"} if body else {})
        method = "POST" if body else "GET"
        with _away():
            async with (
                self._client(scheduler) as client,
                client.stream(method, path, headers=headers, content=body or None, timeout=SEND_SECONDS) as response,
            ):
                yield response

    async def close(self) -> None:
        """Close every connection."""
        for way in (*self._former, *self._ways.values()):
            await way.client.aclose()

    @asynccontextmanager
    async def _client(self, scheduler: Party) -> AsyncIterator[httpx.AsyncClient]:
        """The client to a scheduler, which is not closed inside of the block."""
        way, former = self._ways.get(scheduler.operator), list[_Way]()
        if way is None or not way.leads_to(scheduler):
            made = pinned_client(scheduler.endpoint, scheduler.tls_key_hash)
            former += [] if way is None else [way]
            way = self._ways[scheduler.operator] = _Way(scheduler.endpoint, scheduler.tls_key_hash, made)
        self._ways.move_to_end(scheduler.operator)
        while len(self._ways) > MOST_WAYS:
            former.append(self._ways.popitem(last=False)[1])
        way.users += 1
        try:
            for one in former:
                await self._end(one)
            yield way.client
        finally:
            way.users -= 1
            if way in self._former:
                await self._end(way)

    async def _end(self, way: _Way) -> None:
        """Close it, once it carries nothing."""
        if way.users:
            self._former.add(way)
        else:
            self._former.discard(way)
            await way.client.aclose()


@contextmanager
def _away() -> Iterator[None]:
    try:
        with naming_errors("the scheduler"):
            yield
    except OverlayError as error:
        raise SchedulerAway(error.what, error.value, _REMEDY) from error


async def refusal(response: httpx.Response) -> RelayedRefusal:
    """Why the scheduler does not serve; raises SchedulerAway where what it says is no JSON object of some size."""
    body = b"".join([piece async for piece in bounded(response, LARGEST_REFUSAL)])
    try:
        msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SchedulerAway("The scheduler's refusal cannot be read", response.status_code, _REMEDY) from error
    if not 400 <= response.status_code < 600:
        raise SchedulerAway("The scheduler answers with another status", response.status_code, _REMEDY)
    wait = response.headers.get("retry-after", "")
    return RelayedRefusal(response.status_code, body, wait if re.fullmatch("[0-9]{1,4}", wait) else None)


async def bounded(response: httpx.Response, limit: int) -> AsyncIterator[bytes]:
    """The body in pieces; raises SchedulerAway once it is longer."""
    size = 0
    with _away():
        async for piece in response.aiter_raw():
            size += len(piece)
            if size > limit:
                raise SchedulerAway("The scheduler's answer is too large", f"over {limit} bytes", _REMEDY)
            yield piece


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    rest = bytearray()
    with _away():
        async for piece in response.aiter_raw():
            searched = len(rest)
            rest += piece
            while (end := rest.find(b"\n", searched)) >= 0:
                yield bytes(rest[:end])
                del rest[: end + 1]
                searched = 0
            if len(rest) > LARGEST_LINE:
                raise SchedulerAway("A line of the scheduler's stream is too long", len(rest), _REMEDY)
