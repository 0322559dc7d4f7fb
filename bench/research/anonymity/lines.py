"""A line of a plot, and the points that the paper prints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
SEED = 4


@dataclass(frozen=True, slots=True)
class Line:
    """A name and y over x. `paper` marks a line in the paper's own terms: its model, or its printed figures."""

    name: str
    x: Numbers
    y: Numbers
    paper: bool = False

    def at(self, x: float) -> float:
        """y at x, between the points on a straight line."""
        return float(np.interp(x, self.x, self.y))


@dataclass(frozen=True, slots=True)
class Point:
    """A figure that the paper prints in its text."""

    name: str
    x: float
    y: float
