"""What the commands for tabs do: open, top up, take back, list; over any deployment that this client ever used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from troth.chain.errors import ChainError
from troth.chain.keystore import Key, read_password
from troth.chain.market import Market, find_place
from troth.chain.tokens import asset_of, read_asset
from troth.client.configuration import ClientConfiguration
from troth.client.errors import ClientError, ConfigurationError, WalletError
from troth.client.home import Home
from troth.client.orders.journal import OrderJournal, OrderRecord, Phase
from troth.client.orders.session import following
from troth.client.tabs import opening
from troth.client.tabs.books import OwnTab, TabBooks
from troth.client.tabs.elsewhere import find_any, opened_elsewhere
from troth.client.tabs.keys import Keyring
from troth.client.tabs.opening import OpeningCalls, carry_out
from troth.client.tabs.spending import spending
from troth.client.tabs.store import TabStore, opened
from troth.client.wallet import open_wallet, wallet_address
from troth.client.web.wallet_page import Done, WalletPage
from troth.protocol.amounts import Asset
from troth.protocol.market.calls import view
from troth.protocol.market.parts import Part
from troth.protocol.market.state import State
from troth.protocol.market.types import Role, Tab, TabState
from troth.protocol.types import Address, to_address
from troth.transport.command_options import priced

__all__ = ["Purse", "TabStore", "list_tabs", "open_tab", "take_back", "top_up", "trust"]


@dataclass(frozen=True, slots=True)
class Purse:
    """Who signs: the home with its wallet and tab keys, and the password of both."""

    home: Home
    password_file: Path | None = None
    scrypt_n: int | None = None
    held: Keyring | None = None

    def keyring(self) -> Keyring:
        """The tab keys; asked for the password once where ``held`` has them."""
        return self.held or Keyring(self.home, self.password("the tab keys"))

    def password(self, purpose: str) -> str:
        """Of the keyfiles here."""
        return read_password(self.password_file, purpose=purpose)

    def wallet(self, sender: Address, *, broadcast: bool) -> Key | None:
        """The wallet's key where it is to send from this account; WalletError where it cannot."""
        if not broadcast:
            return None
        key = open_wallet(self.home, self.password_file)
        if key.address != sender:
            what = "The wallet here is not the account that is to send this"
            raise WalletError(what, sender, "Leave --broadcast out, and send the printed calls from that wallet.")
        return key

    def payer(self, named: str) -> Address:
        """The account that owns a tab: one that was named, or the wallet here."""
        return to_address(named) if named else wallet_address(self.home)


async def open_tab(
    purse: Purse, configuration: ClientConfiguration, amount: str, *, payer: str = "", broadcast: bool = False
) -> dict[str, Any]:
    """Open a tab with the configured scheduler; a dry run prepares its key and prints the calls."""
    sender = purse.payer(payer)
    wallet = purse.wallet(sender, broadcast=broadcast)
    async with following(purse.home, configuration) as (market, follower):
        with opened(purse.home.tabs) as store:
            scheduler = scheduler_of(follower.state, configuration)
            asset = await read_asset(market, _asset_of(follower.state))
            keyring = purse.keyring()
            record = _prepared(
                purse, TabBooks(store), keyring, follower.state, configuration, market, sender, scheduler
            )
            units = asset.parse(amount)
            key = keyring.key(record.tab.key)
            async with spending(market, asset, purse.home if broadcast else None):
                plan = await opening.plan_open(market, asset, record, key, units, wallet)
                done = await carry_out(market, plan, wallet, broadcast=broadcast)
    more = {"chain_id": record.chain_id, "shown": [asset.show(units)] * len(plan.calls)}
    return done | {"tab": _name(record), "scheduler": scheduler, "key": record.tab.key, **more}


def _prepared(  # noqa: PLR0917
    purse: Purse,
    books: TabBooks,
    keyring: Keyring,
    state: State,
    configuration: ClientConfiguration,
    market: Market,
    payer: Address,
    scheduler: Address,
) -> OwnTab:
    """The tab that a dry run prepared and nobody opened yet, else a new one with a new key."""
    for record in books.all(market.domain):
        same = (record.tab.payer, record.tab.payee) == (payer, scheduler)
        if same and not state.tab_state(record.identifier).known:
            return record
    key = keyring.create(purse.scrypt_n)
    place = configuration.market.place(ConfigurationError)
    return books.add(
        Tab(payer, scheduler, key.address),
        chain_id=market.chain.chain_id,
        bank=market.contracts.bank,
        factory=place.factory,
        start_block=place.start_block,
        rpc=configuration.rpc,
    )


def scheduler_of(state: State, configuration: ClientConfiguration) -> Address:
    """The configured scheduler, or the only one; ConfigurationError where that is nobody or not clear."""
    found = [one for one in state.parties.values() if one.role is Role.SCHEDULER and not one.exit_block]
    if configuration.scheduler:
        found = [one for one in found if one.operator.lower() == configuration.scheduler.lower()]
    if len(found) == 1:
        return found[0].operator
    names = ", ".join(one.operator for one in found) or configuration.scheduler or "none is registered"
    what = "There are several schedulers" if found else "There is no such scheduler"
    raise ConfigurationError(what, names, "Name the operator address of one with --scheduler.")


def _asset_of(state: State) -> Address:
    assert state.deployed is not None
    return state.deployed.parameters.asset


async def top_up(
    purse: Purse, configuration: ClientConfiguration, tab: str, amount: str, *, broadcast: bool = False
) -> dict[str, Any]:
    """Add to a tab, named by the beginning of its id or of its scheduler's address; where none is, to the only one."""
    with opened(purse.home.tabs) as store:
        record = _named(TabBooks(store), tab)
        sender = purse.payer("")
        wallet = purse.wallet(sender, broadcast=broadcast)
        async with deployment_of(record, configuration) as market:
            asset = await asset_of(market)
            units = asset.parse(amount)
            async with spending(market, asset, purse.home if broadcast else None):
                plan = await opening.plan_top_up(market, asset, record, units, sender)
                return await carry_out(market, plan, wallet, broadcast=broadcast) | {"tab": _name(record)}


def _named(books: TabBooks, text: str) -> OwnTab:
    records = books.all()
    return records[0] if not text and len(records) == 1 else books.find(text)


async def take_back(
    purse: Purse, configuration: ClientConfiguration, tab: str = "", *, broadcast: bool = False
) -> list[dict[str, Any]]:
    """Take the next step that brings money back, of one tab or of all, whatever deployment they are on.

    An open tab is closed; one whose delay is over gives back what is left; one that waits says until when. One that
    another machine opened with this wallet is only named, unless it is ``tab``.
    """
    done = []
    with opened(purse.home.tabs) as store:
        books = TabBooks(store)
        records = [await find_any(books, purse.home, configuration, tab)] if tab else books.all()
        for record in records:
            try:
                done.append(await _taken_back(purse, configuration, record, broadcast=broadcast))
            except (ChainError, ClientError) as error:
                if tab:
                    raise
                done.append({"tab": _name(record), "step": "failed", "why": f"{error.what} ({error.value})"})
    others = [] if tab else await _elsewhere(purse.home, configuration, records)
    return [*done, *({"tab": _name(one), "step": "elsewhere"} for one in others)]


async def _elsewhere(home: Home, configuration: ClientConfiguration, known: list[OwnTab]) -> list[OwnTab]:
    """None where the chain cannot be asked: what is here is told all the same."""
    try:
        return await opened_elsewhere(home, configuration, known)
    except (ChainError, ClientError):
        return []


async def _taken_back(
    purse: Purse, configuration: ClientConfiguration, record: OwnTab, *, broadcast: bool
) -> dict[str, Any]:
    async with deployment_of(record, configuration) as market:
        state, block = await tab_state(market, record), await market.chain.block_number()
        step = opening.next_step(state, block)
        told = {
            "tab": _name(record),
            "step": step,
            "balance_units": str(state.balance),
            "balance": priced(await asset_of(market)).show(state.balance),
            "closes_at": state.closes_at,
        }
        if step in {"nothing", "wait"}:
            return told | {"block": block}
        plan: OpeningCalls = opening.plan_close(market, record)
        if step == "finish":
            plan = opening.plan_finish(market, record, record.tab.payer)
        wallet = purse.wallet(record.tab.payer, broadcast=broadcast)
        more = {"chain_id": record.chain_id, "shown": ["no money"] * len(plan.calls)}
        return told | await carry_out(market, plan, wallet, broadcast=broadcast) | more


async def open_by_wallet(
    purse: Purse, configuration: ClientConfiguration, amount: str, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Open a tab with a browser's wallet; ``tell`` gets the address of the page."""
    ready = replace(purse, held=purse.keyring())

    async def plan(payer: str) -> dict[str, Any]:
        return await open_tab(ready, configuration, amount, payer=payer)

    return await WalletPage(f"Open a tab of {amount}", plan, _taken(purse, configuration)).run(tell)


async def take_back_by_wallet(
    purse: Purse, configuration: ClientConfiguration, tab: str, tell: Callable[[str], None]
) -> dict[str, Any]:
    """The next step that brings a tab's money back, with a browser's wallet; where only blocks help, nothing."""
    with opened(purse.home.tabs) as store:
        record = _named(TabBooks(store), tab)
    name = _name(record)
    (before,) = await take_back(purse, configuration, name)
    if "calls" not in before:
        return before

    async def plan(_: str) -> dict[str, Any]:
        (told,) = await take_back(purse, configuration, name)
        return told

    titles = {"close": "Close a tab", "finish": "Take back what is left of a tab"}
    title = f"{titles[before['step']]}: {name[:14]}…"
    return await WalletPage(title, plan, _taken(purse, configuration), payer=record.tab.payer).run(tell)


def _taken(purse: Purse, configuration: ClientConfiguration) -> Done:
    """Whether a plan is carried out: by the chain, the tab's next step is another one than before."""

    async def done(planned: dict[str, Any]) -> bool:
        before: str = planned.get("step", "nothing")
        with opened(purse.home.tabs) as store:
            record = TabBooks(store).find(planned["tab"])
        async with deployment_of(record, configuration) as market:
            state, block = await tab_state(market, record), await market.chain.block_number()
        return opening.next_step(state, block) != before

    return done


async def list_tabs(home: Home, configuration: ClientConfiguration) -> list[dict[str, Any]]:
    """What is in each tab, what is outstanding, and what must be known about it."""
    found = []
    with opened(home.tabs) as store:
        books, journal = TabBooks(store), OrderJournal(store)
        own = books.all()
        others = await _elsewhere(home, configuration, own)
        for record in [*own, *others]:
            told = _told(record, journal.unpaid(record.identifier)) | {"elsewhere": record in others}
            try:
                async with deployment_of(record, configuration) as market:
                    asset = priced(await asset_of(market))
                    told |= _on_chain(record, await tab_state(market, record), asset)
                    told["unacknowledged"] = asset.show(int(told["unacknowledged_units"]))
            except (ChainError, ClientError) as error:
                told |= {"chain": f"{error.what} ({error.value})"}
            found.append(told)
    return found


def trust(home: Home, tab: str, *, yes: bool) -> dict[str, Any]:
    """Why no more is ordered on a tab; with ``yes`` it is ordered on again."""
    with opened(home.tabs) as store:
        books, journal = TabBooks(store), OrderJournal(store)
        record = books.find(tab)
        if yes and record.doubt:
            books.doubt(record.identifier, "")
        return _told(record, journal.unpaid(record.identifier)) | {"trusted": yes or not record.doubt}


def _told(record: OwnTab, unpaid: list[OrderRecord]) -> dict[str, Any]:
    """A tab by what is here. *Outstanding* is the most that what is open may cost; *unacknowledged* is what its answers
    cost, and of those that run the most: the same sum as its scheduler counts."""
    book = record.book
    return {
        "tab": _name(record),
        "scheduler": record.tab.payee,
        "payer": record.tab.payer,
        "bank": record.bank,
        "orders": book.sequence,
        "spent_units": str(book.spent),
        "outstanding_units": str(book.authorised - book.spent),
        "outstanding_orders": sorted(book.bounds),
        "unacknowledged_units": str(_unacknowledged(record, unpaid)),
        "unchecked": [entry.name for entry in unpaid if entry.phase is Phase.REFUSED_CHECK],
        "open": {entry.name: str(entry.phase) for entry in unpaid},
        "delivered": record.delivered,
        "doubt": record.doubt,
    }


def _unacknowledged(record: OwnTab, unpaid: list[OrderRecord]) -> int:
    fees = {entry.sequence: entry.fee for entry in unpaid if entry.fee is not None}
    return sum(fees.get(number, most) for number, most in record.book.bounds.items())


def _on_chain(record: OwnTab, state: TabState, asset: Asset) -> dict[str, Any]:
    free = state.balance + state.redeemed - record.book.authorised
    return {
        "known": state.known,
        "balance_units": str(state.balance),
        "balance": asset.show(state.balance),
        "redeemed_units": str(state.redeemed),
        "free_units": str(max(free, 0)),
        "free": asset.show(max(free, 0)),
        "closes_at": state.closes_at,
        "spent": asset.show(record.book.spent),
        "outstanding": asset.show(record.book.authorised - record.book.spent),
    }


async def tab_state(market: Market, record: OwnTab) -> TabState:
    """What the Bank holds of a tab now."""
    asked = view(market.contracts, Part.BANK, "tabOf", record.identifier, returns=TabState)
    return await market.read(asked)


@asynccontextmanager
async def deployment_of(record: OwnTab, configuration: ClientConfiguration) -> AsyncIterator[Market]:
    """The deployment of a tab: the configured one, or an older one where the tab was opened."""
    ours = configuration.market.place(ConfigurationError).factory == record.factory
    rpc = configuration.rpc if ours or not record.rpc else record.rpc
    place = await find_place(rpc, record.factory, record.bank, record.start_block)
    async with await Market.connect(rpc, place, chain_id=record.chain_id) as market:
        yield market


def _name(record: OwnTab) -> str:
    return "0x" + record.identifier.hex()
