"""Credits: what texts of known distributions are worth, and whose answers of a client's journal count."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from support.byte_language import LANGUAGE
from support.tabs_stage import execution_class_of
from support.tiny_llama import LAYERS, tiny_model
from support.toy_tab_stage import toy_stage

from troth.cases.judging import Inputs, Recomputed
from troth.cases.materials import OrderText
from troth.client.choices import SamplingChoices
from troth.client.orders.asking import ask
from troth.client.orders.crediting import credits_of, ripe
from troth.client.orders.wishes import CheckWish, Wish
from troth.node.judging.own_model import FolderModel
from troth.node.models.descriptor import describe
from troth.protocol.credit import (
    ALARM,
    ALLOWED,
    CERTAIN,
    MOST,
    NO_EVIDENCE,
    Z_LIMIT,
    CreditEvidence,
    CreditRule,
    Surprises,
    credit_of,
    exact_credit,
    pooled_z,
    surprises_of,
    worth,
)
from troth.protocol.errors import InvalidTokens
from troth.protocol.market.types import ExecutionClass
from troth.protocol.reputation import ONE, newcomer, paper_rules, rated
from troth.protocol.request import Request
from troth.protocol.types import ZERO_ADDRESS, Hash32, ModelDescriptor, Segment

pytestmark = pytest.mark.torch

VOCABULARY, TOKENS, TEXTS = 200, 64, 40
ORDER, CLASS, SEED = Hash32(b"\x11" * 32), Hash32(b"\x12" * 32), Hash32(b"\x13" * 32)


def written(seed: int, *, temperature: float = 0.7, blur: float = 0.0, greedy: bool = False) -> Surprises:
    """A text of a model whose logits are off by ``blur``, seen by the true one at temperature 0.7."""
    source = np.random.default_rng(seed)
    logits = (3 * source.normal(size=(TOKENS, VOCABULARY))).astype(np.float32)
    own = logits + blur * source.normal(size=logits.shape)
    gumbel = 0 if greedy else source.gumbel(size=logits.shape)
    return surprises_of(logits, np.argmax(own / temperature + gumbel, axis=1).tolist(), 0.7)


def texts(**changes: object) -> list[Surprises]:
    return [written(seed, **changes) for seed in range(TEXTS)]  # type: ignore[arg-type]


def test_honest_texts_are_worth_much_and_others_little() -> None:
    honest, blurred, other = credit_of(texts()), credit_of(texts(blur=1.0)), credit_of(texts(blur=6.0))
    assert honest.value > 0.9 * ONE
    assert abs(honest.z) < Z_LIMIT
    assert honest.mean > blurred.mean > other.mean
    assert (blurred.doubted, blurred.value) == (True, round(blurred.mean / 2 * ONE))
    assert (honest.texts, honest.tokens) == (TEXTS, TEXTS * TOKENS)


def test_who_answers_greedily_or_coolly_is_too_sure_of_itself() -> None:
    for changes in ({"greedy": True}, {"temperature": 0.35}):
        found = credit_of(texts(**changes))
        assert found.z < -Z_LIMIT
        assert found.mean > 0.9, "one-sided, it would be worth more than an honest one"
        assert found.value <= 0.5 * ONE


def test_the_papers_rule_rewards_greedy_answers_and_bans_honest_ones() -> None:
    honest, greedy = credit_of(texts(), CreditRule.PAPER), credit_of(texts(greedy=True), CreditRule.PAPER)
    assert honest.value < 0.5 * ONE
    assert greedy.value > 1.2 * honest.value
    assert honest.value < credit_of(texts()).value / 2


def test_no_honest_node_is_banned_in_2000_epochs() -> None:
    """None is even doubted."""
    pool, source, rules = [written(seed) for seed in range(100)], np.random.default_rng(7), paper_rules(100, 0)
    standing, doubted, least = replace(newcomer(rules, ZERO_ADDRESS), score=9 * ONE // 10), 0, ONE
    for epoch in range(2000):
        found = credit_of([pool[one] for one in source.integers(0, 100, 8)])
        standing = rated(standing, found.value, epoch, rules)
        doubted, least = doubted + found.doubted, min(least, standing.score)
    assert doubted == 0
    assert least >= rules.bar


def test_what_is_little_in_each_epoch_adds_up() -> None:
    """A model that is off by too little for any epoch's limit, and an honest one, over 35 epochs of eight texts."""
    off = [written(seed, blur=0.5) for seed in range(280)]
    pool = [written(seed) for seed in range(280)]
    assert sum(credit_of(off[start : start + 8]).doubted for start in range(0, 280, 8)) < 10
    for texts_, doubted in ((off, True), (pool, False)):
        evidence, credits = NO_EVIDENCE, []
        for start in range(0, 280, 8):
            credits.append(credit_of(texts_[start : start + 8], before=evidence))
            evidence = credits[-1].evidence
        assert all(credit.doubted is doubted for credit in credits[-5:])
        assert (credits[-1].value < 0.5 * ONE) is doubted


def test_an_honest_node_that_is_a_little_off_never_comes_to_the_alarm_in_many_epochs() -> None:
    source, evidence = np.random.default_rng(3), NO_EVIDENCE
    for z in source.normal(1 / 7, size=200_000):
        evidence = evidence.after(float(z))
        assert evidence.doubt == 0


def test_where_the_model_is_nearly_sure_a_cheat_shows_beside_open_places() -> None:
    """Ten of a hundred tokens were to be nearly certain and are not; ninety open ones are as they should be."""
    sure, open_ = np.full(10, 0.05), np.full(90, 4.0)
    variance, entropy = np.concatenate([sure, open_]), np.concatenate([np.full(10, 0.02), np.full(90, 3.0)])
    surprise = entropy + np.concatenate([np.full(10, 0.9), np.zeros(90)])
    found = Surprises(surprise, entropy, variance, surprise)
    plain = (surprise - entropy).sum() / math.sqrt(variance.sum())
    assert plain < 0.5
    by_hand = 10 * 0.9 / 1.05 / math.sqrt(10 * 0.05 / 1.05**2 + 90 * 4 / 5**2)
    assert pooled_z([found]) == pytest.approx(by_hand)
    assert pooled_z([found]) > 4 * plain
    # One rare word where the model was all but certain convicts nobody: p = 1/1,000 comes to pass.
    logits = np.log(np.array([[0.999, 0.001]] * 300, dtype=np.float32))
    assert pooled_z([surprises_of(logits, [0] * 299 + [1], 1.0)]) < 2


def test_evidence_is_forgotten_whatever_it_was() -> None:
    source = np.random.default_rng(4)
    most, none = CreditEvidence(MOST, MOST), NO_EVIDENCE
    for z in source.normal(size=200):
        most, none = most.after(float(z)), none.after(float(z))
    assert most == none
    liar = CreditEvidence()
    for _ in range(40):
        liar = liar.after(3.0)
    assert (liar.above, liar.below, liar.doubt) == (MOST, 0.0, 1.0)
    assert [CreditEvidence(ALARM + extra).doubt for extra in (0.0, 0.5, 4.0)] == [0.0, 0.25, 1.0]
    assert CreditEvidence(0.0, CERTAIN).doubt == 1.0
    # Half of a doubt is a quarter off.
    found = credit_of(texts(), before=CreditEvidence(ALARM + 1 + ALLOWED - pooled_z(texts())))
    assert found.value == pytest.approx(0.75 * found.mean * ONE, rel=1e-6)


def test_surprise_and_entropy_are_those_of_the_softmax() -> None:
    logits = np.log(np.array([[0.5, 0.25, 0.25]], dtype=np.float32))
    found = surprises_of(logits, [1], 1.0)
    assert found.surprise[0] == pytest.approx(math.log(4))
    assert found.entropy[0] == pytest.approx(1.5 * math.log(2))
    assert found.variance[0] == pytest.approx(0.25 * math.log(2) ** 2)
    assert worth(found) == pytest.approx(2**-0.5)
    assert worth(found, CreditRule.PAPER) == pytest.approx(0.25)
    assert surprises_of(logits, [1], 0.5).plain[0] == pytest.approx(math.log(4))


def test_what_cannot_be_scored_is_refused() -> None:
    logits = np.zeros((2, 5), dtype=np.float32)
    for tokens, temperature in (([0, 1], 0.0), ([0], 1.0), ([0, 5], 1.0), ([0, -1], 1.0)):
        with pytest.raises(InvalidTokens):
            surprises_of(logits, tokens, temperature)
    with pytest.raises(InvalidTokens):
        credit_of([])
    assert worth(surprises_of(logits[:0], [], 1.0)) == 0
    assert exact_credit([True, True, False, True], 9).value == 750_000_000


# -- by a model of one's own -------------------------------------------------------------------------------------------


async def test_a_model_folder_tells_how_likely_an_answer_is(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "tiny")
    descriptor = describe(folder, 0)
    model = FolderModel(tmp_path, str(folder.path))
    await model.require(descriptor, execution_class_of(descriptor))
    request = Request(CLASS, (3, 9, 27, 4), 40, 700_000, 1_000_000, ())
    tokens = tuple(int(token) for token in np.random.default_rng(1).integers(0, 48, 40))
    inputs = Inputs(ORDER, CLASS, Segment(0, LAYERS), OrderText(request, tokens, SEED), None, True)
    found = await model.surprises(inputs)
    assert found.surprise.shape == (40,)
    assert (found.entropy > 0).all()
    # The first token's surprise by a prefill of the prompt alone.
    short = Inputs(ORDER, CLASS, Segment(0, LAYERS), OrderText(request, tokens[:1], SEED), None, True)
    assert (await model.surprises(short)).surprise[0] == pytest.approx(found.surprise[0], abs=1e-4)
    await model.close()


@dataclass
class ToyModel:
    """Texts that it finds as likely as they should be; it remembers what it was asked."""

    asked: list[Inputs] = field(default_factory=list)

    async def require(self, descriptor: ModelDescriptor, definition: ExecutionClass) -> None:
        pass

    async def recompute(self, inputs: Inputs) -> Recomputed:
        raise AssertionError("a tolerant class is scored by likelihood")

    async def surprises(self, inputs: Inputs) -> Surprises:
        self.asked.append(inputs)
        row = np.full(len(inputs.text.tokens), 2.0)
        return Surprises(row, row, row, row)


async def test_answers_of_whole_models_sampled_as_they_are_count(tmp_path: Path) -> None:
    prompt = LANGUAGE.prompt_tokens([{"role": "user", "content": "hello"}])
    rule = CreditRule.NORMALISED
    async with toy_stage(tmp_path) as stage:
        for choices in (SamplingChoices(16, 700_000), SamplingChoices(16, 700_000, 500_000), SamplingChoices(16)):
            async for _ in ask(stage.session, prompt, Wish(choices, CheckWish("5%", 50_000))):
                pass
        entries, model = stage.session.journal.all(), ToyModel()
        found = await credits_of(model, stage.session.state, ripe(entries, 60), least=1, rule=rule)
        assert len(entries) == 3
        assert [one.text.request.temperature_millionths for one in model.asked] == [700_000]
        ((node, credit),) = found.items()
        assert node in stage.session.state.parties
        assert (credit.value, credit.texts) == (ONE, 1)
        assert await credits_of(model, stage.session.state, ripe(entries, 60), least=2, rule=rule) == {}
        assert list(ripe(entries, -60)) == []


async def test_a_pipelines_answers_are_scored_by_checks(tmp_path: Path) -> None:
    prompt = LANGUAGE.prompt_tokens([{"role": "user", "content": "hello"}])
    async with toy_stage(tmp_path, ends=(1, 2)) as stage:
        async for _ in ask(stage.session, prompt, Wish(SamplingChoices(16, 700_000), CheckWish("5%", 50_000))):
            pass
        assert list(ripe(stage.session.journal.all(), 60)) == []
