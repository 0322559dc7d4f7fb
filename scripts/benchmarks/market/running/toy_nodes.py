"""Nodes as they are shipped, many in one process, each over a toy model: `python -m … FOLDER…`, one folder a node.

A toy's layers cost microseconds, so that what is measured is everything around a model.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from support.toy_engine import ToyEngine

from troth.chain.keystore import load_account
from troth.node.configuration import load
from troth.node.orders.running import MarketParts, RunningNode
from troth.transport import event_loop


def toy(*_arguments: Any, **_options: Any) -> ToyEngine:
    """In place of ``loading.load_engine``."""
    return ToyEngine()


async def run(folders: list[Path], password: str) -> None:
    """All nodes until a signal; each gets the one that the loop hears, so all of them end together."""
    nodes = []
    for folder in folders:
        configuration = load(folder)
        key = load_account(configuration.operator_keystore, password)
        nodes.append(RunningNode(configuration, key, verify_weights=False, parts=MarketParts(engine=toy)))
    running = [asyncio.create_task(node.run()) for node in nodes]
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    for node in nodes:
        node.stop()
    await asyncio.gather(*running)


if __name__ == "__main__":
    event_loop.run(
        run([Path(name) for name in sys.argv[1:]], Path(os.environ["TROTH_PASSWORD_FILE"]).read_text().strip())
    )
