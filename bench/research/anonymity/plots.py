"""Lines over linear axes as SVG, and their numbers: solid is ours, dashed the paper's model, dots its figures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from research.anonymity.lines import Line, Point

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 420, 60, 330, 20, 45
COLOURS = ("#1a7f37", "#0969da", "#8250df", "#cf222e", "#9a6700", "#57606a", "#bf3989", "#1b7c83")
STYLE = """body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse } td, th { padding: .2rem .7rem; border-bottom: 1px solid #ddd; text-align: right }
td:first-child, th:first-child { text-align: left } svg { width: 100%; height: auto }"""


class Axes:
    """Where numbers lie on the page."""

    def __init__(self, lines: Sequence[Line], points: Sequence[Point]) -> None:
        values = np.concatenate([line.y for line in lines] + [np.array([point.y for point in points])])
        self.low = float(np.floor(values.min() * 20) / 20)
        self.high = max(float(np.ceil(values.max() * 20) / 20), self.low + 0.05)
        self.start, self.end = float(lines[0].x.min()), float(lines[0].x.max())

    def across(self, x: float) -> float:
        """Pixels from the left."""
        return LEFT + (x - self.start) / (self.end - self.start) * (WIDTH - LEFT - RIGHT)

    def down(self, y: float) -> float:
        """Pixels from the top."""
        return TOP + (self.high - y) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)


def chart(lines: Sequence[Line], points: Sequence[Point], x_axis: str) -> str:
    """One SVG element."""
    axes = Axes(lines, points)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui" font-size="12">', _grid(axes, x_axis)]
    for index, line in enumerate(lines):
        parts.append(_line(axes, line, COLOURS[index % len(COLOURS)], index))
    for index, point in enumerate(points, len(lines)):
        x, y, legend = axes.across(point.x), axes.down(point.y), TOP + 8 + 20 * index
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#222"/>'
            f'<circle cx="{WIDTH - RIGHT + 32}" cy="{legend}" r="4" fill="#222"/>'
            f'<text x="{WIDTH - RIGHT + 52}" y="{legend + 4}">{escape(point.name)}</text>'
        )
    return "".join([*parts, "</svg>"])


def _grid(axes: Axes, x_axis: str) -> str:
    parts = []
    for y in np.linspace(axes.low, axes.high, 6):
        at = axes.down(float(y))
        parts.append(
            f'<line x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}" stroke="#ddd"/>'
            f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{y:.2f}</text>'
        )
    for x in np.linspace(axes.start, axes.end, 6):
        at = axes.across(float(x))
        parts.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle:.0f}" y="{HEIGHT - 8}" text-anchor="middle" fill="#555">{escape(x_axis)}</text>')
    return "".join(parts)


def _line(axes: Axes, line: Line, colour: str, index: int) -> str:
    path = " ".join(f"{axes.across(x):.1f},{axes.down(y):.1f}" for x, y in zip(line.x, line.y, strict=True))
    dashes = ' stroke-dasharray="6 4"' if line.paper else ""
    drawn = f'fill="none" stroke="{colour}" stroke-width="2"{dashes}'
    legend = TOP + 8 + 20 * index
    return (
        f'<polyline points="{path}" {drawn}/>'
        f'<line x1="{WIDTH - RIGHT + 18}" y1="{legend}" x2="{WIDTH - RIGHT + 46}" y2="{legend}" {drawn}/>'
        f'<text x="{WIDTH - RIGHT + 52}" y="{legend + 4}">{escape(line.name)}</text>'
    )


def table(lines: Sequence[Line], every: int, x_axis: str) -> str:
    """The same numbers, every so many points."""
    chosen = lines[0].x[::every]
    head = "".join(f"<th>{x:g}</th>" for x in chosen)
    rows = "".join(
        f"<tr><td>{escape(line.name)}</td>" + "".join(f"<td>{y:.3f}</td>" for y in line.y[::every]) + "</tr>"
        for line in lines
    )
    return f"<table><tr><th>{escape(x_axis)}</th>{head}</tr>{rows}</table>"


def page(title: str, text: str, bodies: Sequence[str]) -> str:
    """One HTML page without scripts or anything from elsewhere."""
    return (
        f'<!doctype html><meta charset="utf-8"><title>{escape(title)}</title><style>\n{STYLE}</style>\n'
        f"<h1>{escape(title)}</h1>\n<p>{escape(text)} Solid: ours; dashed: the paper's model; dots: its figures. "
        "Made by <code>scripts/bench anonymity</code>; "
        "<code>bench/research/anonymity/README.md</code> says what is modelled.</p>\n" + "\n".join(bodies) + "\n"
    )
