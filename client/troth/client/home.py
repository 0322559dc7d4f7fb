"""Where the client keeps things: one folder, mode 0700, under the home folder of all Troth commands."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

SPENDING_SECONDS, SPENDING_LOOK = 90.0, 0.1
"""How long another program of this home may take for an approval and its call, and how often it is looked for."""
VIEWS = 8
"""Commands that can keep their view of the chain at the same time; any further one reads the chain anew."""


@dataclass(frozen=True, slots=True)
class Home:
    """Paths below the home folder (`--home`, TROTH_HOME, by default ~/.troth)."""

    root: Path

    @property
    def folder(self) -> Path:
        """The client's own folder."""
        return self.root / "client"

    @property
    def configuration(self) -> Path:
        """client.toml"""
        return self.folder / "client.toml"

    @property
    def keystore(self) -> Path:
        """The wallet, an Ethereum keyfile of version 3."""
        return self.folder / "wallet.json"

    @property
    def tabs(self) -> Path:
        """Tabs, their vouchers and the orders on them (SQLite)."""
        return self.folder / "tabs.sqlite3"

    @property
    def tab_keys(self) -> Path:
        """Keyfiles of tab keys, one for each tab."""
        return self.folder / "tab-keys"

    @property
    def tickets(self) -> Path:
        """Tickets, their signatures and payments (SQLite)."""
        return self.folder / "tickets.sqlite3"

    @property
    def ticket_key(self) -> Path:
        """The keyfile from which tickets follow."""
        return self.folder / "ticket-key.json"

    @property
    def cases(self) -> Path:
        """The folder with the journal of cases that this client brought to the court."""
        return self.folder / "cases"

    @property
    def gateway_key(self) -> Path:
        """The API key that the gateway asks for."""
        return self.folder / "gateway.key"

    @property
    def gateway_ledger(self) -> Path:
        """Which of the gateway's completions was made of which tasks (SQLite)."""
        return self.folder / "gateway.sqlite3"

    @property
    def languages(self) -> Path:
        """Tokenizers and chat templates that were checked."""
        return self.folder / "languages"

    @property
    def directory(self) -> Path:
        """The newest list of relays and schedulers, and whose signatures count."""
        return self.folder / "directory.msgpack"

    @property
    def guards(self) -> Path:
        """The relays that this client connects to itself."""
        return self.folder / "guards.json"

    @property
    def relay(self) -> Path:
        """The folder of the relay that the gateway runs."""
        return self.folder / "relay"

    @contextmanager
    def chain_view(self, chain_id: int, contract: str) -> Iterator[Path | None]:
        """A copy of one contract's events (SQLite) that nobody else holds for as long as the block runs.

        A follower folds into memory what it appended itself, and would miss what another process appended in between.
        So each command takes the first file that nobody holds; None where all are held.
        """
        folder = self.folder / "chain"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(VIEWS):
            name = f"{chain_id}-{contract.lower()}{f'-{number}' if number else ''}"
            with _locked(folder / f"{name}.lock") as held:
                if held:
                    yield folder / f"{name}.sqlite3"
                    return
        yield None

    @asynccontextmanager
    async def spending(self) -> AsyncIterator[None]:
        """Held by one program of this home from its look at a token's allowance to the call that takes it: one approval
        replaces another. Nobody waits for a program that hangs."""
        self.create()
        until = time.monotonic() + SPENDING_SECONDS
        while True:
            with _locked(self.folder / "spending.lock") as held:
                if held or time.monotonic() > until:
                    yield
                    return
            await asyncio.sleep(SPENDING_LOOK)

    def create(self) -> None:
        """Make the client's folder, readable by its owner only."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether this process has the lock for as long as the block runs; never waits. SQLite's lock is on all systems."""
    lock = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            yield False
        else:
            yield True
    finally:
        lock.close()
