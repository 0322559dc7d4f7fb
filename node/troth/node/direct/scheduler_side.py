"""The entry's way to a scheduler: pinned to the key that is on chain, bounded, and to bonded schedulers only."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from troth.node.errors import EntryRefused, SchedulerAway
from troth.overlay.errors import OverlayError
from troth.overlay.https import naming_errors, pinned_client
from troth.protocol.contract_types import Role
from troth.protocol.errors import ProtocolError
from troth.protocol.state import Scheduler, State
from troth.protocol.types import Address, Hash32, to_address

LARGEST_LINE = 1024 * 1024
"""Bytes of the longest line of a stream: the receipt, with the tokens of the whole answer in it."""
ORDINARY_LINE = 32 * 1024
"""Bytes of any other: the names of 510 parties. Lines wait for the client, so only one of a stream may be longer."""
LARGEST_REFUSAL = 64 * 1024
LINE_SECONDS = 600.0
"""The longest pause between two lines: the chain may take its time to lock a fee or to settle."""
HEAD_SECONDS = 60.0
"""Until it says whether it takes an order: it may have to catch up with the chain."""
CONNECT_SECONDS = 5.0
SEND_SECONDS = 30.0
CHOICE_SECONDS = 3.0
SALT_HEADER = "troth-salt"
# No compression: a few kilobytes of it may unfold to gigabytes before anyone can count them.
HEADERS = {"accept-encoding": "identity"}
_REMEDY = "Try again, or order from another scheduler."


@dataclass(frozen=True, slots=True)
class Refused:
    """What a scheduler answers instead of serving: status, JSON body as it came, seconds to wait if it names them."""

    status: int
    body: bytes
    retry_after: str | None


class SchedulerSide:
    """Clients to the schedulers of the folded chain, each made once; a stake stands behind every one.

    Args:
        state: the newest folded state.
    """

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self._clients: dict[Address, tuple[Scheduler, httpx.AsyncClient]] = {}
        self._former: list[httpx.AsyncClient] = []

    def bonded(self, name: str) -> Scheduler:
        """The scheduler with this address; raises EntryRefused unless it is bonded now."""
        state = self._state()
        try:
            address = to_address(name)
        except ProtocolError as error:
            raise EntryRefused("bad_request", 400, error.what, name[:80], error.remedy) from error
        account, found = state.accounts.get(address), state.schedulers.get(address)
        if found is None or account is None or account.role is not Role.SCHEDULER or account.exit_block:
            what = "This scheduler is not bonded, by this node's view of the chain"
            raise EntryRefused("unknown_scheduler", 404, what, address, "Order from another one, or wait for a block.")
        return found

    @asynccontextmanager
    async def order(self, scheduler: Scheduler, body: bytes) -> AsyncIterator[AsyncIterator[bytes] | Refused]:
        """Give the order; the lines of its stream, or why it was not taken. Raises SchedulerAway."""
        timeout = httpx.Timeout(SEND_SECONDS, connect=CONNECT_SECONDS, read=LINE_SECONDS)
        headers = HEADERS | {"content-type": "application/json"}
        with _away():
            client = self._client(scheduler)
            request = client.build_request("POST", "/v1/direct/orders", content=body, headers=headers, timeout=timeout)
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

    async def warm(self, scheduler: Scheduler) -> None:
        """Open the connection on which the choice will be posted, while the order's own waits for its first line."""
        with suppress(SchedulerAway, TimeoutError):
            async with asyncio.timeout(CHOICE_SECONDS), self.fetch(scheduler, "/livez", None) as answer:
                async for _ in bounded(answer, LARGEST_REFUSAL):
                    pass

    async def choose(self, scheduler: Scheduler, task_id: Hash32, salt: Hash32, node: Address | None) -> bool:
        """Name the node that serves, or None for nobody; False where the scheduler does not take it, for whatever
        reason."""
        path, headers = f"/v1/tasks/0x{task_id.hex()}/inferencer", HEADERS | {SALT_HEADER: "0x" + salt.hex()}
        try:
            with naming_errors(scheduler.endpoint):
                client = self._client(scheduler)
                # Only the status is read: a body could be without end. The limit is for all of it, not for each piece.
                async with (
                    asyncio.timeout(CHOICE_SECONDS),
                    client.stream("POST", path, json={"operator": node}, headers=headers) as answer,
                ):
                    return answer.status_code == httpx.codes.NO_CONTENT
        except (OverlayError, TimeoutError):
            return False

    @asynccontextmanager
    async def fetch(self, scheduler: Scheduler, path: str, salt: str | None) -> AsyncIterator[httpx.Response]:
        """The answer to a GET, its body still to be read; raises SchedulerAway."""
        headers = HEADERS if salt is None else HEADERS | {SALT_HEADER: salt}
        with _away():
            client = self._client(scheduler)
            async with client.stream("GET", path, headers=headers, timeout=SEND_SECONDS) as response:
                yield response

    async def close(self) -> None:
        """Close every connection."""
        for client in (*self._former, *(client for _, client in self._clients.values())):
            await client.aclose()

    def _client(self, scheduler: Scheduler) -> httpx.AsyncClient:
        known = self._clients.get(scheduler.operator)
        if known is not None and (known[0].endpoint, known[0].tls_key_hash) == (
            scheduler.endpoint,
            scheduler.tls_key_hash,
        ):
            return known[1]
        made = pinned_client(scheduler.endpoint, scheduler.tls_key_hash)
        if known is not None:
            # Answers that it brings are still under way.
            self._former.append(known[1])
        self._clients[scheduler.operator] = scheduler, made
        return made


@contextmanager
def _away() -> Iterator[None]:
    try:
        with naming_errors("the scheduler"):
            yield
    except OverlayError as error:
        raise SchedulerAway(error.what, error.value, _REMEDY) from error


async def refusal(response: httpx.Response) -> Refused:
    """Why the scheduler does not serve; raises SchedulerAway where what it says is no JSON object of some size."""
    body = b"".join([piece async for piece in bounded(response, LARGEST_REFUSAL)])
    try:
        msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SchedulerAway("The scheduler's refusal cannot be read", response.status_code, _REMEDY) from error
    if not 400 <= response.status_code < 600:
        raise SchedulerAway("The scheduler answers with another status", response.status_code, _REMEDY)
    wait = response.headers.get("retry-after", "")
    return Refused(response.status_code, body, wait if re.fullmatch("[0-9]{1,4}", wait) else None)


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
    rest, long = bytearray(), 0
    with _away():
        async for piece in response.aiter_raw():
            searched = len(rest)
            rest += piece
            while (end := rest.find(b"\n", searched)) >= 0:
                long += end > ORDINARY_LINE
                if long > 1:
                    raise SchedulerAway("The scheduler's stream has more than one long line", end, _REMEDY)
                yield bytes(rest[:end])
                del rest[: end + 1]
                searched = 0
            if len(rest) > LARGEST_LINE:
                raise SchedulerAway("A line of the scheduler's stream is too long", len(rest), _REMEDY)
