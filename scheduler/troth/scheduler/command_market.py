"""`tabs` and `prices`: what a scheduler of a market holds, and what it asks."""

from __future__ import annotations

import asyncio

from troth.scheduler.command_options import DEFAULT_HOME, HomeOption, JsonOption, folder_of, show


def tabs(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Tabs of clients and with nodes: what they hold, what is owed, what is not acknowledged."""
    from troth.scheduler.market.status import tabs_of_market

    show(asyncio.run(tabs_of_market(folder_of(home))), as_json=as_json)


def prices(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """The price list as it is configured, and where it is published."""
    from troth.scheduler.market.status import prices_of_market

    show(prices_of_market(folder_of(home)), as_json=as_json)
