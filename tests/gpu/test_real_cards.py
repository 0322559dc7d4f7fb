"""What only a real card shows: its bits in two processes, its memory, its largest batches. None of it runs without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.pretended_card import NAME  # noqa: E402
from support.tiny_decoders import KEY, LAYERS, TOKENS, grow, write_tiny_decoder  # noqa: E402

from troth.node.engine.choice import by_the_rule, choose_tokens  # noqa: E402
from troth.node.engine.exact_layers import ExactSlice  # noqa: E402
from troth.node.engine.interface import TokenDraw  # noqa: E402
from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.errors import NodeBusy  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.protocol.tokens import Sampling  # noqa: E402
from troth.protocol.types import Hash32, Segment  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.gpu]

ROOT = Path(__file__).resolve().parents[2]
WHOLE = Segment(0, LAYERS)
SHAPE: dict[str, Any] = {"hidden_size": 1024, "intermediate_size": 2816, "head_dim": 64, "num_attention_heads": 16}
"""Wide enough for the kernels of real models."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    path = tmp_path_factory.mktemp("wide") / "model"
    return write_tiny_decoder("llama", path, torch.bfloat16, max_position_embeddings=2048, **SHAPE)


@pytest.mark.parametrize("dtype", [0, 1])
async def test_steps_have_the_bits_of_one_prefill(folder: ModelFolder, dtype: int) -> None:
    engine = TorchEngine(folder, WHOLE, dtype, device=NAME, layers=ExactSlice)
    text = np.resize(TOKENS, 300)
    ends = (7, 16, 20, 100, *range(101, 140), 256, 300)
    np.testing.assert_array_equal(await grow(engine, text, (300,)), await grow(engine, text, ends))
    await engine.close()


def test_two_processes_find_one_probe(folder: ModelFolder) -> None:
    found = []
    for _ in range(2):
        command = [sys.executable, "-m", "benchmarks.gpu.engine", str(folder.path), NAME]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "scripts"), *filter(None, sys.path)])}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        found.append(done.stdout)
    assert found[0] == found[1] != ""


async def test_a_card_without_memory_refuses_one_request(folder: ModelFolder) -> None:
    engine = TorchEngine(folder, WHOLE, 1, device=NAME, cache_bytes=1 << 50)
    expected = await grow(engine, TOKENS, (40,))
    torch.cuda.empty_cache()
    taken = []
    for size in (1 << 30, 1 << 24, 1 << 18):
        try:
            while True:
                taken.append(torch.empty(size, dtype=torch.uint8, device=NAME))
        except torch.OutOfMemoryError:
            continue
    with pytest.raises(NodeBusy, match="memory is used up"):
        await engine.forward(KEY, WHOLE, 0, np.resize(TOKENS, 2000))
    taken.clear()
    torch.cuda.empty_cache()
    np.testing.assert_array_equal(await grow(engine, TOKENS, (40,)), expected)
    await engine.close()


def test_a_step_of_the_largest_batch_has_the_tokens_of_the_rule() -> None:
    generator = np.random.default_rng(13)
    rows = torch.from_numpy(generator.normal(0.0, 2.5, (256, 152_064)).astype(np.float32))
    draws = [TokenDraw(Sampling(0.7, 0.9), Hash32(generator.bytes(32)), place) for place in range(len(rows))]
    found = choose_tokens(rows.to(NAME), draws)
    assert found == [by_the_rule(row, draw) for row, draw in zip(rows, draws, strict=True)]


def test_the_benchmark_of_cards_runs() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "bench"), "gpu", "--tiny", "--part", "engine", "--part", "choice"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
