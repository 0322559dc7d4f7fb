"""What a member reads from the chain: its committee, and who is bonded as scheduler or node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from troth.chain.adapter import Chain
from troth.chain.follower import EventFollower
from troth.committee.admission import Bonded
from troth.committee.configuration import Configuration
from troth.committee.market_bonds import market_bonds
from troth.committee.member import Member
from troth.overlay.directory.errors import CommitteeUnknown
from troth.overlay.directory.membership import membership_on
from troth.protocol.calls.views import parameters_of
from troth.protocol.contract_types import Role
from troth.protocol.types import Address

log = logging.getLogger(__name__)

MEMBERSHIP_SECONDS = 60.0
_ROLES = {"scheduler": Role.SCHEDULER, "node": Role.NODE}


class ChainBonds:
    """Bonded by the folded events of a Troth contract: registered, not leaving, and with the stake that is asked."""

    def __init__(self, follower: EventFollower, minimum_scheduler_stake: int) -> None:
        self._follower = follower
        self._minimum = minimum_scheduler_stake

    def __call__(self, operator: Address, kind: str) -> bool:
        """As `admission.Bonded`."""
        account = self._follower.state.accounts.get(operator)
        if account is None or account.exit_block != 0 or account.role is not _ROLES.get(kind):
            return False
        return account.stake >= (self._minimum if kind == "scheduler" else 1)


def nobody_bonded(_operator: Address, _kind: str) -> bool:
    """Without a deployment no destination is listed."""
    return False


@asynccontextmanager
async def bonds(configuration: Configuration) -> AsyncIterator[Bonded]:
    """Follows the configured market, or Troth contract, inside the block."""
    chain_id = configuration.chain_id
    if configuration.market is not None:
        place, folder = configuration.market, configuration.folder
        async with market_bonds(configuration.rpc, place, folder, chain_id=chain_id) as bonded:
            yield bonded
        return
    if configuration.contract is None:
        yield nobody_bonded
        return
    async with await Chain.connect(configuration.rpc, configuration.contract, chain_id=chain_id) as chain:
        follower = EventFollower(chain, configuration.folder / "events.sqlite", start_block=configuration.start_block)
        async with follower:
            await follower.catch_up()
            minimum = (await chain.read(parameters_of())).minimum_scheduler_stake
            yield ChainBonds(follower, minimum)


async def follow_membership(chain: Chain, member: Member, seconds: float = MEMBERSHIP_SECONDS) -> None:
    """Read the members again and again, for ever; while the chain is away the last ones count."""
    while True:
        await asyncio.sleep(seconds)
        try:
            found = await membership_on(chain)
        except CommitteeUnknown as error:
            log.warning("the members stay those that were read last: %s", error)
            continue
        if found != member.membership:
            log.info("the committee has %d members now", len(found.members))
            member.membership = found
