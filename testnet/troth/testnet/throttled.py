"""`troth` on a slower machine: every computation of the engine takes so many times longer. Nothing else is changed."""

from __future__ import annotations

import sys
import time
from typing import Any

from numpy.typing import NDArray

from troth.node.engine import torch_engine
from troth.node.engine.interface import Computed, SessionKey
from troth.protocol.types import Segment


def main() -> None:
    """The slowdown, then the arguments of `troth`."""
    from troth.command.main import main as command

    factor = float(sys.argv.pop(1))
    plain = torch_engine.TorchEngine

    class Throttled(plain):  # type: ignore[misc, valid-type]
        """Sleeps in the engine's own thread, so that waiting in line is as long as on such a machine."""

        def _forward(self, key: SessionKey, segment: Segment, start: int, inputs: NDArray[Any]) -> Computed:
            computed: Computed = super()._forward(key, segment, start, inputs)
            time.sleep((factor - 1) * computed.seconds)
            return computed._replace(seconds=factor * computed.seconds)

    torch_engine.TorchEngine = Throttled  # type: ignore[misc]
    command()
