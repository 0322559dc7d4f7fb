"""Which worker runs which file of tests, where several run side by side (pytest-xdist).

Tests that start whole networks wait for most of their time: for blocks, windows and other processes. A few workers run
those files, the longest first. The last workers, the fillers, run only files that start no networks, at low priority.
They use what the others leave of the processors, and take nothing from a network that has deadlines to keep.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

FILLING = ("tests/property/", "tests/unit/")
"""Folders whose tests start no networks."""
LONGEST = (
    "tests/integration/test_adversaries.py",
    "tests/integration/test_directory_processes.py",
    "tests/integration/test_disputes.py",
    "tests/integration/test_faults_on_tabs.py",
    "tests/integration/test_slow_cheats.py",
    "tests/integration/test_imprints_command.py",
    "tests/contracts/test_imprints.py",
    "tests/integration/test_gateway_programs.py",
    "tests/integration/test_cases_court.py",
    "tests/integration/test_market_overlay.py",
    "tests/integration/test_committee_changes.py",
    "tests/integration/test_anonymity.py",
    "tests/integration/test_cases_command.py",
    "tests/unit/test_decoder_families.py",
    "tests/unit/test_committee_challenges.py",
    "tests/unit/test_commands_with_wrong_values.py",
    "tests/unit/test_calibration_runs.py",
    "tests/unit/test_gemma3_stack.py",
)
"""Files that take long, by processor or by waiting, the longest first: begun last, one would keep the run waiting."""
NICENESS = 5


def is_filler(worker: str, workers: int, fillers: int) -> bool:
    """Whether a worker, such as "gw3", is one of the last ``fillers`` of so many. One that replaces it is none."""
    return workers - fillers <= int(worker.removeprefix("gw")) < workers


def turn_of(file: str) -> int:
    """The place of a file in the order: the longest first, the others as they were collected."""
    return LONGEST.index(file) if file in LONGEST else len(LONGEST)


class FillingScheduling(LoadFileScheduling):
    """Each file whole to one worker; fillers get those of `FILLING` alone, and the others these at last."""

    def __init__(self, config: Any, log: Any, fillers: int) -> None:
        super().__init__(config, log)
        self._fillers = fillers

    def _fills(self, node: WorkerController) -> bool:
        return is_filler(node.gateway.id, self.numnodes, self._fillers)

    def _next(self, node: WorkerController) -> str | None:
        """The file that a worker runs next; None for a filler that has none left."""
        files = sorted(self.workqueue, key=turn_of)
        filling = [file for file in files if file.startswith(FILLING)]
        if self._fills(node):
            return filling[0] if filling else None
        return next((file for file in files if not file.startswith(FILLING)), files[0])

    def _assign_work_unit(self, node: WorkerController) -> None:
        file = self._next(node)
        if file is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)
