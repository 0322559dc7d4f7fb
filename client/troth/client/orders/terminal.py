"""What the commands for orders do: ask, show receipts, prove one, summon what is owed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from troth.chain.tokens import read_asset
from troth.client.choices import SamplingChoices
from troth.client.configuration import ClientConfiguration
from troth.client.errors import ReceiptNotFound
from troth.client.home import Home
from troth.client.orders.claimed import overclaim
from troth.client.orders.conversation import converse, opening, print_json_answer, say
from troth.client.orders.ending import end_answers
from troth.client.orders.journal import RUNNING, OrderJournal, OrderRecord
from troth.client.orders.models import models_on_offer
from troth.client.orders.objecting import object_calls, overdue, strike_calls
from troth.client.orders.paying import pay, require_unchecked, unchecked
from troth.client.orders.receipts import proof_of, shown
from troth.client.orders.running import Running, running
from troth.client.orders.session import PayerSession, following, market_session
from troth.client.orders.summoning import calls_of, deposit_of, due_of
from troth.client.orders.talking import Conversation, Typing, talk
from troth.client.orders.wishes import CheckWish, PriceLimit, Wish
from troth.client.tabs.books import TabBooks
from troth.client.tabs.managing import Purse
from troth.client.tabs.opening import OpeningCalls, carry_out
from troth.client.tabs.spending import spending
from troth.client.tabs.store import opened
from troth.protocol.amounts import PER_MILLION, Asset
from troth.protocol.market import receipt
from troth.protocol.market.bodies import Admitted
from troth.protocol.market.views import parameters_of
from troth.transport.command_options import priced


async def chat(  # noqa: PLR0917
    home: Home,
    configuration: ClientConfiguration,
    password_file: Path | None,
    choices: SamplingChoices,
    limits: tuple[str, str],
    check: str,
    system: str,
    question: str,
    *,
    as_json: bool,
    resume: str = "",
) -> None:
    """One question, or a conversation. ``limits``: --max-cost and --max-price, in the deployment's asset."""
    async with running(home, configuration, password_file, _report) as run:
        wish = wish_of(choices, check, limits, run.asset)
        try:
            if as_json:
                await print_json_answer(run, wish, system, question)
            elif question:
                await converse(run, wish, system, question)
            else:
                conversation = Conversation(run, wish, home, system, opening(system))
                if resume:
                    conversation.resume(resume)
                await talk(conversation, Typing(home.folder / "typed"))
        except asyncio.CancelledError:
            journal, are_over = run.session.journal, False
            # Not those of another process of this home, which would take their early end for the scheduler's lie.
            running_here = [one for one in journal.all() if one.phase in RUNNING]
            open_orders = [one for one in running_here if journal.take(one.identifier)]
            try:
                are_over = await end_answers(run.session, open_orders)
            finally:
                for one in open_orders:
                    journal.release(one.identifier)  # the next command follows it at once
                say("\n" + interrupted(run.session, run.asset, open_orders, are_over=are_over))
            raise


def interrupted(session: PayerSession, asset: Asset, open_orders: Sequence[OrderRecord], *, are_over: bool) -> str:
    """What whoever interrupts a client leaves behind: its orders are owed, as far as they were written."""
    if not open_orders:
        return "interrupted: no order is under way"
    names = " and ".join(one.name[:12] for one in open_orders)
    kind = "order" if len(open_orders) == 1 else "each of the orders"
    most = asset.show(sum(one.fee or one.most for one in open_orders))
    last = min(_settled_until(session, one) for one in open_orders)
    written = f"no more of {kind} {names} is written, and what was written is owed"
    if not are_over:
        written = f"{kind} {names} is written to its end, and is owed then"
    return (
        f"interrupted: {written} as if you had read it: at most {most}. "
        f"The next `troth client ask`, or a running `troth client serve`, settles it; after block {last} it cannot be "
        "checked any more. `troth client receipts` shows how it ended"
    )


def _settled_until(session: PayerSession, entry: OrderRecord) -> int:
    """The last block at which a fresh draw is made for an order, or its secret counts."""
    admitted = entry.read("admitted", Admitted)
    submission = entry.submission
    since = session.block
    if admitted is not None:
        since = admitted.admission.message.block_number
    elif submission is not None:
        since = submission.order.message.reference_block
    return since + session.parameters.lag // 2


async def print_models(home: Home, configuration: ClientConfiguration, *, as_json: bool) -> None:
    """What is on offer, the cheapest first; nothing is signed, and no password is needed."""
    async with market_session(home, configuration, "") as session:
        assert session.market is not None
        asset = priced(await read_asset(session.market, session.parameters.asset))
        found = await models_on_offer(session)
    if as_json:
        print(json.dumps([one.to_json(asset) for one in found]))
        return
    if not found:
        print("no scheduler answered with a model that the chain knows", file=sys.stderr)
    for one in found:
        print(one.line(asset))


def wish_of(choices: SamplingChoices, check: str, limits: tuple[str, str], asset: Asset) -> Wish:
    """What is wanted of an answer, with amounts in the asset's units."""
    cost, price = limits
    most = asset.parse(cost) if cost else None
    limited = price_limit(price, asset)
    return Wish(replace(choices, max_cost=most), CheckWish.read(check), limited, asset=asset)


def price_limit(text: str, asset: Asset) -> PriceLimit:
    """The most per million tokens: one amount for both kinds, or "PROMPT/WRITTEN"."""
    if not text:
        return PriceLimit()
    prompt, _, written = text.partition("/")
    most = asset.parse(prompt) * PER_MILLION
    return PriceLimit(most, asset.parse(written) * PER_MILLION if written else most)


def _report(_entry: OrderRecord | None, line: str) -> None:
    say(line)


async def print_receipts(
    home: Home, configuration: ClientConfiguration, order: str, *, as_json: bool, prove: Path | None = None
) -> None:
    """Print one receipt, or all, with what the chain says of them; write the file that proves one."""
    async with following(home, configuration) as (market, follower):
        asset = await read_asset(market, follower.state.deployed.parameters.asset)  # type: ignore[union-attr]
        with opened(home.tabs) as store:
            journal = OrderJournal(store)
            found = [journal.find(order)] if order else journal.all()
            if prove is not None:
                if len(found) != 1:
                    what, remedy = "Name the order to prove", "`troth client receipts` lists them."
                    raise ReceiptNotFound(what, order or "no ORDER", remedy)
                _write(prove, receipt.encode(proof_of(found[0], follower.state, market.domain)))
            told = [shown(one, follower.state) for one in found]
    if as_json:
        print(json.dumps(told[0].to_json() if order else [one.to_json() for one in told]))
        return
    if not told:
        print("nothing was asked from here yet", file=sys.stderr)
    for one in told:
        print("\n".join(one.lines(asset) if order else one.lines(asset)[:1]))
    if prove is not None:
        print(f"written to {prove}; `troth audit receipt {prove}` verifies it", file=sys.stderr)


async def summon(purse: Purse, configuration: ClientConfiguration, order: str, *, broadcast: bool) -> dict[str, Any]:
    """Ask on chain for what is owed of an order; a dry run prints the calls."""
    async with following(purse.home, configuration) as (market, follower):
        state = follower.state
        assert state.deployed is not None
        asset = await read_asset(market, state.deployed.parameters.asset)
        with opened(purse.home.tabs) as store:
            journal = OrderJournal(store)
            entry = journal.find(order)
            due = due_of(entry, state.deployed.parameters, state)
            if due is None:
                what = "Nothing of this order can be summoned"
                raise ReceiptNotFound(what, f"it is {entry.phase}", "`troth client receipts` shows its state.")
            deposit = await deposit_of(market, due.kind)
            sender = purse.payer("")
            wallet = purse.wallet(sender, broadcast=broadcast)
            async with spending(market, asset, purse.home if broadcast else None):
                calls = await calls_of(market, asset, entry, due, deposit, sender)
                done = await carry_out(market, OpeningCalls(sender, calls), wallet, broadcast=broadcast)
            if broadcast:
                name = f"summons {due.kind} {due.segment}"
                journal.step(entry.identifier, more={name: done["transactions"][-1].encode()})
                journal.release(entry.identifier)
    blocks = {"first_block": due.first, "last_block": due.last, "deposit_units": str(deposit)}
    return done | {"order": entry.name, "kind": due.kind.name.lower(), "segment": due.segment} | blocks


async def pay_unchecked(
    home: Home, configuration: ClientConfiguration, password_file: Path | None, order: str, *, yes: bool
) -> list[dict[str, Any]]:
    """Acknowledge an answer that ended without its check, or all; without ``yes`` say what that costs.

    Raises ReceiptNotFound where the named one is not paid by hand. No transaction is needed: the scheduler is told at
    once, or with the next order.
    """
    async with running(home, configuration, password_file, _report) as run:
        session = run.session
        if order:
            entry = session.journal.find(order)
            fees = {entry.identifier: require_unchecked(session, entry)}
            found = [entry]
        else:
            found = unchecked(session)
            fees = {}
            for one in found:
                with suppress(ReceiptNotFound):
                    fees[one.identifier] = require_unchecked(session, one)
        for one in found:
            if yes and one.identifier in fees:
                pay(session, one, fees[one.identifier])
        if yes:
            await run.keeper.once()
        fresh = [session.journal.entry(one.identifier) for one in found]
        return [_unchecked(run, one, fees.get(one.identifier)) for one in fresh]


def _unchecked(run: Running, entry: OrderRecord, fee: int | None) -> dict[str, Any]:
    """What `pay` says of one answer; ``fee`` is None where it is not to be paid by hand."""
    return {
        "order": entry.name,
        "fee_units": None if fee is None else str(fee),
        "fee": "not to be paid by hand now" if fee is None else run.asset.show(fee),
        "note": entry.failure or "",
        "waits": shown(entry, run.session.state).waits or None,
        "paid": entry.paid is not None,
    }


async def object_to(purse: Purse, configuration: ClientConfiguration, tab: str, *, broadcast: bool) -> dict[str, Any]:
    """Object to a claim that shows more than is owed, or strike it where it was not shown; a dry run prints the calls.

    The calls are the payer's account's, whose wallet may be elsewhere. Raises ReceiptNotFound where there is nothing
    to object to.
    """
    async with following(purse.home, configuration) as (market, follower):
        state, block = follower.state, follower.block
        asset = await read_asset(market, parameters_of(state).asset)
        with opened(purse.home.tabs) as store:
            record = TabBooks(store).find(tab)
            found, late = overclaim(state, OrderJournal(store), record), overdue(state, record, block)
        number = None if found is None else found.number()
        sender = record.tab.payer
        wallet = purse.wallet(sender, broadcast=broadcast)
        told: dict[str, Any] = {"tab": "0x" + record.identifier.hex(), "numbers": [number for _, number in late]}
        async with spending(market, asset, purse.home if broadcast else None):
            if late:
                calls = strike_calls(market, record, late)
            elif found is not None and number is not None and block < found.last(parameters_of(state)):
                calls = await object_calls(market, asset, state, found, number, sender)
                last = found.last(parameters_of(state))
                told |= {"numbers": [number], "excess_units": str(found.excess), "last_block": last}
            else:
                what = "There is nothing to object to on this tab"
                shown = (
                    "no claim shows more than is owed" if found is None else "all of it was shown, or it is too late"
                )
                raise ReceiptNotFound(what, shown, "`troth client tabs` shows the tab.")
            return told | await carry_out(market, OpeningCalls(sender, calls), wallet, broadcast=broadcast)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
