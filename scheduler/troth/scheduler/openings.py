"""Collecting the openings once the commitments are on chain, and believing only those that the contract will take.

In `settle` a wrong opening makes the whole call revert, so each is checked here first; a wrong one counts as absent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from troth.overlay.errors import OverlayError
from troth.protocol.contract_types import ABSENT, Opening
from troth.protocol.errors import InvalidOpening, ProtocolError
from troth.protocol.events import TraceRevealed
from troth.protocol.identifiers import verdict_commitment
from troth.protocol.trace import tile_indices
from troth.protocol.task import Task
from troth.protocol.trace import TILE_BYTES, TileOpening, opening_root
from troth.protocol.types import ZERO_HASH, Address, Hash32
from troth.protocol.wire import Open, Opened
from troth.scheduler.admitted import AdmittedTask
from troth.scheduler.peers import Peers

log = logging.getLogger(__name__)

RETRY_PAUSE = 0.3
"""Seconds before a node is asked again: its own view of the chain may be a block behind."""


@dataclass(frozen=True, slots=True)
class Seat:
    """One party that committed: where its opening goes, and what it must open to."""

    segment: int
    place: int
    party: Address
    post: Hash32


def seats(task: Task) -> list[Seat]:
    """The parties whose openings are expected, in the order of `posts`. Parties: the inferencer stands first."""
    found = []
    verifiers = task.posts_per_segment - 1
    for segment in range(len(task.terms.segments)):
        parties = task.parties_of(segment)
        holders = (parties[0], *parties[len(parties) - verifiers :])
        for place, (party, post) in enumerate(zip(holders, task.posts_of(segment), strict=True)):
            if post != ZERO_HASH:
                found.append(Seat(segment, place, party, post))
    return found


class OpeningCollector:
    """Asks every committed party of one task, again and again until the time is up.

    Args:
        seed: the sample's seed; None in an exact class.
        proof: shown to the nodes while the seed is not yet on chain.
        reviewed: the segment's second verification and the segment, if the openings are for that.
    """

    def __init__(
        self,
        task: AdmittedTask,
        on_chain: Task,
        peers: Peers,
        *,
        seed: Hash32 | None,
        proof: bytes | None,
        reviewed: tuple[Hash32, int] | None = None,
    ) -> None:
        self._task = task
        self._on_chain = on_chain
        self._peers = peers
        self._seed = seed
        self._proof = proof
        self._reviewed = reviewed
        self._per_segment = on_chain.posts_per_segment
        self.openings = [ABSENT] * len(on_chain.progress.posts)

    def take_revealed(self, events: Iterable[object]) -> None:
        """Fill in what parties revealed on chain: the contract does without none of it, whoever keeps silent to us."""
        for event in events:
            if not isinstance(event, TraceRevealed):
                continue
            for seat in seats(self._on_chain):
                if (seat.segment, seat.party) == (event.segment, event.party):
                    place = seat.segment * self._per_segment + seat.place
                    self.openings[place] = Opening(event.root, event.verdict, tiles=event.tiles)

    async def collect(self, seconds: float) -> list[Seat]:
        """Fill `openings`; the seats whose opening is still missing after `seconds`."""
        wanted = [seat for seat in seats(self._on_chain) if self._at(seat) is ABSENT]
        tasks = [asyncio.create_task(self._ask(seat, seconds)) for seat in wanted]
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=seconds)
        finally:
            for task in tasks:
                task.cancel()
        return [seat for seat in wanted if self._at(seat) is ABSENT]

    def _at(self, seat: Seat) -> Opening:
        return self.openings[seat.segment * self._per_segment + seat.place]

    async def _ask(self, seat: Seat, seconds: float) -> None:
        request = Open(
            task_id=self._task.task_id,
            segment=self._reviewed[1] if self._reviewed else seat.segment,
            attempt=self._on_chain.progress.attempt,
            proof=self._proof,
            review=self._reviewed[0] if self._reviewed else None,
        )
        while True:
            try:
                frame = await self._peers.channel(seat.party).request(request, timeout=seconds)
                if not isinstance(frame.header, Opened):
                    raise InvalidOpening("Not an opening", type(frame.header).__name__, "Ask again.")
                opening = opened(frame.header, bytes(frame.payload))
                self._check(seat, opening)
            except (OverlayError, ProtocolError) as error:
                log.info("no opening from %s yet: %s", seat.party, error)
                await asyncio.sleep(RETRY_PAUSE)
            else:
                self.openings[seat.segment * self._per_segment + seat.place] = opening
                return

    def _check(self, seat: Seat, opening: Opening) -> None:
        if seat.place == 0:
            if not opening.verdict or opening.salt != ZERO_HASH:
                raise InvalidOpening("An inferencer's opening has a verdict or a salt", seat.party, "Ask again.")
            promised = opening.root
        else:
            promised = verdict_commitment(
                self._reviewed[0] if self._reviewed else self._task.task_id,
                seat.segment,
                seat.party,
                root=opening.root,
                verdict=opening.verdict,
                salt=opening.salt,
            )
        if promised != seat.post:
            raise InvalidOpening("The opening is not what was committed to", promised.hex(), "Ask again.")
        if self._seed is not None:
            self._check_tiles(seat, opening, self._seed)
        elif opening.tiles or opening.siblings:
            # The contract would refuse the whole settlement for it.
            raise InvalidOpening("An exact class opens no tiles", len(opening.tiles), "Ask again.")

    def _check_tiles(self, seat: Seat, opening: Opening, seed: Hash32) -> None:
        positions = self._on_chain.progress.positions
        rules = self._task.execution_class
        indices = tile_indices(seed, seat.segment, rules.tiles, self._task.tiles(positions))
        shown = TileOpening(opening.tiles, opening.siblings)
        proven = opening_root(positions, self._task.model.hidden_size, self._task.dtype, indices, shown)
        if proven != opening.root:
            raise InvalidOpening("The tiles belong to another trace", proven.hex(), "Ask again.")


def opened(header: Opened, payload: bytes) -> Opening:
    """The opening in an answer; raises InvalidOpening if its sizes are wrong."""
    cut = header.tiles * TILE_BYTES
    if len(payload) != cut + 32 * header.siblings:
        raise InvalidOpening("The opening has another length than its header says", len(payload), "Ask again.")
    siblings = tuple(Hash32(payload[start : start + 32]) for start in range(cut, len(payload), 32))
    return Opening(Hash32(header.root), header.verdict, Hash32(header.salt), payload[:cut], siblings)
