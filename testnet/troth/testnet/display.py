"""What the demo prints: headings, steps, an answer as it streams, and how long each act took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

WIDTH = 110


@dataclass(slots=True)
class Display:
    """A console with the time since the start before each step."""

    console: Console = field(
        default_factory=lambda: Console(width=None if Console().is_terminal else WIDTH, highlight=False)
    )
    picture: Console | None = None
    """Where a run that becomes a picture is told once more: titles, moments and what held, without the rest."""
    started: float = field(default_factory=time.monotonic)
    begun: list[tuple[str, float]] = field(default_factory=list)
    """Titles of the acts, and the seconds after which each began."""

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def heading(self, title: str) -> None:
        """A heading that is not an act."""
        for console in self._consoles():
            console.rule(f"[bold]{escape(title)}", align="left")

    def act(self, number: int, title: str) -> None:
        """The heading of an act."""
        self.begun.append((f"{number}. {title}", self.seconds))
        for console in self._consoles():
            console.print()
        self.heading(f"{number}. {title}")

    def step(self, text: str) -> None:
        """One thing that happened."""
        self.console.print(self._stamped(text))

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """A step that may take minutes: a terminal shows that it goes on, and for how long."""
        self.step(text)
        columns = SpinnerColumn(), TextColumn("[dim]still at it[/dim]"), TimeElapsedColumn()
        with Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as progress:
            progress.add_task("", total=None)
            yield

    def moment(self, text: str) -> None:
        """A step that the picture shows too."""
        self.step(text)
        self.remember(text)

    def remember(self, text: str) -> None:
        """A line for the picture alone: the console shows it in another form."""
        if self.picture is not None:
            self.picture.print(self._stamped(text))

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
        for console in self._consoles():
            console.print(f"[bold green]✓[/bold green] {escape(text)}")

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

    def _stamped(self, text: str) -> str:
        return f"[dim]{self.seconds:6.1f} s[/dim]  {escape(text)}"

    def _consoles(self) -> tuple[Console, ...]:
        return (self.console,) if self.picture is None else (self.console, self.picture)
