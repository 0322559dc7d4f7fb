"""The client's own view of the chain, kept on disk between commands.

A follower's file belongs to one process at a time: it folds into memory what it appended itself, and would miss what
another process appended in between. So each command takes the first file that nobody holds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from troth.chain.adapter import Chain
from troth.chain.follower import EventFollower
from troth.client.configuration import Configuration
from troth.client.errors import ConfigurationError
from troth.client.home import Home
from troth.client.view_file import free_file
from troth.protocol.types import to_address


@asynccontextmanager
async def view(home: Home, configuration: Configuration) -> AsyncIterator[tuple[Chain, EventFollower]]:
    """The chain, and the contract's events up to now and from then on."""
    require_contract(configuration)
    home.create()
    async with await Chain.connect(configuration.rpc, to_address(configuration.contract)) as chain:
        with free_file(home, chain) as path:
            async with EventFollower(chain, path, start_block=configuration.start_block) as follower:
                await follower.catch_up()
                yield chain, follower


def require_contract(configuration: Configuration) -> None:
    """Raise ConfigurationError where a deployment of tabs is named, and no contract of the per-task way."""
    if configuration.market is not None and not configuration.contract:
        what = "This command belongs to the per-task way, and the configuration names a deployment of tabs"
        raise ConfigurationError(what, "[market]", "Use `troth client tabs`, `open`, `top-up`, `close` and `receipts`.")
