"""S-IDA against what happens to cloves on their way: flipped, dropped, doubled, reordered, mixed, forged."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from troth.overlay.sida import BadClove, CloveSegment, Gathering, Threshold, parse, prepare, recover
from troth.overlay.sida import gathering as gathering_module
from troth.overlay.sida.clove import HEADER_BYTES, MOST_SEGMENT_BYTES, Clove, commitment
from troth.overlay.sida.errors import ContentTooLarge, MalformedClove, TooManyCloves, WrongThreshold
from troth.overlay.sida.gathering import MOST_SOURCES
from troth.overlay.sida.sending import SegmentKey

MESSAGE = bytes(range(256)) * 5
IDENTIFIER = b"i" * 16
SECRET = b"s" * 32


def cloves(n: int = 4, k: int = 3, message: bytes = MESSAGE, **options: object) -> list[bytes]:
    return prepare(message, Threshold(n, k), IDENTIFIER, **options)  # type: ignore[arg-type]


def flipped(wire: bytes, at: int) -> bytes:
    return wire[:at] + bytes((wire[at] ^ 0x40,)) + wire[at + 1 :]


def recommitted(clove: Clove) -> Clove:
    """A forger's clove: whatever it says, its own list agrees with it."""
    own = commitment(clove.segment.associated, clove.index, clove.share, clove.tag)
    at = HEADER_BYTES + 16 * clove.index
    return replace(clove, announced=clove.announced[:at] + own + clove.announced[at + 16 :])


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (4, 3), (5, 5), (8, 4), (32, 16), (32, 31), (32, 1)])
@pytest.mark.parametrize("length", [0, 1, 15, 30_000])
def test_the_first_and_the_last_k_cloves_give_the_message(n: int, k: int, length: int) -> None:
    message = bytes(length)
    wires = cloves(n, k, message, secret=SECRET)
    assert recover(wires[:k], SECRET).content == recover(wires[n - k :], SECRET).content == message
    assert recover(wires[: k - 1], SECRET).content is None


def test_every_subset_of_k_or_more_in_every_order_gives_the_message() -> None:
    wires = cloves(5, 3)
    for size in range(6):
        for chosen in itertools.permutations(wires, size):
            recovered = recover(chosen)
            assert recovered.content == (MESSAGE if size >= 3 else None)
            assert recovered.bad == []


def test_a_flip_of_any_byte_is_survived_and_named() -> None:
    wires = cloves(4, 3, b"message")
    for at in range(len(wires[1])):
        recovered = recover([flipped(wires[1], at), *wires[2:], wires[0]])
        assert recovered.content == b"message", at
        assert [bad.source for bad in recovered.bad] == [0], at


@pytest.mark.parametrize("secret", [b"", SECRET])
def test_as_many_bad_cloves_as_the_code_spares_stop_nothing(secret: bytes) -> None:
    n, k = 32, 16
    wires = cloves(n, k, secret=secret)
    attacked = [flipped(wire, len(wire) - 1) if index % 2 else wire for index, wire in enumerate(wires)]
    recovered = recover([*attacked[1::2], *attacked[0::2]], secret)
    assert recovered.content == MESSAGE
    assert sorted(bad.index for bad in recovered.bad) == list(range(1, n, 2))


def test_bad_cloves_that_come_after_the_message_are_named_too() -> None:
    wires = cloves()
    recovered = recover([*wires[:3], flipped(wires[3], len(wires[3]) - 1)])
    assert recovered.content == MESSAGE
    assert recovered.bad == [BadClove(3, 3, "the fragment was changed")]


def test_work_is_linear_in_the_cloves_whatever_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coalition that knows nothing but its own cloves: one decoding, and one tag a clove."""
    counts = {"keys": 0, "tags": 0, "openings": 0}

    class Counting(SegmentKey):
        def __init__(self, shared_key: bytes, secret: bytes) -> None:
            counts["keys"] += 1
            super().__init__(shared_key, secret)

        def is_tag(self, index: int, fragment: bytes, tag: bytes) -> bool:
            counts["tags"] += 1
            return super().is_tag(index, fragment, tag)

        def open(self, ciphertext: bytes | memoryview, associated: bytes) -> bytes | None:
            counts["openings"] += 1
            return super().open(ciphertext, associated)

    monkeypatch.setattr(gathering_module, "SegmentKey", Counting)
    n, k = 32, 16
    good = cloves(n, k)
    forged = [recommitted(replace(parse(wire), share=bytes(32))).to_bytes() for wire in good[k:]]
    altered = [flipped(wire, len(wire) - 1) for wire in good[k:]]
    recovered = recover([*forged, *altered, *good[:k]])
    assert recovered.content == MESSAGE
    assert counts == {"keys": 1, "tags": n, "openings": 1}


def test_a_coalition_of_k_that_agrees_on_a_list_costs_one_decoding_and_stops_nothing() -> None:
    genuine, forged = cloves(8, 4, secret=SECRET), cloves(8, 4, b"forged", secret=b"x" * 32)
    recovered = recover([*forged[4:], *genuine[:4]], SECRET)
    assert recovered.content == MESSAGE
    assert sorted(bad.index for bad in recovered.bad) == [4, 5, 6, 7]


def test_cloves_of_two_messages_never_mix() -> None:
    mine, other = cloves(), prepare(b"another", Threshold(4, 3), b"j" * 16)
    assert recover([*mine[:2], *other[:2]]).content is None
    recovered = recover([*other[:2], *mine[1:]])
    assert recovered.content == MESSAGE
    assert [(bad.index, bad.source) for bad in recovered.bad] == [(0, 0), (1, 1)]


def test_the_same_clove_thrice_counts_once() -> None:
    wires = cloves()
    assert recover([wires[0]] * 3).content is None
    assert recover([wires[0], wires[0], wires[1], wires[2]]).content == MESSAGE


def test_a_good_copy_of_a_clove_repairs_a_bad_one() -> None:
    wires = cloves(3, 3)
    recovered = recover([flipped(wires[0], len(wires[0]) - 1), *wires[1:], wires[0]])
    assert recovered.content == MESSAGE
    assert [(bad.index, bad.source) for bad in recovered.bad] == [(0, 0)]


@pytest.mark.parametrize(
    "change",
    [{"message_id": b"j" * 16}, {"number": 1}, {"last": False}, {"length": len(MESSAGE) - 1}],
    ids=["message", "number", "mark", "length"],
)
def test_a_header_rewritten_by_all_paths_together_is_refused_by_associated_data(change: dict[str, object]) -> None:
    """Even who rewrites every clove, and every list, moves no segment to another place."""
    parsed = [parse(wire) for wire in cloves(secret=SECRET)]
    segment = replace(parsed[0].segment, **change)  # type: ignore[arg-type]
    listed = b"".join(commitment(segment.associated, clove.index, clove.share, clove.tag) for clove in parsed)
    wires = [replace(clove, announced=segment.associated + listed).to_bytes() for clove in parsed]
    recovered = recover(wires, SECRET)
    assert recovered.content is None
    assert {bad.why for bad in recovered.bad} == {"its group does not decode"}


def test_all_shares_without_the_secret_open_nothing() -> None:
    wires = cloves(secret=SECRET)
    assert recover(wires).content is None
    assert recover(wires, b"t" * 32).content is None
    assert recover(wires, SECRET).content == MESSAGE


def test_no_single_path_can_be_the_sender_of_a_message_without_a_secret() -> None:
    gathering = Gathering()
    with pytest.raises(MalformedClove):
        gathering.add(parse(prepare(b"forged", Threshold(1, 1), IDENTIFIER, secret=SECRET)[0]), "forger")
    forged = prepare(b"forged", Threshold(2, 2), IDENTIFIER)
    gathering.add(parse(forged[0]), "forger")
    with pytest.raises(TooManyCloves):
        gathering.add(parse(forged[1]), "forger")
    for path, wire in enumerate(cloves()[:3]):
        done = gathering.add(parse(wire), path)
    assert done is not None
    assert done[1] == MESSAGE


def test_one_source_has_two_cloves_of_a_segment_and_a_segment_sixty_four_sources() -> None:
    wire = cloves(secret=SECRET)[0]
    gathering = Gathering(SECRET)
    gathering.add(parse(wire), "path")
    gathering.add(parse(wire), "path")
    with pytest.raises(TooManyCloves):
        gathering.add(parse(wire), "path")
    for other in range(MOST_SOURCES - 1):
        gathering.add(parse(wire), other)
    with pytest.raises(TooManyCloves):
        gathering.add(parse(wire), "one more")


def test_what_a_gathering_says_it_holds_goes_back_when_it_completes() -> None:
    wires = cloves()
    gathering = Gathering()
    empty = gathering.held_bytes
    gathering.add(parse(wires[0]))
    assert gathering.held_bytes > empty + len(MESSAGE) // 3
    gathering.add(parse(wires[1]))
    gathering.add(parse(wires[2]))
    assert gathering.complete
    assert gathering.held_bytes == empty


@pytest.mark.parametrize(("n", "k"), [(0, 0), (4, 0), (3, 4), (33, 3), (-1, -1)])
def test_thresholds_out_of_bounds_are_refused(n: int, k: int) -> None:
    with pytest.raises(WrongThreshold):
        Threshold(n, k)


def test_a_short_secret_and_one_path_without_any_are_refused() -> None:
    with pytest.raises(WrongThreshold):
        cloves(secret=b"short")
    with pytest.raises(WrongThreshold):
        cloves(2, 1)


def test_more_than_a_segment_carries_is_refused() -> None:
    with pytest.raises(ContentTooLarge):
        cloves(message=bytes(MOST_SEGMENT_BYTES + 1))


def test_a_wrong_number_of_cloves_announced_is_refused_before_anything_is_allocated() -> None:
    wire = cloves()[0]
    for at, values in {0: (0, 2, 255), 1: (0, 1, 2, 33, 255), 2: (0, 5, 255), 3: (4, 255), 24: (2, 255)}.items():
        for value in values:
            with pytest.raises(MalformedClove):
                parse(wire[:at] + bytes((value,)) + wire[at + 1 :])
    huge = CloveSegment(Threshold(4, 3), IDENTIFIER, 0, True, 0xFFFFFFFF).associated
    with pytest.raises(MalformedClove):
        parse(huge + wire[HEADER_BYTES:])
    with pytest.raises(MalformedClove):
        parse(wire, most_bytes=len(MESSAGE) - 1)
    for cut in (b"", wire[:28], wire[:-1], wire + b"\0"):
        with pytest.raises(MalformedClove):
            parse(cut)


def test_wire_bytes_stay_near_four_thirds_of_the_message() -> None:
    wires = cloves(message=bytes(30_000))
    assert 4 / 3 < sum(map(len, wires)) / 30_000 < 1.36
