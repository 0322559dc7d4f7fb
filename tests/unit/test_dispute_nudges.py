"""Nudges: signs that nobody chose, traces that are moved by a little, and rows that nobody is convicted for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.layer_disputes import LayerScene

from troth.node.court.segment_text import SegmentText, first_far
from troth.protocol.arithmetic.operations import Operation
from troth.protocol.disputes.layout import NUDGES
from troth.protocol.disputes.nudges import LESS, MORE, Nudge
from troth.protocol.disputes.segment_trace import DoubledTrace, segment_rows, segment_trace
from troth.protocol.disputes.tolerance import furthest, is_far, most_moved, movement
from troth.protocol.errors import InvalidStep
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32

pytestmark = pytest.mark.torch

SEED = Hash32(keccak256(b"a signed result"))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> LayerScene:
    return LayerScene.make(tmp_path_factory.mktemp("nudged") / "model")


def bits(number: object) -> int:
    return int(np.float32(number).view(np.uint32))  # type: ignore[arg-type]


def test_each_number_is_moved_by_its_own_factor() -> None:
    nudge, states = Nudge(SEED, 3), np.random.default_rng(1).normal(size=(3, 600)).astype(np.float32)
    states[1, 4] = -0.0
    moved = nudge.moved(7, states)
    for position, element in ((0, 0), (1, 255), (1, 256), (2, 599), (1, 4)):
        factor = np.uint32(nudge.factor(7, position, element)).view(np.float32)
        product = np.float32(np.float64(states[position, element]) * np.float64(factor)) + np.float32(0)
        assert bits(moved[position, element]) == bits(product)
    more = [nudge.factor(7, 0, element) == MORE for element in range(600)]
    assert 240 < sum(more) < 360
    assert {nudge.factor(7, 0, element) for element in range(600)} == {MORE, LESS}


def test_signs_hang_on_result_number_layer_position_and_element() -> None:
    def signs(nudge: Nudge, layer: int, position: int) -> list[int]:
        return [nudge.factor(layer, position, element) for element in range(64)]

    known = [
        signs(Nudge(SEED, 1), 0, 0), signs(Nudge(SEED, 2), 0, 0), signs(Nudge(SEED, 1), 1, 0),
        signs(Nudge(SEED, 1), 0, 1), signs(Nudge(Hash32(bytes(32)), 1), 0, 0),
    ]  # fmt: skip
    assert all(one != other for at, one in enumerate(known) for other in known[:at])
    for number in (0, NUDGES + 1):
        with pytest.raises(InvalidStep):
            Nudge(SEED, number)


def test_what_is_no_number_stays_none() -> None:
    broken = np.array([[np.inf, np.nan, 3.4e38]], np.float32)
    found = Nudge(SEED, 1).moved(0, broken).view(np.uint32)
    assert list(found[0, :2]) == [0x7FC00000, 0x7FC00000]


def test_a_nudged_trace_begins_with_the_plain_input_and_moves_each_state(scene: LayerScene) -> None:
    layout, nudge = scene.layout(), Nudge(SEED, 1)
    states = scene.weights.embedded(scene.tokens)
    plain = scene.trace(layout)
    nudged = segment_trace(layout, scene.weights.layer, states, scene.weights.norm, nudge=nudge)
    for layer in (0, 1):
        read = plain.layer(0).numbers[Operation.INPUT] if layer == 0 else nudged.layer(0).numbers[Operation.OUTPUT]
        assert (nudged.layer(layer).numbers[Operation.INPUT] == nudge.moved(layer, read)).all()
    rows = segment_rows(layout, scene.weights.layer, states, scene.weights.norm, nudge)
    assert (rows == nudged.rows).all()
    doubled = DoubledTrace(plain, nudged)
    assert doubled.top.depth == layout.depth + 1
    assert doubled.tensor(layout.single + 3).root == nudged.tensor(3).root
    off = np.abs(nudged.last_row - plain.last_row).max()
    assert 0 < off < 1e-3


def test_a_row_is_far_beyond_the_tolerance_and_beyond_four_times_the_movement() -> None:
    last = np.random.default_rng(2).normal(size=64).astype(np.float32)
    last /= np.sqrt(np.mean(last.astype(np.float64) ** 2)).astype(np.float32)
    nudged = last.copy()
    nudged[9] += np.float32(1e-3)
    assert most_moved(nudged, last) == 9
    moved = movement(nudged, last, 9)
    for off, far, excused in ((5e-5, False, True), (2e-4, True, True), (3.5e-3, True, True), (4.5e-3, True, False)):
        signed = last.copy()
        signed[3] += np.float32(off)
        assert is_far(signed, last, 3) == far
        assert (furthest(signed, last, moved) is None) == excused
    # An element that there is not moves nothing, and what is no number says nothing.
    assert movement(nudged, last, 64) == 0
    signed = last.copy()
    signed[3] += np.float32(1)
    nudged[9] = np.inf
    assert furthest(signed, last, movement(nudged, last, 9)) is None
    signed[3] = np.nan
    assert furthest(signed, last, moved) == 3


def test_accusers_pass_over_rows_that_a_nudge_defends(scene: LayerScene, tmp_path: Path) -> None:
    del tmp_path
    rows = scene.trace().rows.copy()
    order, tokens = Hash32(keccak256(b"an order")), tuple(int(token) for token in scene.tokens)
    scale = np.float32(np.sqrt(np.mean(rows[1].astype(np.float64) ** 2)))
    nudged = segment_rows(
        scene.layout(), scene.weights.layer, scene.weights.embedded(scene.tokens), scene.weights.norm, Nudge(SEED, 1)
    )
    moved = float(np.abs(nudged[1] - rows[1]).max() / scale)
    for off, found in ((5e-5, None), (max(2e-4, 40 * moved), 1)):
        changed = rows.copy()
        changed[1, 5] += scale * np.float32(off)
        text = SegmentText(order, 0, SEED, tokens, None, changed.astype("<f4").tobytes(), rows.shape[1])
        assert first_far(scene.weights, scene.layout(), text, SEED) == found
