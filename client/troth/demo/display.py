"""What the demo prints: headings, steps, an answer as it streams, and tables of gas and money."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape

WIDTH = 110


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
