"""The Solidity libraries against the Python rules, on a real EVM."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from web3.exceptions import ContractCustomError

from troth.protocol import p256, vrf
from troth.protocol.agreement import AgreementRule, agreeing_elements
from troth.protocol.hashing import abi_keccak
from troth.protocol.market.court import clusters
from troth.protocol.tensors import Dtype
from troth.protocol.trace import TileLayout, opening_root, tile_count
from troth.protocol.vrf import FIXED_HINTS, hints

pytestmark = [pytest.mark.chain, pytest.mark.slow]

EXECUTION_GAS_OF_THE_VRF = 33_300
GAS_PER_SKIPPED_COUNTER = 700
GAS_OF_ONE_AGREEMENT = 6_000


def test_vrf_outputs_are_equal_and_cheap(library_harness: Any) -> None:
    source = random.Random(1)
    skipped_seen = set()
    for _ in range(40):
        secret, alpha = (1 + source.randrange(p256.N - 2)).to_bytes(32, "big"), source.randbytes(32)
        key, proof = vrf.public_key(secret), vrf.prove(secret, alpha)
        given = hints(key, alpha, proof)
        gas, beta = library_harness.functions.vrfGas(*key, alpha, proof, given).call()
        assert beta == vrf.verify(key, alpha, proof)
        skipped = len(given) - FIXED_HINTS
        skipped_seen.add(skipped)
        assert gas <= EXECUTION_GAS_OF_THE_VRF + GAS_PER_SKIPPED_COUNTER * skipped
    assert {0, 1, 2} <= skipped_seen


@pytest.mark.parametrize("length", [0, 1, 31, 33, 200])
def test_vrf_takes_inputs_of_any_length(library_harness: Any, length: int) -> None:
    secret, alpha = bytes(31) + b"\x07", bytes(range(length))
    key, proof = vrf.public_key(secret), vrf.prove(secret, alpha)
    call = library_harness.functions.vrfOverBytes(*key, alpha, proof, hints(key, alpha, proof))
    assert call.call() == vrf.proof_to_hash(proof)


def test_no_flipped_bit_of_proof_or_hints_survives(library_harness: Any) -> None:
    secret = bytes(31) + b"\x05"
    key = vrf.public_key(secret)
    # One input whose first counter hits the curve, and one that needs witnesses.
    inputs = [bytes(31) + bytes([number]) for number in range(32)]
    proofs = [(alpha, proof, hints(key, alpha, proof)) for alpha in inputs if (proof := vrf.prove(secret, alpha))]
    plain = next(case for case in proofs if len(case[2]) == FIXED_HINTS)
    witnessed = next(case for case in proofs if len(case[2]) == FIXED_HINTS + 2)
    for alpha, proof, given in (plain, witnessed):
        bits = 8 * len(proof) + 256 * len(given)
        for start in range(0, bits, 400):
            stop = min(bits, start + 400)
            assert library_harness.functions.vrfSurvivors(*key, alpha, proof, given, start, stop).call() == 0
    # The counter of survivors does count: beyond the last bit nothing is changed, so reading there fails.
    with pytest.raises(Exception, match=r"0x|revert|out of bounds"):
        library_harness.functions.vrfSurvivors(*key, alpha, proof, given, bits, bits + 1).call()


SHAPES = [(1, 1, Dtype.FLOAT32), (8, 16, Dtype.FLOAT32), (19, 576, Dtype.FLOAT32), (33, 40, Dtype.BFLOAT16)]


@pytest.mark.parametrize(("rows", "columns", "dtype"), SHAPES)
def test_openings_lead_to_the_same_root(library_harness: Any, rows: int, columns: int, dtype: Dtype) -> None:
    generator = np.random.default_rng(rows)
    trace = generator.standard_normal((rows, columns)).astype(np.float32)
    if dtype is Dtype.BFLOAT16:
        trace = (trace.view(np.uint32) >> 16).astype(np.uint16)
    committed = TileLayout(b"\x01" * 32, b"\x02" * 32, rows, columns, dtype).commit(trace)
    count = tile_count(rows, columns, dtype)
    for tiles in {1, min(count, 4)}:
        seed, segment = generator.bytes(32), 3
        indices = [sampled_index(seed, segment, j, tiles, count) for j in range(tiles)]
        for j, index in enumerate(indices):
            assert library_harness.functions.tileIndex(seed, segment, j, tiles, count).call() == index
        opening = committed.open(indices)
        call = library_harness.functions.openingRoot(
            seed, segment, rows, columns, dtype, tiles, opening.tiles, list(opening.siblings)
        )
        assert call.call()[0] == committed.root == opening_root(rows, columns, dtype, indices, opening)


def sampled_index(seed: bytes, segment: int, j: int, tiles: int, count: int) -> int:
    start = j * count // tiles
    drawn = int.from_bytes(abi_keccak(["bytes32", "uint256", "uint256"], [seed, segment, j]), "big")
    return start + drawn % ((j + 1) * count // tiles - start)


def near(source: random.Random, opening: bytes, dtype: Dtype, spread: int) -> bytes:
    """Elements moved by up to ``spread`` units of the last place, across powers of two and through the sign too."""
    numbers = np.frombuffer(opening, dtype=f">u{dtype.element_bytes}").astype(np.int64)
    moved = numbers + np.array([source.randint(-spread, spread) for _ in numbers])
    wrapped = (moved % 2 ** (8 * dtype.element_bytes)).astype(f">u{dtype.element_bytes}")
    return bytes(wrapped.tobytes())


@pytest.mark.parametrize("dtype", list(Dtype))
def test_agreement_counts_are_equal(library_harness: Any, dtype: Dtype) -> None:
    source = random.Random(int(dtype))
    for bits in {0, 1, 5, 7, dtype.mantissa_bits - 1, dtype.mantissa_bits}:
        for steps in (0, 1, 8, 65_535):
            first = source.randbytes(512)
            unit = 1 << (dtype.mantissa_bits - bits)
            second = near(source, first, dtype, 2 * unit * min(steps, 64) + unit)
            expected = agreeing_elements(first, second, dtype, bits, steps)
            agreed, total, gas = library_harness.functions.agreeing(first, second, dtype, bits, steps).call()
            assert (agreed, total) == expected
            assert gas <= GAS_OF_ONE_AGREEMENT


def test_the_share_is_judged_alike(library_harness: Any) -> None:
    source = random.Random(3)
    first = source.randbytes(512)
    second = near(source, first, Dtype.FLOAT32, 1 << 17)
    agreed, total = agreeing_elements(first, second, Dtype.FLOAT32, 10, 8)
    limit = agreed * 10_000 // total
    for theta in (limit - 1, limit, limit + 1, 0, 10_000):
        rule = AgreementRule(Dtype.FLOAT32, 10, 8, theta)
        call = library_harness.functions.agrees(first, second, Dtype.FLOAT32, 10, 8, theta)
        assert call.call() == rule.agrees(first, second)


def test_clusters_are_equal(library_harness: Any) -> None:
    source = random.Random(4)
    for _ in range(60):
        verifiers = source.choice([1, 3, 5, 7, 15])
        members = {index for index in range(verifiers) if source.random() < 0.8}
        edges = [pair for pair in combinations(sorted(members), 2) if source.random() < 1.5 / verifiers]
        quorum = verifiers // 2 + 1
        mask = sum(1 << index for index in members)
        cluster, _ = library_harness.functions.properCluster(verifiers, edges, mask, quorum).call()
        proper = next((one for one in clusters(members, edges) if len(one) >= quorum), frozenset())
        assert cluster == sum(1 << index for index in proper)


def test_errors_name_the_check(library_harness: Any) -> None:
    with pytest.raises(ContractCustomError, match="0x"):
        library_harness.functions.vrf(1, 1, bytes(32), bytes(81), [0] * FIXED_HINTS).call()
