"""Execution classes of the per-task contract to begin with, until a calibration replaces their thresholds."""

from __future__ import annotations

from troth.node.models.rough import rough_comparison
from troth.protocol.review import reviewers_needed
from troth.protocol.settlement import BOND, PENALTY, REWARD
from troth.protocol.types import ZERO_HASH, ExecutionClass, Hash32

STAKE_FACTOR = 2
HONEST_SHARE, REVIEW_ERROR = 0.9, 0.01
"""What the default number of reviewers supposes: 15 by VeriLLM's Lemma E.2."""


def default_class(
    model: Hash32, dtype: int, name: str, unit: int, *, candidates: int = 2, verifiers: int = 3, reviewers: int = 0
) -> ExecutionClass:
    """The tolerant class of a model served by the torch engine; amounts in wei.

    ``reviewers`` 0 is as many as an honest share of 0.9 needs for reviews that err once in a hundred. The stake covers
    two full slashes of an inferencer, 2 + 6 k units each, and a lost dispute, which the contract insists on.
    """
    reviewers = reviewers or max(reviewers_needed(HONEST_SHARE, REVIEW_ERROR), verifiers + 2)
    covered = (PENALTY + REWARD * verifiers) * STAKE_FACTOR + BOND + REWARD * reviewers
    return ExecutionClass(
        model=model,
        name=name,
        dtype=dtype,
        candidates=candidates,
        verifiers=verifiers,
        reviewers=reviewers,
        unit=unit,
        minimum_stake=unit * covered,
        calibration=ZERO_HASH,
        **rough_comparison(dtype),
    )
