"""Findings as a Markdown table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from adversaries.registry import BEFORE_REPLAY
from adversaries.trial import Finding

HEADER = (
    "| adversary | what it does | caught by | score / cut | outcome | blocks | seconds | who paid what (units) |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)


def markdown(findings: Iterable[Finding]) -> str:
    """One row per finding; the honest task before a replay is none."""
    rows = [row(found) for found in findings if found.adversary is not BEFORE_REPLAY]
    return "\n".join([HEADER, *rows]) + "\n"


def row(found: Finding) -> str:
    """One line of the table."""
    adversary = found.adversary
    cells = (
        adversary.name,
        adversary.does,
        adversary.caught_by,
        score(found),
        found.outcome,
        str(found.blocks),
        f"{found.seconds:.1f}",
        money(found),
    )
    return "| " + " | ".join(cells) + " |"


def score(found: Finding) -> str:
    """By how much the weakest honest verifier found the cheat to exceed its cut."""
    if not found.judged:
        return "–"
    if not all(one.end_ok for one in found.judged):
        return "end not valid"
    tokens = "tokens" in found.adversary.caught_by
    ratios = [one.tokens / one.token_cut if tokens else one.states / one.state_cut for one in found.judged]
    return f"{min(ratios):.2g}"


def money(found: Finding) -> str:
    """Slashes and pay by seat, what the client paid."""
    parts = [f"{found.seat(who)} −{units}" for who, (_, units) in found.slashed.items()]
    paid = Counter[str]()
    for account, units in found.credited.items():
        if account in found.parties:
            paid[f"{found.seat(account)} +{units}"] += 1
    parts += [text if count == 1 else f"{count} × {text}" for text, count in paid.items()]
    return ", ".join([*parts, f"client −{found.cost // found.unit} of {found.fee // found.unit}"])
