"""Chances of committees: who is drawn, who has the majority, and how large a second committee must be."""

from __future__ import annotations

import math

from troth.node.calibration.intervals import at_most


def captured(nodes: int, malicious: int, committee: int) -> float:
    """Chance that malicious nodes are the majority of a drawn committee (VeriLLM equation 4, hypergeometric)."""
    quorum = committee // 2 + 1
    ways = sum(
        math.comb(malicious, taken) * math.comb(nodes - malicious, committee - taken)
        for taken in range(quorum, committee + 1)
    )
    return ways / math.comb(nodes, committee)


def taken_whole(nodes: int, malicious: int, committee: int) -> float:
    """Chance that every drawn node is malicious."""
    return math.comb(malicious, committee) / math.comb(nodes, committee)


def majority(committee: int, honest: float) -> float:
    """Chance that honest verifiers are the majority, each being honest independently (VeriLLM Appendix E.1)."""
    return 1 - at_most(committee // 2, committee, honest)


def bound_of_lemma(honest: float, error: float) -> int:
    """The smallest odd committee that Lemma E.2 asks for; ``error`` is the chance of a wrong second verdict."""
    return _odd_above(math.log(1 / error) / (2 * (honest - 0.5) ** 2))


def smallest(honest: float, error: float) -> int:
    """The smallest odd committee whose majority is honest with that chance, computed instead of bounded."""
    low, high = 0, bound_of_lemma(honest, error) // 2
    while low < high:
        middle = (low + high) // 2
        if at_most(middle, 2 * middle + 1, honest) <= error:
            high = middle
        else:
            low = middle + 1
    return 2 * low + 1


def _odd_above(bound: float) -> int:
    whole = math.floor(bound) + 1
    return whole + 1 - whole % 2
