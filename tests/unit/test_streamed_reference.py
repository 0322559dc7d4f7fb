"""The float32 reference that is read layer by layer: its rows, and that it never holds the model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.tiny_decoders import VOCABULARY, write_tiny_decoder  # noqa: E402
from support.tiny_llama import tiny_model  # noqa: E402

from troth.node.engine import streamed  # noqa: E402
from troth.node.engine.interface import SessionKey  # noqa: E402
from troth.node.engine.layers import LayerSlice, Needs  # noqa: E402
from troth.node.engine.streamed import StreamedReference, reference_bytes  # noqa: E402
from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.errors import ModelError  # noqa: E402
from troth.protocol.types import Segment  # noqa: E402

pytestmark = pytest.mark.torch

MEGABYTE = 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "gemma3_text", "qwen3_moe"])
async def test_it_is_the_reference_of_a_whole_model(
    tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed, "CHUNK", 16)
    folder = write_tiny_decoder(family, tmp_path / family, torch.bfloat16)
    engine, reference = TorchEngine(folder, Segment(0, 4), 1), StreamedReference(folder, torch.bfloat16)
    text = np.random.default_rng(3).integers(3, VOCABULARY, size=40)
    rows = await reference.rows([int(token) for token in text])
    expected = await engine.reference(engine.slice, text)
    assert rows.dtype == np.float32
    assert np.allclose(rows, expected, rtol=1e-4, atol=1e-5)
    logits = (await engine.logits(expected)).rows
    assert np.allclose(await reference.logits(expected), logits, rtol=1e-4, atol=1e-5)
    await engine.close()


async def test_it_also_runs_in_the_format_that_is_served_with_attention_in_plain_operations(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path, num_hidden_layers=4)
    engine, streamed = TorchEngine(folder, Segment(0, 4), 1), StreamedReference(folder, torch.bfloat16, widen=False)
    tokens = np.arange(3, 43)
    rows = await streamed.rows(tokens.tolist())
    assert rows.dtype == np.uint16
    assert np.array_equal(rows, await engine.otherwise(Segment(0, 4), tokens))
    assert not np.array_equal(rows, (await engine.forward(SessionKey(b"", 0, 0), Segment(0, 4), 0, tokens)).rows)
    await engine.close()


async def test_texts_that_wait_go_through_each_layer_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, read = tiny_model(tmp_path, num_hidden_layers=3), list[Needs]()
    plain = LayerSlice.read
    monkeypatch.setattr(LayerSlice, "read", lambda self, needs: read.append(needs) or plain(self, needs))
    reference = StreamedReference(folder, torch.bfloat16)
    texts = [[5, 6, 7], [8, 9], [1, 2, 3, 4]]
    alone = [await reference.rows(text) for text in texts]
    read.clear()
    # The first one begins, the others wait and then go together.
    together = await asyncio.gather(*(reference.rows(text) for text in texts))
    assert len([needs for needs in read if needs.layers]) == 2 * 3
    for one, other in zip(alone, together, strict=True):
        assert np.array_equal(one, other)


async def test_what_fails_is_told_to_all_and_the_next_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = StreamedReference(tiny_model(tmp_path, num_hidden_layers=2), torch.bfloat16)
    plain, broken = reference._run, True

    def run(texts: Any) -> Any:
        if broken:
            raise ModelError("the disk is gone", None, "Mount it.")
        return plain(texts)

    monkeypatch.setattr(reference, "_run", run)
    found = await asyncio.gather(reference.rows([1, 2]), reference.rows([3]), return_exceptions=True)
    assert [type(one) for one in found] == [ModelError, ModelError]
    broken = False
    assert (await reference.rows([1, 2])).shape[0] == 2


def written(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")


def linked(path: Path) -> None:
    path.with_name("another name").hardlink_to(path)


@pytest.mark.parametrize(("touched", "said"), [(written, "were changed since"), (linked, None)])
async def test_weights_that_were_written_between_two_passes_are_not_read(
    touched: Callable[[Path], None], said: str | None, tmp_path: Path
) -> None:
    folder = tiny_model(tmp_path, num_hidden_layers=2)
    reference = StreamedReference(folder, torch.bfloat16)
    before = await reference.rows([1, 2])
    touched(folder.weight_files[0])
    if said is None:
        assert np.array_equal(await reference.rows([1, 2]), before)
        return
    with pytest.raises(ModelError, match=said):
        await reference.rows([1, 2])
    with pytest.raises(ModelError, match=said):
        await reference.logits(before)


def put_back(path: Path) -> None:
    """Others while the reference reads, and the ones of before at its end, of the time of before."""
    was, data = path.stat(), path.read_bytes()
    written(path)
    path.write_bytes(data)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


@pytest.mark.parametrize("touched", [written, put_back])
async def test_rows_of_weights_that_were_written_meanwhile_are_not_given(
    touched: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_model(tmp_path, num_hidden_layers=2)
    reference, through = StreamedReference(folder, torch.bfloat16), StreamedReference._through

    def meanwhile(self: StreamedReference, layers: LayerSlice, segment: Segment, rows: Any) -> Any:
        touched(folder.weight_files[0])
        return through(self, layers, segment, rows)

    monkeypatch.setattr(StreamedReference, "_through", meanwhile)
    with pytest.raises(ModelError, match="were touched while the reference read them"):
        await reference.rows([1, 2])


@pytest.mark.slow
async def test_it_never_holds_more_than_a_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen layers of 15 MB in float32, with a bound of three of them."""
    layers = 16
    folder = tiny_model(
        tmp_path, num_hidden_layers=layers, hidden_size=512, intermediate_size=2048, vocab_size=512,
        num_attention_heads=4, num_key_value_heads=4,
    )  # fmt: skip
    assert reference_bytes(folder) - streamed.WORKING < 20 * MEGABYTE
    reference, peak = StreamedReference(folder, torch.bfloat16), 0
    through = StreamedReference._through

    def watched(self: StreamedReference, held: LayerSlice, segment: Segment, rows: Any) -> Any:
        nonlocal peak
        assert list(held.held) == [segment.first]
        made = through(self, held, segment, rows)
        peak = max(peak, _anonymous())
        return made

    monkeypatch.setattr(StreamedReference, "_through", watched)
    await reference.rows([1, 2, 3])
    before, peak = _anonymous(), 0
    await reference.rows(list(range(100)))
    assert peak - before < 48 * MEGABYTE, "the whole in float32 has 240"


def _anonymous() -> int:
    """Bytes of this process that lie in no file."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) << 10
