"""Agreement and clusters against their plain definitions."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troth.protocol.agreement import AgreementRule, agreeing_elements
from troth.protocol.errors import InvalidField, InvalidOpening
from troth.protocol.market.court import clusters
from troth.protocol.tensors import Dtype


def plainly_agree(first: int, second: int, mantissa: int, bits: int, steps: int) -> bool:
    if first >> mantissa != second >> mantissa:
        return False
    left, right = ((value % 2**mantissa) >> (mantissa - bits) for value in (first, second))
    return bool(abs(left - right) <= steps)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Dtype, int, int, list[int], list[int]]:
    dtype = draw(st.sampled_from(list(Dtype)))
    bits = draw(st.integers(0, dtype.mantissa_bits))
    steps = draw(st.integers(0, 20))
    top = 2 ** (8 * dtype.element_bytes)
    unit = 2 ** (dtype.mantissa_bits - bits)
    count = 32 // dtype.element_bytes * draw(st.integers(1, 3))
    first = draw(st.lists(st.integers(0, top - 1), min_size=count, max_size=count))
    moves = draw(
        st.lists(st.integers(-2 * steps * unit - unit, 2 * steps * unit + unit), min_size=count, max_size=count)
    )
    return dtype, bits, steps, first, [(a + move) % top for a, move in zip(first, moves, strict=True)]


@pytest.mark.slow
@settings(max_examples=300)
@given(cases())
def test_agreement_is_counted_as_defined(case: tuple[Dtype, int, int, list[int], list[int]]) -> None:
    dtype, bits, steps, first, second = case
    expected = sum(plainly_agree(a, b, dtype.mantissa_bits, bits, steps) for a, b in zip(first, second, strict=True))
    left, right = (b"".join(v.to_bytes(dtype.element_bytes, "big") for v in values) for values in (first, second))
    assert agreeing_elements(left, right, dtype, bits, steps) == (expected, len(first))
    assert agreeing_elements(right, left, dtype, bits, steps) == (expected, len(first))


def test_the_share_is_inclusive() -> None:
    first = struct.pack(">8f", *[1.0] * 8)
    second = struct.pack(">8f", *[1.0] * 6, -1.0, 2.0)
    assert AgreementRule(Dtype.FLOAT32, 10, 8, 7500).agrees(first, second)
    assert not AgreementRule(Dtype.FLOAT32, 10, 8, 7501).agrees(first, second)


def test_numbers_on_two_sides_of_a_power_of_two_disagree() -> None:
    first, second = struct.pack(">8I", *[0x3F800000] * 8), struct.pack(">8I", *[0x3F7FFFFF] * 8)
    assert agreeing_elements(first, second, Dtype.FLOAT32, 23, 100) == (0, 8)


@pytest.mark.parametrize(("first", "second"), [(b"", b""), (bytes(32), bytes(64)), (bytes(31), bytes(31))])
def test_openings_that_cannot_be_compared_are_refused(first: bytes, second: bytes) -> None:
    with pytest.raises(InvalidOpening, match="cannot be compared"):
        agreeing_elements(first, second, Dtype.FLOAT32, 10, 8)


def test_a_rule_has_no_more_bits_than_its_format() -> None:
    AgreementRule(Dtype.BFLOAT16, 7, 7, 6500)
    with pytest.raises(InvalidField, match="mantissa bits"):
        AgreementRule(Dtype.BFLOAT16, 8, 7, 6500)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[frozenset[int], list[tuple[int, int]]]:
    members = draw(st.frozensets(st.integers(0, 14), min_size=1))
    one = st.sampled_from(sorted(members))
    return members, draw(st.lists(st.tuples(one, one), max_size=20))


@pytest.mark.slow
@given(graphs())
def test_clusters_are_what_edges_reach(graph: tuple[frozenset[int], list[tuple[int, int]]]) -> None:
    members, edges = graph
    found = clusters(members, edges)
    assert sorted(member for cluster in found for member in cluster) == sorted(members)
    for cluster in found:
        reached = {min(cluster)}
        for _ in members:
            reached |= {end for edge in edges if reached & set(edge) for end in edge}
        assert reached == cluster


def test_an_edge_to_a_stranger_is_refused() -> None:
    with pytest.raises(InvalidField, match="outside the members"):
        clusters({0, 1}, [(0, 2)])
