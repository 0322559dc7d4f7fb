"""`troth` with a node of two faces: the true model answers orders on tabs that it knows, a cheaper one all others.

A real one would have to guess which orders are challenges. This one is told, so that no guess is ever wrong.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from troth.node.engine import torch_engine
from troth.node.engine.layers import LayerSlice
from troth.node.engine.steps import SessionWork
from troth.node.models.folder import ModelFolder, open_folder
from troth.node.orders.seat import Assignment
from troth.node.orders.session import INFERS, SegmentSession
from troth.protocol.types import Hash32, Segment

TESTS = Path(__file__).resolve().parents[1]


def command(cheaper: Path, tabs: list[str], *arguments: object) -> list[str]:
    """The command line of a `troth` sub-command with this node in it; ``tabs`` are the ids that it knows, 0x…."""
    code = f"import sys; sys.path.insert(0, {str(TESTS)!r}); from support.two_faced import main; main()"
    return [sys.executable, "-c", code, str(cheaper), ",".join(tabs), *(str(one) for one in arguments)]


def main() -> None:
    """Folder of the cheaper weights, known tabs, then the arguments of `troth`."""
    from troth.command.main import main as troth

    cheaper = Path(sys.argv.pop(1))
    known = {Hash32(bytes.fromhex(tab.removeprefix("0x"))) for tab in sys.argv.pop(1).split(",")}
    cheated: set[bytes] = set()
    plain, begin = torch_engine.TorchEngine, SegmentSession.begin

    def noting(seat: Assignment, now: float) -> SegmentSession:
        if seat.infers and seat.order.tab not in known:
            cheated.add(seat.order_id)
        return begin(seat, now)

    class TwoFaced(plain):  # type: ignore[misc, valid-type]
        def __init__(self, folder: ModelFolder, hosted: Segment, dtype: int, **options: Any) -> None:
            super().__init__(folder, hosted, dtype, **options)
            weights = torch_engine.TORCH_DTYPES[dtype]
            self._cheap = self._slices(open_folder(cheaper), hosted, weights, self._device)

        def _layers_of(self, work: SessionWork) -> LayerSlice:
            cheats = work.key.attempt == INFERS and work.key.task_id in cheated
            layers: LayerSlice = self._cheap if cheats else super()._layers_of(work)
            return layers

    SegmentSession.begin = staticmethod(noting)  # type: ignore[method-assign, assignment]
    torch_engine.TorchEngine = TwoFaced  # type: ignore[misc]
    troth()
