"""How often malicious verifiers take a committee (VeriLLM equation 4), and what is left of that with a court."""

from __future__ import annotations

from benchmarks.capture.court import Court
from benchmarks.committees import captured, taken_whole
from benchmarks.figures import Figure

NODES = 200
"""Nodes of a slice; the paper gives no number."""
COMMITTEES = (3, 5)
REVIEWS = (15, 31)
SHARES = (10, 20, 30, 40, 45)
"""Malicious, in per cent."""
CHECKED = 5
"""Per cent of answers that are drawn to be checked."""
_THIRD = "more than a third of the seats is theirs"
_THIRDS = "two thirds of the seats are theirs"
_CHAIN = "drawn, found by most of k = 3, convicted by two thirds of m'"
_PENALTY = "a conviction costs 3/2 of what cheating until then can gain, and two fees at least"


def measure() -> list[Figure]:
    """A block of rows for each share of malicious nodes."""
    return [figure for share in SHARES for figure in (*_equation(share), *_market(share))]


def _equation(share: int) -> list[Figure]:
    malicious = NODES * share // 100
    found = []
    for committee in COMMITTEES:
        name = f"{share} % malicious, m = {committee}"
        taken = 100 * captured(NODES, malicious, committee)
        found.append(Figure(f"{name}: majority taken", taken, "%", note="equation 4"))
        whole = 100 * taken_whole(NODES, malicious, committee)
        found.append(Figure(f"{name}: taken whole", whole, "%", note="no honest verifier saw the task"))
    return found


def _market(share: int) -> list[Figure]:
    """Seats of the market's draws: each is malicious by itself, with the share of all seats that are."""
    name, found = f"{share} % malicious", []
    for verifiers in COMMITTEES:
        missed = 100 * (1 - Court(share, verifiers, REVIEWS[0]).found)
        found.append(Figure(f"{name}, k = {verifiers}: a drawn cheat is passed by the majority", missed, "%"))
    for reviewers in REVIEWS:
        court = Court(share, COMMITTEES[0], reviewers)
        after = f"{name}, m' = {reviewers}"
        found += [
            Figure(f"{after}: a cheat in court is not convicted", 100 * (1 - court.convicts), "%", note=_THIRD),
            Figure(f"{after}: an honest node in court is convicted", 100 * court.convicts_honest, "%", note=_THIRDS),
            Figure(f"{after}: a cheat is convicted, q = {CHECKED} %", 100 * court.caught(CHECKED), "%", note=_CHAIN),
            Figure(f"{after}: penalty that a class must ask for", court.penalty(CHECKED), "fees", note=_PENALTY),
        ]
    return found
