"""A client's session before toy schedulers, with a tab at each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
from support.byte_language import LANGUAGE
from support.toy_market import CHAIN_ID, CLASS_ID, CONTRACTS, DEPOSIT, DOMAIN, FACTORY, PAYER, TABLE, World
from support.toy_tab_scheduler import ToyScheduler

from troth.chain.keystore import DEMO_SCRYPT_N
from troth.client.home import Home
from troth.client.https_calls import Calls
from troth.client.orders.calls import MarketCalls
from troth.client.orders.journal import OrderJournal
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.session import PayerSession
from troth.client.tabs.books import TabBooks
from troth.client.tabs.keys import Keyring
from troth.client.tabs.store import TabStore
from troth.protocol.market import tabs
from troth.protocol.market.state import Party
from troth.protocol.market.types import (
    Tab,
    TabState,
)
from troth.protocol.types import (
    Address,
    Hash32,
)
from troth.transport.server import TlsServer, serving


@dataclass
class Stage:
    """A client's session before one or more schedulers."""

    world: World
    schedulers: list[ToyScheduler]
    session: PayerSession
    store: TabStore
    home: Home
    tabs: list[Hash32]
    clients: dict[Address, httpx.AsyncClient]

    @property
    def scheduler(self) -> ToyScheduler:
        return self.schedulers[0]

    @property
    def tab(self) -> Hash32:
        return self.tabs[0]

    def book(self, number: int = 0) -> tabs.PayerBook:
        return self.session.books.record(self.tabs[number]).book

    def state(self, number: int = 0) -> TabState:
        return self.world.state.tab_state(self.tabs[number])

    def another(self) -> tuple[PayerSession, TabStore]:
        """A second process on the same home; close its store."""
        return session_on(self.world, self.home, self.clients)


def session_on(
    world: World, home: Home, clients: dict[Address, httpx.AsyncClient], stall: int = TABLE.stall
) -> tuple[PayerSession, TabStore]:
    store = TabStore(home.tabs)

    async def connect(party: Party) -> MarketCalls:
        return MarketCalls(Calls(clients[party.operator], "http://toy"))

    session = PayerSession(
        domain=DOMAIN,
        follower=world,  # type: ignore[arg-type]
        books=TabBooks(store),
        journal=OrderJournal(store),
        keyring=Keyring(home, "password"),
        connect=connect,
        table=msgspec.structs.replace(TABLE, stall=stall),
        language=LANGUAGE,
        class_id=CLASS_ID,
    )
    return session, store


@asynccontextmanager
async def toy_stage(
    folder: Path,
    *,
    schedulers: int = 1,
    ends: tuple[int, ...] = (2,),
    deposit: int = DEPOSIT,
    stall: int = TABLE.stall,
    **options: Any,
) -> AsyncIterator[Stage]:
    """Schedulers on sockets, a tab with each, and a session, which waits ``stall`` seconds for a silent one."""
    world = World(ends)
    home = Home(folder)
    home.create()
    toys = [ToyScheduler(world, 10 * number, **options) for number in range(schedulers)]
    async with AsyncExitStack() as stack:
        clients = {}
        for toy in toys:
            serves = TlsServer(toy.app(), None, "127.0.0.1", 0, grace_seconds=0.1)
            server = await stack.enter_async_context(serving(serves))
            client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, verify=False)
            clients[toy.key.address] = await stack.enter_async_context(client)
        session, store = session_on(world, home, clients, stall)
        stack.callback(store.close)
        opened = []
        for toy in toys:
            key = session.keyring.create(DEMO_SCRYPT_N)
            tab = Tab(PAYER.address, toy.key.address, key.address)
            session.books.add(tab, chain_id=CHAIN_ID, bank=CONTRACTS.bank, factory=FACTORY)
            opened.append(world.open_tab(tab, deposit))
        yield Stage(world, toys, session, store, home, opened, clients)


async def restarted(stage: Stage, rounds: int = 1) -> PayerSession:
    """Another process finds the files as they are, and does what is due."""
    session, store = stage.another()
    stage.store.close()
    stage.store, stage.session = store, session
    # The dead process's lease is over.
    store.execute("UPDATE orders SET held_until = 0")
    for _ in range(rounds):
        await OrderKeeper(session).once()
    return session
