"""`troth scheduler exit`, `withdraw`, `finish`, `top-up`, `redeem`, `claim` and `earnings` for a market.

They work beside the running process or without it. The running one answers objections and settles claims.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.chain.keystore import Key, address_in, load_account, read_password
from troth.chain.sending import Told, TransactionSender, carry_out, carry_out_all, carry_out_paying
from troth.chain.tokens import asset_of, described
from troth.chain.withdrawing import gas_warning, withdrawable
from troth.protocol.market import messages
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.parts import Part
from troth.protocol.market.state import State
from troth.protocol.market.types import Contracts, Parameters, PotKind, Tab
from troth.protocol.market.views import parameters_of
from troth.protocol.types import Address, Hash32
from troth.scheduler.commands.status import DeploymentStatus, looking
from troth.scheduler.errors import ConfigurationInvalid
from troth.scheduler.orders.store import OrderStore
from troth.scheduler.tabs import claiming, redeeming
from troth.scheduler.tabs.client_tabs import ClientTabs
from troth.scheduler.tabs.database import SchedulerDatabase
from troth.scheduler.tabs.node_tabs import NodeTabs
from troth.transport.identity import Operator

DAY = 86_400.0
WEEK = 7 * DAY
RECORDS = "market.sqlite"


@dataclass(frozen=True, slots=True)
class CommandLedger:
    """The chain as a command followed it."""

    state: State
    block: int
    contracts: Contracts
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class SchedulerBooks:
    """A scheduler's books beside the chain; see ``tabs.money.ClientBooks``."""

    looked: DeploymentStatus
    database: SchedulerDatabase
    ledger: CommandLedger
    client_tabs: ClientTabs
    store: OrderStore
    node_tabs: NodeTabs


@asynccontextmanager
async def holding(folder: Path) -> AsyncIterator[SchedulerBooks]:
    """The books as they are on disk now."""
    async with looking(folder) as looked:
        database = SchedulerDatabase(folder / RECORDS)
        try:
            # Nothing is signed here: a secret that no account has stands for the operator's.
            operator = Operator(b"\x01" * 32, looked.market.domain)
            ledger = CommandLedger(looked.state, looked.block, looked.market.contracts, parameters_of(looked.state))
            books = (ClientTabs(database), OrderStore(database), NodeTabs(database, operator))
            yield SchedulerBooks(looked, database, ledger, *books)
        finally:
            await database.close()


# ------------------------------------------------------------------------------------------------------- registration


async def exit_of_market(folder: Path, password_file: Path | None, *, broadcast: bool) -> Told:
    """Leave: no order is taken any more, and the stake is free once its time is over. Owed work is still served."""
    async with looking(folder) as looked:
        call = build(looked.market.contracts, Part.REGISTRY, "deregister", looked.operator)
        told = await carry_out(looked.market, call, _operator(looked, password_file), broadcast=broadcast)
        owed = "Keep it running until `troth scheduler status` shows nothing unfinished and no tab is open."
        found = await withdrawable(looked.market, looked.operator)
        free = found.unbinding(parameters_of(looked.state).unbonding)
        return {**told, **free, **described(await asset_of(looked.market)), "next": owed}


async def withdraw_of_market(folder: Path, password_file: Path | None, *, broadcast: bool) -> Told:
    """Stake to credit once it is unbound, and credit to the payout address."""
    async with looking(folder) as looked:
        contracts, me = looked.market.contracts, looked.operator
        calls = [build(contracts, Part.BANK, "withdraw", me)]
        found = await withdrawable(looked.market, me)
        asset = await asset_of(looked.market)
        found.require_some(asset, "troth scheduler")
        if found.is_stake_free:
            calls.insert(0, build(contracts, Part.REGISTRY, "withdrawStake", me))
        told = await _all(looked, calls, password_file, broadcast=broadcast)
        return {**found.told(), "payout": looked.state.payout_of(me), **described(asset), **told}


async def top_up_of_market(
    folder: Path, amount: str, payer: tuple[Path | None, Path | None], node: str, *, broadcast: bool
) -> Told:
    """Add stake, or to the tab with ``node``. ``payer``: another keyfile than the operator's, and its password."""
    keystore, password_file = payer
    async with looking(folder) as looked:
        asset = await asset_of(looked.market)
        added = asset.parse(amount)
        value = added if asset.is_coin else 0
        contracts = looked.market.contracts
        if node:
            call = build(contracts, Part.BANK, "topUp", _tab_with(looked, node), added, value=value)
        else:
            call = build(contracts, Part.REGISTRY, "topUp", looked.operator, added, value=value)
        named = keystore or looked.configuration.operator_keystore
        sender = address_in(named)
        if sender is None:
            raise ConfigurationInvalid("The keystore names no address", named, "Restore it.")
        who = TransactionSender(sender, _opening(named, password_file))
        told = await carry_out_paying(looked.market, call, added, who, broadcast=broadcast)
        return {**told, "added_units": str(added), **described(asset)}


def _tab_with(looked: DeploymentStatus, node: str) -> Hash32:
    """The open tab with a node, by its address or the beginning of it."""
    found = [
        tab
        for tab, record in looked.state.tabs.items()
        if record.tab.payer == looked.operator
        and record.tab.payee.lower().startswith(node.lower())
        and record.known
        and not record.closes_at
    ]
    if len(found) != 1:
        raise ConfigurationInvalid("No one open tab is with that node", node, "`troth scheduler tabs` lists them.")
    return found[0]


# --------------------------------------------------------------------------------------------------------------- tabs


async def finish_of_market(folder: Path, password_file: Path | None, *, broadcast: bool) -> Told:
    """Bring money back from tabs with nodes: close them, and take what is left once it is free.

    While this scheduler may take orders it pays nodes from these tabs: then only those with nodes that have left are
    closed, and it is refused where there is none.
    """
    async with holding(folder) as held:
        state, me = held.ledger.state, held.looked.operator
        is_in_service = _is_in_service(state, me)
        calls, waiting = [], []
        for tab, record in state.tabs.items():
            if record.tab.payer != me or not record.known or not state.tab_state(tab).balance:
                continue
            if is_in_service and _is_in_service(state, record.tab.payee) and not record.closes_at:
                continue
            step = _finishing(held, record.tab, record.closes_at)
            if isinstance(step, PartCall):
                calls.append(step)
            else:
                waiting.append(f"0x{tab.hex()} with {record.tab.payee}: {step}")
        if is_in_service and not calls and not waiting:
            what = "This scheduler takes orders and pays nodes from its tabs, and none of these nodes has left"
            raise ConfigurationInvalid(what, me, "Run `troth scheduler exit --broadcast` first.")
        told = await _all(held.looked, calls, password_file, broadcast=broadcast)
        return {**told, "waiting": waiting}


def _is_in_service(state: State, operator: Address) -> bool:
    party = state.parties.get(operator)
    return party is not None and not party.exit_block


def _finishing(held: SchedulerBooks, tab: Tab, closes_at: int) -> PartCall | str:
    """The next call that brings a tab's money back, or what is waited for."""
    contracts = held.ledger.contracts
    if closes_at:
        if held.ledger.block >= closes_at:
            return build(contracts, Part.BANK, "finishClosing", tab)
        return f"free from block {closes_at} on; it is {held.ledger.block}"
    opened = len(held.node_tabs.held(tab.payee).owed)
    if opened:
        return f"{opened} promises are not acknowledged yet"
    return build(contracts, Part.BANK, "close", tab)


async def redeem_of_market(folder: Path, password_file: Path | None, *, broadcast: bool) -> Told:
    """Redeem every voucher of clients that pays something now."""
    async with holding(folder) as held:
        chosen = await redeeming.redeemable(held, 0)
        amount = sum(redeeming.payable(held, one) for one in chosen)
        total: Told = {"tabs": len(chosen), "amount_units": str(amount)}
        if not chosen:
            return {**total, "sent": False, "note": "nothing is acknowledged and not redeemed"}
        asset = await asset_of(held.looked.market)
        call = redeeming.redeem_call(held.ledger.contracts, chosen)
        looked = held.looked
        told = await carry_out(looked.market, call, _operator(looked, password_file), broadcast=broadcast)
        return {**total, **described(asset), **told, **gas_warning(told, amount, asset)}


async def claim_of_market(folder: Path, password_file: Path | None, *, broadcast: bool) -> Told:
    """Claim what clients have not acknowledged, however young; the running scheduler answers objections."""
    async with holding(folder) as held:
        filed = await claiming.filings(held, 0, young=True)
        total: Told = {"tabs": len(filed), "amount_units": str(sum(one.total for one in filed))}
        if not filed:
            return {**total, "sent": False, "note": "no answer is unacknowledged, or a claim is filed"}
        if broadcast:
            await held.database.commit(*(one.kept for one in filed))
        total |= described(await asset_of(held.looked.market))
        calls = [one.call for one in filed]
        return {**total, **await _all(held.looked, calls, password_file, broadcast=broadcast)}


async def earnings_of_market(folder: Path) -> Told:
    """What clients owe for answers of a day and a week, what is outstanding, and what nodes were paid."""
    async with holding(folder) as held:
        state, me = held.ledger.state, held.looked.operator
        tabs, now = list(held.client_tabs), time.time()
        spans = {"today": _served(held.database, now - DAY), "week": _served(held.database, now - WEEK)}
        redeemed = sum(state.tab_state(messages.tab_id(one.tab)).redeemed for one in tabs)
        return {
            "operator": me,
            "block": held.ledger.block,
            **spans,
            "unpaid_units": str(sum(one.book.exposure for one in tabs)),
            "payable_units": str(sum(redeeming.payable(held, one) for one in tabs)),
            "redeemed_units": str(redeemed),
            "credit_units": str(state.pot(PotKind.CREDIT, me)),
            "paid_to_nodes_units": str(sum(one.book.spent for one in held.node_tabs)),
            "owed_to_nodes_units": str(sum(owed.fee or 0 for one in held.node_tabs for owed in one.owed.values())),
            **described(await asset_of(held.looked.market)),
        }


def _served(database: SchedulerDatabase, since: float) -> dict[str, Any]:
    """Answers whose log entry was opened since then, and what they cost."""
    query = "SELECT fee, positions FROM log_line JOIN log_entry ON entry = log_entry.number WHERE opened >= ?"
    rows = [(int(fee), int(positions)) for fee, positions in database.read(query, since)]
    fees, positions = sum(fee for fee, _ in rows), sum(count for _, count in rows)
    per = str(fees * 1000 // positions) if positions else ""
    return {"fees_units": str(fees), "answers": len(rows), "positions": positions, "per_1000_positions_units": per}


# -------------------------------------------------------------------------------------------------- calls and keys


async def _all(
    looked: DeploymentStatus, calls: Sequence[PartCall], password_file: Path | None, *, broadcast: bool
) -> Told:
    if not calls:
        return {"calls": [], "sent": False, "note": "there is nothing to send"}
    told = await carry_out_all(looked.market, calls, _operator(looked, password_file), broadcast=broadcast)
    return {"calls": told, "sent": broadcast}


def _operator(looked: DeploymentStatus, password_file: Path | None) -> TransactionSender:
    return TransactionSender(looked.operator, _opening(looked.configuration.operator_keystore, password_file))


def _opening(keystore: Path, password_file: Path | None) -> Callable[[], Key]:
    keys: list[Key] = []

    def opened() -> Key:
        if not keys:
            keys.append(load_account(keystore.expanduser(), read_password(password_file, purpose="the keystore")))
        return keys[0]

    return opened
