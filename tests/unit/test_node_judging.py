"""A verifier's judgement by both rules: one look or two, and what is found for the evidence over many tasks."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.byte_language import tokenizer as byte_tokenizer

from troth.node.engine.interface import Computed
from troth.node.judging.runs import PIECE, PIECES
from troth.node.judging.texts import judge_beside_own
from troth.node.judging.verdicts import Judgement, judge_rows
from troth.protocol.doubts import under_rules
from troth.protocol.findings import Kind
from troth.protocol.foresight import Foresight
from troth.protocol.grammar import Grammar
from troth.protocol.market.types import ExecutionClass
from troth.protocol.masks import text_rules
from troth.protocol.request import Request
from troth.protocol.tensors import Dtype
from troth.protocol.tokens import Sampling, choices, choose, noise
from troth.protocol.transforms import Transforms
from troth.protocol.types import Hash32, Segment

ZERO, SEED = Hash32(bytes(32)), Hash32(b"s" * 32)
OLD = ExecutionClass(
    ZERO, "float32", 0, False, 10, 8, 9000, 1, 2, 3, 5, 1, 100, 50_000, 8000, 1, 1, 1, 25, 6100, 2000, 1, 1, ZERO
)
NEW = replace(OLD, calibration=under_rules(Hash32(b"m" * 32)))
HIDDEN, VOCABULARY, PROMPT, WRITTEN = 48, 300, 12, 40
GENERATOR = np.random.default_rng(22)
HEAD = GENERATOR.normal(size=(HIDDEN, VOCABULARY)).astype(np.float32)
ROWS = GENERATOR.normal(size=(PROMPT + WRITTEN - 1, HIDDEN)).astype(np.float32)
TOKENIZER = byte_tokenizer().to_str()
REQUEST = Request(
    execution_class=ZERO, prompt_tokens=tuple(range(1, PROMPT + 1)), max_tokens=WRITTEN,
    temperature_millionths=1_000_000, top_p_millionths=1_000_000, end_tokens=(0,),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _same_noise_whatever_ran_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "GENERATOR", np.random.default_rng(23))


def words(rows: np.ndarray) -> np.ndarray:
    return (rows.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def wide(rows: np.ndarray) -> np.ndarray:
    return rows if rows.dtype == np.float32 else (rows.astype(np.uint32) << 16).view(np.float32)


def noisy(strength: float) -> np.ndarray:
    return (ROWS + strength * GENERATOR.normal(size=ROWS.shape)).astype(np.float32)


def text_of(rows: np.ndarray) -> tuple[int, ...]:
    """What a node with these rows writes."""
    logits = wide(rows)[PROMPT - 1 :] @ HEAD
    return tuple(choices(logits, Sampling(1.0, 1.0), seed=SEED, first_position=PROMPT - 1))


@dataclass
class Rows:
    """An engine whose second run is given, and the float32 reference of a bfloat16 class."""

    second: np.ndarray
    high: np.ndarray | None = None
    vocabulary: int = VOCABULARY
    tokenizer: str = TOKENIZER
    pieces: list[int] = field(default_factory=list)

    async def forward(self, key: Any, segment: Segment, start: int, inputs: np.ndarray) -> Computed:
        assert len(inputs)
        self.pieces.append(len(inputs))
        return Computed(self.second[start : start + len(inputs)], 0.0)

    async def reference(self, segment: Segment, inputs: np.ndarray) -> np.ndarray:
        assert self.high is not None
        return self.high

    async def logits(self, rows: np.ndarray) -> Computed:
        return Computed(wide(rows) @ HEAD, 0.0)

    async def forget(self, key: Any) -> None:
        """Nothing is kept."""


@dataclass
class Shaking(Rows):
    """One that knows runs with other last bits."""

    runs: list[np.ndarray] = field(default_factory=list)

    async def shaken(
        self, segment: Segment, inputs: np.ndarray, *, strongly: bool = False, alike: bool = False
    ) -> np.ndarray:
        return self.runs[len(inputs) % len(self.runs)]


@dataclass
class Counting(Rows):
    """One that counts how often its logits are asked for."""

    asked: int = 0

    async def logits(self, rows: np.ndarray) -> Computed:
        self.asked += 1
        return await super().logits(rows)


@dataclass
class Saying(Counting):
    """One that says which tokens rows choose."""

    dtype: int = 0

    async def choices(self, rows: np.ndarray, sampling: Sampling, *, seed: Hash32, first_position: int) -> list[int]:
        return choices(wide(rows) @ HEAD, sampling, seed=seed, first_position=first_position)


class Quarter(Rows):
    """One whose logits are a quarter as large, so that a nucleus holds many tokens."""

    async def logits(self, rows: np.ndarray) -> Computed:
        return Computed(wide(rows) @ HEAD / 4, 0.0)


def pieces_of(prompt: int) -> list[int]:
    """How a second run cuts a prompt: a few short pieces, and the rest."""
    short = [PIECE] * min((prompt - 1) // PIECE, PIECES)
    return [*short, prompt - sum(short)]


async def judged(
    rules: ExecutionClass,
    claimed: np.ndarray,
    text: tuple[int, ...],
    engine: Rows,
    own: np.ndarray = ROWS,
    request: Request = REQUEST,
) -> Judgement:
    seat = SimpleNamespace(
        execution_class=rules, layers=Segment(0, 2), dtype=Dtype(rules.dtype), is_last=True, request=request,
        prompt_positions=PROMPT, noise_seed=SEED,
    )  # fmt: skip
    inputs = np.arange(len(ROWS))
    session: Any = SimpleNamespace(seat=seat, tokens=text, all_inputs=lambda: inputs, all_outputs=lambda: own)
    return await judge_rows(engine, session, claimed, root_matches=True)  # type: ignore[arg-type]


EXACT = replace(NEW, exact=True, state_cut=0)


async def test_logits_of_an_honest_text_stay_in_the_engine() -> None:
    said, plain = Saying(ROWS), Rows(ROWS)
    found, expected = [await judged(EXACT, ROWS, text_of(ROWS), engine) for engine in (said, plain)]
    assert found.verdict
    assert found == expected
    assert said.asked == 0


@pytest.mark.parametrize("place", [0, 31, 32, WRITTEN - 1])
async def test_a_token_that_no_row_chose_is_judged_by_logits(place: int) -> None:
    text = list(text_of(ROWS))
    text[place] = (text[place] + 1) % VOCABULARY or 1
    said, plain = Saying(ROWS), Counting(ROWS)
    found, expected = [await judged(EXACT, ROWS, tuple(text), engine) for engine in (said, plain)]
    assert found.tokens is not None
    assert found == expected
    assert found.tokens.worst > 0
    assert said.asked == plain.asked - 1, "of two blocks, that of the token"


async def test_an_honest_float32_task_needs_one_look() -> None:
    engine = Rows(noisy(1e-6))
    found = await judged(NEW, noisy(1e-6), text_of(ROWS), engine)
    assert found.verdict
    assert engine.pieces == []
    assert [(one.test, one.value) for one in found.findings] == [(Kind.TOKENS, 0.0)]
    assert not (await judged(OLD, ROWS, text_of(ROWS), engine)).findings


async def test_rounding_that_a_prompt_made_large_is_looked_at_twice() -> None:
    """The second run goes otherwise than the first: the prompt in pieces, then one by one as a node decodes."""
    engine, claimed = Rows(noisy(1e-4)), noisy(1e-4)
    assert not (await judged(OLD, claimed, text_of(ROWS), engine)).verdict
    assert engine.pieces == []
    found = await judged(NEW, claimed, text_of(ROWS), engine)
    assert (found.verdict, found.refused) == (True, False)
    assert engine.pieces == [*pieces_of(PROMPT), *[1] * (WRITTEN - 1)]
    assert max(engine.pieces) < PROMPT, "a prompt at once would have the bits of the first run"
    assert (await judged(NEW, noisy(1e-2), text_of(ROWS), engine)).refused
    assert (await judged(NEW, claimed, text_of(ROWS), Rows(noisy(1e-7)))).refused


async def test_a_row_in_which_two_runs_happen_to_agree_frames_nobody_by_the_fifth_rules() -> None:
    """[33795, 7325]: its second row has the bits of the first run in the second one, and is 40 cuts away elsewhere."""
    claimed, shaken = noisy(1e-7), noisy(1e-7)
    claimed[1] *= np.float32(1 + 1e-3)
    shaken[1] *= np.float32(1 + 3e-4)
    engine = Shaking(noisy(1e-7), runs=[shaken])
    assert (await judged(NEW, claimed, text_of(ROWS), engine)).verdict
    fourth = replace(NEW, calibration=under_rules(ZERO, 4))
    assert (await judged(fourth, claimed, text_of(ROWS), engine)).refused
    claimed[2] *= np.float32(1 + 1e-3)
    assert (await judged(NEW, claimed, text_of(ROWS), engine)).refused, "a row that nothing moves is excused by none"
    claimed = noisy(1e-7)
    claimed[1] *= np.float32(1 + 0.1)
    assert (await judged(NEW, claimed, text_of(ROWS), engine)).refused, "nor is more than eighty times the noise"


@pytest.mark.parametrize(("counted", "first"), [(PROMPT, PROMPT), (0, 1), (10**6, len(ROWS))])
async def test_a_segment_in_the_middle_is_looked_at_twice_without_the_request(counted: int, first: int) -> None:
    """Its verifiers are shown rows alone, and believe no count so far that they would go on for ever."""
    seat = SimpleNamespace(
        execution_class=NEW, layers=Segment(1, 2), dtype=Dtype(NEW.dtype), is_last=False, prompt_positions=counted
    )
    session: Any = SimpleNamespace(seat=seat, tokens=(), all_inputs=lambda: ROWS, all_outputs=lambda: ROWS)
    engine = Rows(noisy(1e-6))
    found = await judge_rows(engine, session, noisy(1e-2), root_matches=True)  # type: ignore[arg-type]
    assert found.refused
    assert engine.pieces == [*pieces_of(first), *[1] * (len(ROWS) - first)]


@pytest.mark.slow
async def test_another_models_text_over_honest_states_counts_in_float32() -> None:
    """A token of it may be too little for a no, and is too much for an honest node. By the fifth rules it is a no."""
    honest, fourth = text_of(ROWS), replace(NEW, calibration=under_rules(ZERO, 4))
    logits = ROWS[PROMPT - 1 :] @ HEAD
    lost = [(index, token) for index in range(WRITTEN) for token in range(1, VOCABULARY)
            if 0 < logits[index].max() - logits[index][token] < 2 and token != honest[index]]  # fmt: skip
    for index, token in lost:
        lie, engine = (*honest[:index], token, *honest[index + 1 :]), Rows(noisy(1e-6))
        found = await judged(fourth, ROWS, lie, engine)
        if found.verdict:
            assert (await judged(NEW, ROWS, lie, engine)).refused
            assert [one.value for one in found.findings] == [1.0]
            return
    raise AssertionError("no single token passes")


@pytest.mark.parametrize("version", [2, 3])
async def test_bfloat16_states_and_texts_are_compared_with_the_own_noise(version: int) -> None:
    rules = replace(NEW, calibration=under_rules(ZERO, version), dtype=1, state_cut=1_700_000, margin_cut=22_000)
    own, honest, cheat = words(noisy(0.01)), words(noisy(0.01)), words(noisy(0.014))
    engine = Rows(words(noisy(0.01)), ROWS)
    found = await judged(rules, honest, text_of(honest), engine, own)
    assert found.verdict
    assert {one.test: one.value for one in found.findings}[Kind.STATES] == 0
    assert engine.pieces == []
    found = await judged(rules, cheat, text_of(ROWS), engine, own)
    assert found.verdict, "one task is not enough"
    assert {one.test: one.value for one in found.findings}[Kind.STATES] == 1
    assert engine.pieces, "it is looked at twice before it counts"
    noisier = Rows(words(noisy(0.014)), ROWS)
    found = await judged(rules, cheat, text_of(ROWS), noisier, own)
    assert {one.test: one.value for one in found.findings}[Kind.STATES] == 0


@pytest.mark.parametrize("cut", [{"top_p_millionths": 600_000}, {"top_k": 4}, {"min_p_millionths": 200_000}], ids=str)
@pytest.mark.parametrize(("version", "dtype"), [(2, 0), (3, 0), (3, 1)])
async def test_a_text_that_ignores_what_is_cut_is_refused_by_the_rows_own_noise(
    version: int, dtype: int, cut: dict[str, int]
) -> None:
    """Ordered at top_p 0.6, and sampled from all tokens: by half a logit whatever the noise, fewer of it tell."""
    asked = replace(REQUEST, **cut)
    sampling = Sampling.of(asked)
    rules = replace(NEW, calibration=under_rules(ZERO, version), dtype=dtype, state_cut=1_700_000, margin_cut=6_100)
    mine, own, again = (words(noisy(0.002)) if dtype else noisy(1e-6) for _ in range(3))
    logits, place = wide(mine)[PROMPT - 1 :] @ HEAD / 4, {"seed": SEED, "first_position": PROMPT - 1}
    engine = Quarter(again, ROWS if dtype else None)
    honest = tuple(choices(logits, sampling, **place))
    assert (await judged(rules, mine, honest, engine, own, asked)).verdict
    lie = tuple(choices(logits, Sampling(1.0, 1.0), **place))
    assert (await judged(rules, mine, lie, engine, own, asked)).refused
    # Nor may a node cut what nobody asked it to.
    plain = tuple(choices(logits, Sampling(1.0, 1.0), **place))
    assert (await judged(rules, mine, plain, engine, own, REQUEST)).verdict
    assert (await judged(rules, mine, honest, engine, own, REQUEST)).refused


@pytest.mark.parametrize("version", [2, 3])
async def test_a_text_that_only_noise_speaks_for_cannot_be_told(version: int) -> None:
    rules = replace(NEW, calibration=under_rules(ZERO, version), dtype=1, state_cut=1_700_000, margin_cut=22_000)
    own, again, claimed = words(noisy(0.4)), words(noisy(0.4)), words(noisy(0.4))
    found = await judged(rules, claimed, text_of(claimed), Rows(again, ROWS), own)
    assert found.states.accepted
    assert found.tokens is not None
    assert (found.tokens.accepted, found.tokens.told) == (False, False)
    assert (found.verdict, found.refused, found.told) == (False, False, False)


# ------------------------------------------------------------------------------------------------ the node's own rows


def lenient_text(rows: np.ndarray, least: float, most: float) -> tuple[int, ...]:
    """What who forgives up to ``most`` logits writes, where a rival loses ``least`` or more."""
    logits, honest = wide(rows)[PROMPT - 1 :] @ HEAD, list(text_of(rows))
    for index in range(WRITTEN):
        scores = logits[index] + noise(SEED, PROMPT - 1 + index, VOCABULARY)
        rivals = np.flatnonzero((scores < scores.max() - least) & (scores > scores.max() - most))
        honest[index] = int(next(iter(rivals), honest[index]))
    return tuple(honest)


@pytest.mark.parametrize("exact", [False, True], ids=["tolerant", "exact"])
async def test_a_text_that_its_own_rows_do_not_choose_is_refused_by_the_fifth_rules(exact: bool) -> None:
    """Noise of the verifier's own excuses it under the fourth: the rows that choose it are the node's."""
    mine = words(noisy(0.02))
    own, again = (mine, mine) if exact else (words(noisy(0.02)), words(noisy(0.02)))
    lie = lenient_text(mine, 0.6, 0.9)
    cut = {"dtype": 1, "state_cut": 1_700_000, "margin_cut": 300_000, "exact": exact}
    for version, refused in ((4, False), (5, True)):
        rules = replace(NEW, calibration=under_rules(ZERO, version), **cut)
        found = await judged(rules, mine, lie, Rows(again, ROWS), own)
        assert (found.refused, found.straying.beyond) == (refused, refused)
        assert (await judged(rules, mine, text_of(mine), Rows(again, ROWS), own)).verdict


async def tokens_found(text: tuple[int, ...]) -> float | None:
    """What a bfloat16 text over rows that are bent to fit it says of its node, judged by the verifier's own rows."""
    rules = replace(NEW, calibration=under_rules(ZERO), dtype=1, state_cut=1_700_000, margin_cut=300_000)
    bent = ROWS.copy()
    for index, token in enumerate(text):
        scores = bent[PROMPT - 1 + index] @ HEAD + noise(SEED, PROMPT - 1 + index, VOCABULARY)
        if (rival := int(scores.argmax())) != token:
            across = HEAD[:, token] - HEAD[:, rival]
            bent[PROMPT - 1 + index] += (1e-3 + scores[rival] - scores[token]) / (across @ across) * across
    found = await judged(rules, words(bent), text, Rows(words(ROWS), ROWS), words(ROWS))
    return {one.test: one.value for one in found.findings}.get(Kind.TOKENS)


async def test_a_text_counts_by_tokens_that_its_client_could_not_foresee() -> None:
    """Near ties lost in the first tokens are what a prompt was looked for; later ones nobody could look for."""
    logits, honest = ROWS[PROMPT - 1 :] @ HEAD, list(text_of(ROWS))
    lost = []
    for index in range(WRITTEN):
        scores = np.sort(logits[index] + noise(SEED, PROMPT - 1 + index, VOCABULARY))
        lost.append(scores[-1] - scores[-2])
    foresight = Foresight(Sampling(1.0, 1.0))
    foresight.follow(logits, honest)
    assert 3 < foresight.foreseen < WRITTEN - 10, "of this text"
    found = []
    for places in (range(foresight.foreseen), range(foresight.foreseen, WRITTEN)):
        text, place = list(honest), min(places, key=lambda one: lost[one])
        scores = logits[place] + noise(SEED, PROMPT - 1 + place, VOCABULARY)
        text[place] = int(np.argsort(scores)[-2])
        found.append(await tokens_found(tuple(text)))
    early, late = found
    assert early in {None, 0.5}, "the node and its verifier round alike"
    assert late is not None
    assert late > 0.9, "a lie where nobody could foresee the row"


async def test_a_client_whose_biases_write_the_text_foresaw_it() -> None:
    """Without them these tokens would be rare, and surprising."""
    rules, text = replace(NEW, calibration=under_rules(ZERO), dtype=1, margin_cut=300_000), (5,) * WRITTEN
    for biases, foreseen in (((), False), (((5, 100_000_000),), True)):
        seat = SimpleNamespace(
            execution_class=rules, noise_seed=SEED, request=replace(REQUEST, transforms=Transforms(biases=biases))
        )
        found = await judge_beside_own(Rows(ROWS), SimpleNamespace(seat=seat, tokens=text), words(ROWS), ROWS)  # type: ignore[arg-type]
        assert (found.foreseen == WRITTEN) == foreseen


@pytest.mark.parametrize(("cheats", "value"), [(False, 0.0), (True, 1.0)])
async def test_lenient_tokens_count_in_the_evidence_and_refuse_nothing(cheats: bool, value: float) -> None:
    rules = replace(NEW, calibration=under_rules(ZERO), dtype=1, state_cut=1_700_000, margin_cut=200_000)
    tried = (words(noisy(0.02)) for _ in range(60))
    mine = next(rows for rows in tried if lenient_text(rows, 0.03, 0.1) != text_of(rows))
    text = lenient_text(mine, 0.03, 0.1) if cheats else text_of(mine)
    found = await judged(rules, mine, text, Rows(words(noisy(0.02)), ROWS), words(noisy(0.02)))
    assert (found.verdict, found.refused) == (True, False)
    assert {one.test: one.value for one in found.findings}[Kind.STATES] == value


async def test_rows_that_are_no_numbers_are_refused_before_a_head_reads_them() -> None:
    rules = replace(NEW, calibration=under_rules(ZERO), dtype=1, state_cut=1_700_000, margin_cut=200_000)
    mine = words(noisy(0.02))
    broken = mine.copy()
    broken[PROMPT + 3, 5] = 0x7F80
    found = await judged(rules, broken, lenient_text(mine, 0.6, 0.9), Rows(mine, ROWS), mine)
    assert (found.refused, found.straying.beyond) == (True, False)


# ----------------------------------------------------------------------------------------------- masks and penalties

LIST = Grammar('{"type": "array", "items": {"type": "integer"}, "minItems": 9}')
STRINGS = Grammar('{"type": "array", "items": {"type": "string"}}')
CLASSES = {
    "exact": replace(NEW, exact=True, state_cut=0, margin_cut=2_000_000),
    "float32": replace(NEW, margin_cut=2_000_000),
    "bfloat16": replace(NEW, dtype=1, state_cut=1_700_000, margin_cut=2_000_000),
}
"""Margins may be as large as they are clipped at: what is refused here is refused for the mask alone."""


def masked(grammar: Grammar | None = None, **numbers: int) -> Request:
    return replace(REQUEST, end_tokens=(256,), transforms=Transforms(grammar=grammar, **numbers))


def written(request: Request, rows: np.ndarray = ROWS) -> tuple[int, ...]:
    """What a node with these rows writes by a request's rules, up to its end or its length."""
    logits, sampling, text = wide(rows)[PROMPT - 1 :] @ HEAD, Sampling.of(request), list[int]()
    rules = text_rules(request, VOCABULARY, TOKENIZER)
    for index, row in enumerate(logits):
        token = choose(row, sampling, noise(SEED, PROMPT - 1 + index, VOCABULARY), rules.row() if rules else None)
        text.append(token)
        if token in request.end_tokens:
            break
        if rules is not None:
            rules.take(token)
    return tuple(text)


async def masked_judgement(name: str, request: Request, text: tuple[int, ...]) -> Judgement:
    """Of an answer whose states are honest."""
    rules, rows = CLASSES[name], ROWS[: PROMPT + len(text) - 1]
    own = words(rows) if rules.dtype else rows
    engine = Rows(own, rows)
    seat = SimpleNamespace(
        execution_class=rules, layers=Segment(0, 2), dtype=Dtype(rules.dtype), is_last=True, request=request,
        prompt_positions=PROMPT, noise_seed=SEED,
    )  # fmt: skip
    inputs = np.arange(len(rows))
    session: Any = SimpleNamespace(seat=seat, tokens=text, all_inputs=lambda: inputs, all_outputs=lambda: own)
    return await judge_rows(engine, session, own, root_matches=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CLASSES)
async def test_masked_texts_are_accepted_in_every_class(name: str) -> None:
    for request in (masked(LIST), masked(STRINGS), masked(LIST, frequency=900_000, repetition=1_500_000)):
        text = written(request)
        assert (await masked_judgement(name, request, text)).verdict


LIES = {
    "the mask is ignored": (masked(LIST), written(masked())),
    "another mask is applied": (masked(LIST), written(masked(STRINGS))),
    "one token of it is forged": (masked(LIST), (*written(masked(LIST))[:5], 70, *written(masked(LIST))[6:])),
    "it ends before the grammar does": (masked(LIST), (*written(masked(LIST))[:6], 256)),
    "it goes on where the grammar ends": (
        masked(Grammar('{"const": 1}')),
        (*written(masked(Grammar('{"const": 1}')))[:1], *written(masked())[:39]),
    ),
}


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("lie", LIES)
async def test_a_forged_or_ignored_mask_is_refused_in_every_class(name: str, lie: str) -> None:
    """One such token is enough, also where the class lets every token lose what it may."""
    request, text = LIES[lie]
    found = await masked_judgement(name, request, text)
    assert found.states.accepted
    assert found.tokens is not None
    assert not found.tokens.allowed
    assert (found.verdict, found.refused, found.told) == (False, True, True)


@pytest.mark.parametrize("numbers", [{"repetition": 1_800_000}, {"frequency": 2_000_000}, {"presence": 2_000_000}])
async def test_penalties_that_are_ignored_cost_margins(numbers: dict[str, int]) -> None:
    strict = replace(NEW, margin_cut=8_000)
    request = replace(REQUEST, end_tokens=(256,), temperature_millionths=0, transforms=Transforms(**numbers))
    rows = np.tile(ROWS[:4], (len(ROWS) // 4 + 1, 1))[: len(ROWS)]

    async def verdict(text: tuple[int, ...]) -> bool:
        return (await judged(strict, rows, text, Rows(rows), rows, request)).verdict

    def greedy(asked: Request) -> tuple[int, ...]:
        rules, found = text_rules(asked, VOCABULARY, ""), list[int]()
        for row in rows[PROMPT - 1 :] @ HEAD:
            found.append(choose(row, Sampling(0.0, 1.0), None, rules.row() if rules else None))
            if rules is not None:
                rules.take(found[-1])
        return tuple(found)

    assert await verdict(greedy(request))
    assert not await verdict(greedy(replace(request, transforms=Transforms())))
