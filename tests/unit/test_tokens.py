"""Public noise, the choice of tokens, margins, and texts that are not what the model said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from troth.protocol import tokens as tokens_module
from troth.protocol.errors import InvalidTokens
from troth.protocol.margins import check_tokens, margin, margins
from troth.protocol.request import Request
from troth.protocol.tokens import (
    MARGIN_CLIP,
    Sampling,
    choose,
    finish_reason,
    judge_tokens,
    noise,
    surely_best,
)
from troth.protocol.types import Hash32

SEED = Hash32(bytes(range(32)))
VOCABULARY = 500
GENERATOR = np.random.default_rng(3)
GREEDY, WARM, NUCLEUS = Sampling(0, 1), Sampling(0.7, 1), Sampling(0.7, 0.8)
REQUEST = Request(Hash32(bytes(32)), (1, 2, 3, 4), 64, 700_000, 1_000_000, (0,))


def model(positions: int = 64, spread: float = 3.0) -> np.ndarray:
    logits = (GENERATOR.normal(size=(positions, VOCABULARY)) * spread).astype(np.float32)
    logits[:, 0] = -30  # the end token is unlikely unless a test says otherwise
    return logits


def generate(logits: np.ndarray, request: Request, seed: Hash32 = SEED) -> list[int]:
    sampling, first = Sampling.of(request), len(request.prompt_tokens) - 1
    return [choose(row, sampling, noise(seed, first + index, len(row))) for index, row in enumerate(logits)]


def test_noise_is_frozen() -> None:
    found = noise(SEED, 7, 3)
    raw = np.random.Philox(
        key=int.from_bytes(SEED[:16], "little"), counter=(int.from_bytes(SEED[16:], "little") << 128) + (7 << 64)
    ).random_raw(3)
    uniform = ((raw >> np.uint64(12)).astype(np.float64) + 0.5) / 2**52
    assert np.array_equal(found, -np.log(-np.log(uniform)))
    assert np.allclose(found, [0.2165731541323535, 3.493829383622796, 3.1816072090466796], rtol=1e-12)


def test_noise_of_positions_seeds_and_sizes() -> None:
    assert np.array_equal(noise(SEED, 5, 10), noise(SEED, 5, 1000)[:10])
    rows = [noise(SEED, position, 50) for position in range(4)]
    rows += [noise(Hash32(bytes([9]) + SEED[1:]), 0, 50), noise(Hash32(SEED[:31] + b"\x00"), 0, 50)]
    assert len({row.tobytes() for row in rows}) == len(rows)
    assert not np.intersect1d(rows[0], rows[1]).size


def test_noise_is_gumbel() -> None:
    drawn = noise(SEED, 0, 200_000)
    assert np.isfinite(drawn).all()
    assert drawn.mean() == pytest.approx(0.5772, abs=0.01)
    assert drawn.var() == pytest.approx(np.pi**2 / 6, abs=0.03)


@pytest.mark.parametrize(("seed", "position", "size"), [(b"", 0, 5), (SEED, -1, 5), (SEED, 2**32, 5), (SEED, 0, 0)])
def test_noise_that_cannot_be(seed: bytes, position: int, size: int) -> None:
    with pytest.raises(InvalidTokens):
        noise(Hash32(seed), position, size)


def test_choice_samples_the_softmax() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.2]))
    sampling = Sampling(1, 1)
    counts = np.bincount([choose(logits, sampling, noise(SEED, position, 3)) for position in range(4000)])
    assert np.allclose(counts / 4000, [0.5, 0.3, 0.2], atol=0.03)


def test_temperature_sharpens() -> None:
    logits = np.log(np.array([0.6, 0.4]))
    counts = np.bincount([choose(logits, Sampling(0.5, 1), noise(SEED, position, 2)) for position in range(4000)])
    assert counts[0] / 4000 == pytest.approx(0.36 / (0.36 + 0.16), abs=0.03)


def test_nucleus_leaves_out_the_tail() -> None:
    logits = np.log(np.array([0.1, 0.5, 0.05, 0.35]))
    drawn = {choose(logits, Sampling(1, 0.8), noise(SEED, position, 4)) for position in range(500)}
    assert drawn == {1, 3}
    assert {choose(logits, Sampling(1, 0.86), noise(SEED, position, 4)) for position in range(500)} == {0, 1, 3}
    assert {choose(logits, Sampling(1, 1e-6), noise(SEED, position, 4)) for position in range(50)} == {1}


def test_ties_go_to_the_lowest_token() -> None:
    assert choose(np.array([1.0, 3.0, 3.0]), GREEDY, None) == 1
    assert choose(np.array([1.0, 2.0, -9.0]), Sampling(1, 0.99), np.array([1.0, 0.0, 0.0])) == 0
    level = np.zeros(10)
    assert {choose(level, Sampling(1, 0.2), noise(SEED, position, 10)) for position in range(100)} == {0, 1}
    assert choose(level, WARM, np.zeros(10)) == 0


def test_nucleus_equals_a_full_sort() -> None:
    for position, row in enumerate(model(50, spread=1.0)):
        scaled = row.astype(np.float64) / 0.7
        likelihood = np.exp(scaled - scaled.max()) / np.exp(scaled - scaled.max()).sum()
        order = np.lexsort((np.arange(VOCABULARY), -likelihood))
        size = int(np.searchsorted(np.cumsum(likelihood[order]), 0.8)) + 1
        gumbel = noise(SEED, position, VOCABULARY)
        scores = row + 0.7 * gumbel
        assert choose(row, NUCLEUS, gumbel) == order[:size][np.argmax(scores[order[:size]])]


def test_margin_is_in_logits() -> None:
    logits = np.array([1.0, 3.0, 2.75])
    assert margin(logits, 1, GREEDY, None) == 0
    assert margin(logits, 2, GREEDY, None) == 0.25
    assert margin(logits, 0, GREEDY, None) == MARGIN_CLIP
    gumbel = np.array([0.0, 0.0, 1.0])
    assert margin(logits, 1, Sampling(0.5, 1), gumbel) == pytest.approx(0.25)


def test_token_outside_the_nucleus_is_forged_but_its_edge_is_not() -> None:
    logits = np.log(np.array([0.6, 0.2, 0.1, 0.1]))
    gumbel = np.array([0.0, 0.0, 0.0, 9.0])
    # 0.8 is before it, of which noise would have to make less than 0.72.
    assert margin(logits, 3, Sampling(1, 0.7), gumbel) == pytest.approx(np.log(4) - np.log(0.72 / 0.28), abs=1e-6)
    assert margin(logits - np.array([0, 0, 0, 9]), 3, Sampling(1, 0.7), gumbel) == MARGIN_CLIP
    assert choose(logits, Sampling(1, 0.81), gumbel) == 0
    edge = np.array([0.0, 9.0, 0.0, 0.0])
    # The verifier's nucleus ends just before token 1; the inferencer's may have ended just after it, or before.
    assert margin(logits, 1, Sampling(1, 0.59), edge) == 0
    assert margin(logits, 0, Sampling(1, 0.61), edge) == 0


@pytest.mark.parametrize("request_", [REQUEST, replace(REQUEST, top_p_millionths=800_000),
                                      replace(REQUEST, temperature_millionths=0)])  # fmt: skip
def test_honest_text_passes_with_small_numeric_noise(request_: Request) -> None:
    logits = model()
    tokens = generate(logits, request_)
    report = check_tokens(logits, tokens, request_, seed=SEED, margin_cut=20000)
    assert (report.score, report.matches, report.end_ok, report.accepted) == (0, 64, True, True)
    other_machine = logits + GENERATOR.normal(size=logits.shape).astype(np.float32) * 0.01
    assert check_tokens(other_machine, tokens, request_, seed=SEED, margin_cut=20000).accepted


def test_cheats_with_tokens_are_rejected() -> None:
    logits = model(64, spread=1.0)
    honest = generate(logits, REQUEST)
    greedy = [int(np.argmax(row)) for row in logits]
    wrong_seed = generate(logits, REQUEST, Hash32(b"\x05" * 32))
    hot = generate(logits, replace(REQUEST, temperature_millionths=1_000_000))
    other_model = generate(model(64, spread=1.0), REQUEST)
    for forged in (greedy, wrong_seed, hot, other_model):
        assert not check_tokens(logits, forged, REQUEST, seed=SEED, margin_cut=50000).accepted
    assert check_tokens(logits, honest, REQUEST, seed=SEED, margin_cut=50000).accepted


def test_one_forged_token_does_not_drown_in_a_long_text() -> None:
    request = replace(REQUEST, max_tokens=512)
    logits = model(512)
    tokens = generate(logits, request)
    tokens[300] = int(np.argmin(logits[300, 1:])) + 1
    report = check_tokens(logits, tokens, request, seed=SEED, margin_cut=50000)
    assert report.mean_margin < 0.005
    assert not report.accepted


def test_one_honest_slip_in_a_short_text_is_forgiven() -> None:
    request = replace(REQUEST, max_tokens=2)
    assert judge_tokens(np.array([0.0, 0.3]), [5, 6], request, 0.02).accepted
    assert not judge_tokens(np.array([0.0, 2.0]), [5, 6], request, 0.02).accepted


def test_rare_honest_slips_do_not_add_up_over_a_long_text() -> None:
    request = replace(REQUEST, max_tokens=512)
    found = np.zeros(512)
    found[::50] = 0.3
    assert judge_tokens(found, [5] * 512, request, 0.02).accepted


@pytest.mark.parametrize("sampling", [Sampling(1, 1e-6), Sampling(1e-6, 0.5), Sampling(0.7, 0.4)])
def test_no_client_makes_a_near_tie_look_like_a_forged_end(sampling: Sampling) -> None:
    """A bias draws the end token level with another one: rounding decides which of both is all of the nucleus."""
    mine, theirs = np.array([[5.00001, 5.0, -9.0]]), np.array([[5.0, 5.00001, -9.0]])
    request = replace(
        REQUEST,
        temperature_millionths=round(sampling.temperature * 1e6),
        top_p_millionths=round(sampling.top_p * 1e6),
        max_tokens=9,
    )
    text = generate(mine, request)
    assert text == [0]
    assert check_tokens(theirs, text, request, seed=SEED, margin_cut=1_000).accepted


def test_no_margin_counts_more_than_the_clip() -> None:
    request = replace(REQUEST, max_tokens=1)
    assert judge_tokens(np.array([1e9]), [5], request, 1.0).score == MARGIN_CLIP / 32


def test_end_rule() -> None:
    logits = model(10)
    logits[9, 0] = 60
    tokens = generate(logits, REQUEST)
    assert tokens[-1] == 0
    stopped = check_tokens(logits, tokens, REQUEST, seed=SEED, margin_cut=20000)
    assert (stopped.end_ok, stopped.accepted) == (True, True)
    truncated = check_tokens(logits[:9], tokens[:9], REQUEST, seed=SEED, margin_cut=20000)
    assert (truncated.score, truncated.end_ok, truncated.accepted) == (0, False, False)
    early = [*tokens[:4], 0]
    assert not check_tokens(logits[:5], early, REQUEST, seed=SEED, margin_cut=1_000_000).end_ok
    found = np.zeros(10)
    assert not judge_tokens(found, [*tokens[:4], 0, *tokens[5:]], REQUEST, 1.0).end_ok
    assert judge_tokens(np.array([*found[:9], 0.4]), tokens, REQUEST, 1.0).end_ok
    assert not judge_tokens(np.array([*found[:9], 0.6]), tokens, REQUEST, 1.0).end_ok


def test_text_longer_than_ordered_is_rejected() -> None:
    request = replace(REQUEST, max_tokens=8)
    assert not judge_tokens(np.zeros(9), [5] * 9, request, 1.0).end_ok
    assert not judge_tokens(np.zeros(9), [5] * 8 + [0], request, 1.0).end_ok
    assert judge_tokens(np.zeros(8), [5] * 8, request, 1.0).end_ok


def test_finish_reason() -> None:
    request = replace(REQUEST, max_tokens=3)
    assert [finish_reason(tokens, request) for tokens in ([], [5], [5, 0], [5, 5, 5], [5, 5, 0])] == [
        None, None, "stop", "length", "stop",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "logits",
    [np.array([1.0, np.nan]), np.array([1.0, np.inf]), np.array([-np.inf, 1.0]), np.array([]), np.ones((2, 2)),
     np.array([1, 2])],
)  # fmt: skip
def test_logits_that_cannot_be_checked(logits: np.ndarray) -> None:
    with pytest.raises(InvalidTokens):
        choose(logits, GREEDY, None)
    with pytest.raises(InvalidTokens):
        margin(logits, 0, GREEDY, None)


def test_callers_faults() -> None:
    logits = model(2)
    for token in (-1, VOCABULARY):
        with pytest.raises(InvalidTokens, match="vocabulary"):
            margin(logits[0], token, GREEDY, None)
    for gumbel in (None, np.zeros(3)):
        with pytest.raises(InvalidTokens, match="noise"):
            choose(logits[0], WARM, gumbel)
    with pytest.raises(InvalidTokens, match="One row"):
        margins(logits, [1], WARM, seed=SEED, first_position=0)
    with pytest.raises(InvalidTokens, match="at least one"):
        judge_tokens(np.array([]), [], REQUEST, 0.1)
    for temperature, top_p in ((-0.1, 1), (2.1, 1), (1, 0), (1, 1.1), (float("nan"), 1)):
        with pytest.raises(InvalidTokens):
            Sampling(temperature, top_p)


def test_noise_of_few_tokens_drawn_one_by_one_decides_as_the_whole_vocabularys(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a quick look says of the best token does not hang on how its noise was drawn."""
    draw, seed, few = np.random.default_rng(8), Hash32(bytes(range(32))), 0
    asked = []
    for number in range(250):
        logits = (draw.normal(size=200) * draw.choice([2.0, 5.0, 10.0])).astype(np.float32)
        sampling = Sampling(float(draw.choice([0.3, 0.7, 1.0])), float(draw.choice([0.3, 0.9, 0.95])))
        likely = np.argsort(-logits)[:4]
        for token in {choose(logits, sampling, noise(seed, number, 200)), *likely.tolist()}:
            asked.append((logits, token, sampling, number, (0.0, 0.02)[number % 2]))
        few += bool(len(tokens_module._Nucleus(logits, sampling, 0.0).few()))

    def answers() -> list[bool]:
        return [
            surely_best(logits, token, sampling, seed=seed, position=position, slack=slack)
            for logits, token, sampling, position, slack in asked
        ]

    by_one, whole = answers(), [tokens_module._draws(bytes(seed), 7, 200)[token] for token in range(200)]
    assert [tokens_module._draw(bytes(seed), 7, token) for token in range(200)] == whole
    monkeypatch.setattr(tokens_module, "FEW", 0)
    assert answers() == by_one
    assert 50 < few < 250
    assert 100 < sum(by_one) < len(by_one)
