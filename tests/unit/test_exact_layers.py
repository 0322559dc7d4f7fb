"""Fixed shapes: a text grown in pieces has the bits of one prefill, and a node checks that of its own machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch")

from support.tiny_gemma3 import write_tiny_gemma3  # noqa: E402
from support.tiny_llama import tiny_model  # noqa: E402

from troth.node.engine import attention_cache  # noqa: E402
from troth.node.engine.exact_layers import ROWS, ExactSlice  # noqa: E402
from troth.node.engine.few_rows import in_fixed_rows  # noqa: E402
from troth.node.engine.interface import Computed, SessionKey  # noqa: E402
from troth.node.engine.layers import LayerSlice  # noqa: E402
from troth.node.engine.probe import MARK, probe, probe_of, probe_text, require_class  # noqa: E402
from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.errors import ModelError  # noqa: E402
from troth.node.models.execution_class import rough_class  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.protocol.types import Hash32, Segment  # noqa: E402

pytestmark = pytest.mark.torch

WHOLE = Segment(0, 3)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return tiny_model(
        tmp_path_factory.mktemp("llama"),
        vocab_size=400,
        hidden_size=96,
        intermediate_size=160,
        num_hidden_layers=3,
        max_position_embeddings=512,
    )


@pytest.fixture(params=[0, 1], ids=["float32", "bfloat16"])
async def engine(request: pytest.FixtureRequest, llama: ModelFolder) -> AsyncIterator[TorchEngine]:
    engine = TorchEngine(llama, WHOLE, request.param, threads=1, layers=ExactSlice)
    yield engine
    await engine.close()


def key(number: int) -> SessionKey:
    return SessionKey(bytes([number]) * 32, 0, 0)


async def run(engine: TorchEngine, text: NDArray[np.int64], pieces: list[int], number: int = 1) -> NDArray[Any]:
    """Rows of a text that is sent in pieces."""
    start, rows = 0, []
    for count in pieces:
        rows.append((await engine.forward(key(number), engine.slice, start, text[start : start + count])).rows)
        start += count
    assert start == len(text)
    await engine.forget(key(number))
    return np.concatenate(rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    "pieces", [[1] * 50, [16, 16, 18], [15, 2, 33], [49, 1], [3, 40, 1, 1, 1, 1, 1, 1, 1]], ids=str
)
async def test_pieces_have_the_bits_of_one_prefill(engine: TorchEngine, pieces: list[int]) -> None:
    text = probe_text(engine.vocabulary)[:50]
    assert np.array_equal(await run(engine, text, pieces), await run(engine, text, [50]))


async def test_a_reference_has_room_for_whole_blocks_where_no_addresses_are_reserved(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So on a graphics card, and on systems that promise no more memory than they have."""
    monkeypatch.setattr(attention_cache, "RESERVES", False)
    text = probe_text(engine.vocabulary)[: ROWS + 3]
    assert (await engine.reference(engine.slice, text)).shape == (ROWS + 3, engine.hidden_size)
    assert (await engine.shaken(engine.slice, text)).shape == (ROWS + 3, engine.hidden_size)


async def test_going_back_leaves_nothing_behind(engine: TorchEngine) -> None:
    text, other = probe_text(engine.vocabulary)[:40], probe_text(engine.vocabulary, 1)[:40]
    await engine.forward(key(1), engine.slice, 0, other)
    await engine.forward(key(1), engine.slice, 0, text[:20])
    rows = (await engine.forward(key(1), engine.slice, 20, text[20:])).rows
    assert np.array_equal(rows, (await run(engine, text, [40], number=2))[20:])


async def test_fixed_shapes_compute_the_same_model(llama: ModelFolder) -> None:
    text = probe_text(400)[:60]
    plain, exact = TorchEngine(llama, WHOLE, 0), TorchEngine(llama, WHOLE, 0, layers=ExactSlice)
    assert np.allclose(await run(exact, text, [60]), await run(plain, text, [60]), atol=1e-4)
    await plain.close()
    await exact.close()


@pytest.mark.slow
async def test_windows_hold_in_fixed_shapes(tmp_path: Path) -> None:
    folder = write_tiny_gemma3(tmp_path / "gemma")
    segment, text = Segment(0, 5), probe_text(200)[:40]
    plain, exact = TorchEngine(folder, segment, 0), TorchEngine(folder, segment, 0, layers=ExactSlice)
    whole = await run(exact, text, [40])
    assert np.allclose(whole, await run(plain, text, [40]), atol=1e-4)
    assert np.array_equal(await run(exact, text, [7, 20, *[1] * 13]), whole)
    await plain.close()
    await exact.close()


@pytest.mark.parametrize("count", [1, ROWS - 1, ROWS, ROWS + 1, 3 * ROWS])
def test_every_product_has_the_same_shape(count: int) -> None:
    seen = []

    def product(states: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(states.shape))
        return states * 2

    states = torch.randn(count, 5)
    assert torch.equal(in_fixed_rows(product, states, ROWS), states * 2)
    assert set(seen) == {(ROWS, 5)}


@pytest.mark.slow
async def test_a_machine_of_the_class_serves_it(engine: TorchEngine) -> None:
    exact = replace(rough_class(Hash32(bytes(32)), engine.dtype, "x", candidates=2), exact=True)
    found = await probe(engine)
    assert probe_of(f"tiny/torch/{MARK}{found}") == found
    await require_class(engine, replace(exact, name=f"tiny/torch/{MARK}{found}"))
    with pytest.raises(ModelError, match="other bits"):
        await require_class(engine, replace(exact, name=f"tiny/torch/{MARK}{'0' * 32}"))
    with pytest.raises(ModelError, match="other bits"):
        await require_class(engine, replace(exact, name="tiny/torch"))


@pytest.mark.slow
@pytest.mark.parametrize("hosted", [Segment(0, 2), Segment(1, 3)], ids=str)
async def test_a_slice_is_asked_whether_decode_is_prefill(llama: ModelFolder, hosted: Segment) -> None:
    exact = replace(rough_class(Hash32(bytes(32)), 1, "tiny/torch", candidates=2), exact=True)
    steady, unsteady = (TorchEngine(llama, hosted, 1, layers=slices) for slices in (ExactSlice, LayerSlice))
    await require_class(steady, exact)
    unsteady.__class__ = Unsteady
    with pytest.raises(ModelError, match="decode and prefill differ"):
        await require_class(unsteady, exact)
    await steady.close()
    await unsteady.close()


class Unsteady(TorchEngine):
    """Its decode has another last bit than its prefill."""

    async def forward(self, *given: Any) -> Computed:
        computed = await super().forward(*given)
        if len(given[3]) == 1:
            computed.rows[-1, 0] += 1
        return computed


@pytest.mark.slow
async def test_a_machine_whose_decode_differs_does_not_serve(llama: ModelFolder) -> None:
    unsteady = Unsteady(llama, WHOLE, 1, layers=ExactSlice)
    with pytest.raises(ModelError, match="decode and prefill differ"):
        await probe(unsteady)
    tolerant = rough_class(Hash32(bytes(32)), 1, "x", candidates=2)
    await require_class(unsteady, tolerant)
    await unsteady.close()


@pytest.mark.slow
async def test_layers_that_come_later_have_fixed_shapes_too(llama: ModelFolder) -> None:
    engine = TorchEngine(llama, Segment(0, 1), 1, threads=1, layers=ExactSlice)
    await engine.rehost(WHOLE)
    text = probe_text(engine.vocabulary)[:50]
    assert np.array_equal(await run(engine, text, [*[1] * 50]), await run(engine, text, [50]))
    await engine.close()
