"""`troth committee tickets …`: founding the contract whose tickets members sign, and looking at it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from troth.committee.reputation_command import PayingOption
from troth.transport.command_options import BroadcastOption, JsonOption, PasswordOption, RpcOption, show

app = typer.Typer(
    help="Tickets: payment that nobody can join to the wallet that bought it (docs/how-to/tickets.md).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.command()
def deploy(
    *,
    rpc: RpcOption,
    committee: Annotated[str, typer.Option(envvar="TROTH_COMMITTEE", help="The Committee whose members sign, 0x….")],
    bank: Annotated[str, typer.Option(envvar="TROTH_BANK", help="The market's Bank, whose tabs are filled, 0x….")],
    price: Annotated[list[str], typer.Option(help="Price of a ticket in smallest units, ascending. Repeat it.")],
    keystore: PayingOption,
    epoch_blocks: Annotated[int, typer.Option(min=10, help="Blocks of an epoch.")] = 50_400,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Deploy the Tickets contract (dry run by default).

    Then every member and scheduler names it in its file.
    """
    from troth.chain.deployment import tickets_creation
    from troth.committee.rating.contract import TransactionPayer, carry_out
    from troth.protocol.tickets.messages import TicketRules
    from troth.protocol.types import to_address

    rules = TicketRules(epoch_blocks, _amounts(price))
    creation = tickets_creation(to_address(committee), to_address(bank), rules)
    told = {"committee": committee, "bank": bank, "epoch_blocks": epoch_blocks, "prices_units": price}
    payer = TransactionPayer(keystore.expanduser(), password_file, broadcast)
    show(asyncio.run(carry_out(rpc, creation, None, payer, told, creates="tickets")), as_json)


def _amounts(prices: list[str]) -> tuple[int, ...]:
    for one in prices:
        if not (one.isascii() and one.isdecimal() and int(one).bit_length() <= 96):
            raise typer.BadParameter(f"{one[:40]!r} is no price: write the smallest units in digits.")
    return tuple(int(one) for one in prices)


@app.command("show")
def show_tickets(
    *,
    rpc: RpcOption,
    tickets: Annotated[str, typer.Option("--tickets", envvar="TROTH_TICKETS", help="The Tickets contract, 0x….")],
    as_json: JsonOption = False,
) -> None:
    """The epoch, whose keys are registered, and how many tickets are sold and not spent."""
    show(asyncio.run(_shown(rpc, tickets)), as_json)


async def _shown(rpc: str, tickets: str) -> dict[str, Any]:
    from troth.chain.adapter import Chain
    from troth.protocol.tickets import messages
    from troth.protocol.types import ZERO_HASH, to_address

    async with await Chain.connect(rpc, to_address(tickets)) as chain:
        rules, now = await chain.read(messages.rules()), await chain.read(messages.epoch_now())
        digests = {epoch: await chain.read(messages.dealing_of(epoch)) for epoch in (now, now + 1)}
        left = list[dict[str, str | int]]()
        for place, price in enumerate(rules.prices):
            this = await chain.read(messages.outstanding(now, place))
            before = await chain.read(messages.outstanding(now - 1, place)) if now else 0
            left.append({"price_units": str(price), "outstanding": this, "outstanding_before": before})
        return {
            "committee": await chain.read(messages.committee()),
            "bank": await chain.read(messages.bank()),
            "epoch": now,
            "epoch_blocks": rules.epoch_blocks,
            "keys": {epoch: "0x" + one.hex() if one != ZERO_HASH else "none yet" for epoch, one in digests.items()},
            "tickets": left,
        }
