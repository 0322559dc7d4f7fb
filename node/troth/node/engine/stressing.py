"""The stress probe of this machine, and what it has passed: a node joins an exact class on cards only after that.

Results stand in the home folder, by model, vLLM's release and the cards' own ids.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from troth.chain.new_files import replacing
from troth.node.engine.card import CardLock, cards_of
from troth.node.engine.stress import StressReport, Tell, stress
from troth.node.engine.vllm.engine import VllmEngine
from troth.node.engine.vllm.machine import CardMachine, require_guarded
from troth.node.errors import ConfigError
from troth.node.models.descriptor import DTYPE_NAMES
from troth.node.models.execution_class import ExactMachine, whole_engine
from troth.node.models.folder import ModelFolder, find_model

FILE = "stress.json"
COMMAND = "troth node engine stress"


def run_stress(
    home: Path, model: str, dtype: str, machine: ExactMachine, *, positions: int, seconds: float, tell: Tell
) -> dict[str, Any]:
    """Start vLLM as an exact class has it, try it, and keep what it passed; JSON values.

    Raises:
        ModelError: rows of this machine depend on what is computed beside them.
        ConfigError: vLLM is not here, or computes no such class on this machine.
    """
    folder = find_model(home, model)
    longest = folder.longest_text(positions)
    cuda = machine.cuda(folder)
    require_guarded(folder.quantisation)
    lock = CardLock(cards_of(machine.device, machine.cards))
    lock.take()
    try:
        report = asyncio.run(_tried(whole_engine(DTYPE_NAMES[dtype], folder, machine, longest), longest, seconds, tell))
    finally:
        lock.release()
    told = report.as_json()
    if cuda is not None:
        key = stress_key(folder, DTYPE_NAMES[dtype], cuda, cards_of("cuda", machine.cards))
        told |= {"kept": str(keep_stress(home, key, report)), "machine": cuda.label}
    return told


async def _tried(engine: VllmEngine, positions: int, seconds: float, tell: Tell) -> StressReport:
    try:
        return await stress(engine, positions, seconds=seconds, tell=tell)
    finally:
        await engine.close()


def stress_key(folder: ModelFolder, dtype: int, machine: CardMachine, cards: Sequence[str]) -> str:
    """What a result is of: the model, vLLM's release, the arithmetic, and these very cards."""
    try:
        release = version("vllm")
    except PackageNotFoundError:
        release = "none"
    return "/".join((folder.place.name, release, str(dtype), machine.label, *sorted(cards)))


def keep_stress(home: Path, key: str, report: StressReport) -> Path:
    """Write what was passed beside what was passed before; returns the file."""
    path = home / FILE
    known = _read(path) | {key: report.as_json() | {"at": int(time.time())}}
    with replacing(path, mode=0o666) as file:
        file.write(json.dumps(known, indent=2).encode())
    return path


def require_stressed(home: Path, folder: ModelFolder, dtype: int, machine: CardMachine) -> None:
    """Raise ConfigError unless this machine's cards have passed all of the stress probe with this model."""
    key = stress_key(folder, dtype, machine, cards_of("cuda", machine.parallel))
    passed = _read(home / FILE).get(key)
    if passed is None:
        what = "this machine has not shown yet that its rows do not depend on what is computed beside them"
        raise ConfigError(what, key, f"Run `{COMMAND} {folder.place.name}`, which takes ten minutes.")
    if not passed.get("whole"):
        what = f"the stress probe left out {passed.get('left_out')}"
        remedy = f"Run `{COMMAND} {folder.place.name} --seconds 3600`, or with longer texts and a larger cache."
        raise ConfigError(what, key, remedy)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ConfigError("what was passed before cannot be read", str(path), "Delete it and try again.") from error
    return found if isinstance(found, dict) else {}
