"""What an operator agreed to: orders that go beyond it are refused, whoever signed them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from troth.node.errors import ConfigError, HostingRefused
from troth.node.pool.agreement import AutoLimits, LastHostingOrder, accepted, cache_tokens, device_kind, weight_bytes
from troth.node.pool.contacts import MarketContacts
from troth.node.pool.meter import Meter
from troth.node.pool.resident import Lent, Resident
from troth.node.pool.window import taken
from troth.protocol.market.state import State
from troth.protocol.sizes import ModelSizes, sizes_of
from troth.protocol.types import Address, Segment
from troth.protocol.wire_reports import HostingPart, SpanPart

LAYERS = 12
SIZES = ModelSizes(layer=100, key_value=2, embedding=50, head=50, tied=True)
AGREED = AutoLimits(Address("0x" + "11" * 20), 650, 60.0, most_groups=4)


def order(number: int, first: int, end: int, *segments: tuple[int, int]) -> HostingPart:
    return HostingPart(number, first, end, tuple(SpanPart(*span) for span in segments or ((first, end),)))


def test_an_order_inside_the_limits_is_carried_out() -> None:
    hosted, segments = accepted(order(1, 0, 6, (0, 3), (3, 6)), AGREED, LastHostingOrder(), SIZES, LAYERS)
    assert (hosted, segments) == (Segment(0, 6), (Segment(0, 3), Segment(3, 6)))
    assert accepted(order(2, 3, 9), AGREED, LastHostingOrder(1, 60.0), SIZES, LAYERS)[0] == Segment(3, 9)


@pytest.mark.parametrize(
    ("wrong", "place", "why"),
    [
        (order(1, 0, 6), LastHostingOrder(1, 100.0), "not newer"),
        (order(2, 0, 6), LastHostingOrder(1, 59.0), "moved lately"),
        (order(1, 0, 7), LastHostingOrder(), "does not fit"),
        (order(1, 6, 13), LastHostingOrder(), "no slice"),
        (order(1, 6, 6), LastHostingOrder(), "no slice"),
        (order(1, 6, 3), LastHostingOrder(), "no slice"),
        (order(1, 3, 6, (2, 6)), LastHostingOrder(), "no slice"),
        (order(1, 3, 6, (3, 7)), LastHostingOrder(), "no slice"),
        (order(1, 3, 6, (3, 4), (3, 4)), LastHostingOrder(), "twice"),
        (order(1, 0, 6, *((first, 6) for first in range(5))), LastHostingOrder(), "more groups"),
    ],
)
def test_an_order_beyond_a_limit_is_refused(wrong: HostingPart, place: LastHostingOrder, why: str) -> None:
    with pytest.raises(HostingRefused, match=why):
        accepted(wrong, AGREED, place, SIZES, LAYERS)


spans = some.tuples(some.integers(0, 255), some.integers(0, 255))


@given(number=some.integers(0, 9), hosted=spans, segments=some.lists(spans, min_size=1, max_size=16))
def test_no_order_leads_out_of_the_model_or_over_the_memory(
    number: int, hosted: tuple[int, int], segments: list[tuple[int, int]]
) -> None:
    try:
        slice_, joined = accepted(order(number, *hosted, *segments), AGREED, LastHostingOrder(), SIZES, LAYERS)
    except HostingRefused:
        return
    assert 0 <= slice_.first < slice_.end <= LAYERS
    assert SIZES.of_slice(slice_, LAYERS) <= AGREED.memory_bytes
    assert all(slice_.first <= one.first < one.end <= slice_.end for one in joined)


@pytest.mark.parametrize(
    ("hosted", "segments"),
    [
        ((0, 12), [(0, 12)]),
        ((6, 13), [(6, 13)]),
        ((-6, 0), [(-6, 0)]),
        ((0, 6), [(0, 7)]),
        ((0, 6), [(0, 6), (0, 6)]),
        ((0, 6), []),
        ((0, 6), [(0, 6)] * 17),
    ],
)
def test_a_newcomer_does_not_register_for_what_it_cannot_host(
    hosted: tuple[int, int], segments: list[tuple[int, int]]
) -> None:
    """It would be drawn for layers that it cannot load, and lose its stake by it."""
    with pytest.raises(ConfigError):
        taken(hosted, segments, AGREED, SIZES, LAYERS)
    assert taken((0, 6), [(0, 3)], AGREED, SIZES, LAYERS) == (Segment(0, 6), (Segment(0, 3),))


def test_hardware() -> None:
    assert [device_kind(device) for device in ("cpu", "cuda:1", "mps", "meta")] == ["cpu", "cuda", "mps", "cpu"]
    assert weight_bytes("cpu", 1 << 60, 7) == 7
    assert weight_bytes("cpu", 1 << 60, None) == 0
    assert weight_bytes("cpu", 0, None) > 1 << 20
    assert cache_tokens(1000, Segment(0, 5), SIZES) == 100
    assert cache_tokens(1000, Segment(0, 5), ModelSizes(0, 0, 0, 0, tied=False)) == 1000


def test_the_meter_tells_decode_from_prefill() -> None:
    meter = Meter()
    assert (meter.decode_seconds, meter.prefill_seconds) == (0.0, 0.0)
    meter.note(4, 1, 0.4)
    meter.note(4, 100, 4.0)
    assert (meter.decode_seconds, meter.prefill_seconds) == (0.1, 0.01)
    meter.note(4, 1, 0.8)
    assert 0.1 < meter.decode_seconds < 0.2
    for layers, positions, seconds in ((0, 1, 1.0), (1, 0, 1.0), (1, 1, 0.0), (1, 1, -1.0)):
        meter.note(layers, positions, seconds)
    assert 0.1 < meter.decode_seconds < 0.2


SMOLLM2: dict[str, Any] = {
    "hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3,
    "vocab_size": 49152, "tie_word_embeddings": True, "num_hidden_layers": 30,
}  # fmt: skip


def test_sizes_come_from_the_configuration() -> None:
    """SmolLM2-135M has 134,515,008 parameters, embedding and head being one tensor."""
    sizes = sizes_of(SMOLLM2, 1)
    whole = sizes.of_slice(Segment(0, 30), 30)
    assert abs(whole - 2 * 134_515_008) < 0.001 * whole
    assert sizes.key_value == 2 * 3 * 64 * 2
    assert sizes_of({"text_config": SMOLLM2}, 1).layer == sizes.layer
    assert sizes_of({"hidden_size": "x", "vocab_size": -1}, 0) == ModelSizes(0, 0, 0, 0, tied=False)
    experts = {**SMOLLM2, "num_experts": 8, "moe_intermediate_size": 100}
    assert sizes_of(experts, 1).layer > 8 * 3 * 576 * 100 * 2


async def test_a_node_in_the_pause_after_a_move_says_that_it_does_not_move() -> None:
    """The others would else be placed as if it moved, and wait for it."""
    engine = SimpleNamespace(slice=Segment(0, 6), layers=LAYERS)
    context: Any = SimpleNamespace(engine=engine, meter=Meter(), operator=None, execution_class=bytes(32))
    moved = asyncio.Event()

    async def move(_hosted: Segment, _segments: Sequence[Segment]) -> None:
        moved.set()

    contacts = MarketContacts(State)
    resident = Resident(
        context, Lent(650, 0), "cpu", SIZES, contacts=contacts, sessions=lambda: 0, agreement=AGREED, move=move
    )
    assert resident.draft(AGREED.scheduler).movable
    assert not resident.draft(Address("0x" + "22" * 20)).movable
    resident.on_order(AGREED.scheduler, order(1, 6, 12))
    await moved.wait()
    await asyncio.sleep(0)
    assert not resident.draft(AGREED.scheduler).movable
