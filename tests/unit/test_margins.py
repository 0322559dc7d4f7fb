"""What tokens lose at the nucleus' end: no more than noise where noise alone decides, all of it where none does."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from troth.protocol.doubts import LEAST_REACH, first_look, judge_doubted_tokens, reach, rows_apart
from troth.protocol.margins import EDGE_LOGITS, Losses, loss, losses, margins
from troth.protocol.masks import RowRule
from troth.protocol.request import Request
from troth.protocol.scores import NOISE_FACTOR
from troth.protocol.tokens import MARGIN_CLIP, Sampling, TokenReport, choices, judge_tokens
from troth.protocol.types import Hash32

SEED = Hash32(bytes(range(32)))
VOCABULARY, WRITTEN = 400, 64
NUCLEUS = Sampling(0.7, 0.9)
CUTS = {0.06: 0.022, 1e-5: 0.0061}
"""By how far two honest runs' logits are apart: bfloat16 and float32 of SmolLM2, with the classes' cuts."""


def model(number: int) -> np.ndarray:
    return np.random.default_rng(number).normal(size=(WRITTEN, VOCABULARY)) * 2.5


def runs(number: int, noise: float) -> list[np.ndarray]:
    """The inferencer's logits, and the verifier's two runs and reference."""
    draw, exact = np.random.default_rng([7, number]), model(number)
    return [*(exact + noise * draw.normal(size=exact.shape) for _ in range(3)), exact]


def request(sampling: Sampling) -> Request:
    return Request(
        execution_class=Hash32(bytes(32)), prompt_tokens=(1,), max_tokens=WRITTEN,
        temperature_millionths=round(sampling.temperature * 1e6), top_p_millionths=round(sampling.top_p * 1e6),
        end_tokens=(),
    )  # fmt: skip


def judged(text: list[int], seen: list[np.ndarray], sampling: Sampling, cut: float) -> TokenReport:
    """Both looks of the third rules."""
    own, again, exact = seen
    place = {"seed": SEED, "first_position": 0}
    first = judge_tokens(first_look(exact, text, sampling, beside=own, **place), text, request(sampling), cut)
    if first.accepted:
        return first
    noise = rows_apart([own, again, exact])
    by_judges = [losses(one, text, sampling, **place).counted(reach(noise)) for one in seen]
    return judge_doubted_tokens(np.array(by_judges), noise, text, request(sampling), cut)


def refused(report: TokenReport) -> bool:
    return not report.accepted and report.told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "lie", "least"),
    [(1e-5, Sampling(0.35, 0.9), 8), (1e-5, Sampling(0.7, 1.0), 8), (0.06, Sampling(0.35, 0.9), 7),
     (0.06, Sampling(0.7, 1.0), 4)],
    ids=["float32, half temperature", "float32, no nucleus", "bfloat16, half temperature", "bfloat16, no nucleus"],
)  # fmt: skip
def test_a_lie_about_sampling_is_told_by_what_the_noise_is(noise: float, lie: Sampling, least: int) -> None:
    found = 0
    for number in range(8):
        mine, *seen = runs(number, noise)
        text = choices(mine, lie, seed=SEED, first_position=0)
        found += refused(judged(text, seen, NUCLEUS, CUTS[noise]))
    assert found >= least


def test_float32_grants_ties_at_the_nucleus_end_what_its_noise_is_and_not_half_a_logit() -> None:
    """Many tokens outside of the nucleus were ties by the rules before."""
    lost = {"whole": 0, "before": 0}
    for number in range(8):
        mine, *_, exact = runs(number, 1e-5)
        text = choices(mine, Sampling(0.7, 1.0), seed=SEED, first_position=0)
        place = {"seed": SEED, "first_position": 0}
        lost["whole"] += int((first_look(exact, text, NUCLEUS, beside=None, **place) == MARGIN_CLIP).sum())
        lost["before"] += int((margins(exact, text, NUCLEUS, **place) == MARGIN_CLIP).sum())
    assert lost["whole"] > 1.5 * lost["before"]


@pytest.mark.slow
def test_at_the_first_look_the_other_run_says_how_far_noise_reaches() -> None:
    """Levelled rows and a small nucleus: in bfloat16 rounding alone puts an honest token outside of it."""
    lost = dict.fromkeys(("alone", "beside", "other rows"), 0.0)
    for number in range(4):
        mine, own, _, exact = runs(number, 0.06)
        rows, order = np.arange(WRITTEN), np.argsort(mine, axis=1)
        bias = mine[rows, order[:, -1]] - mine[rows, order[:, -2]]
        for one in (mine, own, exact):
            one[rows, order[:, -2]] += bias
        sampling, place = Sampling(1.0, 0.1), {"seed": SEED, "first_position": 0}
        text = choices(mine, sampling, **place)
        for name, beside in (("alone", None), ("beside", own), ("other rows", exact)):
            lost[name] += float(first_look(exact, text, sampling, beside=beside, **place).sum())
    assert lost["beside"] < lost["alone"] / 2
    assert lost["other rows"] == lost["alone"], "a run that is not apart explains nothing"


@pytest.mark.parametrize("noise", CUTS)
@pytest.mark.parametrize(
    "sampling",
    [
        *(Sampling(1.0, top_p) for top_p in (1e-6, 0.1, 0.5, 0.9, 0.99)),
        Sampling(1.0, 1.0, 1),
        Sampling(1.0, 0.6, 2),
        Sampling(1.0, 1.0, 0, 1.0),
        Sampling(1.0, 0.9, 1, 0.5),
    ],
    ids=str,
)
def test_no_bias_and_no_small_share_frames_an_honest_node(sampling: Sampling, noise: float) -> None:
    """The client draws the two likeliest tokens of every row level, so that rounding alone says which is taken."""
    for number in range(4):
        every = runs(number, noise)
        rows, order = np.arange(WRITTEN), np.argsort(every[3], axis=1)
        bias = every[3][rows, order[:, -1]] - every[3][rows, order[:, -2]]
        for one in every:
            one[rows, order[:, -2]] += bias
        mine, *seen = every
        assert not refused(judged(choices(mine, sampling, seed=SEED, first_position=0), seen, sampling, CUTS[noise]))


def test_a_token_loses_at_least_as_much_as_would_leave_it() -> None:
    logits, even = np.array([3.0, 2.0, 1.0, 0.0]), np.zeros(4)
    # The second of two must move up by one past the token that stands there; below min_p's end it is ln 2.
    assert loss(logits, 2, Sampling(1, 1, 2), np.array([0, 0, 9.0, 0])) == (MARGIN_CLIP, pytest.approx(1, abs=1e-6))
    lowered = Sampling(1, 1, 0, float(np.exp(-1.5)))
    assert loss(logits, 2, lowered, np.array([0, 0, 9.0, 0])) == (MARGIN_CLIP, pytest.approx(0.5, abs=1e-6))
    # A rival that is left by little, and ahead by much, costs no more than would leave it out.
    ahead = np.array([0.0, 9.0, 0.0, 0.0])
    assert loss(logits, 0, Sampling(1, 1, 2), ahead) == (MARGIN_CLIP, pytest.approx(1, abs=1e-6))
    assert loss(logits, 0, Sampling(1, 1, 1), ahead) == (0.0, 0.0)
    assert loss(logits, 0, Sampling(1, 1, 3), even) == (0.0, 0.0)
    # The nucleus is a share of what top_k leaves: of two tokens the likelier holds 0.73, of all four 0.64.
    assert loss(logits, 0, Sampling(1, 0.68, 2), ahead) == (0.0, 0.0)
    assert loss(logits, 0, Sampling(1, 0.68), ahead)[0] == MARGIN_CLIP


def test_a_token_that_no_noise_explains_counts_in_the_whole_and_one_that_it_does_by_no_more() -> None:
    found = Losses(np.array([2.0, 2.0, 0.3]), np.array([0.2, 0.6, 0.3]))
    assert found.counted(0.5).tolist() == [0.2, 2.0, 0.3]
    assert found.counted(np.array([0.1, 0.7, 0.1])).tolist() == [2.0, 0.6, 0.3]
    assert found.doubtful(LEAST_REACH).tolist() == [0, 1]
    quiet, loud = np.full(3, 0.01), np.full(3, 0.3 / NOISE_FACTOR)
    text = [5, 5, 5]
    asked = replace(request(NUCLEUS), max_tokens=3)
    assert refused(judge_doubted_tokens(found.counted(reach(quiet))[None], quiet, text, asked, 0.02))
    # Of what is left when the noise is taken away, less would be told by the second rules.
    lost = np.array([[0.3, 0.3, 0.3]])
    told = [judge_doubted_tokens(lost, np.full(3, 0.03), text, asked, 0.02, version=one).told for one in (2, 3)]
    assert told == [False, True]
    assert not judge_doubted_tokens(lost, loud, text, asked, 0.02).told


def test_the_least_is_what_rows_would_have_to_differ_by_however_far() -> None:
    logits = np.log(np.array([0.6, 0.2, 0.1, 0.1]))
    far = np.array([0.0, 0.0, 0.0, 9.0])
    whole, least = loss(logits - np.array([0, 0, 0, 1]), 3, Sampling(1, 0.7), far)
    assert whole == MARGIN_CLIP > least > EDGE_LOGITS
    assert loss(logits - np.array([0, 0, 0, 1]), 3, Sampling(1, 0.7), far, edge=EDGE_LOGITS) == (whole, whole)
    assert loss(logits, 0, Sampling(1, 0.7), np.zeros(4)) == (0.0, 0.0)


def test_rows_of_which_nothing_is_told_have_noise_of_their_own() -> None:
    """Float32 has no second run at the first look: what lies within a hundredth of a logit is a tie there."""
    assert reach(np.zeros(2)).tolist() == [LEAST_REACH] * 2
    assert reach(np.array([0.1])).tolist() == pytest.approx([0.1 * NOISE_FACTOR])


def test_noise_of_transformed_rows_is_in_the_models_logits() -> None:
    """A repetition penalty stretches rounding, and what was forbidden is no contender."""
    draw, none = np.random.default_rng(3), np.empty(0, np.int64)
    rows = draw.normal(size=(1, VOCABULARY)) * np.ones((2, 1)) + 0.1 * draw.normal(size=(2, VOCABULARY))
    rows[1, 9] += 50
    kept = np.delete(np.arange(VOCABULARY), 9)
    rule = RowRule(2_000_000, np.arange(VOCABULARY), none, none, kept)
    found = rows_apart([rows[:1], rows[1:]], [rule])
    assert found.shape == (1,)
    assert 0.02 < found[0] < 0.2 < rows_apart([rows[:1], rows[1:]])[0]
    assert math.isinf(loss(rows[0], 9, Sampling(0, 1), None, rule)[1])
