"""What the demo prints: headings, steps, an answer as it streams, and tables of gas and money."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from troth.client.money import format_amount
from troth.protocol.events import Credited, EscrowReleased, Slashed, TaskOpened
from troth.protocol.settlement import SlashReason

WIDTH = 110
STEPS = {
    "opened": "the client's order, the fee locked",
    "committed": "assignment proofs, roots, sealed verdicts, all signatures",
    "settled": "sampling proof, revealed tiles and verdicts, comparison, pay and slashes",
}


@dataclass(slots=True)
class Display:
    """A console with the time since the start before each step."""

    console: Console = field(
        default_factory=lambda: Console(width=None if Console().is_terminal else WIDTH, highlight=False)
    )
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def act(self, number: int, title: str) -> None:
        """A heading."""
        self.console.print()
        self.console.rule(f"[bold]{number}. {escape(title)}", align="left")

    def step(self, text: str) -> None:
        """One thing that happened."""
        self.console.print(f"[dim]{self.seconds:6.1f} s[/dim]  {escape(text)}")

    def command(self, what: str, line: str) -> None:
        """A command for the reader to copy, never wrapped."""
        self.console.print(f"[dim]{escape(what)}:[/dim]")
        self.console.print(f"  {escape(line)}", soft_wrap=True)

    def piece(self, text: str) -> None:
        """A piece of a streaming answer."""
        self.console.print(f"[bold cyan]{escape(text)}", end="")

    def line(self) -> None:
        """End of a streaming answer."""
        self.console.print()

    def good(self, text: str) -> None:
        """A check that held."""
        self.console.print(f"[bold green]✓[/bold green] {escape(text)}")

    def gas(self, spent: Mapping[str, int]) -> None:
        """Gas by step."""
        table = Table("transaction", "what it did", "gas", title="on chain", title_justify="left")
        table.columns[2].justify = "right"
        for step, gas in spent.items():
            table.add_row(step, STEPS.get(step, ""), f"{gas:,}")
        table.add_row("[bold]together", "", f"[bold]{sum(spent.values()):,}")
        self.console.print(table)

    def money(self, events: Iterable[object], names: Mapping[str, str]) -> None:
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
        self.console.print(table)
