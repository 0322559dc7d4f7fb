"""What the exact demo plays with."""

from __future__ import annotations

import importlib.util

import pytest

from troth.demo.exact_play import installed_engine, plan_of
from troth.protocol.market.draws import SPARE_OWNERS


@pytest.mark.parametrize("engine", ["torch", "vllm"])
def test_every_node_hosts_the_whole_model_and_has_a_part(engine: str) -> None:
    plan = plan_of(engine)
    assert (plan.exact, plan.engine, plan.slices) == (True, engine, ((0, 30),))
    assert len(plan.node_names) == plan.verifiers + SPARE_OWNERS, "fewer owners, and a class offers no checks"
    assert plan.verifiers % 2 == 1


@pytest.mark.parametrize(("found", "engine"), [(None, "torch"), (object(), "vllm")])
def test_vllm_plays_where_it_is_installed(monkeypatch: pytest.MonkeyPatch, found: object, engine: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    assert installed_engine() == engine
