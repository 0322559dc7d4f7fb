"""The engines that a verifier of a whole model may run; which of them must not matter to who is judged."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from troth.node.engine.interface import Engine
from troth.node.engine.torch_engine import TorchEngine
from troth.node.engine.vllm.engine import VllmEngine
from troth.node.engine.vllm.settings import EngineSettings
from troth.node.models.folder import ModelFolder
from troth.protocol.types import Segment

ENGINES = ["torch", pytest.param("vllm", marks=pytest.mark.vllm)]
"""For a fixture's `params`."""
POSITIONS, CACHE_BYTES = 256, 1 << 28


@asynccontextmanager
async def verifier_engine(name: str, folder: ModelFolder) -> AsyncIterator[Engine]:
    """One of ENGINES in bfloat16, closed in the end; skips the test where vLLM is wanted and not installed."""
    engine: Engine
    if name == "torch":
        engine = TorchEngine(folder, Segment(0, folder.layers), 1, threads=1)
    elif importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed: troth node engine install vllm")
    else:
        settings = EngineSettings(folder.path, 1, positions=POSITIONS, cache_bytes=CACHE_BYTES, threads=1, exact=False)
        engine = VllmEngine(folder, settings)
    try:
        yield engine
    finally:
        await engine.close()
