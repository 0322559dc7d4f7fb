"""Importing the chain adapter must not leave the interpreter open to input that nests deeply."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROBE = """
import json, sys
import {module}
assert sys.getrecursionlimit() <= 1000, sys.getrecursionlimit()
try:
    json.loads("[" * 200_000)
except (RecursionError, ValueError):
    print("bounded")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", ["troth.chain.deployment", "troth.scheduler.service", "troth.node.running", "troth.audit.command"]
)
def test_nested_input_raises_instead_of_crashing(module: str) -> None:
    command = [sys.executable, "-c", PROBE.format(module=module)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "bounded", done.stderr
