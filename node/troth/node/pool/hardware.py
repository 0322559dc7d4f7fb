"""What this machine has to lend."""

from __future__ import annotations

import os
from typing import Literal, cast

from troth.protocol.sizes import ModelSizes
from troth.protocol.types import Segment

LENT_SHARE = 0.4
"""Of the memory that is there, unless the operator says how much: a node that moves holds both slices for a while."""

Kind = Literal["cpu", "cuda", "mps"]


def device_kind(device: str) -> Kind:
    """The kind of a torch device such as cuda:1."""
    kind = device.partition(":")[0]
    return cast(Kind, kind) if kind in ("cuda", "mps") else "cpu"


def weight_bytes(device: str, cache_bytes: int, limit: int | None) -> int:
    """Memory for weights: the operator's `limit`, or what the cache leaves of a share of what the device has."""
    return limit if limit is not None else max(0, _lendable_bytes(device) - cache_bytes)


def _lendable_bytes(device: str) -> int:
    if device_kind(device) == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(torch.device(device))[1] * LENT_SHARE)
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * LENT_SHARE)


def cache_tokens(cache_bytes: int, hosted: Segment, sizes: ModelSizes) -> int:
    """Positions that fit in the cache of every hosted layer; the cache's bytes where their size is not known."""
    return cache_bytes // max(1, sizes.key_value * (hosted.end - hosted.first))
