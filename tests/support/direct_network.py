"""A network in which orders enter at running nodes: real contracts, nodes, scheduler, channels; a client of the market.

The overlay is left out: a client reaches a node's entry over a socket of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from support.byte_language import LANGUAGE
from support.court_network import CourtNetwork, court_network

from troth.chain.keystore import DEMO_SCRYPT_N
from troth.client.direct.entrance import Entrance
from troth.client.direct.nodes import NodeChoice
from troth.client.direct.ways import SchedulerWay, SchedulerWays
from troth.client.home import Home
from troth.client.https_calls import Calls
from troth.client.market_table import MarketTable
from troth.client.orders.calls import MarketCalls
from troth.client.orders.journal import OrderJournal
from troth.client.orders.session import PayerSession
from troth.client.tabs.books import TabBooks
from troth.client.tabs.keys import Keyring
from troth.client.tabs.store import TabStore
from troth.node.direct.entry_app import entry_app
from troth.protocol.market.state import Party
from troth.protocol.market.types import Tab
from troth.protocol.types import Address
from troth.transport.server import TlsServer, serving

LENIENT = {"stall": 60, "reviewers": 5, "seats": 1, "outside": 0}


@dataclass
class DirectNetwork:
    """``asked`` are the paths that the client asked of the scheduler itself."""

    network: CourtNetwork
    session: PayerSession
    entry: Address
    asked: list[str]

    @property
    def follower(self) -> Any:
        return self.network.follower

    def parts(self, node: Address) -> Any:
        direct = self.network.nodes[node]._direct
        assert direct is not None
        assert direct.parts is not None
        return direct.parts


class _Counted(httpx.ASGITransport):
    """The scheduler's application, and what was asked of it."""

    def __init__(self, app: Any, asked: list[str]) -> None:
        super().__init__(app=app)
        self._asked = asked

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._asked.append(f"{request.method} {request.url.path}")
        return await super().handle_async_request(request)


@asynccontextmanager
async def direct_network(
    anvil: Any, folder: Path, change: Callable[[Any], Any] = lambda app: app, **changes: Any
) -> AsyncIterator[DirectNetwork]:
    """``change`` puts something between the client and the entry's application."""
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(court_network(anvil, folder / "network", **changes))
        entry = network.stage.nodes[0].address
        direct = network.nodes[entry]._direct
        assert direct is not None
        assert direct.parts is not None
        group = direct._group
        assert group is not None
        # An entry of the overlay tells and hears; here it is one without the overlay.
        running = asyncio.create_task(group.run())
        stack.callback(running.cancel)
        app = FastAPI()
        app.mount("/", change(entry_app(direct.parts.entry)))
        server = await stack.enter_async_context(serving(TlsServer(app, None, "127.0.0.1", 0)))
        asked: list[str] = []
        session, store = await _session(network, folder / "client", asked)
        stack.callback(store.close)

        def opening(scheduler: Address, _node: Address) -> SchedulerWay:
            base = f"http://127.0.0.1:{server.port}/schedulers/{scheduler}"
            client = httpx.AsyncClient(base_url=base, trust_env=False, verify=False)
            return SchedulerWay(MarketCalls(Calls(client, "entry")), client.aclose)

        ways = SchedulerWays(opening)
        stack.push_async_callback(ways.close)
        session.entrance = Entrance(NodeChoice(lambda _class: [entry]), ways)
        session.mode = "direct"
        yield DirectNetwork(network, session, entry, asked)


async def _session(network: CourtNetwork, folder: Path, asked: list[str]) -> tuple[PayerSession, TabStore]:
    stage, home = network.stage, Home(folder)
    home.create()
    store, keyring = TabStore(home.tabs), Keyring(home, "password")
    key = keyring.create(DEMO_SCRYPT_N)
    await stage.open_tab(stage.client, stage.scheduler.address, key)
    stage.anvil.mine(2)
    await network.follower.catch_up()
    await network.scheduler.ledger.catch_up()

    async def connect(_party: Party) -> MarketCalls:
        transport = _Counted(network.scheduler.app(), asked)
        client = httpx.AsyncClient(transport=transport, base_url="https://scheduler", timeout=60)
        return MarketCalls(Calls(client, "https://scheduler"))

    books = TabBooks(store)
    books.add(
        Tab(stage.client.address, stage.scheduler.address, key.address),
        chain_id=31337,
        bank=stage.market.contracts.bank,
        factory=stage.market.place.factory,
    )
    session = PayerSession(
        domain=stage.market.domain,
        follower=network.follower,
        books=books,
        journal=OrderJournal(store),
        keyring=keyring,
        connect=connect,
        table=MarketTable(stage.market.place.factory, **LENIENT),
        language=replace(LANGUAGE, end_tokens=(63,)),  # the toy model has no more tokens
        class_id=stage.class_id,
        named=True,
    )
    return session, store
