"""How often malicious verifiers take a committee (VeriLLM equation 4), with and without a second, larger one."""

from __future__ import annotations

from benchmarks.committees import captured, taken_whole
from benchmarks.figures import Figure

NODES = 200
"""Verifiers of a slice; the paper gives no number."""
COMMITTEES = (3, 5)
SECOND = (15, 31)
SHARES = (0.10, 0.20, 0.30, 0.40, 0.45)


def measure() -> list[Figure]:
    """A block of rows for each share of malicious verifiers."""
    return [figure for share in SHARES for figure in _of_share(share)]


def _of_share(share: float) -> list[Figure]:
    malicious = round(NODES * share)
    found = []
    for committee in COMMITTEES:
        first = captured(NODES, malicious, committee)
        name = f"{share:.0%} malicious, m = {committee}"
        found.append(Figure(f"{name}: majority taken", 100 * first, "%", note="equation 4"))
        whole = 100 * taken_whole(NODES, malicious, committee)
        found.append(Figure(f"{name}: taken whole", whole, "%", note="no honest verifier saw the task"))
        found += [
            Figure(
                f"{name}: first and second (m' = {second}) taken",
                100 * first * captured(NODES, malicious, second),
                "%",
                note="an honest inferencer is rejected for good, the two draws being independent",
            )
            for second in SECOND
        ]
    return found
