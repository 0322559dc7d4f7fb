"""Model families: how the decoder layers that transformers brings are put together; `interface` is the seam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from troth.node.engine.families.gemma3 import Gemma3
from troth.node.engine.families.interface import Family
from troth.node.engine.families.llama import Llama
from troth.node.models.families import require_family

FAMILIES: dict[str, Callable[[Any, torch.dtype, torch.device], Family]] = {"gemma3_text": Gemma3, "llama": Llama}


def family_of(config: Any, dtype: torch.dtype, device: torch.device) -> Family:
    """The family of a transformers configuration.

    Args:
        dtype: the execution class' own; a slice that computes in float32 for reference passes bfloat16 all the same.

    Raises:
        ModelError: the family is not supported, or this model uses a part of it that is not.
    """
    return FAMILIES[require_family(config.to_dict())](config, dtype, device)
