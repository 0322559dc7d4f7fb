"""Tables of gas and money of a task that was paid on chain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table

from troth.client.money import format_amount
from troth.protocol.events import Credited, EscrowReleased, Slashed, TaskOpened
from troth.protocol.settlement import SlashReason

STEPS = {
    "opened": "the client's order, the fee locked",
    "committed": "assignment proofs, roots, sealed verdicts, all signatures",
    "settled": "sampling proof, revealed tiles and verdicts, comparison, pay and slashes",
}


def gas_table(console: Console, spent: Mapping[str, int]) -> None:
    """Gas by step."""
    table = Table("transaction", "what it did", "gas", title="on chain", title_justify="left")
    table.columns[2].justify = "right"
    for step, gas in spent.items():
        table.add_row(step, STEPS.get(step, ""), f"{gas:,}")
    table.add_row("[bold]together", "", f"[bold]{sum(spent.values()):,}")
    console.print(table)


def money_table(console: Console, events: Iterable[object], names: Mapping[str, str]) -> None:
    """Every movement of money in a task, from its events."""
    table = Table("who", "what", "amount", title="money", title_justify="left")
    table.columns[2].justify = "right"
    for event in events:
        match event:
            case TaskOpened():
                table.add_row(names.get(event.client, event.client), "fee locked", f"- {format_amount(event.fee)}")
            case Credited():
                table.add_row(names.get(event.account, event.account), "earned", f"+ {format_amount(event.amount)}")
            case Slashed():
                reason = SlashReason(event.reason).name.lower()
                table.add_row(
                    names.get(event.operator, event.operator),
                    f"[red]slashed ({reason})",
                    f"- {format_amount(event.amount)}",
                )
            case EscrowReleased():
                table.add_row(names.get(event.client, event.client), "fee back", f"+ {format_amount(event.amount)}")
            case _:
                continue
    console.print(table)
