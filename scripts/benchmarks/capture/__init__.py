"""How often malicious verifiers take a committee (VeriLLM equation 4), and what that is worth once it is disputed."""

from __future__ import annotations

from benchmarks.capture.attack import NOBODY, PARTIES, WATCHED, Attack
from benchmarks.committees import captured, taken_whole
from benchmarks.figures import Figure

NODES = 200
"""Nodes of a slice; the paper gives no number."""
COMMITTEES = (3, 5)
REVIEWS = (15, 31)
SHARES = (0.10, 0.20, 0.30, 0.40, 0.45)


def measure() -> list[Figure]:
    """A block of rows for each share of malicious nodes."""
    return [figure for share in SHARES for figure in (*_equation(share), *_disputed(share))]


def _equation(share: float) -> list[Figure]:
    malicious = round(NODES * share)
    found = []
    for committee in COMMITTEES:
        name = f"{share:.0%} malicious, m = {committee}"
        taken = 100 * captured(NODES, malicious, committee)
        found.append(Figure(f"{name}: majority taken", taken, "%", note="equation 4"))
        whole = 100 * taken_whole(NODES, malicious, committee)
        found.append(Figure(f"{name}: taken whole", whole, "%", note="no honest verifier saw the task"))
    return found


def _disputed(share: float) -> list[Figure]:
    """Three verifiers, the rules as built."""
    found, name = [], f"{share:.0%} malicious"
    malicious = round(NODES * share)
    plain = Attack(NODES, malicious, REVIEWS[0], NOBODY)
    found += [
        Figure(f"{name}: a cheat pays the attackers, no disputes", plain.cheat_units, "units a task"),
        Figure(f"{name}: rejecting the honest pays them, no disputes", plain.rejection_units, "units a task"),
    ]
    for reviewers in REVIEWS:
        inside, watched = (Attack(NODES, malicious, reviewers, policy) for policy in (PARTIES, WATCHED))
        after = f"{name}, m' = {reviewers}"
        found += [
            Figure(f"{after}: a cheat stands, parties dispute", 100 * inside.cheat_stands, "%", note=_WHOLE),
            Figure(f"{after}: a cheat stands, the client disputes too", 100 * watched.cheat_stands, "%"),
            Figure(f"{after}: an honest inferencer stays rejected", 100 * watched.rejection_stands, "%"),
            Figure(f"{after}: a cheat pays the attackers", watched.cheat_units, "units a task", note=_COST),
            Figure(f"{after}: rejecting the honest pays the attackers", watched.rejection_units, "units a task"),
        ]
    return found


_WHOLE = "taken whole, nobody inside disputes"
_COST = "inferencer, verifiers and reviewers of theirs together; honest parties and the client dispute"
