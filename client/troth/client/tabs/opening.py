"""Opening, topping up and closing tabs: what the wallet signs, and nothing else does.

Each step is a plan first: calls with their calldata, which any wallet can send, a hardware one or a smart account.
With the wallet's own key they are simulated, and sent when that is wanted.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError

from troth.chain.errors import ChainError, ChainRejected, WrongChain
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.chain.tokens import allowance, approvals_beside, selector
from troth.client.errors import TransactionRefused
from troth.client.tabs.books import OwnTab
from troth.protocol.amounts import COIN, Asset
from troth.protocol.hashing import keccak256
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.messages import sign
from troth.protocol.market.parts import Part
from troth.protocol.market.types import TabConsent, TabState
from troth.protocol.typed_data import sign_digest
from troth.protocol.types import Address, Hash32

Again = Callable[[], Awaitable["OpeningCalls | None"]]
ROUNDS = 8
"""How often calls are made whose approvals other programs take: of several at once, one gets through in each round."""
PERMITS = 3
"""How often a permit is made whose number other programs take, before the reason is another one."""
PAUSE = 0.5
"""Seconds for which a program waits at most after its first round, twice as many after the second: programs that look
at an allowance at the same time would take it from one another again."""
PERMIT_SECONDS = 3600
"""For which a payer's permit for the deployment's token holds (EIP-2612); it stands for an approval."""
_PERMIT_TYPE = keccak256(b"Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)")


@dataclass(frozen=True, slots=True)
class Permit:
    """An owner's signature that stands for an approval."""

    deadline: int
    v: int
    r: Hash32
    s: Hash32


async def permit(market: Market, token: Address, key: Key, amount: int, deadline: int) -> Permit | None:
    """A permit for the Bank; None where the token knows none, and an approval is needed."""
    try:
        separator = await market.call(token, selector("DOMAIN_SEPARATOR()"))
        nonces = selector("nonces(address)") + encode(["address"], [key.address])
        (nonce,) = decode(["uint256"], await market.call(token, nonces))
    except (ChainError, DecodingError, ValueError, OverflowError):
        return None
    if len(separator) != 32:
        return None
    kinds = ["bytes32", "address", "address", "uint256", "uint256", "uint256"]
    values = [_PERMIT_TYPE, key.address, market.contracts.bank, amount, nonce, deadline]
    digest = Hash32(keccak256(b"\x19\x01" + separator + keccak256(encode(kinds, values))))
    signature = sign_digest(digest, key.secret)
    return Permit(deadline, signature[64], Hash32(signature[:32]), Hash32(signature[32:64]))


@dataclass(frozen=True, slots=True)
class OpeningCalls:
    """Calls in their order, for a sender that may be any account.

    ``again`` makes them anew where a token is missing an approval: another program with this account may have replaced
    it, or taken it, before the call that it was for. None where that is not why a call was refused. ``is_once``: the
    chain takes the last call only once, so that it may be made anew though it was sent: a chain node may say that it
    failed after it was mined.
    """

    sender: Address
    calls: tuple[PartCall, ...]
    again: Again | None = field(default=None, compare=False)
    is_once: bool = False

    def to_json(self) -> list[dict[str, str]]:
        """What another wallet needs to send them."""
        return [
            {
                "function": one.call.function,
                "to": one.to,
                "value": str(one.call.value),
                "data": "0x" + one.call.data.hex(),
            }
            for one in self.calls
        ]


async def plan_open(  # noqa: PLR0917
    market: Market, asset: Asset, record: OwnTab, tab_key: Key, amount: int, wallet: Key | None
) -> OpeningCalls:
    """Open a tab. With a token: by permit in one call where ``wallet`` can sign one, else after an approval.

    A permit replaces what was approved for other calls, so that it is used where nothing was.
    """
    tab = record.tab
    consent = sign(TabConsent(tab.payer, tab.payee), record.domain, tab_key.secret).signature
    arguments: tuple[object, ...] = (tab.payee, tab.key, amount, consent)
    if asset.is_coin:
        call = build(market.contracts, Part.BANK, "openTab", *arguments, value=amount)
        return OpeningCalls(tab.payer, (call,))
    opening = build(market.contracts, Part.BANK, "openTab", *arguments)

    async def plan() -> OpeningCalls:
        unused = not await allowance(market, asset.token, tab.payer)
        if unused and wallet is not None and wallet.address == tab.payer:
            deadline = int(time.time()) + PERMIT_SECONDS
            allowed = await permit(market, asset.token, wallet, amount, deadline)
            if allowed is not None:
                signed = (allowed.deadline, allowed.v, allowed.r, allowed.s)
                call = build(market.contracts, Part.BANK, "openTabWithPermit", *arguments, *signed)
                return OpeningCalls(tab.payer, (call,))
        before = await approvals_beside(market, asset.token, tab.payer, amount)
        return OpeningCalls(tab.payer, (*before, opening))

    return replace(await repeatable(market, asset.token, amount, plan), is_once=True)


async def plan_top_up(market: Market, asset: Asset, record: OwnTab, amount: int, sender: Address) -> OpeningCalls:
    """Add to a tab; anybody may."""
    value = amount if asset.is_coin else 0
    call = build(market.contracts, Part.BANK, "topUp", record.identifier, amount, value=value)
    if asset.is_coin:
        return OpeningCalls(sender, (call,))
    return await approved(market, asset.token, amount, OpeningCalls(sender, (call,)))


async def approved(
    market: Market, token: Address, amount: int, plan: OpeningCalls, spender: Address | None = None
) -> OpeningCalls:
    """The calls of a plan after an approval of what the Bank, or another spender, takes by them."""

    async def made() -> OpeningCalls:
        before = await approvals_beside(market, token, plan.sender, amount, spender)
        return OpeningCalls(plan.sender, (*before, *plan.calls))

    return await repeatable(market, token, amount, made, spender)


async def repeatable(
    market: Market,
    token: Address,
    amount: int,
    plan: Callable[[], Awaitable[OpeningCalls]],
    spender: Address | None = None,
) -> OpeningCalls:
    """A plan that is made again as long as what was approved for it is gone."""
    first = made = await plan()

    async def goes_through(calls: OpeningCalls) -> bool:
        return (await market.simulate(calls.calls[-1], calls.sender)).rejection is None

    async def again() -> OpeningCalls | None:
        nonlocal made
        # Where it is there now, another program may have approved it since: it was missing if the call goes through.
        if await allowance(market, token, first.sender, spender) >= amount and not await goes_through(made):
            return None
        for _ in range(PERMITS):
            before, made = made, await plan()
            # Of a permit only its number can be taken, and not so often by chance.
            if len(before.calls) > 1 or len(made.calls) > 1 or await goes_through(made):
                return made
        return None

    return replace(first, again=again)


def plan_close(market: Market, record: OwnTab) -> OpeningCalls:
    """No orders from now on; the rest is free after the closing delay."""
    return OpeningCalls(record.tab.payer, (build(market.contracts, Part.BANK, "close", record.tab),))


def plan_finish(market: Market, record: OwnTab, sender: Address) -> OpeningCalls:
    """Take back what is left; anybody may, and it goes to the payer."""
    return OpeningCalls(sender, (build(market.contracts, Part.BANK, "finishClosing", record.tab),))


def next_step(state: TabState, block: int) -> str:
    """What brings the money of a tab back: "close", "wait", "finish", or "nothing" where none is in it."""
    if not state.known:
        return "nothing"
    if not state.closes_at:
        return "close"
    return "finish" if block >= state.closes_at else "wait"


async def carry_out(market: Market, plan: OpeningCalls, key: Key | None, *, broadcast: bool) -> dict[str, Any]:
    """Simulate a plan and, if it is to be broadcast, send it call by call; what ``--json`` prints.

    A call after one that was only simulated is not: the chain would look at it without the first. Raises
    TransactionRefused where the chain would not take what is to be broadcast; a dry run shows it as "refused".
    """
    done: dict[str, Any] = {"from": plan.sender, "broadcast": broadcast, "calls": plan.to_json(), "transactions": []}
    calls = plan.calls
    for number in range(1, ROUNDS + 1):
        try:
            await _carry_out(market, OpeningCalls(plan.sender, calls), key, done, broadcast=broadcast)
            return done
        except (TransactionRefused, ChainRejected) as error:
            may = number < ROUNDS and (plan.is_once or isinstance(error, TransactionRefused))
            if not may or plan.again is None:
                raise
            await asyncio.sleep(random.uniform(0, PAUSE * number))  # noqa: S311 - nobody gains by guessing it
            try:
                again = await plan.again()
            except ChainError as away:
                raise error from away  # the refusal is what the user can do something about
            if again is None:
                raise
            calls = again.calls
    raise AssertionError("the last failure is raised")


async def _carry_out(
    market: Market, plan: OpeningCalls, key: Key | None, done: dict[str, Any], *, broadcast: bool
) -> None:
    for number, call in enumerate(plan.calls):
        if number and not broadcast:
            break
        simulation = await market.simulate(call, plan.sender)
        if simulation.rejection is not None and simulation.rejection.name == "InvalidTabConsent":
            await _require_chain_of_contracts(market)
        if simulation.rejection is not None and not broadcast:
            # Another wallet may be filled later; what it would send is shown all the same.
            done["refused"] = f"{simulation.rejection.name}: {simulation.rejection.remedy}"
            break
        if simulation.rejection is not None:
            sent = "It was not sent, and what comes before it was." if done["transactions"] else "Nothing was sent."
            remedy = f"{sent} {simulation.rejection.remedy}"
            raise TransactionRefused(f"The chain would refuse {call.call.function}", simulation.rejection, remedy)
        done["gas"] = done.get("gas", 0) + simulation.gas
        done["maximum_gas_cost_wei"] = str(int(done.get("maximum_gas_cost_wei", 0)) + simulation.maximum_cost)
        if broadcast and key is not None:
            receipt = await market.execute(call, key)
            done["transactions"].append("0x" + receipt.transaction.hex())
            done["block"] = receipt.block


async def _require_chain_of_contracts(market: Market) -> None:
    """WrongChain where a node says another chain id than its contracts see, so that they take no signature."""
    said, seen = market.chain.chain_id, await market.chain.counted_chain()
    if said != seen:
        what = f"The chain node says that it is on chain {said}, and contracts there see chain {seen}"
        remedy = f"Nothing was sent. Name a node of chain {seen} with --rpc, or have this one say what it is."
        raise WrongChain(what, market.chain.place, remedy)


def describe(done: dict[str, Any]) -> str:
    """What a person reads of ``carry_out``'s result."""
    names = ", then ".join(call["function"] for call in done["calls"])
    if done["transactions"]:
        return f"sent {names} in block {done['block']}: {', '.join(done['transactions'])}"
    calls = [f"  to {call['to']} value {_value(int(call['value']))}\n  data {call['data']}" for call in done["calls"]]
    about = f"about {done['gas']:,} gas" if "gas" in done else "the chain would refuse it now"
    return "\n".join(
        (
            f"dry run: {names} from {done['from']}, {about}",
            *([f"refused as {done['refused']}"] if "refused" in done else []),
            *calls,
            "nothing was sent; add --broadcast, or send this from any wallet that has this address",
        )
    )


def _value(wei: int) -> str:
    """What a call sends, for a person; in wei, too, since that is what most wallets are given."""
    return f"{COIN.show(wei)} ({wei} wei)" if wei else COIN.show(0)
