"""The stress probe: which faults of a machine it finds, and how much of it a machine is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from troth.node.engine import stress as module
from troth.node.engine.interface import Computed, EngineLoad, TokenStep
from troth.node.engine.stress import CONTEXTS, CROWDS, FULL, WRITTEN, StressPlan, plan_for, stress
from troth.node.errors import ModelError
from troth.protocol.request import Request
from troth.protocol.types import Hash32

Fault = Callable[[int, int], bool]


class Kernels:
    """A whole engine whose rows are sums over their texts; `fault` says of which (texts at work, position) they are
    not. `largest` and `longest` are what it was given."""

    vocabulary = 1_000

    def __init__(self, fault: Fault = lambda running, position: False) -> None:
        self.fault, self.running, self.largest, self.longest = fault, 0, 0, 0

    @property
    def load(self) -> EngineLoad:
        return EngineLoad(self.running, 0, 0.0, 100_000, 32, 0, 0)

    def rows(self, text: Sequence[int], first: int = 0) -> NDArray[Any]:
        made = np.cumsum(np.array(text, np.int64) * 7 % 1009).astype(np.float32)[:, None]
        wrong = [self.fault(self.running, position) for position in range(len(text))]
        return (made + np.array(wrong, np.float32)[:, None])[first:]

    async def generate(self, request: Request, seed: Hash32) -> AsyncIterator[TokenStep]:
        text, done = list(request.prompt_tokens), 0
        self.running += 1
        self.largest, self.longest = max(self.largest, self.running), max(self.longest, len(text))
        try:
            for _ in range(request.max_tokens):
                # As long as the pause between two texts' beginnings: so they are written beside one another.
                await asyncio.sleep(0.001)
                rows = self.rows(text, done)
                done, token = len(text), (text[-1] * 31 + seed[-1] + len(text)) % self.vocabulary
                text.append(token)
                yield TokenStep(token, rows)
        finally:
            self.running -= 1

    async def prefill(self, tokens: Sequence[int], *, fresh: bool = False) -> Computed:
        assert fresh, "rows from a cache would be those that were written"
        return Computed(np.cumsum(np.array(tokens, np.int64) * 7 % 1009).astype(np.float32)[:, None], 0.0)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FULL", StressPlan((1, 9, 17, 33), (2, 9, 10), (64, 300)))
    monkeypatch.setattr(module, "CROWDS", (2, 9, 10))
    monkeypatch.setattr(module, "CONTEXTS", (64, 300))


async def test_a_machine_without_fault_passes(short: None) -> None:
    engine, told = Kernels(), list[str]()
    report = await stress(engine, 1_000, tell=told.append)  # type: ignore[arg-type]
    assert report.whole
    assert report.left_out == ""
    assert engine.largest >= 10, "a batch of ten"
    assert engine.longest == 300
    expected = sum((1, 9, 17, 33)) + 4 * (WRITTEN - 1) + 3 * (9 + WRITTEN - 1)
    expected += 64 + 300 + 2 * (WRITTEN - 1) + 2 * 16 * (64 + WRITTEN - 1)
    assert report.compared == expected
    assert any("batch of 10" in line for line in told)


@pytest.mark.parametrize(
    ("fault", "where"),
    [
        (lambda running, position: running >= 10, "batch of 10"),
        (lambda running, position: position >= 305, "a text of 323 positions among 17"),
        (lambda running, position: running >= 3 and position == 40, "among 4"),
    ],
    ids=["batch", "context", "crowd"],
)
async def test_a_machine_with_a_fault_is_told_where(short: None, fault: Fault, where: str) -> None:
    with pytest.raises(ModelError, match=where):
        await stress(Kernels(fault), 1_000, tell=lambda line: None)  # type: ignore[arg-type]


def test_a_card_is_given_all_of_it() -> None:
    plan = plan_for(20_480, 400_000, 5_000.0)
    assert plan == FULL
    assert plan.whole
    assert len(plan.prompts) >= 256
    assert {8, 9, 10, 255, 256, 257} <= set(plan.crowds)
    assert {8_192, 20_000} <= set(plan.contexts)


def test_a_small_machine_is_given_what_it_can_do() -> None:
    assert plan_for(10_000, 400_000, 1e9).contexts == (2_048, 8_192), "a longer text does not fit"
    assert plan_for(20_480, 4_000, 1e9).crowds == tuple(size for size in CROWDS if size * 33 <= 4_000)
    slow = plan_for(20_480, 400_000, 10.0)
    assert slow.contexts == ()
    assert slow.crowds == CROWDS[:3]
    assert not slow.whole
    assert CONTEXTS[-1] == 20_000


async def test_what_was_left_out_is_told(short: None) -> None:
    report = await stress(Kernels(), 100, tell=lambda line: None)  # type: ignore[arg-type]
    assert not report.whole
    assert report.left_out.startswith("contexts of 300")
    assert not report.as_json()["whole"]
