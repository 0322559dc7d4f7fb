"""A node's process: `python -m research.forwarding.real.node SOCKET NUMBER MODEL FOLDER`, which a driver starts."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from research.forwarding.real.member import Member
from research.forwarding.real.messages import Failed, Line
from troth.node.engine.vllm.engine import VllmEngine
from troth.node.engine.vllm.settings import EngineSettings
from troth.node.models.folder import open_folder

BFLOAT16 = 1
PLACES = 8
"""Requests at once: all nodes share the machine's cores."""
POSITIONS = 1000
CACHE_BYTES = 1 << 28
STEP_TOKENS = 256


async def serve(socket: str, number: int, model: Path, folder: Path) -> None:
    """Until the driver hangs up, whatever the engine is at."""
    line = Line(*await asyncio.open_unix_connection(socket))
    opened = open_folder(model)
    settings = EngineSettings(
        opened.path,
        BFLOAT16,
        positions=POSITIONS,
        cache_bytes=CACHE_BYTES,
        threads=1,
        step_tokens=STEP_TOKENS,
        batch=PLACES,
    )
    engine = VllmEngine(opened, settings)
    try:
        await Member(number, engine, PLACES, folder, line).run()
    except ConnectionError:
        return  # The driver is gone.
    except Exception as error:
        await line.send(Failed(f"{type(error).__name__}: {error}"))
        raise
    finally:
        await engine.close()
        line.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])))
