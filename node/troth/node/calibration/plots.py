"""Strips of numbers on a logarithmic axis as SVG: a line a condition, a dot a run, and the cut across all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from troth.node.calibration.thresholds import Numbers

WIDTH, LABEL, LINE, MARGIN = 900, 260, 24, 30
COLOURS = {"honest": "#1a7f37", "cheat": "#cf222e", "text": "#8250df", "hidden": "#9a6700"}
LEAST = 1e-7
"""Zeros are drawn here."""


@dataclass(frozen=True, slots=True)
class Strip:
    """One line of dots."""

    label: str
    kind: str
    values: Numbers


def strips(lines: Sequence[Strip], cut: float, axis: str) -> str:
    """An SVG element with all lines, the cut as a dashed one."""
    values = np.maximum(np.concatenate([line.values for line in lines] + [np.array([cut])]), LEAST)
    low, high = np.floor(np.log10(values.min())), np.ceil(np.log10(values.max()) + 1e-9)
    high = max(high, low + 1)

    def across(value: float) -> float:
        return float(LABEL + (np.log10(max(value, LEAST)) - low) / (high - low) * (WIDTH - LABEL - 20))

    height = LINE * len(lines) + 2 * MARGIN
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" font-family="system-ui" font-size="12">']
    for power in range(int(low), int(high) + 1):
        x = across(10.0**power)
        parts.append(f'<line x1="{x:.1f}" y1="{MARGIN}" x2="{x:.1f}" y2="{height - MARGIN}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 12}" text-anchor="middle">1e{power}</text>')
    for index, line in enumerate(lines):
        y = MARGIN + LINE * (index + 0.5)
        parts.append(f'<text x="{LABEL - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(line.label)}</text>')
        dots = "".join(f'<circle cx="{across(value):.1f}" cy="{y:.1f}" r="3"/>' for value in line.values)
        parts.append(f'<g fill="{COLOURS.get(line.kind, "#555")}" fill-opacity="0.45">{dots}</g>')
    x = across(cut)
    parts.append(
        f'<line x1="{x:.1f}" y1="{MARGIN - 8}" x2="{x:.1f}" y2="{height - MARGIN}" stroke="#222" stroke-dasharray="4"/>'
        f'<text x="{x:.1f}" y="{MARGIN - 12}" text-anchor="middle">cut {cut:.3g}</text>'
        f'<text x="{WIDTH - 20}" y="{MARGIN - 12}" text-anchor="end" fill="#555">{escape(axis)}</text></svg>'
    )
    return "".join(parts)
