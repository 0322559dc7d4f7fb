"""What a reviewer finds in a trace, and what it says of it: scores, second looks, false counts, tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from support.cases_scene import of_journey
from support.market_case import CaseScene
from support.market_logs import address
from support.market_scene import COLUMNS, PROMPT, WRITTEN, Scene, execution_class
from support.reviewer_seat import NODE_SALT, REVIEWER, SCENE, text, true_states

from troth.cases import gathering
from troth.cases.judging import MOST, JudgingContext, Recomputed, ReviewFinding, committed, fitted, judge
from troth.cases.materials import Papers
from troth.protocol.doubts import under_rules
from troth.protocol.market import court, court_money, messages, prices
from troth.protocol.market.proceedings import CaseKind, Outcome
from troth.protocol.market.signed import Opinion
from troth.protocol.market.types import PotKind
from troth.protocol.straying import Straying
from troth.protocol.tensors import Dtype, widen
from troth.protocol.tokens import TokenReport
from troth.protocol.types import ZERO_HASH, Hash32
from troth.protocol.unsteady import ShakenRuns, distances


def tolerant(noise: float, **own: Any) -> ReviewFinding:
    scene = CaseScene(Scene())
    node = scene.scene.trace(noise, 9)
    result = replace(scene.result, trace_commitment=messages.trace_commitment(Hash32(node.root), NODE_SALT))
    papers = Papers(of_journey(scene.scene, scene.journey), scene.scene.order, (result,), 0)
    rules = scene.scene.view.rules
    state = replace(scene.opening, rows=PROMPT + WRITTEN - 1)
    rows = (true_states() * (1 + noise * np.random.default_rng(9).normal(size=true_states().shape))).astype(np.float32)
    definition = replace(execution_class(), calibration=own.pop("calibration", ZERO_HASH))
    root = Hash32(committed(state, definition, rules, rows).root)
    context = JudgingContext(state, definition, rules, papers, own.pop("text", text()))
    given = own.pop("rows", rows.tobytes())
    recomputed = Recomputed(**{"states": true_states(), "text": own.pop("report", None), **own})
    return judge(context, recomputed, given, (root, NODE_SALT))


@pytest.mark.slow
def test_score_and_spread_are_in_millionths_of_the_cut() -> None:
    honest, cheat = tolerant(1e-7), tolerant(0.5)
    assert (honest.opinion, cheat.opinion) == (Opinion.ACCEPT, Opinion.REJECT)
    assert honest.score <= 1_000_000 < 4_000_000 < cheat.score
    assert honest.spread == 0
    again = (true_states() * np.float32(1.01)).astype(np.float32)
    assert tolerant(0.5, again=again).spread > 1_000_000


@pytest.mark.slow
def test_a_second_look_excuses_what_the_reviewers_own_noise_explains() -> None:
    again = (true_states() * np.float32(1.01)).astype(np.float32)
    calibration = under_rules(ZERO_HASH)
    assert tolerant(0.02, again=again).opinion is Opinion.REJECT
    excused = tolerant(0.02, again=again, calibration=calibration)
    assert (excused.opinion, excused.score <= 1_000_000) == (Opinion.ACCEPT, True)
    assert tolerant(0.5, again=again, calibration=calibration).opinion is Opinion.REJECT
    assert tolerant(0.02, calibration=calibration).opinion is Opinion.REJECT


@pytest.mark.slow
def test_a_text_that_cannot_be_judged_costs_nobody_anything() -> None:
    noisy = TokenReport(0.5, 0.02, 0.5, 0, True, False, 2.0, told=False)
    assert tolerant(1e-7, report=noisy) == ReviewFinding(Opinion.CANNOT_TELL)
    assert tolerant(1e-7, report=replace(noisy, told=True)).opinion is Opinion.REJECT
    assert tolerant(0.5, report=noisy).opinion is Opinion.REJECT


@pytest.mark.slow
def test_a_text_that_the_nodes_own_rows_do_not_choose_convicts_whatever_noise_there_is() -> None:
    noisy = TokenReport(0.5, 0.02, 0.5, 0, True, False, 2.0, told=False)
    again = (true_states() * np.float32(1.01)).astype(np.float32)
    found = tolerant(1e-7, report=noisy, again=again, straying=Straying(0.4, beyond=True))
    assert (found.opinion, found.score) == (Opinion.REJECT, MOST)
    assert tolerant(1e-7, report=noisy, straying=Straying(0.04)) == ReviewFinding(Opinion.CANNOT_TELL)
    assert tolerant(0.5, rows=true_states().tobytes(), straying=Straying(0.4, beyond=True)).score == MOST


ROWS = 96
HIGH = np.random.default_rng(5).normal(size=(ROWS, COLUMNS)).astype(np.float32)


def bfloat16(size: float, seed: int) -> np.ndarray:
    """Rows with so many times a run's noise, as bits."""
    noise = 0.02 * size * np.random.default_rng(seed).normal(size=HIGH.shape)
    return ((HIGH + noise).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def reviewed(
    claimed: np.ndarray, *, version: int = 6, otherwise: np.ndarray | None, at_third: ShakenRuns | None = None
) -> ReviewFinding:
    """What a reviewer of a tolerant bfloat16 class says of a node's rows."""
    scene = CaseScene(Scene())
    papers = Papers(of_journey(scene.scene, scene.journey), scene.scene.order, (scene.result,), 0)
    rules = replace(scene.scene.view.rules, dtype=1, hidden_size=COLUMNS, second_cut=2_000_000)
    calibration = under_rules(ZERO_HASH, version)
    definition = replace(execution_class(), dtype=1, state_cut=1_720_000, calibration=calibration)
    state = replace(scene.opening, rows=ROWS)
    root = Hash32(committed(state, definition, rules, claimed).root)
    own = Recomputed(bfloat16(1, 1), HIGH, bfloat16(1, 2), at_third=at_third, otherwise=otherwise)
    return judge(JudgingContext(state, definition, rules, papers, text()), own, claimed.tobytes(), (root, NODE_SALT))


@pytest.mark.parametrize("size", [1.4, 1.7])
def test_what_long_windows_alone_show_is_refused_and_takes_no_stake(size: float) -> None:
    """At 1.7 was an honest node on a prompt of six ids, with a way to round attention that nobody had tried."""
    slow, other = bfloat16(size, 3), bfloat16(1, 4)
    found = reviewed(slow, otherwise=other)
    assert found.opinion is Opinion.REJECT
    # The court counts nothing within twice the spread: no outcome of it is pooled.
    assert found.score < min(1_000_000, 2 * found.spread)
    assert reviewed(bfloat16(1, 3), otherwise=other).opinion is Opinion.ACCEPT
    assert reviewed(slow, version=5, otherwise=None).opinion is Opinion.ACCEPT, "older classes keep their rules"
    assert reviewed(slow, otherwise=bfloat16(1.4, 4)).opinion is Opinion.ACCEPT, "so is other attention"


@dataclass(frozen=True)
class Decided:
    """What a court makes of what all its reviewers say: the outcome, what is left of the node's stakes of so many
    penalties, and what the opener has for its bond, in units of the seats' pay."""

    outcome: Outcome
    pooled: bool
    penalties: float
    opener: float


def decided(found: ReviewFinding) -> Decided:
    scene = CaseScene(Scene())
    rules = replace(scene.scene.view.rules, dtype=1, hidden_size=COLUMNS, second_cut=2_000_000)
    assert found.states is not None
    state = replace(scene.opening, rows=ROWS)
    tiles = committed(state, replace(execution_class(), dtype=1), rules, found.states).open((0, 3)).tiles
    said = court.Showing(found.root, tiles, found.opinion, score=found.score, spread=found.spread)
    seats = (1,) * rules.reviewers
    state = replace(state, reviewers=tuple(map(address, range(1, 1 + len(seats)))), seats=seats)
    hearing = court.Hearing(CaseKind.REJECTION, seats, (said,) * len(seats), replace(said, opinion=Opinion.NONE))
    ended = court.judge(hearing, rules)
    mine = [court_money.pot_of(kind, state.node) for kind in (PotKind.STAKE, PotKind.LOCKED)]
    pots = {(PotKind.BOND, court.case_of(state)): state.bond, **dict.fromkeys(mine, rules.penalty)}
    around = court_money.Circumstances(pots, gas_price=0, decider=REVIEWER)
    after = court_money.apply_movements(pots, court_money.settle(state, ended, rules, around))
    paid = prices.REWARD_UNITS * state.unit * len(seats)
    left = after[court_money.pot_of(PotKind.CREDIT, state.opener)] - state.bond
    return Decided(ended.outcome, ended.pooled, sum(after[pot] for pot in mine) / rules.penalty, left / paid)


def test_a_court_takes_nothing_of_who_long_windows_alone_refuse_and_its_opener_pays_for_it() -> None:
    """All reviewers say no: the answer falls, its node keeps its stake, and who brought it paid the seats."""
    found = reviewed(bfloat16(1.4, 3), otherwise=bfloat16(1, 4))
    assert decided(found) == Decided(Outcome.REFUNDED, pooled=False, penalties=2, opener=-1)


def test_a_court_takes_stake_for_long_windows_by_the_eighth_rules() -> None:
    """Beyond the second cut, where no shaken run explains it. Between the cuts nothing is pooled: whoever knows prompts
    that bring an honest node there would fill its pool."""
    other, steady = bfloat16(1, 4), shaken(1, 1, 1, 1, 1, 1)
    gross = {
        version: reviewed(bfloat16(1.6, 3), version=version, otherwise=other, at_third=steady) for version in (7, 8)
    }
    assert decided(gross[7]) == Decided(Outcome.REFUNDED, pooled=False, penalties=2, opener=-1)
    convicted = decided(gross[8])
    assert (convicted.outcome, convicted.penalties) == (Outcome.CONVICTED, 1)
    assert convicted.opener > -1, "stake pays what the opener laid out"
    slow = reviewed(bfloat16(1.27, 3), version=8, otherwise=other, at_third=steady)
    assert slow.opinion is Opinion.REJECT
    assert slow.score < 1_000_000
    assert decided(slow) == Decided(Outcome.REFUNDED, pooled=False, penalties=2, opener=-1)
    blind = reviewed(bfloat16(1.6, 3), version=8, otherwise=other)
    assert blind.score < 1_000_000, "an engine that shakes nothing says nothing that takes stake"
    tipped = reviewed(bfloat16(1.6, 3), version=8, otherwise=other, at_third=shaken(1.6, 1, 1, 1.6, 1, 1))
    assert tipped.opinion is Opinion.ACCEPT


def test_a_reviewer_whose_engine_lacks_the_further_run_cannot_tell_what_it_doubts() -> None:
    assert reviewed(bfloat16(1.4, 3), otherwise=None) == ReviewFinding(Opinion.CANNOT_TELL)
    assert reviewed(bfloat16(1, 3), otherwise=None).opinion is Opinion.ACCEPT


def shaken(*sizes: float) -> ShakenRuns:
    """Light runs with so many times a run's noise, and strong ones with as much as one."""
    runs = [widen(bfloat16(size, seed), Dtype.BFLOAT16) for seed, size in enumerate((*sizes, *[1.0] * 8), start=10)]
    apart = [distances(run, HIGH) for run in runs]
    return ShakenRuns(apart[: len(sizes)], apart[len(sizes) :])


@pytest.mark.parametrize("size", [1.4, 6])
def test_what_tips_in_a_reviewers_shaken_runs_convicts_nobody_by_the_seventh_rules(size: float) -> None:
    """A client's prompt, and an honest node whose kernels round in other places than any reviewer's."""
    tipped, other = bfloat16(size, 3), bfloat16(1, 4)
    assert reviewed(tipped, otherwise=other).opinion is Opinion.REJECT
    if size > 2:
        assert reviewed(tipped, otherwise=other).score > 2_000_000, "the court would have taken its stake"
    found = reviewed(tipped, version=7, otherwise=other, at_third=shaken(size, 1, 1, size, 1, 1))
    assert found.opinion is Opinion.ACCEPT
    assert found.score < 1_000_000
    steady = reviewed(tipped, version=7, otherwise=other, at_third=shaken(1, 1, 1, 1, 1, 1))
    assert steady.opinion is Opinion.REJECT
    if size > 2:
        assert steady.score > 2_000_000


def test_a_forbidden_token_convicts_however_small_its_share_of_a_window_is() -> None:
    """The court compares scores with the second cut: two logits among 32 tokens may be below it."""
    forbidden = TokenReport(0.0625, 0.05, 0.06, 30, True, False, 2.0, allowed=False)
    found = tolerant(1e-7, report=forbidden)
    assert (found.opinion, found.score) == (Opinion.REJECT, MOST)


@pytest.mark.slow
def test_rows_that_are_not_the_traces_and_false_counts_are_rejected_beyond_every_cut() -> None:
    other = true_states().tobytes()
    assert tolerant(0.5, rows=other).score == MOST
    assert tolerant(1e-7, rows=other[: -4 * COLUMNS]).score == MOST
    assert tolerant(1e-7, rows=np.full_like(true_states(), np.nan).tobytes()).score == MOST
    short = replace(text(), tokens=text().tokens[:-1])
    counted = tolerant(1e-7, text=short)
    assert (counted.opinion, counted.score) == (Opinion.REJECT, MOST)


def test_a_trace_of_another_length_is_repeated_to_the_cases() -> None:
    states = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert np.array_equal(fitted(states, 4), [[0, 1], [2, 3], [4, 5], [0, 1]])
    assert np.array_equal(fitted(states, 2), states[:2])


def test_holders_are_asked_once_each_and_never_oneself() -> None:
    asked = gathering.holders_of(SCENE.drawn, REVIEWER)
    assert asked[0] == SCENE.drawn.scheduler
    assert len(set(asked)) == len(asked)
    assert REVIEWER not in asked
    assert set(SCENE.drawn.reviewers) - {REVIEWER} < set(asked)
