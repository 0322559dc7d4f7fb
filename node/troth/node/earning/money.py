"""`troth node earnings`, `tabs`, `notes`, `redeem` and `claim`: the node's records beside the chain, running or not.

The events that it follows have a file of their own: the running node's is for one process alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from troth.chain.keystore import load_account, read_password
from troth.chain.market import Market
from troth.chain.market_follower import MarketFollower
from troth.chain.sending import TransactionSender, carry_out, carry_out_all
from troth.chain.tokens import asset_of, described
from troth.chain.withdrawing import gas_warning
from troth.node.configuration import NodeConfiguration, load
from troth.node.earning import claiming, redeeming, view
from troth.node.earning.books import NodeBooks, NodeLedger
from troth.node.earning.claims_record import ClaimsRecord
from troth.node.earning.database import NodeDatabase
from troth.node.errors import NodeStorageError
from troth.node.inspection.process import operator_of
from troth.node.orders.context import RECORDS
from troth.node.orders.notes import Notes
from troth.node.orders.running import connect
from troth.protocol.market import canonical
from troth.protocol.market.calls import PartCall
from troth.protocol.market.views import parameters_of
from troth.protocol.types import to_address

EVENTS = "market-looked.sqlite"


@dataclass(frozen=True, slots=True)
class NodeMoney:
    """What a look at a node's money finds."""

    market: Market
    ledger: NodeLedger
    books: NodeBooks
    claims: ClaimsRecord


@asynccontextmanager
async def looking(configuration: NodeConfiguration) -> AsyncIterator[NodeMoney]:
    """The node's books and the chain as it is now."""
    database = NodeDatabase(configuration.folder / RECORDS)
    try:
        books, claims = NodeBooks(database), ClaimsRecord(database)
        events = configuration.folder / EVENTS
        async with await connect(configuration) as market, MarketFollower(market, events) as follower:
            state = await follower.catch_up()
            ledger = NodeLedger(state, market.domain, operator_of(configuration), follower.block)
            yield NodeMoney(market, ledger, books, claims)
    finally:
        database.close()


def earnings(home: Path) -> dict[str, Any]:
    """Today, this week, unpaid, per 1,000 tokens; and why no work came."""
    policy = load(home).earning
    return _look(home, lambda looked: view.earnings(looked.books, looked.ledger, time.time(), policy))


def tabs(home: Path) -> dict[str, Any]:
    """Every tab with a scheduler."""
    return _look(home, lambda looked: {"tabs": [one.shown() for one in view.tabs_view(looked.books, looked.ledger)]})


def _look(home: Path, told: Callable[[NodeMoney], dict[str, Any]]) -> dict[str, Any]:
    configuration = load(home)

    async def look() -> dict[str, Any]:
        async with looking(configuration) as looked:
            return {**told(looked), **described(await asset_of(looked.market))}

    result: dict[str, Any] = asyncio.run(look())
    return result


def notes(home: Path, node: str, out: Path | None) -> dict[str, Any]:
    """The records of this node's findings about others; written to ``out`` a line each, where it is named.

    Raises InvalidField for what is no address; NodeStorageError where the file cannot be written.
    """
    about, configuration = (to_address(node) if node else None), load(home)
    database = NodeDatabase(configuration.folder / RECORDS)
    try:
        kept = Notes(database)
        records = [
            {"node": one.node, "class": "0x" + one.execution_class.hex(), "epoch": one.epoch, "tasks": one.notes}
            for one in kept.records()
            if about in {None, one.node}
        ]
        if out is not None:
            out.write_bytes(b"".join(canonical.encode(one) + b"\n" for one in kept.of(about)))
    except OSError as error:
        raise NodeStorageError("the notes cannot be written", str(out), str(error)) from error
    finally:
        database.close()
    return {"records": records, **({} if out is None else {"file": str(out)})}


def redeem(home: Path, password_file: Path | None, *, broadcast: bool) -> dict[str, Any]:
    """Redeem every voucher that pays something now, in one call."""
    configuration = load(home)
    key = load_account(configuration.operator_keystore, read_password(password_file, purpose="the operator"))

    async def send() -> dict[str, Any]:
        async with looking(configuration) as looked:
            found = redeeming.redeemable(looked.books, looked.ledger)
            amount = sum(one.amount for one in found)
            total = {"tabs": len(found), "amount_units": str(amount)}
            if not found:
                return {**total, "sent": False, "remedy": "Nothing is acknowledged and unredeemed."}
            call = redeeming.redeem_call(found, looked.market.contracts)
            done = await carry_out(looked.market, call, TransactionSender.of(key), broadcast=broadcast)
            asset = await asset_of(looked.market)
            return {**total, **described(asset), **done, **gas_warning(done, amount, asset)}

    result: dict[str, Any] = asyncio.run(send())
    return result


def claim(home: Path, password_file: Path | None, *, broadcast: bool) -> dict[str, Any]:
    """Claim all unacknowledged work on every tab, however young; the running node answers objections and settles."""
    configuration = load(home)
    key = load_account(configuration.operator_keystore, read_password(password_file, purpose="the operator"))

    async def send() -> dict[str, Any]:
        async with looking(configuration) as looked:
            made = _claims(configuration, looked)
            if not made:
                return {"tabs": 0, "sent": False, "remedy": "No finished work is unacknowledged, or a claim is filed."}
            calls: list[PartCall] = []
            for one in made:
                calls.append(one.call)
                if broadcast:
                    looked.claims.keep(replace(one.filed, filed_at=time.time()))
            told = await carry_out_all(looked.market, calls, TransactionSender.of(key), broadcast=broadcast)
            gain = {"gain_units": str(sum(one.gain for one in made)), **described(await asset_of(looked.market))}
            return {"tabs": len(made), **gain, "calls": told}

    result: dict[str, Any] = asyncio.run(send())
    return result


def _claims(configuration: NodeConfiguration, looked: NodeMoney) -> list[claiming.Claiming]:
    ledger, found = looked.ledger, []
    due = claiming.ClaimContext(ledger, parameters_of(ledger.state), looked.market.contracts, configuration.earning)
    for tab, record in ledger.state.tabs.items():
        signed = looked.books.voucher(tab)
        if record.tab.payee != ledger.me or signed is None or record.claim is not None or not record.known:
            continue
        amounts = looked.books.claimable(tab, ledger)
        made = claiming.claim_of_all(tab, record, signed, amounts, due)
        found += [made] if made is not None else []
    return found
