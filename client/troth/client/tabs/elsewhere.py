"""Tabs of this wallet that were opened on another machine, which only the chain knows of here.

What is in them is this wallet's, and to close one takes its key alone. To order on one takes the tab's own key, which
is where it was opened: another machine may use it, so it is closed only where it is named.
"""

from __future__ import annotations

from collections.abc import Iterable

from troth.client.configuration import ClientConfiguration
from troth.client.errors import ConfigurationError
from troth.client.home import Home
from troth.client.orders.session import following
from troth.client.tabs.books import OwnTab, TabBooks
from troth.client.tabs.errors import NoTab
from troth.client.wallet import wallet_address
from troth.protocol.market.tabs import PayerBook


async def opened_elsewhere(home: Home, configuration: ClientConfiguration, known: Iterable[OwnTab]) -> list[OwnTab]:
    """Open tabs of the wallet here on the configured deployment, without those that are ``known``; none where there is
    no wallet. Raises ChainError where the chain cannot be asked."""
    if not home.keystore.exists():
        return []
    payer, ours = wallet_address(home), {one.identifier for one in known}
    place = configuration.market.place(ConfigurationError)
    async with following(home, configuration) as (market, follower):
        return [
            OwnTab(
                tab=found.tab,
                chain_id=market.chain.chain_id,
                bank=market.contracts.bank,
                factory=place.factory,
                start_block=place.start_block,
                rpc=configuration.rpc,
                created=0,
                book=PayerBook(identifier),
                voucher=None,
                delivered=False,
                doubt="",
            )
            for identifier, found in follower.state.tabs.items()
            if found.known and found.tab.payer == payer and identifier not in ours
        ]


async def find_any(books: TabBooks, home: Home, configuration: ClientConfiguration, text: str) -> OwnTab:
    """A tab by the beginning of its id, wherever it was opened, or of its scheduler's address; raises NoTab."""
    try:
        return books.find(text)
    except NoTab:
        wanted = text.strip().lower()
        others = await opened_elsewhere(home, configuration, books.all())
        fits = [one for one in others if len(wanted) > len("0x") and f"0x{one.identifier.hex()}".startswith(wanted)]
        if len(fits) != 1:
            raise
        return fits[0]
