"""The versions that vLLM for CPU was tried with, and how an environment differs from them."""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from troth.node.engine.vllm.available import BROKEN_BESIDE_CPU

FILE = Path(__file__).with_name("pins.txt")
"""In pip's own form, for its option -c."""


def pinned() -> dict[str, str]:
    """Version by name of distribution."""
    lines = (line.strip() for line in FILE.read_text(encoding="utf-8").splitlines())
    named = (line.partition("==") for line in lines if line and not line.startswith("#"))
    return {name: wanted for name, _, wanted in named}


def found() -> dict[str, str]:
    """Those of the pinned distributions that are in this environment, with the versions they have."""
    importlib.invalidate_caches()
    installed = {name: _version(name) for name in pinned()}
    return {name: has for name, has in installed.items() if has is not None}


def unmet(package: str) -> list[str]:
    """What keeps `package` (as pip names it, with ==) from being whole here; empty where nothing does.

    On CPU that are its own pins too. A pinned distribution that is not here is one that this platform does not need.
    """
    name, _, wanted = package.partition("==")
    importlib.invalidate_caches()
    if (has := _version(name)) is None:
        return [f"{name} is not here"]
    if name not in (pins := pinned()):
        return [] if has == wanted else [f"{name} is {has}, not {wanted}"]
    other = [
        f"{each} is {has}, not {pins[each]}"
        for each, has in found().items()
        if has != pins[each] and each not in BROKEN_BESIDE_CPU
    ]
    return other + [f"{each} is here, and breaks transformers" for each in BROKEN_BESIDE_CPU if _version(each)]


def _version(name: str) -> str | None:
    try:
        # Without what comes after a plus, by which one version's builds for different devices are told apart.
        return version(name).partition("+")[0]
    except PackageNotFoundError:
        return None
