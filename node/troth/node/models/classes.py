"""Execution classes to begin with: thresholds from the SmolLM2-135M measurements, until a calibration replaces them.

float32 decodes within 1e-6 weighted RMS of its own prefill and int8 weights are at 4.5e-2, so that a cut of 1e-3 has
three orders of room on one side and one on the other. bfloat16 compares noise ratios (cut 1.5).
"""

from __future__ import annotations

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
    single = dtype == 0
    reviewers = reviewers or max(reviewers_needed(HONEST_SHARE, REVIEW_ERROR), verifiers + 2)
    covered = (PENALTY + REWARD * verifiers) * STAKE_FACTOR + BOND + REWARD * reviewers
    return ExecutionClass(
        model=model,
        name=name,
        dtype=dtype,
        exact=False,
        mantissa_bits=10 if single else 7,
        steps=8 if single else 7,
        theta=9_000 if single else 6_500,
        tiles=1,
        candidates=candidates,
        verifiers=verifiers,
        reviewers=reviewers,
        unit=unit,
        minimum_stake=unit * covered,
        state_cut=1_000 if single else 1_500_000,
        margin_cut=20_000 if single else 50_000,
        calibration=ZERO_HASH,
    )
