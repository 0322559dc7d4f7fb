"""The arithmetic of proofs in Solidity and in Python: the same integers over all of the formats' edges."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from web3.exceptions import ContractCustomError

from troth.protocol import public_noise
from troth.protocol.errors import InvalidNumbers
from troth.protocol.exact_numbers import NumberFormat, exact_logits, unit_bits
from troth.protocol.hashing import keccak256
from troth.protocol.tokens import noise

WEIGHT_TOO_LARGE = "0x" + keccak256(b"WeightTooLarge()")[:4].hex()
WRONG_UNIT = "0x" + keccak256(b"WrongUnit(uint256)")[:4].hex()
EDGES = {
    NumberFormat.FLOAT32: (
        *(0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x00800001, 0x3F7FFFFF, 0x3F800000),
        *(0x3F807FFF, 0x3F808000, 0x3F808001, 0x3F818000, 0x46FFFFFF, 0x46FF7FFF, 0xC6FFFFFF, 0x537FFFFF, 0xD37FFFFF),
    ),
    NumberFormat.BFLOAT16: (0x0000, 0x8000, 0x0001, 0x007F, 0x0080, 0x3F80, 0xBF80, 0x46FF, 0xC6FF),
}
BEYOND = {
    NumberFormat.FLOAT32: (0x53800000, 0xD3800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF),
    NumberFormat.BFLOAT16: (0x5380, 0x7F7F, 0x7F80, 0xFF80, 0x7FC0, 0xFFFF),
}
HEAVY = {NumberFormat.FLOAT32: (0x47000000, 0xC7000000), NumberFormat.BFLOAT16: (0x4700, 0xC700)}


def _row(source: Random, number_format: NumberFormat, count: int, *, weights: bool) -> bytes:
    """Edges, and numbers of every size that is weighed."""
    words = []
    for _ in range(count):
        if source.random() < 0.4:
            word = source.choice(
                [one for one in EDGES[number_format] if not weights or (one & 0x7FFF0000) < 0x47000000]
            )
        else:
            sign, exponent = source.getrandbits(1), source.randrange(0, 142 if weights else 167)
            word = sign << 31 | exponent << 23 | source.getrandbits(23)
            word >>= 0 if number_format is NumberFormat.FLOAT32 else 16
        words.append(word)
    return np.array(words, f"<u{number_format.width}").tobytes()


@pytest.mark.parametrize("state_format", list(NumberFormat))
@pytest.mark.parametrize("weight_format", list(NumberFormat))
@pytest.mark.parametrize("rounded", [False, True])
def test_logits_are_the_same_integers_over_all_edges(
    proof_harness: Any, state_format: NumberFormat, weight_format: NumberFormat, rounded: bool
) -> None:
    source = Random(17 + 10 * int(state_format) + int(weight_format))
    for count in (8, 8, 16, 24, 64, 8 * source.randrange(1, 20)) * 6:
        state = _row(source, state_format, count, weights=False)
        weights = tuple(_row(source, weight_format, count, weights=True) for _ in range(2))
        pair = (weights[0], weights[1])
        unit = max(unit_bits(state, state_format, pair, weight_format) - source.randrange(2), 55)
        rows = (state, state_format, *weights, weight_format, rounded, unit)
        found, slack, _ = proof_harness.functions.logits(*rows).call()
        expected = exact_logits(state, state_format, pair, weight_format, rounded=rounded, unit=unit)
        assert tuple(found) == (expected.own, expected.others, expected.size, expected.is_state)
        assert slack == expected.slack(rounded=rounded)


def _usual(source: np.random.Generator, number_format: NumberFormat, count: int, scale: float) -> Any:
    """Words of numbers of one size: the contract looks at none of them closely."""
    bits = (scale * source.standard_normal(count)).astype("<f4").view("<u4")
    bits |= 0x30000000
    return bits if number_format is NumberFormat.FLOAT32 else (bits >> 16).astype("<u2")


@pytest.mark.parametrize("state_format", list(NumberFormat))
@pytest.mark.parametrize("weight_format", list(NumberFormat))
@pytest.mark.parametrize("rounded", [False, True])
def test_one_unusual_number_among_usual_ones_changes_its_own_term_alone(
    proof_harness: Any, state_format: NumberFormat, weight_format: NumberFormat, rounded: bool
) -> None:
    """Eights of usual numbers are summed without a closer look; each edge is planted in each place of an eight."""
    source, count = np.random.default_rng(23), 24
    for place in range(9):
        rows = [_usual(source, kind, count, 0.5) for kind in (state_format, weight_format, weight_format)]
        for which, kind in enumerate((state_format, weight_format, weight_format)):
            edges = [one for one in EDGES[kind] if which == 0 or (one & 0x7FFF0000) < 0x47000000]
            if kind is NumberFormat.FLOAT32 and which:
                # Below 2, at 2, and what rounding carries to 2, 2^14 and 2^15.
                edges += [0x3FFFFFFF, 0x40000000, 0x3FFF8000, 0x467FFFFF, 0x46FFC000]
            changed = [row.copy() for row in rows]
            # The ninth place: nothing is planted, and all eights are usual.
            for at in () if place == 8 else (place, 16 + place):
                changed[which][at] = edges[int(source.integers(len(edges)))]
            state, own, others = (row.tobytes() for row in changed)
            finest = unit_bits(state, state_format, (own, others), weight_format)
            for unit in {finest, min(finest, 60), 55}:
                call = (state, state_format, own, others, weight_format, rounded, unit)
                found, slack, _ = proof_harness.functions.logits(*call).call()
                expected = exact_logits(state, state_format, (own, others), weight_format, rounded=rounded, unit=unit)
                assert tuple(found) == (expected.own, expected.others, expected.size, expected.is_state)
                assert slack == expected.slack(rounded=rounded)


@pytest.mark.parametrize("number_format", list(NumberFormat))
def test_what_is_no_state_and_no_weight_is_told(proof_harness: Any, number_format: NumberFormat) -> None:
    kind = f"<u{number_format.width}"
    plain = np.full(16, 0x3F80 if number_format is NumberFormat.BFLOAT16 else 0x3F800000, kind)
    for place in (0, 7, 15):
        for word in BEYOND[number_format]:
            state = plain.copy()
            state[place] = word
            rows = (state.tobytes(), number_format, plain.tobytes(), plain.tobytes(), number_format, False, 56)
            assert not proof_harness.functions.logits(*rows).call()[0][3]
            weights = (plain.tobytes(), plain.tobytes())
            found = exact_logits(state.tobytes(), number_format, weights, number_format, rounded=False, unit=56)
            assert not found.is_state
        for word in HEAVY[number_format]:
            weight = plain.copy()
            weight[place] = word
            for pair in ((weight, plain), (plain, weight)):
                state, data = plain.tobytes(), (pair[0].tobytes(), pair[1].tobytes())
                with pytest.raises(InvalidNumbers, match="2"):
                    exact_logits(state, number_format, data, number_format, rounded=True, unit=56)
                rows = (state, number_format, *data, number_format, True, 56)
                with pytest.raises(ContractCustomError, match=WEIGHT_TOO_LARGE):
                    proof_harness.functions.logits(*rows).call()


def test_a_unit_that_is_too_fine_for_a_product_is_refused(proof_harness: Any) -> None:
    kind = NumberFormat.FLOAT32
    state, row = np.full(8, 2.0**39, "<f4").tobytes(), np.full(8, 2.0**14, "<f4").tobytes()
    finest = unit_bits(state, kind, (row, row), kind)
    for unit, stands in ((finest, True), (finest + 2, False), (54, False), (121, False)):
        rows = (state, kind, row, row, kind, False, unit)
        if stands:
            assert proof_harness.functions.logits(*rows).call()[0][0] == 8 << (53 + unit)
            assert exact_logits(state, kind, (row, row), kind, rounded=False, unit=unit).own == 8 << (53 + unit)
            continue
        with pytest.raises(ContractCustomError, match=WRONG_UNIT):
            proof_harness.functions.logits(*rows).call()
        with pytest.raises(InvalidNumbers, match=r"[Uu]nit"):
            exact_logits(state, kind, (row, row), kind, rounded=False, unit=unit)


def test_logits_are_those_of_the_numbers(proof_harness: Any) -> None:
    source = np.random.default_rng(5)
    # Weights are below 2, as those of heads are: no eight of them takes a closer look.
    state, own, others = ((scale * source.standard_normal(576)).astype("<f4") for scale in (1, 0.25, 0.25))
    kind = NumberFormat.FLOAT32
    unit = unit_bits(state.tobytes(), kind, (own.tobytes(), others.tobytes()), kind)
    rows = (state.tobytes(), 0, own.tobytes(), others.tobytes(), 0, False, unit)
    found, slack, spent = proof_harness.functions.logits(*rows).call()
    for value, weights in ((found[0], own), (found[1], others)):
        assert abs(value / 2**unit - float(state.astype(float) @ weights.astype(float))) < 1e-12
        # A machine's own sums, whatever their order.
        for order in (np.arange(576), np.argsort(state), np.argsort(-np.abs(own))):
            total = np.float32(0)
            for one, other in zip(state[order], weights[order], strict=True):
                total += one * other
            assert abs(float(total) - value / 2**unit) < slack / 2**unit
    # 167 a column: whoever changes the loop sees here whether the compiler still keeps it whole.
    assert spent < 100_000


def test_noise_is_the_same_integer_and_that_of_the_nodes(proof_harness: Any) -> None:
    source, vocabulary = Random(3), 4_099
    for _ in range(12):
        seed, position = source.randbytes(32), source.choice((0, 1, source.getrandbits(32)))
        told = noise(seed, position, vocabulary)  # type: ignore[arg-type]
        for token in (0, 1, 2, 3, 4, vocabulary - 1, source.randrange(vocabulary)):
            assert proof_harness.functions.draw(seed, position, token).call() == public_noise.draw(
                seed, position, token
            )
            found = proof_harness.functions.gumbel(seed, position, token).call()
            assert found == public_noise.gumbel(seed, position, token)
            assert abs(found / 2**120 - told[token]) < 2**-40


def test_logarithms_agree_at_the_ends_of_their_range(proof_harness: Any) -> None:
    numbers = [1, 2, 3, (1 << 53) - 1, 1 << 67, public_noise.ROOT_2, public_noise.ROOT_2 + 1, 53 * public_noise.LN_2]
    for number in (*numbers, 1 << 200, *(Random(5).getrandbits(120) + 1 for _ in range(20))):
        found = proof_harness.functions.ln(number).call()
        assert found == public_noise.ln(number)
        assert abs(found / 2**120 - float(np.log(float(number)))) < 1e-13
