"""A client that runs: its session, its keeper, and what its user told it to do by itself.

What it does by itself needs the wallet, since deposits and bonds come from there; without that the wallet stays closed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from troth.chain.keystore import Key
from troth.chain.market_follower import MarketFollower
from troth.chain.passwords import read_password
from troth.client.configuration import Configuration
from troth.client.home import Home
from troth.client.orders.keeping import Keeper, Report, unheard
from troth.client.orders.seams import CaseOpener
from troth.client.orders.session import MarketSession, market_session, table_of
from troth.client.orders.summoning import AutomaticSummons
from troth.client.tabs.asset import Asset, read_asset
from troth.client.wallet import open_wallet

OPENERS = "troth.case_openers"
"""Entry points that make a CaseOpener from a session and the wallet's key."""
MakeOpener = Callable[[MarketSession, Key], CaseOpener]


@dataclass(frozen=True, slots=True)
class Running:
    """A session with its asset, and the keeper that works beside it."""

    session: MarketSession
    asset: Asset
    keeper: Keeper

    @property
    def follower(self) -> MarketFollower:
        """The session's view of the chain."""
        return self.session.follower


@asynccontextmanager
async def running(
    home: Home, configuration: Configuration, password_file: Path | None, report: Report = unheard
) -> AsyncIterator[Running]:
    """Connect, and keep what is due in the background."""
    table = table_of(configuration)
    password = read_password(password_file, purpose="the tab keys")
    wallet = open_wallet(home, password_file) if table.summons or table.case else None
    async with market_session(home, configuration, password) as session:
        assert session.market is not None
        asset = await read_asset(session.market, session.parameters.asset)
        summons = None
        if wallet is not None and table.summons:
            summons = AutomaticSummons(session.market, asset, wallet, asset.parse(table.summons))
        if wallet is not None and table.case:
            session.case_bond = asset.parse(table.case)
            session.opener = opener_for(session, wallet)
        async with Keeper(session, summons, report) as keeper:
            yield Running(session, asset, keeper)


def opener_for(session: MarketSession, wallet: Key) -> CaseOpener | None:
    """Who opens cases here; None where no such package is installed."""
    for found in entry_points(group=OPENERS):
        make: MakeOpener = found.load()
        return make(session, wallet)
    return None
