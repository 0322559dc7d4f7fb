"""`troth` with a node that cheats where it infers, and nowhere else: answers come from cheaper weights.

Where it verifies or judges it computes with the true ones: a verifier that rejects honest answers would only lose
bonds in court. So it does in the probe of an exact class: a machine that fails it may not start.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from troth.node.engine import torch_engine
from troth.node.engine.layers import LayerSlice
from troth.node.engine.steps import SessionWork
from troth.node.models.folder import ModelFolder, open_folder
from troth.node.orders.session import INFERS
from troth.protocol.types import Segment

ORDER_BYTES = 32
"""Of an order's id; what a court has computed again has a longer name."""


def main() -> None:
    """The folder with the cheaper weights, then the arguments of `troth`."""
    from troth.command.main import main as command

    cheaper = Path(sys.argv.pop(1))
    plain = torch_engine.TorchEngine

    class Cheating(plain):  # type: ignore[misc, valid-type]
        """Holds both weights; sessions of orders that it infers run on the cheaper ones."""

        def __init__(self, folder: ModelFolder, hosted: Segment, dtype: int, **options: Any) -> None:
            super().__init__(folder, hosted, dtype, **options)
            weights = torch_engine.TORCH_DTYPES[dtype]
            self._cheap = self._slices(open_folder(cheaper), hosted, weights, self._device)

        def _layers_of(self, work: SessionWork) -> LayerSlice:
            cheats = work.key.attempt == INFERS and _is_an_order(work.key.task_id)
            layers: LayerSlice = self._cheap if cheats else super()._layers_of(work)
            return layers

    torch_engine.TorchEngine = Cheating  # type: ignore[misc]
    command()


def _is_an_order(task_id: bytes) -> bool:
    """Whether it is a hash: what a node computes for its probe and to warm up is numbered from zero."""
    return len(task_id) == ORDER_BYTES and any(task_id[:-1])
