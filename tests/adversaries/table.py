"""Findings as a Markdown table."""

from __future__ import annotations

from collections.abc import Iterable

from adversaries.trial import Finding

HEADER = (
    "| adversary | what it does | caught by | score / cut | outcome | blocks | seconds | who has more (gwei) |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)
GWEI = 10**9


def markdown(findings: Iterable[Finding]) -> str:
    """One row per finding."""
    return "\n".join([HEADER, *(row(found) for found in findings)]) + "\n"


def row(found: Finding) -> str:
    """One line of the table."""
    one = found.row
    cells = (one.name, one.does, one.caught_by, score(found), found.outcome)
    return "| " + " | ".join((*cells, str(found.blocks), f"{found.seconds:.1f}", money(found))) + " |"


def score(found: Finding) -> str:
    """By how much the weakest honest verifier found the cheat to exceed its cut."""
    judged = [one for one in found.judged if "tokens" in one or one["segment"] == 0]
    if not judged or found.row.kind != "weights":
        return "–"
    if not all(one.get("end", True) for one in judged):
        return "end not valid"
    what, cut = ("tokens", "token_cut") if "tokens" in found.row.caught_by else ("states", "state_cut")
    return f"{min(one[what] / one[cut] for one in judged if what in one):.2g}"


def money(found: Finding) -> str:
    """What each party has more or less, largest losses first; parties with the same part and sum are counted."""
    told: dict[tuple[str, int], int] = {}
    for party, amount in found.change.wealth.items():
        if amount:
            place = (found.part_of(party), amount)
            told[place] = told.get(place, 0) + 1
    lines = [_line(part, amount, count) for (part, amount), count in sorted(told.items(), key=lambda one: one[0][1])]
    return ", ".join(lines) or "nobody"


def _line(part: str, amount: int, count: int) -> str:
    sign = "−" if amount < 0 else "+"
    return f"{f'{count} × ' if count > 1 else ''}{part} {sign}{abs(amount) / GWEI:,.0f}"
