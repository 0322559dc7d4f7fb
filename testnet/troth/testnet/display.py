"""What the demo prints: headings, steps, an answer as it streams, and how long each act took."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.table import Table

WIDTH = 110


@dataclass(slots=True)
class Display:
    """A console with the time since the start before each step."""

    console: Console = field(
        default_factory=lambda: Console(width=None if Console().is_terminal else WIDTH, highlight=False)
    )
    started: float = field(default_factory=time.monotonic)
    begun: list[tuple[str, float]] = field(default_factory=list)
    """Titles of the acts, and the seconds after which each began."""

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def act(self, number: int, title: str) -> None:
        """A heading."""
        self.begun.append((f"{number}. {title}", self.seconds))
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

    def times(self) -> None:
        """How long each act took."""
        table = Table("act", "seconds", title="how long it took", title_justify="left")
        table.columns[1].justify = "right"
        ends = [*(begun for _, begun in self.begun[1:]), self.seconds]
        if self.begun:
            table.add_row("setting the network up", f"{self.begun[0][1]:.0f}")
        for (title, begun), end in zip(self.begun, ends, strict=True) if self.begun else ():
            table.add_row(escape(title), f"{end - begun:.0f}")
        self.console.print(table)
