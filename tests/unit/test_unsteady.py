"""The seventh rules: where last bits decide what a bfloat16 row is, nobody is refused for how they fell."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from troth.node.judging.runs import LIGHTLY, STRONGLY
from troth.node.judging.verdicts import Judgement, judge_rows
from troth.protocol.comparison import StateReport, judge_states
from troth.protocol.doubts import under_rules
from troth.protocol.findings import MEAN_RATIO, Kind
from troth.protocol.request import Request
from troth.protocol.tensors import Dtype, widen
from troth.protocol.types import ZERO_HASH, Segment
from troth.protocol.unsteady import ShakenRuns, distances

from .test_node_judging import HIDDEN, NEW, Rows, text_of
from .test_node_judging import PROMPT as ASKED
from .test_node_judging import ROWS as TEXT
from .test_node_judging import judged as judged_text

ROWS, COLUMNS, PROMPT, NOISE = 96, 64, 64, 0.02
DRAW = np.random.default_rng(23)
HIGH = DRAW.normal(size=(ROWS, COLUMNS)).astype(np.float32)
TIPPED = DRAW.normal(size=COLUMNS)


def words(rows: np.ndarray) -> np.ndarray:
    return (rows.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def run(tips: float = 0.0, *, size: float = 1.0, rows: slice = slice(None)) -> np.ndarray:
    """Ordinary noise, and so many times as much in one direction, the same in all of some rows."""
    shift = np.zeros((ROWS, 1))
    shift[rows] = tips
    return words(HIGH + NOISE * (size * DRAW.normal(size=HIGH.shape) + shift * TIPPED))


def rules_of(version: int) -> Any:
    return SimpleNamespace(
        dtype=1,
        exact=False,
        state_cut=1_720_000,
        margin_cut=22_000,
        second_cut=2_000_000,
        calibration=under_rules(ZERO_HASH, version),
    )


def looked_at(claimed: np.ndarray, lightly: list[np.ndarray], strongly: list[np.ndarray] | None = None) -> StateReport:
    kinds = (lightly, strongly or [run() for _ in range(8)])
    shaken = ShakenRuns(*([distances(widen(one, Dtype.BFLOAT16), HIGH) for one in kind] for kind in kinds))
    return judge_states(rules_of(7), claimed, run(), HIGH, run(), otherwise=run(), shaken=shaken)


def test_rows_that_tip_in_some_runs_refuse_nobody() -> None:
    """A prompt of one repeated id: what tips is off in every row, and all other own runs had fallen alike."""
    claimed = run(4)
    sixth = judge_states(rules_of(6), claimed, run(), HIGH, run(), otherwise=run())
    assert sixth.cuts > 2, "windows of 32 rows alone would have cost stake"
    found = looked_at(claimed, [run(4), *(run() for _ in range(7))])
    assert found.accepted
    assert found.mean < 1 < MEAN_RATIO < sixth.mean, "it is no evidence of many tasks either"


def test_a_row_that_hardly_ever_tips_does_so_where_it_is_shaken_strongly() -> None:
    """A client searched for it: of twenty-four light runs none fell as the node's kernels do."""
    claimed, steady = run(4), [run() for _ in range(8)]
    assert looked_at(claimed, steady).held > 1
    found = looked_at(claimed, steady, [run(5), run(6), *steady[2:]])
    assert found.held < 1
    assert looked_at(run(8), steady, [run(5), run(6), *steady[2:]]).held > 1, "it counts by half"


def test_a_tip_that_is_larger_than_any_run_shows_is_within_their_spread() -> None:
    claimed, shaken = run(3), [run(2), run(1.5), *(run() for _ in range(6))]
    assert looked_at(claimed, shaken).excess < 1
    assert not looked_at(claimed, [run() for _ in range(8)]).accepted


@pytest.mark.parametrize("size", [1.6, 2.0, 4.0])
def test_who_computes_more_cheaply_is_refused_where_rows_are_steady(size: float) -> None:
    found = looked_at(run(size=size), [run() for _ in range(8)])
    assert not found.accepted
    assert found.mean > MEAN_RATIO
    assert found.held > 1 or found.by_long_windows


def test_a_row_that_tips_hides_no_cheat_in_others() -> None:
    tipping = slice(0, 8)
    shaken = [run(4, rows=tipping) for _ in range(4)] + [run() for _ in range(4)]
    cheat = HIGH + NOISE * 2.5 * DRAW.normal(size=HIGH.shape)
    assert not looked_at(words(cheat), shaken).accepted
    bent = HIGH + NOISE * DRAW.normal(size=HIGH.shape)
    bent[50] += 60 * NOISE * TIPPED
    assert looked_at(words(bent), shaken).held > 1, "nor a row that is bent"


class Unsteady(Rows):
    """An engine whose shaken runs tip, one in four."""

    tips = 4.0

    def __init__(self) -> None:
        super().__init__(run(), HIGH)
        self.asked, self.strongly = 0, 0

    async def otherwise(self, segment: Segment, inputs: np.ndarray) -> np.ndarray:
        return run()

    async def shaken(
        self, segment: Segment, inputs: np.ndarray, *, strongly: bool = False, alike: bool = False
    ) -> np.ndarray:
        self.asked, self.strongly = self.asked + 1, self.strongly + strongly
        return run(self.tips if self.asked % 4 == 0 else 0.0)


class Steady(Unsteady):
    """One whose shaken runs do not."""

    tips = 0.0


async def judged(engine: Rows, claimed: np.ndarray, version: int = 7, *, last: bool = False) -> Judgement:
    request = Request(ZERO_HASH, tuple(range(PROMPT)), ROWS - PROMPT + 1, 0, 1_000_000, ())
    seat = SimpleNamespace(
        execution_class=rules_of(version), layers=Segment(0, 2), dtype=Dtype.BFLOAT16, is_last=last, request=request,
        prompt_positions=PROMPT, noise_seed=ZERO_HASH,
    )  # fmt: skip
    inputs, own = np.arange(ROWS), run()
    session: Any = SimpleNamespace(seat=seat, tokens=(), all_inputs=lambda: inputs, all_outputs=lambda: own)
    return await judge_rows(engine, session, claimed, root_matches=True)  # type: ignore[arg-type]


async def test_a_verifier_shakes_only_before_it_says_no() -> None:
    engine = Unsteady()
    assert (await judged(engine, run())).verdict
    assert engine.asked == 0
    found = await judged(engine, run(4))
    assert (found.verdict, found.for_a_court) == (True, False)
    assert [(one.test, one.value) for one in found.findings] == [(Kind.STATES, 0.0)]
    assert (engine.asked, engine.strongly) == (LIGHTLY + STRONGLY, STRONGLY)


async def test_the_sixth_rules_do_not_shake() -> None:
    engine = Unsteady()
    assert not (await judged(engine, run(4), 6)).verdict
    assert engine.asked == 0


async def test_what_no_run_of_ones_own_does_is_refused() -> None:
    found = await judged(Steady(), run(4))
    assert found.refused
    assert found.for_a_court
    assert [one.value for one in found.findings] == [1.0]


async def test_an_engine_that_cannot_shake_judges_by_two_looks() -> None:
    assert (await judged(Rows(run(), HIGH), run(4))).refused


def near() -> np.ndarray:
    return (TEXT + 0.01 * DRAW.normal(size=TEXT.shape)).astype(np.float32)


class Tipping(Rows):
    """An engine one of whose text's rows is another one in one of four shaken runs, or of the strongly shaken alone."""

    def __init__(self, row: np.ndarray, *, hardly: bool = False) -> None:
        super().__init__(words(near()), TEXT)
        self.row, self.hardly, self.asked = row, hardly, 0

    async def shaken(
        self, segment: Segment, inputs: np.ndarray, *, strongly: bool = False, alike: bool = False
    ) -> np.ndarray:
        self.asked += 1
        found = near()
        if self.asked % 4 == 0 and (strongly or not self.hardly):
            found[ASKED + 2] = self.row
        return words(found)


async def test_a_token_of_a_row_that_tips_costs_nobody_stake() -> None:
    """[33810, 10704] and others of the hunt: one token loses all that counts, and one run in a few chooses it."""
    row, other, claimed = *DRAW.normal(size=(2, HIDDEN)), near()
    claimed[ASKED + 2] = row
    rows, own = words(claimed), words(near())
    text, rules = text_of(rows), replace(NEW, dtype=1, state_cut=1_720_000, margin_cut=22_000)
    sixth = replace(rules, calibration=under_rules(ZERO_HASH, 6))
    before = await judged_text(sixth, rows, text, Tipping(row), own)
    assert before.refused
    assert before.for_a_court
    assert before.tokens is not None
    assert before.tokens.score > 2 * before.tokens.cut, "beyond the second cut"
    found = await judged_text(rules, rows, text, Tipping(row), own)
    assert found.verdict
    untold = await judged_text(rules, rows, text, Tipping(other), own)
    assert (untold.verdict, untold.refused, untold.told) == (False, False, False)
    hardly = await judged_text(rules, rows, text, Tipping(row, hardly=True), own)
    assert (hardly.verdict, hardly.refused, hardly.told) == (False, False, False), "strong runs tell of noise alone"
    steady = await judged_text(rules, rows, text, Tipping(TEXT[ASKED + 2]), own)
    assert steady.refused
    assert steady.for_a_court
