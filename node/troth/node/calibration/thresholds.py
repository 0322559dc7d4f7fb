"""Thresholds from measurements: cuts that every honest run passes and every cheat that can be told fails.

Each verdict is turned into the smallest cut at which it would accept. A cut then rejects exactly the runs whose number
is above it, so that one list of numbers a condition tells everything about every cut.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from troth.node.calibration.verifying import RULES, Measured
from troth.node.errors import ModelError
from troth.node.models.thresholds import TileRule
from troth.protocol.doubts import NEWEST_RULES
from troth.protocol.findings import LOST_LOGITS, MEAN_RATIO
from troth.protocol.scores import NARROW_ROW_FACTOR, mean_ratio, trace_score
from troth.protocol.tensors import Dtype
from troth.protocol.tokens import WINDOW
from troth.protocol.trace import TILE_BYTES

LENGTHS = (16, 24, 32, 40, 48, 64)
"""Texts of these lengths are judged, cut out of the measured ones: short answers have fewer rows to average."""
SMALLEST, LARGEST = 1e-9, 1e6
FORGETTABLE = 1e-3
"""Share of a cheat's runs that a cut may let pass, and of honest tiles that a theta may refuse."""
NEARLY = 0.05
"""By how much of the widest gap a more tolerant tile rule may be worse."""
LEAST_MARGIN = 1e-3
"""Margin of a window that an honest run is granted, seen or not: a near tie that falls the other way, 0.03 logits."""
OVERLAP = 2.0
"""Where honest runs and lies overlap, the cut is so many times the worst honest run: those to come may be worse."""
NEAR = 13.0
"""In float32 the state cut is so many times the worst honest run: cheats lie thousands of times beyond, and who is
refused is looked at twice."""
THIRD_RULES, FIFTH_RULES = 3, 5
WIDE = 0.5
"""A gap between honest tiles and cheats' that is wide enough: of rules beyond it the most tolerant is taken."""
CLEAR = 0.2
"""How far theta is above cheats' tiles at most. Those vary little; what is left of the gap is for prompts and machines
that were not measured."""
Numbers = NDArray[np.float64]


def least_cut(distances: NDArray[np.float32]) -> float:
    """The smallest state cut at which a trace with these row distances is accepted, to within 0.1 %."""
    low, high = np.log(SMALLEST), np.log(LARGEST)
    values = distances.astype(np.float64)
    while high - low > 1e-3:
        middle = (low + high) / 2
        if trace_score(values, float(np.exp(middle))).within(float(np.exp(middle))):
            high = middle
        else:
            low = middle
    return float(np.exp(high))


def state_cuts(parts: Iterable[Measured], length: int | None = None) -> list[list[float]]:
    """Per run and segment, the smallest cut that accepts it; `length` cuts the text."""
    found = []
    for part in parts:
        tokens = part["margins"].shape[1]
        segments = sorted(name for name in part if name.startswith("distances-"))
        for sequence in range(len(part["margins"])):
            kept = [part[name][sequence] for name in segments]
            rows = len(kept[0]) - (tokens - min(length or tokens, tokens))
            found.append([least_cut(one[:rows]) for one in kept])
    return found


def margins_of(part: Measured) -> Numbers:
    """Margins by the logits that verifiers judge texts with: the float32 reference's, where the class has one."""
    return part.get("margins-high", part["margins"])


def margin_cuts(parts: Iterable[Measured], length: int | None = None) -> Numbers:
    """Per run, the worst window's margin per token (see `tokens.judge_tokens`): the smallest cut that accepts it."""
    found = []
    for part in parts:
        for row in margins_of(part)[:, : length or part["margins"].shape[1]]:
            sums = np.cumsum(np.concatenate([[0.0], row.astype(np.float64)]))
            width = min(WINDOW, len(row))
            found.append(float(np.max(sums[width:] - sums[:-width])) / WINDOW)
    return np.array(found)


def between(honest: Numbers, cheating: Numbers) -> float:
    """A cut between two lists of least cuts: their geometric middle, or well above the honest ones if they overlap."""
    upper = float(np.max(honest)) if len(honest) else SMALLEST
    lower = float(np.quantile(cheating, FORGETTABLE)) if len(cheating) else upper
    upper = max(upper, SMALLEST)
    return float(np.sqrt(upper * lower)) if lower > upper else upper * OVERLAP


def near(honest: Numbers, cheating: Numbers) -> float:
    """A cut close to the honest runs, which leaves small cheats no room; never beyond what `between` says."""
    return min(between(honest, cheating), max(NEAR * float(np.max(honest)), SMALLEST))


def margin_cut(dtype: Dtype, honest: Numbers, lies: Numbers) -> float:
    """The margin cut of a class, by the least cuts of honest texts and of lies.

    float32 texts lose nothing, and are granted no more than LEAST_MARGIN: who lies in few tokens is then refused for
    one task, for which the court takes stake, and not only suspected after many.
    """
    cut = between(np.maximum(honest, LEAST_MARGIN), lies)
    if dtype is not Dtype.FLOAT32:
        return cut
    return min(cut, max(LEAST_MARGIN, OVERLAP * float(np.max(honest))))


def rules_for(dtype: Dtype, parts: Iterable[Measured], state_cut: float, *, long_windows: bool = False) -> int:
    """By which rules a class with these honest runs may judge: the newest where all lie within their constants. In
    float32 no honest row may need more than a quarter of what one is granted; ``long_windows``: whether those of
    bfloat16 runs were measured, and leave room.

    Raises ModelError for float32 runs beyond them: their distances are measured as those rules do.
    """
    kept = list(parts)
    if dtype is Dtype.FLOAT32:
        lost = max(float(margins_of(part).max()) for part in kept)
        if lost > LOST_LOGITS:
            what = f"an honest float32 token loses more than {LOST_LOGITS} logits, which evidence would count as a lie"
            raise ModelError(what, lost, "Calibrate a bfloat16 class of this model.")
    distances = [row for part in kept for name in part if name.startswith("distances-") for row in part[name]]
    if dtype is Dtype.FLOAT32:
        worst = max(float(row.max()) for row in distances)
        return NEWEST_RULES if worst <= state_cut * NARROW_ROW_FACTOR / 4 else THIRD_RULES
    if max(mean_ratio(row.astype(np.float64)) for row in distances) > MEAN_RATIO:
        return 1
    return NEWEST_RULES if long_windows else FIFTH_RULES


def tile_shares(parts: Iterable[Measured], layout: str, segment: int, dtype: Dtype) -> Numbers:
    """Shares of agreeing elements, runs x tiles x rules."""
    elements = TILE_BYTES // dtype.element_bytes
    found = [part[f"agreeing-{layout}-{segment}"].astype(np.float64) / elements for part in parts]
    return np.concatenate(found)


def choose_tile_rule(dtype: Dtype, honest: Numbers, cheating: Numbers) -> TileRule:
    """The most tolerant of the rules with nearly the widest gap between honest and cheating tiles (each tiles x rules),
    or a WIDE one, theta in its middle or CLEAR of the cheats: other machines than the measured one may be noisier."""
    rules = [
        _tile_rule(bits, steps, honest[:, index], cheating[:, index])
        for index, (bits, steps) in enumerate(RULES[dtype])
    ]
    widest = max(rule.gap for rule in rules)
    good = [rule for rule in rules if rule.gap >= min(widest - NEARLY * max(0.0, widest), WIDE)]
    return max(good, key=lambda rule: (rule.steps / 2**rule.bits, rule.gap))


def _tile_rule(bits: int, steps: int, honest: Numbers, cheating: Numbers) -> TileRule:
    least = float(np.quantile(honest, FORGETTABLE))
    most = float(np.quantile(cheating, 1 - FORGETTABLE))
    theta = most + min((least - most) / 2, CLEAR) if least > most else least
    return TileRule(bits, steps, int(theta * 10_000), least, most)
