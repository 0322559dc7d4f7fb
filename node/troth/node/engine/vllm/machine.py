"""What of a machine decides about the last bits of its rows, as an exact class of vLLM names it.

Kernels of one architecture, one attention backend and one way to share a model out over cards sum in one order; those
of another may not. So a class' name says all three, and a node is started as its class says, not as its operator
likes. Bits that still differ (drivers, numbers of multiprocessors) are found by the class' probe. Nothing here was run
on CUDA. A class on CPU names the size of a cache.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from troth.node.errors import ConfigError
from troth.node.models.folder import ModelFolder

BACKENDS = ("TRITON_ATTN", "FLASH_ATTN", "TRITON_MLA")
"""Attention of which vLLM says that a row does not depend on its batch. FLASH_ATTN is pinned to version 2: the third,
Hopper's own choice, splits a row's keys by what else is in the batch (vLLM issue 51902)."""
LEAST = 80
"""Compute capability times ten that vLLM's batch-invariant kernels need: Ampere."""
GUARDED = frozenset({"awq", "fp8"})
"""Quantisations that vLLM computes batch-invariantly: AWQ is dequantised first, FP8 has kernels of its own for it."""
_CACHE = re.compile(r"(?:^|/)cpu-l2-(\d{1,7})k(?:/|$)")
_NAMED = re.compile(rf"(?:^|/)cuda-sm(\d{{2,3}})-({'|'.join(BACKENDS)})-tp(\d{{1,2}})(?:/|$)")


@dataclass(frozen=True, slots=True)
class CardMachine:
    """What a class names.

    Args:
        capability: compute capability times ten: 80 is Ampere's A100, 89 Ada, 90 Hopper, 100 Blackwell.
        backend: one of BACKENDS.
        parallel: over how many cards each layer is shared out; sums over cards are part of a row's bits.
    """

    capability: int
    backend: str = BACKENDS[0]
    parallel: int = 1

    @property
    def label(self) -> str:
        """As it stands in a class' name."""
        return f"cuda-sm{self.capability}-{self.backend}-tp{self.parallel}"

    @classmethod
    def named(cls, class_name: str) -> CardMachine | None:
        """What a class' name says; None for a class of another device, or one that runs on any card."""
        found = _NAMED.search(class_name)
        return None if found is None else cls(int(found[1]), found[2], int(found[3]))

    @property
    def attention(self) -> dict[str, Any]:
        """vLLM's attention_config."""
        pinned: dict[str, Any] = {"backend": self.backend}
        return pinned | {"flash_attn_version": 2} if self.backend == "FLASH_ATTN" else pinned


def cpu_label() -> str:
    """This processor, as it stands in a class' name: by its second-level cache, since vLLM's attention cuts keys into
    parts that fit there. The probe's text is too short for two parts on most machines."""
    return f"cpu-l2-{_cache_kilobytes()}k"


def _cache_kilobytes() -> int:
    import torch

    return int(torch.cpu.get_capabilities().get("l2_cache_size", 0)) >> 10


def require_cpu(class_name: str) -> None:
    """Raise ConfigError unless this processor's cache is the one that an exact class of vLLM on CPU names."""
    named = _CACHE.search(class_name)
    if named is None:
        remedy = "Serve a class whose name holds cpu-l2-…; `troth model register --exact` makes one."
        raise ConfigError("this exact class does not say which cache its processors have", class_name, remedy)
    if int(named[1]) != _cache_kilobytes():
        what = f"the class is of processors with a second-level cache of {named[1]} kB, and this one has"
        raise ConfigError(what, f"{_cache_kilobytes()} kB", "Serve a class of this machine's processor.")


def backend_for(folder: ModelFolder, wanted: str = "") -> str:
    """The attention backend of a model: the one asked for, or Triton's.

    Raises:
        ConfigError: its rows would depend on their batch, or the model's attention is of the other kind.
    """
    latent = folder.text_config.get("kv_lora_rank") is not None
    if not wanted:
        return "TRITON_MLA" if latent else "TRITON_ATTN"
    name = wanted.upper()
    if name not in BACKENDS or (name == "TRITON_MLA") != latent:
        usable = "TRITON_MLA" if latent else "TRITON_ATTN or FLASH_ATTN (version 2)"
        raise ConfigError("this attention backend gives no exact class of this model", wanted, f"Use {usable}.")
    return name


def found_machine(backend: str, parallel: int = 1) -> CardMachine:
    """This machine's cards, of which vLLM would take the first `parallel`.

    Raises:
        ConfigError: there are too few, they are of two kinds, or vLLM has no batch-invariant kernels for them.
    """
    kinds = capabilities()
    if len(kinds) < parallel:
        what = f"torch finds {len(kinds)} CUDA cards here, and {parallel} are asked for"
        raise ConfigError(what, None, "Ask for fewer, look at nvidia-smi, or use --device cpu.")
    if len(set(kinds[:parallel])) != 1:
        raise ConfigError("the cards are of different architectures", kinds[:parallel], "Use CUDA_VISIBLE_DEVICES.")
    if kinds[0] < LEAST:
        what = "vLLM has no batch-invariant kernels for cards before compute capability 8.0"
        raise ConfigError(what, kinds[0] / 10, "Serve a tolerant class, or use another card.")
    return CardMachine(kinds[0], backend, parallel)


def capabilities() -> list[int]:
    """Compute capability times ten of each card that torch sees."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    pairs = [torch.cuda.get_device_capability(index) for index in range(count)]
    return [10 * major + minor for major, minor in pairs]


def require_machine(class_name: str) -> CardMachine:
    """The machine that an exact class of CUDA names, which this one has to be.

    Raises:
        ConfigError: the name says nothing of cards, or this machine is another: its rows would not be the class'.
    """
    named = CardMachine.named(class_name)
    if named is None:
        remedy = "Serve a class whose name holds cuda-sm…; `troth model register --exact --device cuda` makes one."
        raise ConfigError("this exact class does not say which cards compute it", class_name, remedy)
    found = found_machine(named.backend, named.parallel)
    if found != named:
        what = f"the class is of {named.label}, and the cards here are sm{found.capability}"
        raise ConfigError(what, class_name, "Serve a class of this machine's cards.")
    return named


def require_guarded(quantisation: Mapping[str, Any] | None) -> None:
    """Refuse weights whose products depend on the batch, which an exact class cannot have.

    Raises:
        ConfigError: vLLM has no batch-invariant kernels for this quantisation.
    """
    if quantisation is None:
        return
    method = str(quantisation.get("quant_method", "")).lower()
    if method not in GUARDED:
        shown = f"{method or 'unnamed'} {quantisation.get('format', '')}".strip()
        what = f"weights quantised as {shown} give no exact class: vLLM has no batch-invariant kernels for them"
        raise ConfigError(what, None, "Take the torch engine (--engine torch), or a copy in AWQ, FP8 or whole weights.")


def require_words(quantisation: Mapping[str, Any] | None) -> None:
    """Refuse weights of four bits on a processor for which vLLM's builds have no kernels of them.

    Raises:
        ConfigError: on x86 they need AVX-512, and MXFP4 needs AMX (`CpuPlatform.import_kernels`, `CPUExpertsMxfp4`).
    """
    import torch

    if quantisation is None or platform.machine().lower() not in {"x86_64", "amd64"}:
        return
    method = str(quantisation.get("quant_method", "")).lower()
    if method == "mxfp4":
        needed, there = "AMX", torch.cpu._is_amx_tile_supported()
    elif method in {"awq", "gptq"} or "pack-quantized" in str(quantisation):
        needed, there = "AVX-512", torch.cpu._is_avx512_supported()
    else:
        return
    if not there:
        what = f"vLLM computes with such weights on processors that have {needed}, and this one has not"
        raise ConfigError(what, method, 'Set engine.name = "torch", or use a graphics card.')
