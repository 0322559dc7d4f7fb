"""Getting lists from the committee's members, whichever of them answers, and again before a list ends."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

from troth.chain.duty import Duty
from troth.overlay.directory.errors import CommitteeUnknown, DirectoryUnavailable, ListMalformed
from troth.overlay.directory.keeping import DirectoryKeeper
from troth.overlay.directory.listing import CommitteeMembership, Listing, read_membership
from troth.overlay.directory.signing import LARGEST_SIGNED
from troth.protocol.committee import CommitteeMember
from troth.protocol.types import Address
from troth.transport.errors import OverlayError
from troth.transport.https import naming_errors, pinned_client

log = logging.getLogger(__name__)

LIST_PATH = "/v1/list"
FETCH_SECONDS = 20.0
"""For one member's whole answer."""
MEMBERSHIP_SECONDS = 300.0
RETRY_SECONDS, LONGEST_RETRY = 5.0, 300.0
_SHUFFLE = random.SystemRandom()

ReadMembership = Callable[[], Awaitable[CommitteeMembership]]


async def fetch_from(member: CommitteeMember, known: str | None = None, seconds: float = FETCH_SECONDS) -> bytes | None:
    """A member's signed list, unchecked; None if it is still the one of digest `known`. Raises an OverlayError."""
    headers = {} if known is None else {"if-none-match": f'"{known}"'}
    try:
        with naming_errors(member.endpoint):
            async with (
                asyncio.timeout(seconds),
                pinned_client(member.endpoint, member.tls_key_hash, seconds) as client,
                client.stream("GET", LIST_PATH, headers=headers) as response,
            ):
                if response.status_code == 304:
                    return None
                if response.status_code != 200:
                    raise DirectoryUnavailable(f"{member.endpoint} has no list", response.status_code)
                return await _bounded(response)
    except (TimeoutError, httpx.HTTPError) as error:
        raise DirectoryUnavailable(f"{member.endpoint} gave no list within {seconds:g} s", error) from error


async def _bounded(response: httpx.Response) -> bytes:
    body = bytearray()
    # Raw, since a stranger's compressed bytes could unfold to any length.
    async for part in response.aiter_raw():
        body += part
        if len(body) > LARGEST_SIGNED:
            raise ListMalformed(f"A signed list has at most {LARGEST_SIGNED} bytes", len(body))
    return bytes(body)


async def refresh(
    keeper: DirectoryKeeper, now: Callable[[], float] = time.time, seconds: float = FETCH_SECONDS
) -> Listing:
    """The newest list that a member gives, members in random order; the next one after any failure.

    One who hands out an old list that still holds is not the last to be asked: beyond half of a list's time there is
    a newer one. Raises DirectoryUnavailable if no list holds in the end.
    """
    assert keeper.membership is not None, "the members come before their lists"
    members = list(keeper.membership.members)
    _SHUFFLE.shuffle(members)
    reasons = []
    for member in members:
        try:
            known = None if keeper.signed is None else keeper.signed.digest.hex()
            found = await fetch_from(member, known, seconds)
            if found is not None:
                keeper.offer(found, now())
        except OverlayError as error:
            log.info("no list from %s: %s", member.endpoint, error)
            reasons.append(f"{member.endpoint}: {error.what}")
            continue
        listing = keeper.current(now())
        if listing is not None and now() < (listing.valid_after + listing.valid_until) / 2:
            return listing
    listing = keeper.current(now())
    if listing is None:
        raise DirectoryUnavailable(
            "No member gave a list that holds", "; ".join(reasons) or None, "Check the clock and the network."
        )
    return listing


class DirectoryClient:
    """Keeps a list fresh in the background. Use it with `start` and `stop`.

    Args:
        contract: the Committee contract.
        membership: reads the members from the chain; only needed when they change, or nothing is on disk.
        path: where the list is kept between processes.
        on_list: called with each new list, and with the kept one at the start.
        retry_seconds: after the first failure; it doubles up to five minutes.
    """

    def __init__(
        self,
        contract: Address,
        membership: ReadMembership,
        path: Path | None,
        on_list: Callable[[Listing], None],
        *,
        retry_seconds: float = RETRY_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._contract = contract
        self._membership = membership
        self._on_list = on_list
        self._retry = retry_seconds
        self._clock = clock
        self._told: Listing | None = None
        self._read_at = float("-inf")
        self._following = Duty(
            "fetching the directory", self.refresh, every=self._pause, retry=retry_seconds, longest=LONGEST_RETRY
        )
        self.hurry = self._following.hurry
        self.stop = self._following.stop
        self.keeper = DirectoryKeeper(path)

    @classmethod
    def over(
        cls, rpc: str, contract: Address, path: Path | None, on_list: Callable[[Listing], None], retry_seconds: float
    ) -> DirectoryClient:
        """One that reads the members over an Ethereum node at `rpc`."""
        return cls(contract, lambda: read_membership(rpc, contract), path, on_list, retry_seconds=retry_seconds)

    def start(self) -> None:
        """Use what is on disk now, and follow from here on."""
        self.keeper.load(self._contract, self._clock())
        self._tell()
        self._following.start()

    @property
    def failure(self) -> OverlayError | None:
        """Why there is no newer list."""
        error = self._following.failure
        return error if error is None or isinstance(error, OverlayError) else DirectoryUnavailable(str(error))

    def current(self) -> Listing | None:
        """The list, while it holds."""
        return self.keeper.current(self._clock())

    async def membership(self) -> CommitteeMembership:
        """The members, read again every five minutes; raises CommitteeUnknown if they were never read."""
        if self.keeper.membership is None or self._clock() - self._read_at >= MEMBERSHIP_SECONDS:
            try:
                self.keeper.membership = await self._membership()
                self._read_at = self._clock()
            except CommitteeUnknown as error:
                if self.keeper.membership is None:
                    raise
                log.warning("the members stay those that were read last: %s", error)
        return self.keeper.membership

    async def refresh(self) -> Listing:
        """Fetch now; raises an OverlayError if no list holds in the end."""
        await self.membership()
        listing = await refresh(self.keeper, self._clock)
        self._tell()
        return listing

    def _pause(self) -> float:
        """Until between a third and half of the list's time is over: clients do not come all at once."""
        listing = self.current()
        if listing is None:
            return self._retry
        span = listing.valid_until - listing.valid_after
        due = listing.valid_after + span * _SHUFFLE.uniform(0.35, 0.5)
        return max(due - self._clock(), min(self._retry, span / 20))

    def _tell(self) -> None:
        listing = self.current()
        if listing is not None and listing != self._told:
            self._told = listing
            log.info("directory of %d: %d relays", listing.valid_after, len(listing.relays))
            self._on_list(listing)
