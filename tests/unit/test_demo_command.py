"""`troth demo`: what cannot be played is said before anything starts."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from troth.demo.command import app


@pytest.mark.parametrize("act", ["exact"])
def test_an_unknown_engine_is_refused_at_once(act: str) -> None:
    refused = CliRunner().invoke(app, [act, "--engine", "nonsense"])
    assert refused.exit_code == 2
    assert "'nonsense'; use torch or vllm" in " ".join(refused.output.replace("│", " ").split())
