"""What a member reads from the chain: its committee, and who is bonded as scheduler or node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from troth.chain.adapter import Chain
from troth.committee.admission import Bonded
from troth.committee.configuration import Configuration
from troth.committee.market_bonds import market_bonds
from troth.committee.member import Member
from troth.overlay.directory.errors import CommitteeUnknown
from troth.overlay.directory.membership import membership_on
from troth.protocol.types import Address

log = logging.getLogger(__name__)

MEMBERSHIP_SECONDS = 60.0


def nobody_bonded(_operator: Address, _kind: str) -> bool:
    """Without a deployment no destination is listed."""
    return False


@asynccontextmanager
async def bonds(configuration: Configuration) -> AsyncIterator[Bonded]:
    """Follows the configured market inside the block."""
    chain_id = configuration.chain_id
    if configuration.market is not None:
        place, folder = configuration.market, configuration.folder
        async with market_bonds(configuration.rpc, place, folder, chain_id=chain_id) as bonded:
            yield bonded
        return
    yield nobody_bonded


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
