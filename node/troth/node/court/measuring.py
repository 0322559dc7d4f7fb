"""Measuring an engine's rows against canonical arithmetic, before a node serves a class whose rows are disputed."""

from __future__ import annotations

import asyncio

import numpy as np

from troth.node.court.opened_weights import OpenedWeights
from troth.node.court.recomputing import prefill
from troth.node.engine.interface import Arithmetic, Engine
from troth.node.errors import ModelError
from troth.node.models.folder import ModelFolder
from troth.protocol.disputes.layout import Layout
from troth.protocol.disputes.segment_trace import segment_rows
from troth.protocol.disputes.tolerance import furthest
from troth.protocol.market.layers import layers_of
from troth.protocol.types import Hash32

TRIED = 12
"""Positions of the text that is measured."""
MEASURED = Hash32(bytes(31) + b"\x01")
"""Names the session of the measurement; no order has this digest."""


async def require_rows(engine: Engine, execution_class: Arithmetic, folder: ModelFolder) -> None:
    """Check that this engine's rows are those of the class' named layers; a class that names none needs nothing.

    A node that hosts a part of the model is measured from embeddings on all the same: its layers need not be the first.

    Raises:
        ModelError: the folder has another shape, or rows are further from the canonical ones than a dispute allows.
    """
    named = layers_of(execution_class.name)
    if named is None:
        return
    weights = await asyncio.to_thread(OpenedWeights, folder)
    if weights.shape.hash != named:
        what = "the class names another shape of layers than this model has"
        raise ModelError(what, execution_class.name, "Serve the model that the class was registered with.")
    span = engine.slice
    layout = Layout(weights.shape, span.first, span.end, TRIED - 1)
    tokens = np.arange(1, TRIED + 1, dtype=np.int64) * 7 % folder.text_config["vocab_size"]
    states = weights.embedded(tokens)
    rows = await prefill(engine, MEASURED, span, states if span.first else tokens)
    norm = weights.norm if layout.is_last else None
    canonical = await asyncio.to_thread(segment_rows, layout, weights.layer, states, norm)
    far = [at for at in range(TRIED) if furthest(rows[at], canonical[at]) is not None]
    if far:
        what = f"{len(far)} of {TRIED} rows of this engine are further from the canonical ones than a dispute allows"
        raise ModelError(what, execution_class.name, "Serve a class without /layers:, or turn off fast modes.")
