"""vLLM as a graphics card would have it, as far as a CPU can show: its second model runner, and layers shared out.

The second runner's kernels are Triton's, which has an interpreter: slow, and the same steps. Two processes that share
layers out are real ones, over gloo.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed: troth node engine install vllm", allow_module_level=True)

from troth.node.engine.vllm.trial import write_model

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(3600)]

INTERPRETED = """
import triton.backends as backends
from types import SimpleNamespace
# vLLM for CPU looks for Triton's CPU backend before it lets its second runner begin.
backends.backends["cpu"] = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True), compiler=None)
"""
TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    write_model(path)
    return path


def tried(model: Path, runner: int, ranks: int, **environment: str) -> Any:
    """Rows of decode are those of prefill, and tokens those of the rule; what the process says."""
    path = os.pathsep.join(filter(None, [environment.pop("also", ""), str(TESTS)]))
    command = [sys.executable, "-m", "support.vllm_ways", str(model), str(runner), str(ranks)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path} | environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def plain(model: Path) -> Any:
    return tried(model, 1, 1)


def test_the_first_runner_passes_what_of_the_stress_probe_it_is_given(plain: Any) -> None:
    assert plain["compared"] > 1_000


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_the_second_runner_has_the_bits_of_the_first(plain: Any, model: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERPRETED)
    found = tried(model, 2, 1, TRITON_INTERPRET="1", also=str(tmp_path))
    assert found["probe"] == plain["probe"]


def test_two_ranks_have_bits_of_their_own_and_the_first_of_them_sends(plain: Any, model: Path) -> None:
    assert tried(model, 1, 2)["probe"] != plain["probe"]
