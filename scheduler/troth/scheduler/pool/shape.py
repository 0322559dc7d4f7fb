"""A served model's sizes as the placement takes them."""

from __future__ import annotations

import json

from troth.protocol.sizes import sizes_of
from troth.scheduler.placement.hardware import ModelShape


def shape_of(config: str, layers: int, dtype: int) -> ModelShape:
    """The shape of a model with this canonical configuration.

    Where that names no sizes, a machine's memory does not bound its slice, and the node's own check has to.
    """
    named = json.loads(config)
    sizes = sizes_of(named if isinstance(named, dict) else {}, dtype)
    return ModelShape(layers, sizes.layer, sizes.key_value, sizes.embedding, sizes.head, sizes.tied)
