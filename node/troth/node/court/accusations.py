"""Opening disputes: what one would cost and how long it takes, and the evidence that is on disk before it is opened."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path

from troth.cases import evidence as files
from troth.cases.courtroom import CallRefused
from troth.cases.evidence import Evidence, SegmentRows, rows_of
from troth.node.court.accusation import DisputableSegment, disputable, rounds_of
from troth.node.court.dispute_chain import DisputeChain
from troth.node.court.opened_weights import OpenedWeights
from troth.node.court.segment_text import SegmentText
from troth.node.errors import ProofTooDear
from troth.protocol import typed_data
from troth.protocol.disputes import calls
from troth.protocol.disputes.game import dispute_id
from troth.protocol.market.state import State
from troth.protocol.types import Address, Hash32

log = logging.getLogger(__name__)

CHOICE_GAS, END_GAS = 70_000, 800_000
"""Upper bounds of what an accuser pays for each choice, and for the last transaction."""
STANDS = "AlreadyDisputed"
RECENT = 3_600.0
"""Seconds for which evidence stays in any case."""


@dataclass(frozen=True, slots=True)
class DisputePlan:
    """A dispute that could be opened now.

    Args:
        rounds: how often the accused shows levels, at most; each is answered by a choice.
        bond: what is put up, and comes back if the node is convicted.
        gas_cost: wei of gas of all own transactions at today's fees, at most. A conviction pays it back.
        most_blocks: if everybody uses each turn up.
        refused: why opening would fail now; empty where it would not.
    """

    accused: Address
    order: Hash32
    segment: int
    position: int
    rounds: int
    bond: int
    gas_cost: int
    most_blocks: int
    refused: str

    @property
    def at_stake(self) -> int:
        """Wei, or units of a token, that are risked at most."""
        return self.bond + self.gas_cost


@dataclass(frozen=True, slots=True)
class OwnDispute:
    """A dispute that this account opened: by this call (``sent``), or before it."""

    id: Hash32
    sent: bool


class Accusations:
    """Evidence files of the disputes that this account opened, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, found: DisputableSegment) -> None:
        """On disk when this returns; ``find`` gives it back after a restart."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = found.text
        known = {found.segment: text.given, found.segment - 1: text.read}
        rows = tuple(SegmentRows.of(at, data) for at, data in sorted(known.items()) if data is not None)
        files.write(self._path(text.order, text.segment), replace(found.evidence, rows=rows))

    def find(self, order: Hash32, segment: int, state: State) -> SegmentText | None:
        """What is known of a segment that was accused; None where nothing is."""
        path = self._path(order, segment)
        if not path.is_file():
            return None
        return disputable(read := files.read(path), state, segment, rows_in(read, self.folder)).text

    def drop_others(self, needed: set[tuple[Hash32, int]]) -> None:
        """Erase what no dispute needs any more, an hour after it was written: one may be about to be opened."""
        if not self.folder.is_dir():
            return
        names = {self._path(*place).name for place in needed}
        old = [path for path in self.folder.iterdir() if path.stat().st_mtime + RECENT < time.time()]
        if all(path.name in names for path in old):
            return
        kept = [one for one in self.folder.glob(f"*{files.SUFFIX}") if one.name in names or one not in old]
        beside = {f"{rows.digest.hex()}.rows" for one in kept for rows in files.read(one).rows}
        for path in old:
            if path.name not in names | beside:
                path.unlink(missing_ok=True)

    def _path(self, order: Hash32, segment: int) -> Path:
        return self.folder / f"{order.hex()}-{segment}{files.SUFFIX}"


def rows_in(evidence: Evidence, folder: Path | None) -> dict[int, bytes]:
    """The rows that evidence has inside, or beside it in a folder, by segment."""
    found = {one.segment: rows_of(evidence, one.segment, folder) for one in evidence.rows}
    return {segment: data for segment, data in found.items() if data is not None}


async def plan(chain: DisputeChain, found: DisputableSegment, weights: OpenedWeights, position: int) -> DisputePlan:
    """What a dispute over a row would cost now; nothing is sent."""
    layout = found.layout(weights, position)
    accusation = found.accusation(weights, position)
    simulation = await chain.simulate(calls.open_dispute(accusation, chain.bond if chain.in_coin else 0))
    rounds = rounds_of(layout)
    per_gas = simulation.maximum_cost // simulation.gas if simulation.gas else 0
    refused = "" if simulation.rejection is None else str(simulation.rejection)
    return DisputePlan(
        accused=found.accused,
        order=found.text.order,
        segment=found.segment,
        position=position,
        rounds=rounds,
        bond=chain.bond,
        gas_cost=simulation.maximum_cost + per_gas * (rounds * CHOICE_GAS + END_GAS),
        most_blocks=2 * (rounds + 1) * chain.turn,
        refused=refused,
    )


async def open_dispute(
    chain: DisputeChain,
    kept: Accusations,
    found: DisputableSegment,
    weights: OpenedWeights,
    position: int,
    *,
    most: int | None = None,
) -> OwnDispute:
    """Open it, with the evidence on disk before. One that this account opened before is as good.

    Raises ProofTooDear beyond ``most``, CallRefused where the contract refuses.
    """
    wanted = await plan(chain, found, weights, position)
    identity = dispute_id(typed_data.struct_hash(found.signed.message), position, chain.account)
    if wanted.refused.startswith(STANDS):
        return OwnDispute(identity, sent=False)
    if most is not None and wanted.at_stake > most:
        what = "a wrong row could be disputed, and bond and gas are more than this node risks"
        raise ProofTooDear(what, wanted.at_stake, f"Raise accuse_wei in [court] above {most}, or wait for cheaper gas.")
    await asyncio.to_thread(kept.keep, found)
    await chain.pay()
    accusation = found.accusation(weights, position)
    try:
        await chain.send(calls.open_dispute(accusation, chain.bond if chain.in_coin else 0))
    except CallRefused as refused:
        if refused.name != STANDS:
            raise
        return OwnDispute(identity, sent=False)
    log.warning("%s is accused before the contract: row %d of segment %d", found.accused, position, found.segment)
    return OwnDispute(identity, sent=True)
