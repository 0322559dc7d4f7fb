"""What a node's court brings: its rejections, what its scheduler tells it, and a journal of cases."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.order_market import SCHEDULER
from support.order_network import Network, Ordered

from troth.cases.courtroom import ChainView
from troth.cases.journal import CaseJournal
from troth.cases.office import Office
from troth.cases.opening import Opener
from troth.node.court.bringing import Bringer
from troth.protocol.market import canonical
from troth.protocol.market.papers import Spoken
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_market import Inform


async def inform(
    network: Network, ordered: Ordered, verifier: Address, spoken: Spoken, sender: Address = SCHEDULER
) -> Any:
    data = canonical.encode(spoken)
    return await network.nodes[verifier].ask(Inform(ordered.order_id, 0, len(data)), data, sender)


class Asked:
    """A scheduler that answers ``data``."""

    def __init__(self, data: bytes | None = None) -> None:
        self.data = data
        self.asked = 0

    async def ask(self, scheduler: Address, order: Hash32, segment: int) -> bytes | None:
        assert scheduler == SCHEDULER
        self.asked += 1
        return self.data


def bringer_of(network: Network, verifier: Address, folder: Path, inquirer: Any, most_bond: int = 1 << 90) -> Bringer:
    async def seen() -> ChainView:
        return ChainView(network.ground.state, network.ground.block)

    courtroom: Any = SimpleNamespace(seen=seen, account=verifier)
    journal = CaseJournal(folder / "cases.sqlite")
    office = Office(courtroom, journal, Opener(courtroom, journal), None, most_bond)  # type: ignore[arg-type]
    return Bringer(network.nodes[verifier].context, office, inquirer, most_bond, pause=0.0)


async def offered(bringer: Bringer) -> list[bool]:
    stores = bringer.context.stores
    return [await bringer.rejected(one) for one in await bringer.context.write(stores.rejections.waiting)]
