"""How runs are compared until a calibration says better: thresholds from the SmolLM2-135M measurements.

float32 decodes within 1e-6 weighted RMS of its own prefill and int8 weights are at 4.5e-2, so that a cut of 1e-3 has
three orders of room on one side and one on the other. bfloat16 compares noise ratios (cut 1.5).
"""

from __future__ import annotations

from typing import TypedDict


class Comparison(TypedDict):
    """The fields of a tolerant execution class that say how runs are compared."""

    exact: bool
    mantissa_bits: int
    steps: int
    theta: int
    tiles: int
    state_cut: int
    margin_cut: int


def rough_comparison(dtype: int) -> Comparison:
    """That of a model served by the torch engine, for the number of its dtype."""
    single = dtype == 0
    return Comparison(
        exact=False,
        mantissa_bits=10 if single else 7,
        steps=8 if single else 7,
        theta=9_000 if single else 6_500,
        tiles=1,
        state_cut=1_000 if single else 1_500_000,
        margin_cut=20_000 if single else 50_000,
    )
