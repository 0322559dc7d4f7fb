"""Pipelines of veiled classes: a node is not told who computed the segment before it.

Rows go on with a proof that the scheduler holds their signature by one of a ring's keys (``protocol.possession``), in
place of the signature and its signer's name. The ring are the nodes that the draw allowed for that segment: the next
node computes the same draw, so that others would hide nobody. A key is its account's own, and who is asked for it
cannot tell another's.
"""

from __future__ import annotations

import asyncio
import logging

from troth.protocol import possession, rings, secp256k1, typed_data, vrf
from troth.protocol.errors import ProtocolError
from troth.protocol.market import checks
from troth.protocol.market.ballots import is_veiled
from troth.protocol.market.signed import Row
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_fields import RowSignature, VeiledRow
from troth.protocol.wire_market import Introduce, Introduced
from troth.scheduler.errors import NodeFailed
from troth.scheduler.orders.context import OrderSession, SchedulerContext
from troth.transport.errors import OverlayError

log = logging.getLogger(__name__)

SECONDS = 2.0
"""For one node to tell its key, which is remembered."""


def veils(session: OrderSession) -> bool:
    """Whether the nodes of this order are hidden from each other."""
    return session.history.segments > 1 and is_veiled(session.offer.execution_class.name)


class Veil:
    """What hides the nodes of one order from each other."""

    def __init__(self, context: SchedulerContext, session: OrderSession) -> None:
        self._context = context
        self._session = session
        self._rings: list[tuple[bytes, ...]] = []

    async def draw(self) -> None:
        """Learn the keys of all drawn nodes but the last segment's; raises NodeFailed where a node stands alone."""
        history = self._session.history
        beta = Hash32(vrf.output_of_sound(history.admitted.infer_proof))
        view = self._context.view(history.order, history.admitted.tab)
        drawn = await asyncio.to_thread(checks.drawn_candidates, history.order, beta, view)
        found = await asyncio.gather(*(self._ring(segment, one) for segment, one in enumerate(drawn[:-1])))
        self._rings = list(found)

    def shown(self, row: Row, signature: RowSignature) -> VeiledRow:
        """A signed row as the next segment is shown it; raises ProtocolError where no drawn node has signed it."""
        ring = self._rings[row.segment]
        digest = typed_data.digest(row, self._context.operator.domain)
        proof = possession.prove(signature.signature, digest, ring)
        return VeiledRow(signature.position, signature.row_hash, signature.previous, b"".join(ring), proof)

    async def _ring(self, segment: int, drawn: tuple[Address, ...]) -> tuple[bytes, ...]:
        node, known = self._session.nodes[segment], self._context.keys
        members = tuple(dict.fromkeys(drawn))
        await asyncio.gather(*(self._introduced(one) for one in members if one not in known))
        keys = [known[one] for one in members if one in known]
        if node not in known or len(keys) < rings.FEWEST:
            raise NodeFailed(segment, node, "nothing would hide it: no other node that was drawn told its key")
        return rings.ring_of(keys)

    async def _introduced(self, node: Address) -> None:
        """Ask for a node's key; who is away is left out."""
        try:
            frame = await self._context.peers.channel(node).request(Introduce(), b"", SECONDS)
            key = bytes(frame.payload)
            if isinstance(frame.header, Introduced) and secp256k1.account_of(key) == node:
                self._context.keys[node] = key
            else:
                log.warning("%s told the key of another account", node)
        except (OverlayError, ProtocolError, OSError, TimeoutError) as error:
            log.info("%s did not tell its key: %s", node, error)
