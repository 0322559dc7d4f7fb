"""The arithmetic of proofs in Solidity and in Python: the same integers over all of the formats' edges."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from web3.exceptions import ContractCustomError

from troth.protocol import public_noise
from troth.protocol.errors import InvalidNumbers
from troth.protocol.exact_numbers import NumberFormat, multiply, read_numbers
from troth.protocol.hashing import keccak256
from troth.protocol.tokens import noise

TERM_TOO_LARGE = "0x" + keccak256(b"TermTooLarge()")[:4].hex()
EDGES = {
    NumberFormat.FLOAT32: (
        *(0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x00800001, 0x3F7FFFFF, 0x3F800000),
        *(0x3F807FFF, 0x3F808000, 0x3F808001, 0x3F818000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F7F8000, 0x7F800000, 0x7FC00000),
    ),
    NumberFormat.BFLOAT16: (0x0000, 0x8000, 0x0001, 0x007F, 0x0080, 0x3F80, 0xBF80, 0x7F7F, 0x7F80, 0x7FC0, 0xFF80),
    NumberFormat.FLOAT16: (0x0000, 0x8000, 0x0001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0x7C00, 0x7E00, 0xFC00),
}


def _row(source: Random, number_format: NumberFormat, count: int, *, moderate: bool = False) -> bytes:
    bits = 8 * number_format.width
    words = []
    for _ in range(count):
        if moderate:
            value = np.float32(source.gauss(0, 4))
            word = int(value.view(np.uint32)) >> (32 - bits) if bits == 32 or number_format == 1 else 0
            word = word if number_format != NumberFormat.FLOAT16 else int(np.float16(value).view(np.uint16))
        else:
            word = source.choice(EDGES[number_format]) if source.random() < 0.3 else source.getrandbits(bits)
        words.append(word)
    return np.array(words, f"<u{number_format.width}").tobytes()


@pytest.mark.parametrize("number_format", list(NumberFormat))
@pytest.mark.parametrize("rounded", [False, True])
def test_numbers_are_read_alike(proof_harness: Any, number_format: NumberFormat, rounded: bool) -> None:
    source = Random(int(number_format) * 2 + rounded)
    edges = np.array(EDGES[number_format], f"<u{number_format.width}").tobytes()
    rows = [b"", edges, *(_row(source, number_format, source.randrange(1, 70)) for _ in range(40))]
    for data in rows:
        words, finite = proof_harness.functions.read(data, number_format, rounded).call()
        found = read_numbers(data, number_format, rounded=rounded)
        assert finite == found.finite
        assert [word & 0xFFFFFF for word in words] == found.mantissa.tolist()
        assert [word >> 64 & 0x1FF for word in words] == found.exponent.tolist()
        assert [word >> 255 for word in words] == found.sign.tolist()


@pytest.mark.parametrize("state", [NumberFormat.FLOAT32, NumberFormat.BFLOAT16])
@pytest.mark.parametrize("weights", list(NumberFormat))
@pytest.mark.parametrize("moderate", [False, True])
def test_products_are_the_same_integers(
    proof_harness: Any, state: NumberFormat, weights: NumberFormat, moderate: bool
) -> None:
    source, refused = Random(17 + 10 * int(state) + int(weights)), 0
    for _ in range(60):
        count = source.randrange(1, 80)
        one = _row(source, state, count, moderate=moderate)
        other = _row(source, weights, count, moderate=moderate)
        rounded = state is NumberFormat.BFLOAT16
        call = proof_harness.functions.multiply(one, other, state, weights, rounded)
        try:
            left, right = read_numbers(one, state), read_numbers(other, weights, rounded=rounded)
            expected = multiply(left, right)
        except InvalidNumbers:
            refused += 1
            with pytest.raises(ContractCustomError, match=TERM_TOO_LARGE):
                call.call()
            continue
        found = call.call()
        assert tuple(found[:3]) == (expected.sum, expected.size, expected.slack(rounded=rounded))
        if moderate:
            exact = float(np.dot(_wide(left), _wide(right)))
            assert abs(expected.sum / 2**96 - exact) <= 1e-9 * (1 + expected.size / 2**96)
    assert refused < 60


def _wide(vector: Any) -> Any:
    return np.where(vector.sign == 1, -1.0, 1.0) * np.ldexp(vector.mantissa.astype(float), vector.exponent - 150)


def test_noise_is_the_same_integer_and_that_of_the_nodes(proof_harness: Any) -> None:
    source, vocabulary = Random(3), 4_099
    for _ in range(12):
        seed, position = source.randbytes(32), source.choice((0, 1, source.getrandbits(32)))
        told = noise(seed, position, vocabulary)  # type: ignore[arg-type]
        for token in (0, 1, 2, 3, 4, vocabulary - 1, source.randrange(vocabulary)):
            assert proof_harness.functions.draw(seed, position, token).call() == public_noise.draw(seed, position, token)
            found = proof_harness.functions.gumbel(seed, position, token).call()
            assert found == public_noise.gumbel(seed, position, token)
            assert abs(found / 2**120 - told[token]) < 2**-40


def test_logarithms_agree_at_the_ends_of_their_range(proof_harness: Any) -> None:
    numbers = [1, 2, 3, (1 << 53) - 1, 1 << 67, public_noise.ROOT_2, public_noise.ROOT_2 + 1, 53 * public_noise.LN_2]
    for number in (*numbers, 1 << 200, *(Random(5).getrandbits(120) + 1 for _ in range(20))):
        found = proof_harness.functions.ln(number).call()
        assert found == public_noise.ln(number)
        assert abs(found / 2**120 - float(np.log(float(number)))) < 1e-13
