"""Any message, any threshold, any damage that leaves k good cloves; and any bytes at all into the parser."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from troth.overlay.sida import Inbox, InboxLimits, Sender, Threshold, parse, prepare, recover, shamir
from troth.overlay.sida.erasure import TableCode, code_for
from troth.overlay.sida.errors import CloveRefused, MalformedClove

IDENTIFIER = b"i" * 16


@st.composite
def thresholds(draw: st.DrawFn, least: int = 1, most: int = 32) -> Threshold:
    n = draw(st.integers(least, most))
    return Threshold(n, draw(st.integers(min(2, n), n)))


secrets = st.one_of(st.just(b""), st.binary(min_size=16, max_size=64))


@pytest.mark.slow
@given(st.binary(max_size=3000), thresholds(2), secrets, st.randoms(use_true_random=False))
def test_what_is_prepared_is_recovered_from_any_k_in_any_order(message, threshold, secret, random) -> None:  # type: ignore[no-untyped-def]
    wires = prepare(message, threshold, IDENTIFIER, secret=secret)
    chosen = random.sample(wires, threshold.k)
    assert recover(chosen, secret).content == message
    assert recover(chosen[1:], secret).content is None
    assert [parse(wire).to_bytes() for wire in wires] == wires


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data(), thresholds(2, 12))
def test_damage_that_spares_k_stops_nothing_and_is_named(data: st.DataObject, threshold: Threshold) -> None:
    wires = prepare(b"message" * 20, threshold, IDENTIFIER)
    spared = set(data.draw(st.permutations(range(threshold.n)))[: threshold.k])
    sent, damaged = [], set()
    for index, whole in enumerate(wires):
        wire = whole
        if index not in spared:
            at = data.draw(st.integers(0, len(wire) - 1))
            change = data.draw(st.integers(1, 255))
            wire = wire[:at] + bytes((wire[at] ^ change,)) + wire[at + 1 :]
            damaged.add(index)
        sent.append(wire)
    order = data.draw(st.permutations(range(threshold.n)))
    recovered = recover([sent[index] for index in order])
    assert recovered.content == b"message" * 20
    assert {order[bad.source] for bad in recovered.bad} == damaged  # type: ignore[call-overload]


@given(st.binary(max_size=400))
def test_a_parser_fed_with_anything_gives_a_clove_or_one_error(wire: bytes) -> None:
    try:
        clove = parse(wire)
    except MalformedClove:
        return
    assert clove.to_bytes() == wire


@given(st.data())
def test_a_damaged_clove_is_parsed_to_itself_or_refused(data: st.DataObject) -> None:
    wire = bytearray(prepare(b"x" * 40, Threshold(4, 3), IDENTIFIER)[0])
    for _ in range(data.draw(st.integers(1, 6))):
        wire[data.draw(st.integers(0, 40))] = data.draw(st.integers(0, 255))
    cut = bytes(wire[: data.draw(st.integers(0, len(wire)))] if data.draw(st.booleans()) else wire)
    with suppress(MalformedClove):
        assert parse(cut).to_bytes() == cut


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 5), st.binary(max_size=3)), max_size=80))
def test_an_inbox_under_any_traffic_gives_each_part_once_in_order_within_its_memory(
    traffic: list[tuple[int, int, int, bytes]],
) -> None:
    senders = [Sender(Threshold(4, 3)) for _ in range(4)]
    wires = [[sender.send(bytes((at,)) * 30, last=at == 3) for at in range(4)] for sender in senders]
    inbox = Inbox(InboxLimits(messages=3, held_bytes=30_000))
    given_out: dict[bytes, int] = {}
    for message, number, path, junk in traffic:
        wire = wires[message][number][path % 4]
        wire = wire[: len(wire) - len(junk)] + junk
        try:
            parts = inbox.accept(wire, path, 0.0)
        except CloveRefused:
            continue
        for part in parts:
            assert part.number == given_out.get(part.message_id, 0)
            assert part.content == bytes((part.number,)) * 30
            assert part.last == (part.number == 3)
            given_out[part.message_id] = part.number + 1
        assert inbox.held_bytes <= 30_000
        assert len(inbox) <= 3


@pytest.mark.slow
@given(st.binary(min_size=1, max_size=64), thresholds(1), st.data())
def test_any_k_shares_give_the_secret(secret: bytes, threshold: Threshold, data: st.DataObject) -> None:
    size = (threshold.k - 1) * len(secret)
    randomness = data.draw(st.binary(min_size=size, max_size=size))
    shares = shamir.split(secret, threshold.n, threshold.k, randomness)
    chosen = data.draw(st.permutations(range(threshold.n)))[: threshold.k]
    assert shamir.combine({index: shares[index] for index in chosen}, threshold.k) == secret


@given(st.binary(min_size=1, max_size=300), thresholds(1), st.data())
def test_any_k_fragments_give_the_data_by_either_code(data: bytes, threshold: Threshold, draw: st.DataObject) -> None:
    assume(threshold.k <= 16 or len(data) < 100)
    fast, slow = code_for(threshold.n, threshold.k), TableCode(threshold.n, threshold.k)
    fragments = [bytes(fragment) for fragment in fast.encode(data)]
    assert fragments == slow.encode(data)
    chosen = {index: fragments[index] for index in draw.draw(st.permutations(range(threshold.n)))[: threshold.k]}
    assert fast.decode(chosen)[: len(data)] == slow.decode(chosen)[: len(data)] == data
