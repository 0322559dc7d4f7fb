"""A client that runs: its session, its keeper, and what its user told it to do by itself.

What it does by itself needs the wallet, since deposits and bonds come from there; without that the wallet stays closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from troth.chain.errors import KeystoreError
from troth.chain.keystore import Key, load_account, read_password
from troth.chain.market_follower import MarketFollower
from troth.chain.tokens import read_asset
from troth.client.configuration import ClientConfiguration
from troth.client.errors import WalletError
from troth.client.home import Home
from troth.client.orders.court import ClientDeployment, open_court
from troth.client.orders.keeping import OrderKeeper, unheard
from troth.client.orders.objecting import Objector
from troth.client.orders.own_check import own_model
from troth.client.orders.resuming import Report
from troth.client.orders.session import PayerSession, market_session
from troth.client.orders.summoning import AutomaticSummons
from troth.client.wallet import require_wallet
from troth.protocol.amounts import COIN, Asset
from troth.transport.command_options import priced

CASES_TOGETHER = 4
"""Times the largest bond that is at stake in all cases, unless the table says otherwise."""


@dataclass(frozen=True, slots=True)
class Running:
    """A session with its asset, and the keeper that works beside it."""

    session: PayerSession
    asset: Asset
    keeper: OrderKeeper

    @property
    def follower(self) -> MarketFollower:
        """The session's view of the chain."""
        return self.session.follower


@asynccontextmanager
async def running(
    home: Home, configuration: ClientConfiguration, password_file: Path | None, report: Report = unheard
) -> AsyncIterator[Running]:
    """Connect, and keep what is due in the background."""
    table = configuration.market
    password = read_password(password_file, purpose="the tab keys")
    automatic = bool(table.summons or table.case)
    wallet = wallet_of(home, password, report) if automatic else None
    async with market_session(home, configuration, password) as session, AsyncExitStack() as stack:
        assert session.market is not None
        asset = priced(await read_asset(session.market, session.parameters.asset))
        session.own_model = await stack.enter_async_context(own_model(home, table.model))
        summons = None
        if wallet is not None and table.summons:
            summons = AutomaticSummons(session.market, asset, wallet, asset.parse(table.summons), home)
        if wallet is not None and table.case:
            most = asset.parse(table.case)
            together = asset.parse(table.cases) if table.cases else CASES_TOGETHER * most
            place = ClientDeployment(session.market, session.follower, session.journal, home)
            court = await stack.enter_async_context(open_court(place, wallet, asset, most, report, together))
            if session.tier is None:
                # A case shows parts of states on chain, to everybody: of a confidential order its user decides that.
                session.opener = court
            await stack.enter_async_context(in_background(court.run(), "cases of a client"))
        most = COIN.parse(table.objections) if table.objections else 0
        objector = Objector(session.market, asset, most, partial(wallet_of, home, password), home)
        async with OrderKeeper(session, summons, report, objector) as keeper:
            yield Running(session, asset, keeper)


def wallet_of(home: Home, password: str, report: Report = unheard) -> Key | None:
    """The wallet's key, which pays deposits and bonds; where it does not open, None, told in one line."""
    try:
        require_wallet(home)
        return load_account(home.keystore, password)
    except (WalletError, KeystoreError) as error:
        report(None, f"nothing is summoned or brought to the court by itself: {error.what} ({error.value})")
        return None


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """A task for as long as the block runs."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
