"""An engine that changes its slice reads only what it lacks, goes on with running sessions, and frees the rest."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.tiny_llama import tiny_model  # noqa: E402

from troth.node.engine import layers as layers_module  # noqa: E402
from troth.node.engine.interface import SessionKey  # noqa: E402
from troth.node.engine.layers import LayerSlice  # noqa: E402
from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.errors import BadInput, ModelError  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.protocol.types import Segment  # noqa: E402

pytestmark = pytest.mark.torch

TOKENS = np.array([3, 14, 15, 9, 26, 5, 35, 8])
LAYERS = 6
WHOLE, LOWER, MIDDLE, UPPER = Segment(0, 6), Segment(0, 4), Segment(2, 4), Segment(2, 6)
EMBEDDING, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
FLOAT32, BFLOAT16 = 0, 1
PATIENCE = 60.0


def key(task: int) -> SessionKey:
    return SessionKey(bytes([task]) * 32, 0, 0)


def made(path: Path, *, tied: bool) -> ModelFolder:
    return tiny_model(path, num_hidden_layers=LAYERS, tie_word_embeddings=tied)


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return made(tmp_path_factory.mktemp("six"), tied=request.param)


class Reads:
    """What is read from the files; `held_up` makes the next tensor wait."""

    def __init__(self, read: Callable[..., Iterator[tuple[str, Any]]]) -> None:
        self._read = read
        self.names: list[str] = []
        self.held_up: threading.Event | None = None
        self.waiting = threading.Event()

    def __call__(self, folder: ModelFolder, wanted: Callable[[str], bool]) -> Iterator[tuple[str, Any]]:
        for name, tensor in self._read(folder, wanted):
            if self.held_up is not None:
                self.waiting.set()
                assert self.held_up.wait(PATIENCE)
            self.names.append(name)
            yield name, tensor

    def of_layers(self) -> list[int]:
        """The layers of the tensors read since the last call, and forget them."""
        found = sorted({int(name.split(".")[2]) for name in self.names if name.startswith("model.layers.")})
        self.names = [name for name in self.names if not name.startswith("model.layers.")]
        return found

    def outer(self) -> list[str]:
        """The other tensors read since the last call, and forget them."""
        found = sorted(name for name in self.names if not name.startswith("model.layers."))
        self.names = []
        return found


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    counting = Reads(layers_module.read_tensors)
    monkeypatch.setattr(layers_module, "read_tensors", counting)
    return counting


class Watched(LayerSlice):
    """Layers of which a weak reference is kept, to see when their memory is free."""

    made: ClassVar[list[tuple[int, weakref.ref[torch.nn.Module]]]] = []

    def _layer(self, index: int, weights: dict[str, torch.Tensor]) -> torch.nn.Module:
        layer = super()._layer(index, weights)
        self.made.append((index, weakref.ref(layer.self_attn.q_proj.weight)))
        return layer

    @classmethod
    def alive(cls) -> list[int]:
        """Layers whose weights are still in memory."""
        return sorted(index for index, found in cls.made if found() is not None)


@pytest.fixture
def watched() -> type[Watched]:
    return type("WatchedHere", (Watched,), {"made": []})


async def states(engine: TorchEngine, task: int, segment: Segment, inputs: Any, start: int = 0) -> np.ndarray:
    return (await engine.forward(key(task), segment, start, inputs)).rows


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16])
async def test_only_what_is_missing_is_read(folder: ModelFolder, reads: Reads, dtype: int) -> None:
    tied = bool(folder.config["tie_word_embeddings"])
    engine = TorchEngine(folder, LOWER, dtype)
    assert (reads.of_layers(), reads.outer()) == ([0, 1, 2, 3], [EMBEDDING])
    await engine.rehost(UPPER)
    assert reads.of_layers() == [4, 5]
    assert reads.outer() == ([NORM] if tied else [HEAD, NORM]), "an embedding that is the head too is there already"
    assert (engine.slice, engine.holds(UPPER), engine.holds(LOWER)) == (UPPER, True, False)
    await engine.rehost(UPPER)
    await engine.rehost(Segment(3, 6))
    assert reads.names == []
    await engine.rehost(WHOLE)
    assert reads.of_layers() == [0, 1, 2]
    assert reads.outer() == ([] if tied else [EMBEDDING])
    await engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16])
async def test_a_changed_slice_computes_what_a_fresh_one_does(folder: ModelFolder, dtype: int) -> None:
    fresh, moved = TorchEngine(folder, WHOLE, dtype), TorchEngine(folder, MIDDLE, dtype)
    for hosted in (UPPER, LOWER, Segment(5, 6), WHOLE):
        await moved.rehost(hosted)
    expected, found = await states(fresh, 1, WHOLE, TOKENS), await states(moved, 1, WHOLE, TOKENS)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal((await moved.logits(found)).rows, (await fresh.logits(expected)).rows)
    wide = await moved.reference(WHOLE, TOKENS)
    np.testing.assert_array_equal(wide, await fresh.reference(WHOLE, TOKENS))
    np.testing.assert_array_equal((await moved.logits(wide)).rows, (await fresh.logits(wide)).rows)
    for engine in (fresh, moved):
        await engine.close()


async def test_a_session_in_layers_that_stay_goes_on(folder: ModelFolder) -> None:
    whole, engine = TorchEngine(folder, WHOLE, FLOAT32), TorchEngine(folder, LOWER, FLOAT32)
    inputs = await states(whole, 1, Segment(0, 2), TOKENS)
    parts = [(inputs[:5], 0), (inputs[5:], 5)]
    expected = [await states(whole, 2, MIDDLE, rows, start=start) for rows, start in parts]
    begun = await states(engine, 2, MIDDLE, inputs[:5])
    await engine.rehost(UPPER)
    rest = await states(engine, 2, MIDDLE, inputs[5:], start=5)
    np.testing.assert_array_equal(np.concatenate([begun, rest]), np.concatenate(expected))
    for each in (whole, engine):
        await each.close()


async def test_layers_go_with_the_last_session_that_uses_them(folder: ModelFolder, watched: type[Watched]) -> None:
    engine = TorchEngine(folder, LOWER, FLOAT32, layers=watched)
    await states(engine, 9, LOWER, TOKENS[:5])
    expected = await states(engine, 9, LOWER, TOKENS[5:], start=5)
    await engine.forget(key(9))
    for task in (1, 2):
        await states(engine, task, LOWER, TOKENS[:5])
    await engine.rehost(UPPER)
    assert watched.alive() == [0, 1, 2, 3, 4, 5]
    rest = await states(engine, 1, LOWER, TOKENS[5:], start=5)
    np.testing.assert_array_equal(rest, expected)
    await engine.release(key(1).task_id)
    assert watched.alive() == [0, 1, 2, 3, 4, 5]
    await engine.forget(key(2))
    assert watched.alive() == [2, 3, 4, 5]
    with pytest.raises(BadInput):
        await states(engine, 3, LOWER, TOKENS)
    await engine.close()


async def test_without_a_session_layers_go_at_once(folder: ModelFolder, watched: type[Watched]) -> None:
    engine = TorchEngine(folder, LOWER, FLOAT32, layers=watched)
    await engine.rehost(Segment(4, 6))
    assert watched.alive() == [4, 5]
    await engine.close()


async def test_what_is_kept_stays_until_it_is_kept_no_more(folder: ModelFolder, watched: type[Watched]) -> None:
    engine = TorchEngine(folder, LOWER, FLOAT32, layers=watched)
    expected = await states(engine, 1, LOWER, TOKENS)
    await engine.forget(key(1))
    await engine.rehost(Segment(4, 6), keep=[LOWER])
    assert (engine.slice, engine.holds(LOWER), engine.holds(Segment(4, 6))) == (Segment(4, 6), True, True)
    np.testing.assert_array_equal(await states(engine, 2, LOWER, TOKENS), expected)
    await engine.forget(key(2))
    assert engine.holds(LOWER)
    await engine.rehost(Segment(4, 6))
    assert watched.alive() == [4, 5]
    await engine.close()


@pytest.mark.slow
async def test_the_float32_layers_come_and_go_too(folder: ModelFolder, reads: Reads, watched: type[Watched]) -> None:
    fresh = TorchEngine(folder, WHOLE, BFLOAT16)
    rows = await states(fresh, 1, Segment(0, 2), TOKENS)
    expected = [await fresh.reference(one, rows) for one in (MIDDLE, UPPER)]
    engine = TorchEngine(folder, LOWER, BFLOAT16, layers=watched)
    reads.names = []
    np.testing.assert_array_equal(await engine.reference(MIDDLE, rows), expected[0])
    assert reads.of_layers() == [2, 3], "a reference is needed of what is verified, not of the whole slice"
    await engine.rehost(UPPER)
    assert (reads.of_layers(), watched.alive()) == ([4, 5], [2, 2, 3, 3, 4, 5])
    np.testing.assert_array_equal(await engine.reference(UPPER, rows), expected[1])
    assert (reads.of_layers(), watched.alive()) == ([4, 5], [2, 2, 3, 3, 4, 4, 5, 5])
    await engine.rehost(Segment(0, 1))
    assert watched.alive() == [0]
    for each in (fresh, engine):
        await each.close()


async def test_sessions_go_on_while_it_reads(folder: ModelFolder, reads: Reads) -> None:
    engine = TorchEngine(folder, LOWER, FLOAT32)
    await states(engine, 1, LOWER, TOKENS[:5])
    reads.held_up = threading.Event()
    moving = asyncio.create_task(engine.rehost(UPPER))
    try:
        assert await asyncio.to_thread(reads.waiting.wait, PATIENCE)
        await states(engine, 1, LOWER, TOKENS[5:], start=5)
        assert (engine.slice, engine.holds(UPPER)) == (LOWER, False)
    finally:
        reads.held_up.set()
    await moving
    assert (engine.slice, engine.holds(UPPER)) == (UPPER, True)
    await engine.close()


async def test_a_release_while_it_reads_takes_nothing_that_is_wanted(folder: ModelFolder, reads: Reads) -> None:
    """Layers 0 to 3 are there for a session only when the slice that needs them again is asked for."""
    engine = TorchEngine(folder, LOWER, FLOAT32)
    await states(engine, 1, LOWER, TOKENS)
    await engine.rehost(Segment(4, 5))
    reads.names, reads.held_up = [], threading.Event()
    moving = asyncio.create_task(engine.rehost(WHOLE))
    try:
        assert await asyncio.to_thread(reads.waiting.wait, PATIENCE)
        await engine.release(key(1).task_id)
    finally:
        reads.held_up.set()
    await moving
    assert reads.of_layers() == [5]
    assert engine.holds(WHOLE)
    await engine.close()


async def test_what_does_not_fit_changes_nothing(folder: ModelFolder, reads: Reads, watched: type[Watched]) -> None:
    engine = TorchEngine(folder, LOWER, FLOAT32, layers=watched)
    before = await states(engine, 1, LOWER, TOKENS)
    with pytest.raises(ModelError):
        await engine.rehost(Segment(0, LAYERS + 1))
    broken = Reads(lambda folder, wanted: iter(()))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(layers_module, "read_tensors", broken)
        with pytest.raises(ModelError):
            await engine.rehost(UPPER)
    assert (engine.slice, watched.alive()) == (LOWER, [0, 1, 2, 3])
    np.testing.assert_array_equal(await states(engine, 2, LOWER, TOKENS), before)
    await engine.close()
