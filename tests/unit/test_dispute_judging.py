"""What an auditor says of a disputed number is what the contract says: the true one stands, any other falls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from support.layer_disputes import LayerScene, SignedRows

from troth.protocol.arithmetic.operations import Operation
from troth.protocol.disputes.game import Matter, SeenTrace, TraceClaim
from troth.protocol.disputes.judging import DisputeJudge, read
from troth.protocol.disputes.layout import DisputedShape, Layout
from troth.protocol.disputes.nudges import Nudge
from troth.protocol.disputes.proofs import RowProof, StepProof, row_proof, step_proof
from troth.protocol.disputes.segment_trace import DoubledTrace, SegmentTrace, segment_trace
from troth.protocol.errors import InvalidOpening, InvalidStep
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32

pytestmark = pytest.mark.torch

ORDER = Hash32(keccak256(b"an order"))


def claim_of(trace: SegmentTrace, nudge: int = 0, moved: int = 0) -> TraceClaim:
    """What the accused commits to."""
    return TraceClaim(trace.top.root, ORDER, nudge, moved)


class Judged:
    """A whole model's trace and the judge of its dispute."""

    def __init__(self, path: Path) -> None:
        self.scene = LayerScene.make(path / "model")
        self.layout: Layout = self.scene.layout()
        self.trace: SegmentTrace = self.scene.trace()
        self.signed = SignedRows(self.trace.rows, self.scene.tokens)
        model, layout = self.scene.model, self.layout
        self.matter = Matter(
            order=ORDER, input_head=ORDER, output_head=self.signed.head(ORDER), weights_root=model.weights_root,
            shape=layout.model.hash, layers=model.layers, hidden=model.hidden_size, segment=0, first=0,
            end=model.layers, rows=len(self.scene.tokens), position=layout.position,
        )  # fmt: skip
        self.judge = DisputeJudge(self.matter, layout.model.encoded, claim_of(self.trace))

    def proof(self, tensor: int, word: int, number: int) -> StepProof:
        place = self.layout.place(tensor, word, number)
        entered = lambda position: self.signed.shown(ORDER, position)  # noqa: E731
        seen = SeenTrace(self.trace)
        return read(StepProof, step_proof(self.layout, seen, place, number, self.scene.weights.open, entered))


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    return Judged(tmp_path_factory.mktemp("judged"))


def test_the_number_that_follows_stands_and_any_other_falls(judged: Judged) -> None:
    source, tried = Random(5), 0
    for tensor in range(judged.layout.count):
        if not judged.layout.exists(tensor):
            continue
        levels = sum(judged.layout.levels(tensor))
        words = [(word, number) for word in range(1 << levels) for number in range(8)]
        for word, number in source.sample(words, 2):
            value = judged.trace.tensor(tensor).node(0, word)
            proof = judged.proof(tensor, word, number)
            assert not judged.judge.is_wrong(tensor, word, value, proof), (tensor, word, number)
            other = bytearray(value)
            other[4 * number + source.randrange(4)] ^= 1 << source.randrange(8)
            assert judged.judge.is_wrong(tensor, word, bytes(other), proof)
            tried += 1
    assert tried > 80


def test_a_row_is_far_beyond_the_tolerance_alone(judged: Judged) -> None:
    last = judged.trace.last_row
    scale = float(np.sqrt(np.mean(last.astype(np.float64) ** 2)))
    for factor, expected in ((0.0, False), (0.9, False), (1.1, True), (np.nan, True), (np.inf, True), (-0.0, False)):
        rows = judged.trace.rows.copy()
        rows[-1, 7] += np.float32(1e-4 * scale * factor)
        signed = SignedRows(rows, judged.scene.tokens)
        matter = replace(judged.matter, output_head=signed.head(ORDER))
        judge = DisputeJudge(matter, judged.layout.model.encoded, claim_of(judged.trace))
        shown = signed.shown(ORDER, judged.layout.position)
        proof = read(RowProof, row_proof(judged.layout, SeenTrace(judged.trace), 7, shown))
        assert judge.is_far(proof) == expected, factor
        with pytest.raises(InvalidOpening):
            judge.require_signed(0, shown)


def test_a_nudged_trace_is_judged_by_the_same_rules(judged: Judged) -> None:
    scene, source = judged.scene, Random(6)
    states = scene.weights.embedded(scene.tokens)
    nudged = segment_trace(judged.layout, scene.weights.layer, states, scene.weights.norm, nudge=Nudge(ORDER, 2))
    trace = DoubledTrace(judged.trace, nudged)
    layout, seen = trace.layout, SeenTrace(trace)
    claim = TraceClaim(trace.top.root, ORDER, 2, trace.most_moved)
    judge = DisputeJudge(judged.matter, layout.model.encoded, claim)
    other = DisputeJudge(judged.matter, layout.model.encoded, replace(claim, nudge=3))
    differ = 0
    for layer, operation in ((0, Operation.INPUT), (1, Operation.INPUT), (2, Operation.INPUT), (1, Operation.SCORES)):
        tensor = layout.tensor(layer, operation, nudged=True)
        word, number = source.randrange(4), source.randrange(8)
        place = layout.place(tensor, word, number)
        entered = lambda position: judged.signed.shown(ORDER, position)  # noqa: E731
        proof = read(StepProof, step_proof(layout, seen, place, number, scene.weights.open, entered))
        value = trace.tensor(tensor).node(0, word)
        assert not judge.is_wrong(tensor, word, value, proof)
        wrong = bytearray(value)
        wrong[4 * number] ^= 1
        assert judge.is_wrong(tensor, word, bytes(wrong), proof)
        differ += other.is_wrong(tensor, word, value, proof)
    assert differ >= 1
    row = judged.trace.last_row.copy()
    moved = float(np.abs(nudged.last_row - row).max())
    for off, far in ((3 * moved, False), (max(20 * moved, 2e-4 * float(np.abs(row).max())), True)):
        rows = judged.trace.rows.copy()
        rows[-1, 7] += np.float32(off)
        signed = SignedRows(rows, scene.tokens)
        judge = DisputeJudge(replace(judged.matter, output_head=signed.head(ORDER)), layout.model.encoded, claim)
        shown = signed.shown(ORDER, layout.position)
        assert judge.is_far(read(RowProof, row_proof(layout, seen, 7, shown, claim.moved))) == far


def test_what_is_not_of_this_dispute_is_refused(judged: Judged) -> None:
    tensor = judged.layout.tensor(1, 5) if judged.layout.exists(judged.layout.tensor(1, 5)) else 3
    value, proof = judged.trace.tensor(tensor).node(0, 0), judged.proof(tensor, 0, 1)
    encoded, claim = judged.layout.model.encoded, claim_of(judged.trace)
    elsewhere = replace(claim, root=Hash32(bytes(31) + b"\x01"))
    other_root = DisputeJudge(judged.matter, encoded, elsewhere)
    other_model = DisputeJudge(replace(judged.matter, weights_root=claim.root), encoded, claim)
    for judge in (other_root, other_model):
        with pytest.raises(InvalidOpening):
            judge.is_wrong(tensor, 0, value, proof)
    with pytest.raises(InvalidStep):
        DisputeJudge(replace(judged.matter, shape=claim.root), encoded, claim)
    with pytest.raises(InvalidStep):
        read(StepProof, b"\x01")
    assert read(DisputedShape, encoded) == judged.layout.model
