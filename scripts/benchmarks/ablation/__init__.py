"""What each part of the protocol is worth (VeriLLM 7.2.4): take it away, and compute what an attacker gains."""

from __future__ import annotations

from benchmarks.committees import captured
from benchmarks.figures import Figure

NODES, COMMITTEE = 10_000, 3
PAPER_VRF, PAPER_MISSED, PAPER_BOUND = 6.4, 1.6e-2, 1e-4
TILE_ROWS = 8
"""Positions that one opened tile shows."""
ALTERED = (0.01, 0.1, 0.3, 0.5)
"""Share of a trace's positions that were not computed by the model."""


def measure() -> list[Figure]:
    """Two of the paper's three ablations, then what one opened tile misses; see the README for the third."""
    return [*_without_vrf(), _fewer_samples(), *_one_tile()]


def _without_vrf() -> list[Figure]:
    return [
        Figure(
            f"a scheduler that picks verifiers itself, {share:.0%} malicious",
            *(1 / captured(NODES, round(NODES * share), COMMITTEE), "×", PAPER_VRF),
            note="more captured committees than a draw gives, three verifiers",
        )
        for share in (0.10, 0.25, 0.40)
    ]


def _fewer_samples() -> Figure:
    """With independent samples a miss is (1 - x)^n, so the paper's figure at a fifth of them gives the other one."""
    return Figure(
        "misses at 1 % sampling, from the paper's 1.6e-2 at 0.2 %",
        *(PAPER_MISSED ** (1.0 / 0.2), "", PAPER_BOUND),
        note="the paper says below its column",
    )


def _one_tile() -> list[Figure]:
    return [
        Figure(
            f"one opened tile misses all altered rows, {altered:.0%} of them altered",
            (1 - altered) ** TILE_ROWS,
            "",
            note="why verifiers compare every row, and the chain only settles between them",
        )
        for altered in ALTERED
    ]
