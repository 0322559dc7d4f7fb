"""The parts of S-IDA against definitions: the field, Shamir's sharing, the erasure code, frozen vectors."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from troth.overlay.sida import Threshold, erasure, parse, prepare, recover, shamir
from troth.overlay.sida.erasure import IsalCode, TableCode, cauchy_matrix, code_for
from troth.overlay.sida.shamir import INVERSE, MULTIPLY, POLYNOMIAL, combination, inverse_of

VECTORS = json.loads((Path(__file__).parent / "data" / "sida_vectors.json").read_text())


def slow_product(left: int, right: int) -> int:
    product = 0
    for bit in range(8):
        product ^= (left << bit) * (right >> bit & 1)
    for bit in range(14, 7, -1):
        product ^= (POLYNOMIAL << (bit - 8)) * (product >> bit & 1)
    return product


def test_products_are_those_of_polynomials_and_inverses_invert() -> None:
    for left in range(256):
        assert list(MULTIPLY[left]) == [slow_product(left, right) for right in range(256)]
        assert left == 0 or MULTIPLY[left][INVERSE[left]] == 1


def test_a_matrix_times_its_inverse_is_the_identity_and_a_singular_one_has_none() -> None:
    for rows in itertools.combinations(range(6), 3):
        matrix = tuple(cauchy_matrix(6, 3)[row] for row in rows)
        columns = [bytes(column) for column in zip(*inverse_of(matrix), strict=True)]
        product = [[combination(row, [bytes((v,)) for v in column])[0] for column in columns] for row in matrix]
        assert product == np.eye(3, dtype=int).tolist()
    with pytest.raises(ZeroDivisionError):
        inverse_of(((1, 2), (1, 2)))


@pytest.mark.parametrize("secret", [0, 1, 0xA5])
def test_two_of_three_shares_say_nothing_exactly(secret: int) -> None:
    """All 65,536 pairs of coefficients, once each: every two shares take every pair of values exactly once."""
    size = 65536
    coefficients = np.arange(size, dtype=np.uint32)
    randomness = (coefficients & 0xFF).astype(np.uint8).tobytes() + (coefficients >> 8).astype(np.uint8).tobytes()
    shares = shamir.split(bytes((secret,)) * size, 4, 3, randomness)
    for left, right in itertools.combinations(shares, 2):
        assert len(set(zip(left, right, strict=True))) == size


def test_shares_of_prepared_messages_are_uniform_whatever_the_message() -> None:
    """Chi-square over the share bytes of 2,000 messages, at a level that one honest run in 10^6 misses."""
    counts: Counter[int] = Counter()
    for number in range(2000):
        wires = prepare(b"\0" * 8, Threshold(4, 3), b"i" * 16, number=number)
        counts.update(parse(wires[number % 4]).share)
    expected = 2000 * 32 / 256
    assert sum((counts[value] - expected) ** 2 / expected for value in range(256)) < 371


def test_a_fragment_is_ciphertext() -> None:
    message = b"a prompt that must not be seen! " * 100
    first, second = (prepare(message, Threshold(4, 3), b"i" * 16) for _ in range(2))
    for wire, again in zip(first, second, strict=True):
        assert b"prompt" not in wire
        assert parse(wire).fragment != parse(again).fragment
        assert len(set(parse(wire).fragment)) > 200


def test_shares_and_randomness_of_a_wrong_number_are_refused() -> None:
    with pytest.raises(ValueError, match="coefficients"):
        shamir.split(b"k" * 32, 4, 3, bytes(32))
    with pytest.raises(ValueError, match="shares"):
        shamir.combine({0: b"a", 1: b"b"}, 3)
    for code in (TableCode(4, 3), code_for(4, 3)):
        with pytest.raises(ValueError, match="fragments"):
            code.decode({0: b"a", 1: b"b"})


@pytest.mark.parametrize("k", [1, 2, 3, 16, 31])
def test_isal_and_tables_give_the_same_bytes(k: int) -> None:
    pytest.importorskip("pyeclib")
    for n in {k + 1, min(32, 2 * k), 32}:
        for length in (1, k, k + 1, 17, 100 * k + 1):
            data = os.urandom(length)
            fragments = [bytes(fragment) for fragment in code_for(n, k).encode(data)]
            assert fragments == TableCode(n, k).encode(data)
            last = dict(list(enumerate(fragments))[-k:])
            assert code_for(n, k).decode(last) == TableCode(n, k).decode(last) == data.ljust(-(-length // k) * k, b"\0")


def test_tables_serve_where_pyeclib_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyeclib", "pyeclib.ec_iface"):
        monkeypatch.setitem(sys.modules, name, None)
    # Imported again, as on a machine that never had pyeclib.
    there = importlib.util.spec_from_file_location("erasure_without_pyeclib", erasure.__file__)
    assert there is not None
    assert there.loader is not None
    again = importlib.util.module_from_spec(there)
    there.loader.exec_module(again)
    code = again.code_for(4, 3)
    assert isinstance(code, again.TableCode)
    assert code.encode(b"troth") == TableCode(4, 3).encode(b"troth")


def test_tables_serve_where_pyeclib_has_no_isal(monkeypatch: pytest.MonkeyPatch) -> None:
    interface = pytest.importorskip("pyeclib.ec_iface")

    def without_isal(**_: object) -> None:
        raise interface.ECDriverError("no such backend")

    assert isinstance(code_for.__wrapped__(4, 3), IsalCode)
    monkeypatch.setattr(interface, "ECDriver", without_isal)
    assert isinstance(code_for.__wrapped__(4, 3), TableCode)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_frozen_vectors(vector: dict[str, object]) -> None:
    """The wire format of version 1; a change here is a change of the version."""
    case = {name: bytes.fromhex(value) for name, value in vector["bytes"].items()}  # type: ignore[attr-defined]
    threshold = Threshold(vector["n"], vector["k"])  # type: ignore[arg-type]
    wires = prepare(
        case["content"],
        threshold,
        case["message_id"],
        number=vector["number"],  # type: ignore[arg-type]
        last=vector["last"],  # type: ignore[arg-type]
        secret=case["secret"],
        random_bytes=lambda count: case["randomness"][:count],
    )
    assert [wire.hex() for wire in wires] == vector["cloves"]
    assert recover(wires[threshold.n - threshold.k :], case["secret"]).content == case["content"]
