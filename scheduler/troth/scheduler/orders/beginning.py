"""Records that begin after their scheduler was registered: what it may have admitted before is not in them.

A scheduler whose disk was lost has its key from a backup, and no word of what it signed. Any of its clients could send
an order again, and convict it by two admissions that name two nodes. The same holds for a copy of yesterday: records
say at which block they were in use last.
"""

from __future__ import annotations

from typing import Protocol

from troth.protocol.market.checks import first_reference_block
from troth.protocol.market.state import State
from troth.protocol.market.types import Parameters
from troth.protocol.types import Address
from troth.scheduler.tabs.database import SchedulerDatabase


class SeenChain(Protocol):
    """The chain, as far as it was followed."""

    @property
    def state(self) -> State:
        """Folded up to ``block``."""

    @property
    def block(self) -> int:
        """The newest block."""

    @property
    def parameters(self) -> Parameters:
        """The deployment's."""


async def first_block(database: SchedulerDatabase, chain: SeenChain, operator: Address) -> int:
    """The oldest reference block of an order that is taken; 0: any."""
    age, party = chain.parameters.reference_age, chain.state.parties.get(operator)
    begun = await database.beginning(chain.block, age)
    # A home that is used again on a chain that began anew has a beginning which that chain has yet to reach.
    begun = min(begun, chain.block)
    return 0 if party is None else first_reference_block(begun, party.registered.block, chain.parameters)
