"""A table of text, and how its cells are written: it prints and reads as JSON alike."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """A title, a row of column names, rows of cells, and what to know when reading it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def units(value: float) -> str:
    """Signed, two decimals."""
    return f"{value:+.2f}"


def marked(value: float) -> str:
    """Marked where it should be above zero and is not."""
    return units(value) + (" (!)" if value <= 0 else "")


def wrong(value: float) -> str:
    """Marked where it should not be above zero and is."""
    return units(value) + (" (!)" if value > 0 else "")
