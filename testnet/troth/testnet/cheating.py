"""`troth` with a node that cheats where it infers, and nowhere else: answers come from cheaper weights.

Where it verifies or judges it computes with the true ones: a verifier that rejects honest answers would only lose
bonds in court.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from troth.node.engine import torch_engine
from troth.node.engine.interface import Computed, SessionKey
from troth.node.engine.layers import LayerSlice
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
            self._layers: LayerSlice
            super().__init__(folder, hosted, dtype, **options)
            self._true = self._layers
            weights = torch_engine.TORCH_DTYPES[dtype]
            self._cheap = self._slices(open_folder(cheaper), hosted, weights, self._device)

        def _forward(self, key: SessionKey, segment: Segment, start: int, inputs: NDArray[Any]) -> Computed:
            if key.attempt == INFERS and len(key.task_id) == ORDER_BYTES:
                self._layers = self._cheap
            try:
                computed: Computed = super()._forward(key, segment, start, inputs)
                return computed
            finally:
                self._layers = self._true

    torch_engine.TorchEngine = Cheating  # type: ignore[misc]
    command()
