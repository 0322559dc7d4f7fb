"""Open: only once the node's own chain shows its own commitment, and only the tiles that an honest seed picks.

A scheduler that could make a node open early, or at places of its choice, could show the tiles to a colluder.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from troth.node.errors import NotAssigned, OutOfOrder
from troth.node.service.bench import Bench
from troth.node.service.standing import Standing, own_post, standing_of
from troth.node.traces import StoredTrace
from troth.node.view import ChainView
from troth.protocol import vrf
from troth.protocol.assignment import sample_alpha
from troth.protocol.contract_types import Opening
from troth.protocol.dtype import Dtype
from troth.protocol.trace import tile_indices
from troth.protocol.task import Phase, Task
from troth.protocol.trace import TileLayout, TileOpening
from troth.protocol.types import Address, ExecutionClass, Hash32
from troth.protocol.wire import Open, Opened

PATIENCE = 10.0
"""Seconds to wait for blocks that the scheduler has seen and this node has not."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A live task or review in which this node's own commitment stands; `party` 0 is the inferencer."""

    standing: Standing
    execution_class: ExecutionClass
    party: int

    @property
    def task(self) -> Task:
        """The task as it is on chain."""
        return self.standing.task


async def open_trace(bench: Bench, sender: Address, header: Open) -> tuple[Opened, bytes]:
    """Answer an Open from what is on disk, so that a restarted node can do it.

    Raises:
        OutOfOrder: nothing was committed here, or the chain does not show it (yet).
        InvalidProof: the sampling proof does not belong to the commitments on chain.
    """
    trace = await bench.write(lambda: bench.traces.find(header.task_id, header.segment, header.attempt))
    if trace is None:
        raise OutOfOrder("this node committed to no such trace", header.segment, "Commit first.")
    review = Hash32(header.review) if header.review else None
    await bench.view.until(lambda: _may_open(bench.view, standing_of(bench.view, trace, review), header), PATIENCE)
    committed = own_commitment(bench.view, bench.operator.address, trace, review)
    if sender != committed.task.terms.scheduler:
        raise NotAssigned("this is another scheduler's task", sender, "Open your own tasks.")
    seed = await sampling_seed(bench.view, committed, header.proof)
    opening = await open_tiles(bench, trace, committed, seed)
    payload = opening.tiles + b"".join(opening.siblings)
    tiles, siblings = len(opening.tiles) // 512, len(opening.siblings)
    return Opened(opening.root, opening.verdict, opening.salt, tiles, siblings), payload


def _may_open(view: ChainView, standing: Standing | None, header: Open) -> bool:
    if standing is None:
        return False
    phase, block = standing.task.progress.phase, standing.task.progress.phase_block
    a_block_later = header.proof is None or view.head > block
    return phase is Phase.SAMPLED or (phase is Phase.COMMITTED and a_block_later)


def own_commitment(view: ChainView, me: Address, trace: StoredTrace, review: Hash32 | None = None) -> Committed:
    """The task or review, if this node's own commitment is on chain; raises OutOfOrder otherwise."""
    standing = standing_of(view, trace, review)
    if standing is None or standing.task.progress.phase not in (Phase.COMMITTED, Phase.SAMPLED):
        raise OutOfOrder("the commitments are not on chain", trace.task_id, "Open after the commit's block.")
    execution_class = view.execution_class(standing.task.terms.execution_class)
    if execution_class is None:
        missing = standing.task.terms.execution_class
        raise OutOfOrder("the execution class is unknown", missing, "Wait for the node to catch up.")
    if not standing.holds(trace):
        raise OutOfOrder("another commitment than this node's is on chain", trace.segment, "Open what was committed.")
    party = standing.party_of(me, trace)
    if standing.posts()[party] != own_post(trace):
        raise OutOfOrder("this node's commitment stands at another's place", party, "Report the contract.")
    return Committed(standing, execution_class, party)


async def sampling_seed(view: ChainView, committed: Committed, proof: bytes | None) -> Hash32 | None:
    """The seed that picks tiles, None in an exact class; from the chain if it is there, else from the proof."""
    progress, terms = committed.task.progress, committed.task.terms
    if committed.execution_class.exact:
        return None
    if progress.phase is Phase.SAMPLED:
        return progress.seed
    key = view.vrf_key(terms.scheduler)
    if proof is None or key is None or view.head <= progress.phase_block:
        raise OutOfOrder("there is no sampling seed yet", progress.phase_block, "Send the proof, a block later.")
    block_hash = await view.block_hash(progress.phase_block)
    alpha = sample_alpha(view.domain, committed.standing.id, posts=progress.posts, block_hash=block_hash)
    return Hash32(vrf.verify(key, alpha, proof))


async def open_tiles(bench: Bench, trace: StoredTrace, committed: Committed, seed: Hash32 | None) -> Opening:
    """The opening in the contract's words; without a seed, of the root alone."""
    opened = TileOpening(b"", ())
    if seed is not None:
        opened = await asyncio.to_thread(_tiles, bench, trace, committed, seed)
    siblings = tuple(Hash32(sibling) for sibling in opened.siblings)
    return Opening(Hash32(trace.root), bool(trace.verdict), Hash32(trace.salt), opened.tiles, siblings)


def _tiles(bench: Bench, trace: StoredTrace, committed: Committed, seed: Hash32) -> TileOpening:
    model = committed.execution_class.model
    layout = TileLayout(trace.task_id, model, trace.positions, trace.columns, Dtype(trace.dtype))
    indices = tile_indices(seed, committed.standing.segment, committed.execution_class.tiles, layout.count)
    return layout.commit(bench.traces.rows(trace)).open(indices)
