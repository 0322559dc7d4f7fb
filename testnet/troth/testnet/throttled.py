"""`troth` on a slower machine: every computation of the engine takes so many times longer. Nothing else is changed."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from troth.node.engine import torch_engine


def main() -> None:
    """The slowdown, then the arguments of `troth`."""
    from troth.command.main import main as command

    factor = float(sys.argv.pop(1))
    plain = torch_engine.TorchEngine

    class Throttled(plain):  # type: ignore[misc, valid-type]
        """Sleeps in the engine's own thread, so that waiting in line is as long as on such a machine."""

        def _pass(self, entered: Sequence[torch_engine.Entered]) -> None:
            before = [share.work.seconds for share, *_ in entered]
            began = time.perf_counter()
            super()._pass(entered)
            time.sleep((factor - 1) * (time.perf_counter() - began))
            for (share, *_), seconds in zip(entered, before, strict=True):
                share.work.seconds = seconds + factor * (share.work.seconds - seconds)

    torch_engine.TorchEngine = Throttled  # type: ignore[misc]
    command()
