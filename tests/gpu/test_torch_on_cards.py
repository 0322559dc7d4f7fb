"""The torch engine on a card computes what a processor computes, and only rows and tokens leave the card."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu.conftest import Card
from numpy.typing import NDArray

torch = pytest.importorskip("torch")

from support.pretended_card import MixedDevices  # noqa: E402
from support.tiny_decoders import FAMILIES, KEY, LAYERS, PIECES, TOKENS, UNSLICED, grow, off, write_tiny_decoder  # noqa: E402

from troth.node.engine.choice import choose_tokens  # noqa: E402
from troth.node.engine.exact_layers import ExactSlice  # noqa: E402
from troth.node.engine.interface import SessionKey, TokenDraw  # noqa: E402
from troth.node.engine.layers import LayerSlice  # noqa: E402
from troth.node.engine.probe import probe  # noqa: E402
from troth.node.engine.streamed import StreamedReference  # noqa: E402
from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.protocol import tokens  # noqa: E402
from troth.protocol.tokens import Sampling  # noqa: E402
from troth.protocol.types import Hash32, Segment  # noqa: E402

pytestmark = pytest.mark.torch

WHOLE = Segment(0, LAYERS)
FLOAT32, BFLOAT16 = 0, 1
NEAR = (1e-5, 0.05)
"""How far rows of two devices may be apart by rounding, as a share of their mean size; in either dtype."""
SLICES = (LayerSlice, ExactSlice)
STEPS = (7, 20, *range(21, 41))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return write_tiny_decoder("qwen3", tmp_path_factory.mktemp("qwen3") / "tiny")


def test_a_pretended_card_refuses_what_cuda_refuses(card: Card) -> None:
    """Or the tests below could not fail."""
    there, here = torch.ones(3, device=card.name), torch.ones(3)
    for refused in (lambda: there + here, lambda: torch.cat([there, here]), lambda: here[there.long()]):
        with pytest.raises((MixedDevices, RuntimeError), match=r"device|cpu"):
            refused()
    with pytest.raises(TypeError, match=r"Tensor.cpu\(\)"):
        there.numpy()
    with pytest.raises(RuntimeError, match="not implemented"):
        there.long()[None] @ there.long()[:, None]
    assert (there + 1).sum().item() == 6.0
    assert there[torch.tensor([0, 2])].device.type == "cuda"


@pytest.mark.parametrize("slices", SLICES)
@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16])
async def test_rows_are_those_of_a_processor(folder: ModelFolder, card: Card, dtype: int, slices: Any) -> None:
    there = TorchEngine(folder, WHOLE, dtype, device=card.name, layers=slices)
    here = TorchEngine(folder, WHOLE, dtype, layers=slices)
    try:
        for ends in ((40,), PIECES):
            assert off(await grow(there, TOKENS, ends), await grow(here, TOKENS, ends), dtype) <= NEAR[dtype]
        for made in ("reference", "shaken", "otherwise"):
            found, expected = [await getattr(engine, made)(WHOLE, TOKENS) for engine in (there, here)]
            if expected is None:
                assert found is None
                continue
            words = FLOAT32 if made == "reference" else dtype
            assert off(found, expected, words) <= NEAR[words] * (10 if made == "shaken" else 1), made
        rows = await grow(here, TOKENS, (40,))
        logits = [(await engine.logits(rows)).rows for engine in (there, here)]
        assert off(*logits, FLOAT32) <= NEAR[dtype]
    finally:
        await there.close()
        await here.close()


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - UNSLICED))
async def test_every_family_computes_on_a_card(family: str, tmp_path: Path, card: Card) -> None:
    folder = write_tiny_decoder(family, tmp_path / "tiny")
    text, ends = TOKENS[:24], (7, 20, 21, 24)
    for dtype, slices in ((FLOAT32, LayerSlice), (BFLOAT16, ExactSlice)):
        lower, upper = (
            TorchEngine(folder, part, dtype, device=card.name, layers=slices) for part in (Segment(0, 2), Segment(2, 4))
        )
        here = TorchEngine(folder, WHOLE, dtype, layers=slices)
        rows = await grow(upper, await grow(lower, text, ends), ends)
        expected = await grow(here, text, ends)
        # Experts are chosen by scores: rounding may send a row to another one.
        assert np.median(apart(rows, expected, dtype)) <= NEAR[dtype]
        assert (await upper.logits(rows)).rows.shape == (len(text), here.vocabulary)
        for engine in (lower, upper, here):
            await engine.close()


def apart(found: NDArray[Any], expected: NDArray[Any], dtype: int) -> NDArray[np.float64]:
    """The mean error of each row, a share of the row's mean size."""
    return np.array([off(one, other, dtype) for one, other in zip(found, expected, strict=True)])


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16])
async def test_steps_of_an_exact_class_have_the_bits_of_one_prefill(
    folder: ModelFolder, card: Card, dtype: int
) -> None:
    engine = TorchEngine(folder, WHOLE, dtype, device=card.name, layers=ExactSlice)
    try:
        whole, grown = await grow(engine, TOKENS, (40,)), await grow(engine, TOKENS, STEPS)
        np.testing.assert_array_equal(whole, grown)
        keys = [SessionKey(bytes([number]) * 32, 0, 0) for number in range(3)]
        beside = await asyncio.gather(
            *(engine.forward(key, WHOLE, 0, TOKENS[: 40 - 7 * number]) for number, key in enumerate(keys))
        )
        np.testing.assert_array_equal(beside[0].rows, whole)
    finally:
        await engine.close()


async def test_an_exact_class_is_named_for_a_card_by_its_probe(tmp_path: Path, card: Card) -> None:
    folder = write_tiny_decoder("llama", tmp_path / "tiny", max_position_embeddings=2048)
    engine = TorchEngine(folder, WHOLE, FLOAT32, device=card.name, layers=ExactSlice)
    assert len(await probe(engine)) == 32
    await engine.close()


async def test_layers_that_move_are_read_onto_the_card(folder: ModelFolder, card: Card) -> None:
    engine = TorchEngine(folder, Segment(0, 2), FLOAT32, device=card.name)
    whole = TorchEngine(folder, WHOLE, FLOAT32, device=card.name)
    entering = await grow(engine, TOKENS, (40,))
    await engine.rehost(Segment(1, 4))
    assert engine.slice == Segment(1, 4)
    middle = await engine.forward(SessionKey(bytes([9]) * 32, 2, 0), Segment(2, 4), 0, entering)
    np.testing.assert_array_equal(middle.rows, await grow(whole, TOKENS, (40,)))
    for one in (engine, whole):
        await one.close()


@pytest.mark.parametrize("widen", [True, False])
async def test_the_streamed_reference_computes_on_a_card(folder: ModelFolder, card: Card, widen: bool) -> None:
    there, here = (StreamedReference(folder, torch.bfloat16, device, widen=widen) for device in (card.name, "cpu"))
    texts = [TOKENS, TOKENS[:9]]
    found, expected = [await asyncio.gather(*(one.rows(text.tolist()) for text in texts)) for one in (there, here)]
    dtype = FLOAT32 if widen else BFLOAT16
    for one, other in zip(found, expected, strict=True):
        assert off(one, other, dtype) <= NEAR[dtype]
    if widen:
        assert off(await there.logits(expected[0]), await here.logits(expected[0]), FLOAT32) <= NEAR[FLOAT32]


async def test_rows_and_nothing_else_leave_the_card(folder: ModelFolder, card: Card) -> None:
    if card.traffic is None:
        pytest.skip("what leaves a real card is not counted")
    engine = TorchEngine(folder, WHOLE, BFLOAT16, device=card.name)
    card.traffic.clear()
    rows = await grow(engine, TOKENS, PIECES)
    row_bytes = 2 * engine.hidden_size
    assert card.traffic.left == [row_bytes * count for count in (7, 13, 1, 1, 18)]
    card.traffic.clear()
    draw = TokenDraw(Sampling(0.8, 0.9, 0), Hash32(bytes(range(32))), 3)
    for _ in range(4):
        await engine.choose(KEY, rows[-1:], draw)
    assert all(left < 4 * engine.vocabulary / 8 for left in card.traffic.left), card.traffic
    await engine.close()


SAMPLINGS = (
    Sampling(0.0, 1.0, 0), Sampling(1.0, 1.0, 0), Sampling(0.7, 0.9, 0), Sampling(1.3, 1.0, 20), Sampling(0.9, 0.95, 40)
)  # fmt: skip


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_tokens_are_those_of_the_rule(card: Card, sampling: Sampling) -> None:
    generator = np.random.default_rng(3)
    rows = generator.normal(0.0, 6.0, size=(32, 5_003)).astype(np.float32)
    draws = [TokenDraw(sampling, Hash32(generator.bytes(32)), position) for position in range(len(rows))]
    expected = [
        tokens.choose(row, sampling, tokens.noise(draw.seed, draw.position, len(row)) if sampling.temperature else None)
        for row, draw in zip(rows, draws, strict=True)
    ]
    logits = torch.from_numpy(rows).to(card.name)
    if card.traffic is not None:
        card.traffic.clear()
    assert choose_tokens(logits, draws) == expected
    if card.traffic is not None:
        # A row that float32 leaves open goes to the host whole.
        assert sum(left >= rows[0].nbytes for left in card.traffic.left) <= 2
