"""How a driver speaks with reviewers and the judged node: over a channel of its own to each.

Whoever does not answer is asked again later; it can always post and show its part on the chain by itself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

from troth.cases import evidence as files
from troth.cases.evidence import Evidence, SegmentRows
from troth.protocol.errors import ProtocolError
from troth.protocol.market import canonical
from troth.protocol.market.messages import Signed
from troth.protocol.market.proceedings import NodeReveal, Reveal
from troth.protocol.market.signed import ReviewCommitment
from troth.protocol.market.state import State
from troth.protocol.types import Address, Hash32
from troth.protocol.wire import Reply, Request
from troth.protocol.wire_cases import (
    PATH,
    PIECE_LIMIT,
    SHOWN_LIMIT,
    Fetch,
    Fetched,
    Furnish,
    Furnished,
    Material,
    Pledge,
    Pledged,
    Show,
    Shown,
)
from troth.transport.channel import Channel, ChannelPatience
from troth.transport.errors import OverlayError
from troth.transport.identity import Operator

PATIENCE = ChannelPatience(connect=5.0, request=20.0, longest_pause=2.0)
FETCH_SECONDS, LEAST_RATE = 20.0, 1 << 19
"""For all of a material, with so many bytes a second on top: a reviewer that waits longer misses its window."""
MOST_CHANNELS = 128
"""Parties to which a connection is kept; that to the one spoken with longest ago goes first."""
Kind = TypeVar("Kind")


class CaseParties(Protocol):
    """What a driver asks of the parties of a case; None: not yet, or no answer."""

    async def furnish(self, party: Address, case: Hash32, evidence: Evidence) -> bool:
        """Hand a reviewer what it needs, with the rows inside; whether it has all of it."""

    async def pledge(self, party: Address, case: Hash32, round_: int) -> Signed[ReviewCommitment] | None:
        """A reviewer's signed commitment."""

    async def show(self, party: Address, case: Hash32, round_: int) -> Reveal | None:
        """A reviewer's showing, in the clear."""

    async def show_node(self, node: Address, case: Hash32, round_: int) -> NodeReveal | None:
        """The node's showing."""


class Holders(Protocol):
    """What a reviewer asks of who may hold something of a case."""

    async def fetch(self, holder: Address, case: Hash32, material: Material, segment: int, most: int) -> bytes | None:
        """All bytes of a material, at most ``most``; None: the holder has none, or does not answer."""


class ChannelParties:
    """Parties and holders at the endpoints that the registry knows. Close it."""

    def __init__(self, operator: Operator, state: Callable[[], State]) -> None:
        self._operator = operator
        self._state = state
        self._channels: OrderedDict[Address, Channel] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Close every connection."""
        ending = [one.close() for one in self._channels.values()]
        await asyncio.gather(*ending, *self._closing, return_exceptions=True)

    async def furnish(self, party: Address, case: Hash32, evidence: Evidence) -> bool:
        """Hand a reviewer what it needs, with the rows inside; whether it has all of it."""
        lean = files.encode(_without_bytes(evidence))
        if not await self._put(party, case, "evidence", 0, lean):
            return False
        if evidence.head_salt is None:
            return True
        salt, rows = evidence.head_salt, [one for one in evidence.rows if one.inside is not None]
        return all([await self._put(party, case, "rows", one.segment, salt + (one.inside or b"")) for one in rows])

    async def _put(self, party: Address, case: Hash32, material: Material, segment: int, data: bytes) -> bool:
        """In pieces, from where the receiver is; evidence in one."""
        start, piece = 0, len(data) if material == "evidence" else PIECE_LIMIT
        while True:
            header = Furnish(case, material, segment, start, len(data))
            sent = data[start : start + piece]
            answer = await self._ask(party, header, sent, Furnished)
            if answer is None:
                return False
            # Who takes less than it is sent would be sent the rest again and again.
            if answer[0].held >= len(data) or answer[0].held < start + len(sent):
                return answer[0].held >= len(data)
            start = answer[0].held

    async def pledge(self, party: Address, case: Hash32, round_: int) -> Signed[ReviewCommitment] | None:
        """A reviewer's signed commitment."""
        answer = await self._ask(party, Pledge(case, round_), b"", Pledged)
        ready = answer is not None and answer[0].ready
        return self._read(Signed[ReviewCommitment], answer[1]) if answer is not None and ready else None

    async def show(self, party: Address, case: Hash32, round_: int) -> Reveal | None:
        """A reviewer's showing, in the clear."""
        answer = await self._ask(party, Show(case, round_, "reviewer"), b"", Shown)
        return self._read(Reveal, answer[1]) if answer is not None and answer[0].ready else None

    async def show_node(self, node: Address, case: Hash32, round_: int) -> NodeReveal | None:
        """The node's showing."""
        answer = await self._ask(node, Show(case, round_, "node"), b"", Shown)
        return self._read(NodeReveal, answer[1]) if answer is not None and answer[0].ready else None

    async def fetch(self, holder: Address, case: Hash32, material: Material, segment: int, most: int) -> bytes | None:
        """All bytes of a material, at most ``most``; None: the holder has none, or does not answer."""
        try:
            async with asyncio.timeout(FETCH_SECONDS + most / LEAST_RATE):
                return await self._whole(holder, case, material, segment, most)
        except TimeoutError:
            return None

    async def _whole(self, holder: Address, case: Hash32, material: Material, segment: int, most: int) -> bytes | None:
        data = bytearray()
        while True:
            answer = await self._ask(holder, Fetch(case, material, segment, len(data)), b"", Fetched)
            if answer is None or not 0 < answer[0].size <= most:
                return None
            data += answer[1]
            if len(data) == answer[0].size:
                return bytes(data)
            # A piece that is not whole is the last one, or a holder's that wants to be asked for ever.
            if len(data) > answer[0].size or len(answer[1]) < PIECE_LIMIT:
                return None

    def _read(self, kind: type[Kind], payload: memoryview) -> Kind | None:
        try:
            return canonical.decode(kind, payload, SHOWN_LIMIT)
        except ProtocolError:
            return None

    async def _ask(
        self, party: Address, header: Request, payload: bytes, expected: type[Kind]
    ) -> tuple[Kind, memoryview] | None:
        channel = self._channel(party)
        if channel is None:
            return None
        try:
            frame = await channel.request(header, payload)
        except (OverlayError, ProtocolError, OSError):
            return None
        answer: Reply | Request = frame.header
        return (answer, frame.payload) if isinstance(answer, expected) else None

    def _channel(self, party: Address) -> Channel | None:
        known = self._state().parties.get(party)
        if known is None or not known.endpoint.startswith("https://") or party == self._operator.address:
            return None
        held = self._channels.get(party)
        if held is None or not held.leads_to(known.endpoint, known.tls_key_hash):
            if held is not None:
                self._close_later(held)
            held = self._channels[party] = Channel(
                known.endpoint, known.tls_key_hash, self._operator, party, patience=PATIENCE, path=PATH
            )
        self._channels.move_to_end(party)
        while len(self._channels) > MOST_CHANNELS:
            self._close_later(self._channels.popitem(last=False)[1])
        return held

    def _close_later(self, channel: Channel) -> None:
        task = asyncio.create_task(channel.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _without_bytes(evidence: Evidence) -> Evidence:
    kept = tuple(SegmentRows(one.segment, one.size, one.digest) for one in evidence.rows)
    return replace(evidence, rows=kept)
