"""A scheduler's duty to answer summonses, worked off."""

from __future__ import annotations

import asyncio

from troth.scheduler.checks.summons import SummonsDuty


async def worked_off(duty: SummonsDuty) -> None:
    """Wait until nothing is worked on."""
    while duty._working:
        await asyncio.gather(*duty._working.values(), return_exceptions=True)
        await asyncio.sleep(0)
