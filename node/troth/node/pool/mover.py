"""Carrying out a move: load what lacks, change the slice on chain, let go of the rest when nobody needs it any more."""

from __future__ import annotations

from collections.abc import Sequence

from troth.chain.adapter import Chain
from troth.chain.keystore import Key
from troth.node.followed_view import FollowedView
from troth.node.pool.resident import Move
from troth.node.service.bench import Bench
from troth.protocol.calls import change_slice
from troth.protocol.types import Segment


def mover(bench: Bench, chain: Chain, view: FollowedView, key: Key) -> Move:
    """The way a running node moves."""

    async def move(hosted: Segment, segments: Sequence[Segment]) -> None:
        former = bench.engine.slice
        await bench.engine.rehost(hosted, keep=(former,))
        await chain.execute(change_slice(key.address, hosted, segments), key)

    return move
