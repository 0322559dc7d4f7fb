"""A calibration as JSON (for machines and for `troth model register --calibration`) and as one HTML page.

The page shows strips of numbers on a logarithmic axis as SVG: a line a condition, a dot a run, and the cut across all
of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from troth.node.calibration.findings import CalibrationFindings, ConditionOutcome
from troth.node.calibration.generating import CalibrationPlan
from troth.node.calibration.intervals import Share
from troth.node.calibration.layouts import LayoutOutcome
from troth.node.calibration.long_windows import ROOM, LongWindowFindings
from troth.node.calibration.thresholds import LENGTHS, Numbers
from troth.node.models.thresholds import LONG, Thresholds
from troth.protocol.scores import LONG_MEAN, LONG_WINDOW
from troth.protocol.types import Hash32

WIDTH, LABEL, LINE, MARGIN = 900, 260, 24, 30
COLOURS = {"honest": "#1a7f37", "cheat": "#cf222e", "slow": "#bc4c00", "text": "#8250df", "hidden": "#9a6700"}
LEAST = 1e-7
"""Zeros are drawn here."""
VERSION = 1
QUANTILES = (0.0, 0.001, 0.01, 0.5, 0.99, 0.999, 1.0)


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


@dataclass(frozen=True, slots=True)
class CalibrationSubject:
    """What was calibrated: a model by its id, in a dtype, by an engine, under a plan."""

    model: Hash32
    dtype: str
    engine: str
    prompts: int
    plan: CalibrationPlan


def as_json(subject: CalibrationSubject, findings: CalibrationFindings, data: Hash32) -> dict[str, Any]:
    """Everything, as JSON values; `data` is the hash of the measurements."""
    return {
        "version": VERSION,
        "rules": findings.rules,
        "model": "0x" + subject.model.hex(),
        "dtype": subject.dtype,
        "engine": subject.engine,
        "prompts": subject.prompts,
        "tokens": subject.plan.tokens,
        "segments": [[segment.first, segment.end] for segment in subject.plan.segments],
        "data": "0x" + data.hex(),
        "thresholds": _thresholds(findings.thresholds),
        "honest_tasks_refused": _share(findings.refused),
        "honest_tasks_refused_in_sample": _share(findings.refused_known),
        "conditions": [_outcome(outcome) for outcome in findings.outcomes],
        "tiles": [_layout(outcome) for outcome in findings.layouts],
        "pools": [asdict(outcome) for outcome in findings.pools],
        **({} if findings.long_windows is None else {LONG: _long_windows(findings.long_windows)}),
    }


def long_windows_line(found: LongWindowFindings) -> str:
    """What long windows did to honest runs, and what the class gets by it, in a sentence."""
    if not found.refused.total:
        return f"Fifth rules: {found.why_not}."
    refused = f"{found.refused.count} of {found.refused.total} honest runs, at most {found.refused.high:.2%}"
    tail = "" if found.tail is None else f"; by a normal tail {_rate(found.tail)}"
    measured = f"refused {refused} with 95 % confidence{tail}; the worst has {found.worst:.2f} of the excess at the cut"
    return f"{measured}: " + ("eighth rules." if found.supported else f"fifth rules, since {found.why_not}.")


def write(folder: Path, report: dict[str, Any], findings: CalibrationFindings) -> tuple[Path, Path]:
    """Write report.json and report.html; returns their paths."""
    data, page = folder / "report.json", folder / "report.html"
    data.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    page.write_text(_page(report, findings), encoding="utf-8")
    return data, page


def _thresholds(thresholds: Thresholds) -> dict[str, Any]:
    tile = thresholds.tile
    return {
        "state_cut": thresholds.state_cut,
        "margin_cut": thresholds.margin_cut,
        "mantissa_bits": tile.bits,
        "steps": tile.steps,
        "theta": tile.theta,
        "tiles": thresholds.tiles,
        "honest": tile.honest,
        "cheating": tile.cheating,
    }


def _share(share: Share) -> dict[str, float]:
    return {"count": share.count, "of": share.total, "low": share.low, "high": share.high}


def _outcome(outcome: ConditionOutcome) -> dict[str, Any]:
    return {
        "name": outcome.condition.name,
        "kind": outcome.condition.kind,
        "caught_by_states": _share(outcome.by_states),
        "caught_by_tokens": _share(outcome.by_tokens),
        "caught": _share(outcome.by_any),
        "state_cuts": _quantiles(outcome.states),
        "margin_cuts": _quantiles(outcome.margins),
    }


def _long_windows(found: LongWindowFindings) -> dict[str, Any]:
    return {
        "rows": LONG_WINDOW,
        "mean": LONG_MEAN,
        "honest_refused": _share(found.refused),
        "honest_worst_excess": found.worst if found.refused.total else None,
        "honest_tail": found.tail,
        "room": ROOM,
        "supported": found.supported,
        "why_not": found.why_not,
        "conditions": [
            {
                "name": one.condition.name,
                "kind": one.condition.kind,
                "mean": one.mean,
                "worst_excess": one.worst,
                "refused": _share(one.refused),
                "tail": one.tail,
            }
            for one in found.outcomes
        ],
    }


def _rate(tail: float) -> str:
    """No calibration tells rates below a billionth."""
    return "below 1e-9" if tail < 1e-9 else f"{tail:.1e}"


def _layout(outcome: LayoutOutcome) -> dict[str, Any]:
    return {
        "layout": outcome.layout,
        "tiles": outcome.tiles,
        "honest_refused": _share(outcome.honest_refused),
        "cheat": outcome.cheat,
        "cheat_found": _share(outcome.cheat_found),
    }


def _quantiles(values: Numbers) -> dict[str, float]:
    if not len(values):
        return {}
    return {f"{quantile:g}": float(np.quantile(values, quantile)) for quantile in QUANTILES}


def _page(report: dict[str, Any], findings: CalibrationFindings) -> str:
    thresholds = findings.thresholds
    states = [_strip(outcome, outcome.states) for outcome in findings.outcomes]
    margins = [_strip(outcome, outcome.margins) for outcome in findings.outcomes]
    refused = findings.refused
    rows = "".join(
        f"<tr><td>{outcome.condition.name}<td>{outcome.condition.kind}"
        + "".join(f"<td>{_percent(part)}" for part in (outcome.by_states, outcome.by_tokens, outcome.by_any))
        for outcome in findings.outcomes
    )
    layouts = "".join(
        f"<tr><td>{one.layout}<td>{one.tiles}<td>{_percent(one.honest_refused)}<td>{one.cheat}<td>{_percent(one.cheat_found)}"
        for one in findings.layouts
    )
    pools = "".join(
        f"<tr><td>{one.condition}<td>{one.tokens}<td>{one.low:.2f}<td>{one.median:.2f}<td>{one.high:.2f}"
        f"<td>{one.refused:.1%}"
        for one in findings.pools
    )
    windows = "" if findings.long_windows is None else _long_window_table(findings.long_windows)
    tile, lengths = thresholds.tile, ", ".join(map(str, LENGTHS))
    sentence = (
        f"State cut {thresholds.state_cut / 1e6:g}, margin cut {thresholds.margin_cut / 1e6:g} logits a token; "
        f"on chain, {tile.theta / 100:g} % of a tile's elements agree within {tile.steps} steps "
        f"of {tile.bits} mantissa bits."
    )
    return f"""<!doctype html><meta charset="utf-8"><title>Calibration</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
table {{ border-collapse: collapse }} td, th {{ padding: .2rem .7rem; border-bottom: 1px solid #ddd; text-align: left }}
svg {{ width: 100%; height: auto }} code {{ word-break: break-all }}</style>
<h1>Calibration</h1>
<p>Model <code>{report["model"]}</code>, {report["dtype"]}, {report["engine"]}; {report["prompts"]} prompts,
{report["tokens"]} tokens each. Data <code>{report["data"]}</code>.</p>
<p><b>{refused.count} of {refused.total}</b> honest tasks ({lengths} tokens) are refused by thresholds that were
made from other prompts; with 95 % confidence at most {refused.high:.2%} of them.</p>
<h2>Thresholds</h2><p>{sentence}</p>
<h2>States</h2>{strips(states, thresholds.state_cut / 1e6, "smallest cut that accepts a run")}
<h2>Tokens</h2>{strips(margins, thresholds.margin_cut / 1e6, "margin of the worst 32 tokens, logits a token")}
<h2>What is caught</h2><p>Each half of the prompts is judged by the thresholds that the other half gives.</p>
<table><tr><th>run<th>kind<th>by states<th>by tokens<th>by any check</tr>{rows}</table>
{windows}<h2>Tiles on chain</h2><table><tr><th>layout<th>tiles<th>honest refused<th>cheat<th>found</tr>{layouts}</table>
<h2>Margins pooled over tasks</h2>
<table><tr><th>run<th>tokens<th>ratio: 0.1 %<th>median<th>99.9 %<th>refused</tr>{pools}</table>
"""


def _long_window_table(found: LongWindowFindings) -> str:
    rows = "".join(
        f"<tr><td>{one.condition.name}<td>{one.condition.kind}<td>{one.mean:.3f}<td>{one.worst:.2f}"
        f"<td>{_percent(one.refused)}"
        for one in found.outcomes
    )
    head = "<tr><th>run<th>kind<th>mean: median<th>worst excess<th>refused</tr>"
    cut = f"Over {LONG_WINDOW} rows, against three own runs; beyond {LONG_MEAN:g} a trace is refused, for no stake."
    line = long_windows_line(found)
    return f"<h2>Long windows</h2><p>{cut} Measured: {line}</p><table>{head}{rows}</table>\n"


def _strip(outcome: ConditionOutcome, values: Numbers) -> Strip:
    return Strip(outcome.condition.name, outcome.condition.kind, values)


def _percent(share: Share) -> str:
    return f"{share.value:.1%} <small>({share.low:.1%} to {share.high:.1%} of {share.total})</small>"
