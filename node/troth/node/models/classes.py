"""Execution classes to begin with: thresholds from the SmolLM2-135M measurements, until a calibration replaces them.

float32 decodes within 1e-6 weighted RMS of its own prefill and int8 weights are at 4.5e-2, so that a cut of 1e-3 has
three orders of room on one side and one on the other. bfloat16 compares noise ratios (cut 1.5).
"""

from __future__ import annotations

from troth.protocol.types import ZERO_HASH, ExecutionClass, Hash32

STAKE_FACTOR = 2


def default_class(
    model: Hash32, dtype: int, name: str, unit: int, *, candidates: int = 2, verifiers: int = 3
) -> ExecutionClass:
    """The tolerant class of a model served by the torch engine; amounts in wei.

    The stake covers two full slashes of an inferencer, 2 + 6 k units each, which the contract insists on.
    """
    single = dtype == 0
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
        unit=unit,
        minimum_stake=unit * (2 + 6 * verifiers) * STAKE_FACTOR,
        state_cut=1_000 if single else 1_500_000,
        margin_cut=20_000 if single else 50_000,
        calibration=ZERO_HASH,
    )
