"""What orders on tabs cost on chain, from the receipts of a real EVM."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.market import table
from troth.testnet.anvil import start_anvil
from troth.testnet.processes import ProcessGroup


def measure() -> list[Figure]:
    """The market's table: the second case, tab and node of each kind, when every slot that outlives one is written."""
    with tempfile.TemporaryDirectory() as folder:
        processes = ProcessGroup(Path(folder))
        try:
            _, rpc = start_anvil(processes, block_seconds=0)
            return table.measure(rpc)
        finally:
            processes.stop_all()
