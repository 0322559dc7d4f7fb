"""The parts of `scripts/bench judging` that run no model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.judging import alarms, convictions, ways
from benchmarks.judging.convictions import MOST_TASKS, Task
from benchmarks.judging.scoring import Row
from benchmarks.judging.verdicts import Verdict

from troth.node.calibration import tampering
from troth.protocol.findings import HONEST_LOST, Kind, TaskFinding
from troth.protocol.foresight import FORESEEN
from troth.protocol.tokens import Sampling

pytestmark = pytest.mark.torch

LOST = TaskFinding(Kind.TOKENS, 1.0, HONEST_LOST)


@pytest.mark.parametrize("honest", [0.001, 0.25, 0.55])
def test_nobody_honest_is_found_out(honest: float) -> None:
    assert alarms.false_convictions(honest, nodes=300, tasks=3_000, seed=1) == 0


def test_the_simulation_finds_who_is_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bet at 0.001 on nodes of 0.05: the same steps, so that none found above says something."""
    honest = 0.001
    draw = np.random.default_rng

    class Dishonest:
        def __init__(self, seed: int) -> None:
            self._draw = draw(seed)

        def random(self, shape: tuple[int, int]) -> np.ndarray:
            return self._draw.random(shape) * honest / 0.05

    monkeypatch.setattr(alarms.np.random, "default_rng", Dishonest)
    assert alarms.false_convictions(honest, nodes=50, tasks=2_000, seed=1) == 50


@pytest.mark.slow
def test_tasks_are_counted_until_one_is_refused_or_all_together_tell() -> None:
    assert convictions.convicted([Task(True, ())], 1).median == 1
    found = convictions.convicted([Task(False, (LOST,)), Task(False, (replace(LOST, value=0.0),))], 1)
    assert 3 <= found.median <= 12
    assert found.share == 1
    never = convictions.convicted([Task(False, (None, replace(LOST, value=0.0)))], 1)
    assert (never.median, never.share) == (MOST_TASKS + 1, 0)


def test_a_text_finding_is_the_kindest_judges() -> None:
    scores = {
        "first/x": np.array([[0.5, 0.0], [0.5, 0.0]]), "kindest/x": np.array([[0.0, 0.0], [0.3, 0.0]]),
        "lost": np.array([[0.5, 0.0], [0.0, 0.0]]), "apart": np.full((2, 2), 0.001),
        "surprise": np.array([[0.0, 0.0], [0.0, 0.0]]), "rho/decode": np.ones((2, 2)),
    }  # fmt: skip
    turn = [Sampling(1.0, 1.0), Sampling(0.0, 1.0)]
    assert [one.value for one in convictions.text_findings(0, scores, "x", turn) if one] == [0.0, 1.0]
    assert convictions.text_findings(1, scores, "x", turn) == [None, None], "the client foresaw all of it"


def test_a_bfloat16_text_counts_behind_what_its_client_foresaw() -> None:
    """Rows that are twice as noisy may lose twice as much."""
    scores = {
        "first/x": np.array([[9.0, 0.5], [9.0, 0.5]]), "lost": np.array([[0.0, 0.25], [0.0, 0.5]]),
        "surprise": np.array([[FORESEEN, 1.0], [FORESEEN, 1.0]]), "rho/x": np.array([[1.0, 2.0], [1.0, 2.0]]),
        "rho/decode": np.ones((2, 2)),
    }  # fmt: skip
    first, second = convictions.text_findings(1, scores, "x", [Sampling(1.0, 1.0), Sampling(0.0, 1.0)])
    assert first is not None
    assert (first.value, second) == (pytest.approx(0.5), None)


def test_matrices_are_rounded_by_rows_or_groups() -> None:
    import torch

    matrix = torch.tensor([[1.0, -0.5, 100.0, 3.0]])
    assert tampering.rounded(matrix, 8).tolist()[0] == pytest.approx([100 / 127, -100 / 127, 100.0, 400 / 127])
    assert (tampering.rounded(matrix, 8, group=2)[:, :2] - matrix[:, :2]).abs().max() < 0.01
    assert torch.equal(ways.two_halves(matrix), matrix)


def test_lies_choose_as_they_say() -> None:
    """The draft's token is taken where it loses no more than the lenient node forgives."""
    decode, draft = np.zeros((2, 50), np.float32)
    decode[7], decode[8], draft[8] = 1.0, 0.85, 1.0
    row = Row({"decode": decode, "int8 weights": draft, "own": decode}, None, Sampling(0.0, 1.0), np.array([8]))
    assert [row.choice(name) for name in ("own", "text by int8", "lenient 0.1", "lenient 0.2")] == [7, 8, 7, 8]
    assert row.choice("biased") == 8
    assert float(row.lost("own", 8).whole) == pytest.approx(0.15)


def test_a_verdict_is_refused_only_where_it_can_be_told() -> None:
    found = Verdict("x", 0.5, 3.0, 0.5, 2.0, told=True)
    assert (found.refused, found.refused_twice, found.cannot_tell) == (True, True, False)
    unsure = replace(found, told=False)
    assert (unsure.refused, unsure.refused_twice, unsure.cannot_tell) == (True, False, True)
    assert not replace(found, text_again=0.9).refused_twice
