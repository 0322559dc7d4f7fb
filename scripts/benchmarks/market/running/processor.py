"""What a process has used of processors."""

from __future__ import annotations

import os
from pathlib import Path

from troth.testnet.processes import Child


def processor_seconds(child: Child | None) -> float:
    """Since its start, in all its threads; None: this one."""
    if child is None:
        times = os.times()
        return times.user + times.system
    fields = Path(f"/proc/{child.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
