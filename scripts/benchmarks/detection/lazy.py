"""A lazy verifier commits to random rows; the contract compares the tiles that it must open with the others'."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from troth.node.calibration.generating import words
from troth.node.models.thresholds import Thresholds
from troth.protocol.agreement import AgreementRule
from troth.protocol.tensors import Dtype
from troth.protocol.trace import TileLayout

OPENINGS = 64
"""Openings looked at per trace."""


def found(honest: NDArray[Any], model: bytes, thresholds: Thresholds) -> float:
    """Per cent of openings of a lazy verifier that do not agree with honest ones (traces x positions x hidden size).

    Each is of as many tiles as the class opens. The rows are standard normal: signs and mantissas must agree too, so
    that to know the scale of real states would help little.
    """
    draw, tile = np.random.default_rng(20260103), thresholds.tile
    rule = AgreementRule(Dtype.BFLOAT16, tile.bits, tile.steps, tile.theta)
    torch.manual_seed(20260103)
    refused = []
    for rows in honest:
        layout = TileLayout(draw.bytes(32), model, *rows.shape, Dtype.BFLOAT16)
        random = words(torch.randn(rows.shape).to(torch.bfloat16), Dtype.BFLOAT16)
        ours, theirs = layout.cut(rows), layout.cut(random)
        for places in draw.integers(len(ours), size=(OPENINGS, thresholds.tiles)):
            refused.append(not rule.agrees(ours[places].tobytes(), theirs[places].tobytes()))
    return 100 * float(np.mean(refused))
