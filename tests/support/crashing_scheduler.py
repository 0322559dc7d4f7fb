"""A real scheduler process that dies at a chosen step of its journal: `python crashing_scheduler.py settings.json`.

The fault sits at the journal's seam, which production code does not know of.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.scheduler_stage import plain_configuration

from troth.chain.keystore import Key
from troth.overlay.identity import load_or_create_identity
from troth.overlay.logs import configure
from troth.overlay.server import TlsServer, run_until_stopped
from troth.scheduler.api import scheduler_app
from troth.scheduler.assembly import assembled
from troth.scheduler.journal import Journal
from troth.scheduler.keys import Keys
from troth.scheduler.records import Record, step_name

KILLED = 9


class CrashingJournal(Journal):
    """Ends the process, without any clean-up, just before or just after a step is written."""

    def __init__(self, path: Path, *, step: str | None, moment: str) -> None:
        super().__init__(path)
        self._step = step
        self._moment = moment

    def append(self, task: bytes, record: Record) -> None:
        at_step = step_name(record) == self._step
        if at_step and self._moment == "before":
            os._exit(KILLED)
        super().append(task, record)
        if at_step:
            os._exit(KILLED)


async def main(settings: dict[str, Any]) -> None:
    folder = Path(settings["folder"])
    configuration = plain_configuration(
        folder, settings["rpc"], settings["contract"], settings["chain_id"], bytes.fromhex(settings["class_id"])
    )
    keys = Keys(Key.from_secret(bytes.fromhex(settings["operator"])), bytes.fromhex(settings["vrf"]))
    identity = load_or_create_identity(folder / "scheduler" / "tls")
    journal = partial(CrashingJournal, step=settings["step"], moment=settings["moment"])
    async with assembled(configuration, keys, journal) as scheduler:
        server = TlsServer(scheduler_app(scheduler), identity, "127.0.0.1", 0, drain=scheduler.drain)
        await run_until_stopped(server, lambda port: print(port, flush=True))


if __name__ == "__main__":
    configure("info")
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
