"""The contract Steps and the Python rules: each number of a tiny model's trace holds, none other does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from support import step_calls
from support.layer_disputes import LayerScene, SignedRows
from support.step_calls import SumPart, TraceWord

from troth.chain.adapter import Chain
from troth.chain.deployment import numbers_creation, steps_creation, submit
from troth.chain.errors import ChainRejected
from troth.protocol.arithmetic import steps
from troth.protocol.arithmetic.operations import NO_SUM, Operation
from troth.protocol.disputes.game import Matter, SeenTrace, TraceClaim
from troth.protocol.disputes.layout import Layout
from troth.protocol.disputes.nudges import Nudge
from troth.protocol.disputes.proofs import part_proof, row_proof, step_proof
from troth.protocol.disputes.segment_trace import DoubledTrace, SegmentTrace, segment_trace
from troth.protocol.disputes.sums import packed
from troth.protocol.disputes.tolerance import is_far, movement
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32

pytestmark = [pytest.mark.chain]

ORDER = Hash32(keccak256(b"an order"))
FAMILIES: tuple[dict[str, Any], ...] = ({}, {"attention_bias": True}, {"num_key_value_heads": 4, "hidden_act": "silu"})


@dataclass
class Checked:
    """A trace, the rows that were signed over it, and the contract."""

    chain: Chain
    scene: LayerScene
    layout: Layout
    trace: SegmentTrace | DoubledTrace
    signed: SignedRows
    read: SignedRows | None = None
    nudge: int = 0
    moved: int = 0

    @property
    def matter(self) -> Matter:
        layout, model = self.layout, self.scene.model
        segment = int(self.read is not None)
        return Matter(
            order=ORDER, input_head=Hash32(bytes(32)) if self.read is None else self.read.head(ORDER, 0),
            output_head=self.signed.head(ORDER, segment), weights_root=model.weights_root,
            shape=layout.model.hash, layers=model.layers, hidden=model.hidden_size, segment=segment,
            first=layout.first, end=layout.end, rows=layout.position + 1, position=layout.position,
        )  # fmt: skip

    @property
    def claim(self) -> TraceClaim:
        return TraceClaim(self.trace.top.root, ORDER, self.nudge, self.moved)

    def entered(self, position: int) -> Any:
        if self.read is not None:
            return self.read.shown(ORDER, position, 0)
        return self.signed.shown(ORDER, position, 0)

    async def is_wrong(self, tensor: int, word: int, number: int, value: bytes) -> bool:
        place = self.layout.place(tensor, word, number)
        seen = SeenTrace(self.trace)
        step = step_proof(self.layout, seen, place, number, self.scene.weights.open, self.entered)
        shown = TraceWord(tensor, word, Hash32(value))
        view = step_calls.is_wrong(self.matter, self.layout.model.encoded, self.claim, shown, step)
        return await self.chain.read(view)


@pytest.fixture(scope="module")
def contract(anvil: Any) -> Any:
    import asyncio

    async def deployed() -> Any:
        numbers = (await submit(anvil.url, numbers_creation(), anvil.keys[0])).created
        assert numbers is not None
        return (await submit(anvil.url, steps_creation(numbers), anvil.keys[0])).created

    return asyncio.run(deployed())


@pytest.fixture(params=range(len(FAMILIES)))
async def checked(request: Any, anvil: Any, contract: Any, tmp_path: Path) -> AsyncIterator[Checked]:
    scene = LayerScene.make(tmp_path / "model", **FAMILIES[request.param])
    layout = scene.layout()
    trace = scene.trace(layout)
    assert trace.norm is not None
    async with await Chain.connect(anvil.url, contract) as chain:
        yield Checked(chain, scene, layout, trace, SignedRows(trace.norm[1], scene.tokens))


def changed(word: bytes, number: int, source: Random) -> bytes:
    """The word with one bit of one number flipped."""
    at = 4 * number + source.randrange(4)
    return word[:at] + bytes([word[at] ^ 1 << source.randrange(8)]) + word[at + 1 :]


async def test_every_operation_holds_and_convicts_what_differs_by_a_bit(checked: Checked) -> None:
    source, layout, tried = Random(3), checked.layout, set()
    matter, shape = checked.matter, layout.model.encoded
    assert await checked.chain.read(step_calls.depth(matter, shape)) == layout.depth
    for tensor in range(layout.count):
        if not layout.exists(tensor):
            continue
        levels = sum(layout.levels(tensor))
        assert await checked.chain.read(step_calls.depth_of(matter, shape, tensor)) == levels
        places = [
            (word, number) for word in range(1 << levels) for number in range(8) if layout.place(tensor, word, number)
        ]
        for word, number in source.sample(places, min(2, len(places))):
            value = checked.trace.tensor(tensor).node(0, word)
            assert not await checked.is_wrong(tensor, word, number, value), layout.where(tensor)
            assert await checked.is_wrong(tensor, word, number, changed(value, number, source))
        padding = [(word, number) for word in range(1 << levels) for number in range(8) if (word, number) not in places]
        for word, number in source.sample(padding, min(1, len(padding))):
            assert not await checked.is_wrong(tensor, word, number, bytes(32))
            assert await checked.is_wrong(tensor, word, number, changed(bytes(32), number, source))
        tried.add(layout.where(tensor)[1])
    assert len(tried) >= 24


async def test_a_middle_segment_starts_from_the_rows_that_it_read(anvil: Any, contract: Any, tmp_path: Path) -> None:
    scene, source = LayerScene.make(tmp_path / "model"), Random(4)
    before = scene.trace(scene.layout(end=1))
    read = before.rows
    layout = scene.layout(first=1)
    trace = segment_trace(layout, scene.weights.layer, read, scene.weights.norm)
    assert trace.norm is not None
    async with await Chain.connect(anvil.url, contract) as chain:
        checked = Checked(chain, scene, layout, trace, SignedRows(trace.norm[1], None), SignedRows(read, scene.tokens))
        for word in (0, 9):
            value = trace.tensor(0).node(0, word)
            assert not await checked.is_wrong(0, word, 3, value)
            assert await checked.is_wrong(0, word, 3, changed(value, 3, source))


@pytest.fixture
async def doubled(anvil: Any, contract: Any, tmp_path: Path) -> AsyncIterator[Checked]:
    """A trace and a nudged one behind it."""
    scene = LayerScene.make(tmp_path / "model")
    layout = scene.layout()
    plain, states = scene.trace(layout), scene.weights.embedded(scene.tokens)
    nudged = segment_trace(layout, scene.weights.layer, states, scene.weights.norm, nudge=Nudge(ORDER, 5))
    trace = DoubledTrace(plain, nudged)
    async with await Chain.connect(anvil.url, contract) as chain:
        signed = SignedRows(plain.rows, scene.tokens)
        yield Checked(chain, scene, trace.layout, trace, signed, nudge=5, moved=trace.most_moved)


async def test_each_number_of_a_nudged_trace_follows_and_no_other(doubled: Checked) -> None:
    source, layout = Random(8), doubled.layout
    matter, shape = doubled.matter, layout.model.encoded
    inputs = [layout.tensor(layer, Operation.INPUT, nudged=True) for layer in (0, 1, 2)]
    for tensor in (*inputs, *source.sample(range(layout.single, layout.count), 8), 0, layout.tensor(1, Operation.DOWN)):
        if not layout.exists(tensor):
            continue
        levels = sum(layout.levels(tensor))
        assert await doubled.chain.read(step_calls.depth_of(matter, shape, tensor, nudged=True)) == levels
        words = [
            (word, number) for word in range(1 << levels) for number in range(8) if layout.place(tensor, word, number)
        ]
        for word, number in source.sample(words, 2):
            value = doubled.trace.tensor(tensor).node(0, word)
            assert not await doubled.is_wrong(tensor, word, number, value), layout.where(tensor)
            assert await doubled.is_wrong(tensor, word, number, changed(value, number, source))
    # Another nudge, or another result, has other signs.
    word, number, value = 2, 3, doubled.trace.tensor(inputs[1]).node(0, 2)
    for other in (replace(doubled.claim, nudge=4), replace(doubled.claim, seed=Hash32(bytes(32)))):
        found = []
        for number in range(8):
            step = step_proof(
                layout, SeenTrace(doubled.trace), layout.place(inputs[1], word, number), number,
                doubled.scene.weights.open, doubled.entered,
            )  # fmt: skip
            view = step_calls.is_wrong(matter, shape, other, TraceWord(inputs[1], word, value), step)
            found.append(await doubled.chain.read(view))
        assert any(found)
    with pytest.raises(ChainRejected):
        await doubled.chain.read(step_calls.depth_of(matter, shape, layout.count, nudged=True))
    with pytest.raises(ChainRejected):
        await doubled.chain.read(step_calls.depth_of(matter, shape, layout.single))


LONG = {"hidden_size": 1_040, "intermediate_size": 1_100, "num_hidden_layers": 1, "attention_bias": True}
NARROW = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.parametrize(
    ("shape", "tokens", "sums"),
    [
        (LONG, 2, ((0, Operation.QUERY, 10), (0, Operation.DOWN, 9), (0, Operation.FEED_FACTOR, 9))),
        (LONG, 2, ((1, Operation.INPUT_FACTOR, 9),)),
        (NARROW, 1_100, ((0, Operation.ATTENDED, 9), (0, Operation.SUMS, 9))),
    ],
)
async def test_a_long_sum_is_checked_part_by_part(
    anvil: Any, contract: Any, tmp_path: Path, shape: Any, tokens: int, sums: tuple[tuple[int, Operation, int], ...]
) -> None:
    scene, source = LayerScene.make(tmp_path / "model", tokens, **shape), Random(12)
    layout, trace = scene.layout(), scene.trace()
    async with await Chain.connect(anvil.url, contract) as chain:
        checked = Checked(chain, scene, layout, trace, SignedRows(trace.rows, scene.tokens))
        matter, encoded, claim = checked.matter, layout.model.encoded, checked.claim
        for layer, operation, count in sums:
            tensor = layout.tensor(layer, operation)
            across = layout.levels(tensor)[1]
            place = layout.place(tensor, layout.position << across, 0)
            assert place is not None
            word = TraceWord(tensor, layout.position << across, trace.tensor(tensor).node(0, layout.position << across))
            parts = trace.parts(place)
            assert len(parts) == count
            assert await chain.read(step_calls.concludes(matter, encoded, claim, word, 0, packed(parts)))
            for other in ((), parts[:-1], (*parts, 0), (parts[0] + (1 << 320), *parts[1:]), (NO_SUM, *parts[1:])):
                assert not await chain.read(step_calls.concludes(matter, encoded, claim, word, 0, packed(other)))
            seen = SeenTrace(trace)
            for index in {0, count - 1, source.randrange(count)}:
                step = part_proof(layout, seen, place, 0, index, scene.weights.open)
                for change in (0, 1, -1):
                    value = steps.sum_bytes(parts[index] + change)
                    view = step_calls.is_wrong_part(matter, encoded, claim, word, SumPart(0, index, value), step)
                    assert await chain.read(view) == (change != 0), (operation, index, change)
                # Behind the last part is none, whatever is shown for it: the bias would else be one more.
                beyond = SumPart(0, count, steps.sum_bytes(0))
                with pytest.raises(ChainRejected, match="WrongElement"):
                    await chain.read(step_calls.is_wrong_part(matter, encoded, claim, word, beyond, step))
            with pytest.raises(ChainRejected, match="WrongLength"):
                await chain.read(step_calls.is_wrong(matter, encoded, claim, word, whole_step(checked, place)))


def whole_step(checked: Checked, place: Any) -> bytes:
    return step_proof(checked.layout, SeenTrace(checked.trace), place, 0, checked.scene.weights.open, checked.entered)


async def test_short_sums_and_other_numbers_have_no_parts(checked: Checked) -> None:
    matter, shape, claim = checked.matter, checked.layout.model.encoded, checked.claim
    for operation in (Operation.INPUT, Operation.QUERY, Operation.GATED, Operation.MAXIMA):
        tensor = checked.layout.tensor(1, operation)
        word = TraceWord(tensor, 0, checked.trace.tensor(tensor).node(0, 0))
        for number in (0, 7):
            for parts in (b"", bytes(96)):
                view = step_calls.concludes(matter, shape, claim, word, number, parts)
                assert await checked.chain.read(view) == (not parts)


async def test_a_row_that_a_nudge_defends_convicts_beyond_four_times_its_movement(doubled: Checked) -> None:
    trace, layout = doubled.trace, doubled.layout
    assert isinstance(trace, DoubledTrace)
    last, nudged = trace.plain.last_row, trace.nudged.last_row
    scale = float(np.sqrt(np.mean(last.astype(np.float64) ** 2)))
    moved = float(np.abs(nudged[trace.most_moved] - last[trace.most_moved]))
    for off in (0.5e-4 * scale, 1.5e-4 * scale, 3 * moved, 5 * moved, 20 * moved, 200 * moved):
        row = last.copy()
        row[7] += np.float32(off)
        rows = trace.plain.rows.copy()
        rows[layout.position] = row
        doubled.signed = SignedRows(rows, doubled.scene.tokens)
        for element in (trace.most_moved, 5, len(last), (1 << 32) - 1):
            doubled.moved = element
            shown = doubled.signed.shown(ORDER, layout.position)
            proof = row_proof(layout, SeenTrace(trace), 7, shown, element)
            expected = is_far(row, last, 7, movement(nudged, last, element))
            view = step_calls.is_far(doubled.matter, layout.model.encoded, doubled.claim, proof)
            assert await doubled.chain.read(view) == expected, (off, element)


async def test_a_row_convicts_beyond_the_tolerance_alone(checked: Checked) -> None:
    trace, layout = checked.trace, checked.layout
    last = trace.last_row
    scale = np.float32(np.sqrt(np.mean(last.astype(np.float64) ** 2)))
    for factor in (0.0, 0.5, 0.99, 1.01, 3.0, np.inf, np.nan):
        row = last.copy()
        row[7] = row[7] + scale * np.float32(1e-4 * factor)
        assert trace.norm is not None
        rows = trace.norm[1].copy()
        rows[layout.position] = row
        checked.signed = SignedRows(rows, checked.scene.tokens)
        proof = row_proof(layout, SeenTrace(trace), 7, checked.signed.shown(ORDER, layout.position))
        view = step_calls.is_far(checked.matter, layout.model.encoded, checked.claim, proof)
        expected = is_far(row, last, 7)
        assert await checked.chain.read(view) == expected == (not factor <= 1)
        assert (trace.furthest(row) is not None) == expected


async def test_a_trace_without_numbers_says_nothing_of_rows(checked: Checked) -> None:
    """Else whoever holds a model that overflows convicted by a comparison with what is no number."""
    layout, scene = checked.layout, checked.scene
    empty = scene.trace(layout, {"model.layers.1.mlp.down_proj.weight": ((0, 0), np.nan)})
    assert np.isnan(empty.last_row).all()
    checked.trace = empty
    proof = row_proof(layout, SeenTrace(empty), 7, checked.signed.shown(ORDER, layout.position))
    view = step_calls.is_far(checked.matter, layout.model.encoded, checked.claim, proof)
    assert await checked.chain.read(view) is False
    assert empty.furthest(checked.scene.trace(layout).last_row) is None


async def test_what_is_not_of_this_trace_model_or_order_is_refused(checked: Checked) -> None:
    layout, trace, scene = checked.layout, checked.trace, checked.scene
    tensor = layout.tensor(1, Operation.QUERY)
    place, value = layout.place(tensor, 4, 1), trace.tensor(tensor).node(0, 4)
    assert place is not None
    word, matter, shape = TraceWord(tensor, 4, value), checked.matter, layout.model.encoded
    step = step_proof(layout, SeenTrace(trace), place, 1, scene.weights.open, checked.entered)
    other = step_proof(layout, SeenTrace(trace), place._replace(position=0), 1, scene.weights.open, checked.entered)
    root, claim = trace.top.root, checked.claim
    bad: tuple[tuple[Any, ...], ...] = (
        (matter, shape, replace(claim, root=Hash32(bytes(31) + b"\x01")), word, step),
        (matter, shape, replace(claim, nudge=1), word, step),
        (replace(matter, weights_root=root), shape, claim, word, step),
        (replace(matter, shape=root), shape, claim, word, step),
        (matter, shape, claim, word, other),
        (matter, shape, claim, replace(word, tensor=layout.count), step),
        (matter, shape, claim, word, b""),
        (matter, shape, claim, word, step[: len(step) // 2]),
    )
    for number, arguments in enumerate(bad):
        try:
            said = await checked.chain.read(step_calls.is_wrong(*arguments))
        except ChainRejected:
            continue
        pytest.fail(f"the opening {number} is taken, and said {said}")
    # Another row of the same matrix.
    inner = scene.weights.open

    def shifted(slice_: Any) -> Any:
        return replace(inner(slice_), leaf=inner(slice_).leaf[::-1])

    forged = step_proof(layout, SeenTrace(trace), place, 1, shifted, checked.entered)
    with pytest.raises(ChainRejected):
        await checked.chain.read(step_calls.is_wrong(matter, shape, claim, word, forged))


UNCHECKED: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"heads": 3}, {}),
    ({"heads": 0}, {}),
    ({"key_heads": 0}, {}),
    ({"head_width": 7, "frequencies": bytes(14)}, {}),
    ({"head_width": 0, "frequencies": b""}, {}),
    ({"frequencies": bytes(4)}, {}),
    ({"hidden": 8_200}, {"hidden": 8_200}),
    ({"hidden": 16}, {}),
    ({}, {"hidden": 16}),
    ({"intermediate": 0}, {}),
    ({"intermediate": 8_193}, {}),
    ({"heads": 1_026, "key_heads": 2}, {}),
    ({"activation": 2}, {}),
    ({}, {"position": 8_192, "rows": 8_193}),
    ({"heads": 64, "key_heads": 2}, {"position": 1_024, "rows": 1_025}),
    ({}, {"layers": 3}),
    ({}, {"layers": 1, "end": 1}),
    ({}, {"end": 3}),
    ({}, {"first": 2}),
    ({}, {"first": 1, "end": 1}),
)
"""Layers and matters that no transaction checks, each for one reason."""


async def test_what_one_transaction_does_not_check_is_no_matter(checked: Checked) -> None:
    """Else an honest node could be asked for a trace that it cannot show, or whose word nobody can judge."""
    matter, model = checked.matter, checked.layout.model

    async def depth(layer: dict[str, Any], about: dict[str, Any], pattern: bytes = model.pattern) -> int:
        changed_model = replace(model, kinds=tuple(replace(kind, **layer) for kind in model.kinds), pattern=pattern)
        other = replace(matter, shape=changed_model.hash, **about)
        return await checked.chain.read(step_calls.depth(other, changed_model.encoded))

    assert await depth({}, {}) == checked.layout.depth
    assert await depth({}, {"position": 8_191, "rows": 8_192}) == checked.layout.depth
    assert await depth({"intermediate": 8_192}, {}) == checked.layout.depth
    for layer, about in UNCHECKED:
        with pytest.raises(ChainRejected, match="NotCheckable"):
            await depth(layer, about)
    with pytest.raises(ChainRejected, match="NotCheckable"):
        await depth({}, {}, bytes([0, len(model.kinds)]))


async def test_a_word_has_eight_numbers(checked: Checked) -> None:
    tensor = checked.layout.tensor(1, Operation.QUERY)
    word = TraceWord(tensor, 0, checked.trace.tensor(tensor).node(0, 0))
    view = step_calls.concludes(checked.matter, checked.layout.model.encoded, checked.claim, word, 8, b"")
    with pytest.raises(ChainRejected, match="WrongElement"):
        await checked.chain.read(view)


async def test_a_sum_of_as_many_terms_as_are_computed_at_once_has_no_parts(
    anvil: Any, contract: Any, tmp_path: Path
) -> None:
    scene = LayerScene.make(tmp_path / "model", 1_024, **NARROW)
    layout, trace = scene.layout(), scene.trace()
    async with await Chain.connect(anvil.url, contract) as chain:
        checked = Checked(chain, scene, layout, trace, SignedRows(trace.rows, scene.tokens))
        tensor = layout.tensor(0, Operation.SUMS)
        at = layout.position << layout.levels(tensor)[1]
        value = trace.tensor(tensor).node(0, at)
        assert not await checked.is_wrong(tensor, at, 0, value)
        assert await checked.is_wrong(tensor, at, 0, changed(value, 0, Random(2)))
        view = step_calls.concludes(
            checked.matter, layout.model.encoded, checked.claim, TraceWord(tensor, at, Hash32(value)), 0, b""
        )
        assert await chain.read(view)


async def test_each_number_of_a_wide_state_is_nudged_by_its_own_sign(anvil: Any, contract: Any, tmp_path: Path) -> None:
    """A hash has 256 signs: the numbers behind them take those of another one."""
    scene = LayerScene.make(tmp_path / "model", 2, hidden_size=544, num_hidden_layers=1)
    layout = scene.layout()
    plain, states = scene.trace(layout), scene.weights.embedded(scene.tokens)
    nudged = segment_trace(layout, scene.weights.layer, states, scene.weights.norm, nudge=Nudge(ORDER, 2))
    trace = DoubledTrace(plain, nudged)
    async with await Chain.connect(anvil.url, contract) as chain:
        signed = SignedRows(plain.rows, scene.tokens)
        checked = Checked(chain, scene, trace.layout, trace, signed, nudge=2, moved=trace.most_moved)
        tensor = trace.layout.tensor(0, Operation.INPUT, nudged=True)
        across = trace.layout.levels(tensor)[1]
        for word in (0, 31, 32, 67):
            at = 1 << across | word
            value = trace.tensor(tensor).node(0, at)
            for number in range(8):
                assert not await checked.is_wrong(tensor, at, number, value), (word, number)


async def test_what_a_segment_reads_is_what_was_signed(checked: Checked) -> None:
    """Else a true input would be called wrong by a token, or a row, of the accuser's own."""
    layout, trace, scene = checked.layout, checked.trace, checked.scene
    place, value = layout.place(0, 0, 3), trace.tensor(0).node(0, 0)
    shown = checked.signed.shown(ORDER, 0)
    others = (replace(shown, read=shown.read + 1), replace(shown, row=bytes(len(shown.row))), replace(shown, later=()))
    for other in others:
        step = step_proof(layout, SeenTrace(trace), place, 3, scene.weights.open, lambda _, other=other: other)
        view = step_calls.is_wrong(checked.matter, layout.model.encoded, checked.claim, TraceWord(0, 0, value), step)
        with pytest.raises(ChainRejected):
            await checked.chain.read(view)


async def test_a_later_segment_starts_from_no_other_rows(anvil: Any, contract: Any, tmp_path: Path) -> None:
    scene = LayerScene.make(tmp_path / "model")
    read = scene.trace(scene.layout(end=1)).rows
    layout = scene.layout(first=1)
    trace = segment_trace(layout, scene.weights.layer, read, scene.weights.norm)
    async with await Chain.connect(anvil.url, contract) as chain:
        given = SignedRows(read, scene.tokens)
        checked = Checked(chain, scene, layout, trace, SignedRows(trace.rows, None), given)
        forged, word = SignedRows(read + np.float32(1), scene.tokens), trace.tensor(0).node(0, 0)
        assert not await checked.is_wrong(0, 0, 3, word)
        step = step_proof(
            layout, SeenTrace(trace), layout.place(0, 0, 3), 3, scene.weights.open,
            lambda position: forged.shown(ORDER, position, 0),
        )  # fmt: skip
        view = step_calls.is_wrong(checked.matter, layout.model.encoded, checked.claim, TraceWord(0, 0, word), step)
        with pytest.raises(ChainRejected):
            await chain.read(view)


async def test_only_the_row_that_was_signed_is_far_from_a_trace(checked: Checked) -> None:
    layout, trace = checked.layout, checked.trace
    shown = checked.signed.shown(ORDER, layout.position)
    forged = np.frombuffer(shown.row, "<f4").copy()
    forged[7] += 1
    for other in (replace(shown, row=forged.tobytes()), replace(shown, row=shown.row + bytes(4))):
        proof = row_proof(layout, SeenTrace(trace), 7, other)
        with pytest.raises(ChainRejected):
            await checked.chain.read(step_calls.is_far(checked.matter, layout.model.encoded, checked.claim, proof))


async def test_a_nudge_that_leaves_no_number_says_nothing_of_rows(doubled: Checked) -> None:
    """What it moves is not known then, and a row is not above it."""
    trace, layout, scene = doubled.trace, doubled.layout, doubled.scene
    assert isinstance(trace, DoubledTrace)
    states = scene.weights.embedded(scene.tokens)
    finite = np.float32(trace.plain.last_row[7] + 5)
    for weight, signed, far in (
        (1.0, finite, True), (np.inf, finite, False), (np.nan, finite, False), (np.inf, np.float32(np.nan), False)
    ):  # fmt: skip
        rows = trace.plain.rows.copy()
        rows[layout.position] = trace.plain.last_row
        rows[layout.position][7] = signed
        doubled.signed = SignedRows(rows, scene.tokens)
        shown = doubled.signed.shown(ORDER, layout.position)
        norm = scene.weights.norm.copy()
        norm[doubled.moved] *= np.float32(weight)
        nudged = segment_trace(scene.layout(), scene.weights.layer, states, norm, nudge=Nudge(ORDER, 5))
        other = DoubledTrace(trace.plain, nudged)
        proof = row_proof(layout, SeenTrace(other), 7, shown, doubled.moved)
        claim = TraceClaim(other.top.root, ORDER, doubled.nudge, doubled.moved)
        view = step_calls.is_far(doubled.matter, layout.model.encoded, claim, proof)
        assert await doubled.chain.read(view) is far, (weight, signed)
