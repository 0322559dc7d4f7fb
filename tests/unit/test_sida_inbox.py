"""Long messages, and many at a time: order, end, truncation, replay, memory."""

from __future__ import annotations

import pytest

from troth.overlay.sida import Inbox, InboxLimits, SegmentContent, Sender, Threshold
from troth.overlay.sida.assembly import AHEAD, Assembly
from troth.overlay.sida.clove import parse
from troth.overlay.sida.errors import CloveRefused, LateClove, MalformedClove, MessageEnded, OutOfWindow
from troth.overlay.sida.gathering import GATHERING_OVERHEAD

FOUR_THREE = Threshold(4, 3)
SECRET = b"s" * 32


def feed(inbox: Inbox, cloves: list[bytes], now: float = 0.0, secret: bytes = b"") -> list[SegmentContent]:
    return [part for path, wire in enumerate(cloves) for part in inbox.accept(wire, path, now, secret)]


def segments(contents: list[bytes], secret: bytes = b"") -> list[list[bytes]]:
    sender = Sender(FOUR_THREE, secret)
    return [sender.send(content, last=at == len(contents) - 1) for at, content in enumerate(contents)]


@pytest.mark.parametrize("length", [0, 1, 99, 100, 101, 1000])
def test_a_long_message_arrives_in_order_and_says_where_it_ends(length: int) -> None:
    message = bytes(index % 251 for index in range(length))
    inbox = Inbox()
    parts = [part for wires in Sender(FOUR_THREE).cut(message, 100) for part in feed(inbox, wires[:3])]
    assert b"".join(part.content for part in parts) == message
    assert [part.number for part in parts] == list(range(len(parts)))
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert (len(inbox), inbox.held_bytes) == (0, 0)


def test_segments_that_overtake_each_other_wait_for_their_turn() -> None:
    first, second, third = segments([b"a", b"b", b"c"])
    inbox = Inbox()
    assert feed(inbox, third) == feed(inbox, second) == []
    assert [part.content for part in feed(inbox, first)] == [b"a", b"b", b"c"]


def test_a_message_without_its_last_segment_is_reported_lost() -> None:
    first, second, _ = segments([b"a", b"b", b"c"])
    inbox = Inbox(InboxLimits(seconds=10))
    feed(inbox, first, now=0)
    feed(inbox, second, now=5)
    inbox.expire(14)
    assert not inbox.lost
    inbox.expire(15)
    (lost,) = inbox.lost
    assert (lost.next_number, lost.why) == (2, "no part in time")
    assert (len(inbox), inbox.held_bytes) == (0, 0)
    with pytest.raises(LateClove):
        inbox.accept(first[0], 0, 16)


def test_nothing_follows_the_last_segment() -> None:
    sender = Sender(FOUR_THREE)
    wires = sender.send(b"end", last=True)
    with pytest.raises(MessageEnded):
        sender.send(b"more")
    inbox = Inbox()
    feed(inbox, wires)
    continued = [wire[:20] + (1).to_bytes(4, "big") + wire[24:] for wire in wires]
    with pytest.raises(LateClove):
        inbox.accept(continued[0], 9, 0)


def test_a_replayed_message_is_refused_and_a_replayed_segment_gives_nothing() -> None:
    first, second = segments([b"a", b"b"])
    inbox = Inbox()
    assert len(feed(inbox, first)) == 1
    assert [inbox.accept(wire, path + 10, 0) for path, wire in enumerate(first)] == [[]] * 4
    assert len(feed(inbox, second)) == 1
    assert [inbox.accept(wire, path + 20, 0) for path, wire in enumerate((*first, *second))] == [[]] * 8
    assert len(inbox) == 0


def test_the_replay_of_a_message_that_is_no_longer_judged_is_refused() -> None:
    inbox = Inbox(InboxLimits(judged=1))
    old, new = segments([b"old"]), segments([b"new"])
    feed(inbox, old[0])
    feed(inbox, new[0])
    for wire in old[0]:
        with pytest.raises(LateClove):
            inbox.accept(wire, "again", 0)


def test_a_segment_of_one_message_is_not_taken_for_one_of_another() -> None:
    mine, other = segments([b"mine", b"end"], SECRET), segments([b"other", b"end"], SECRET)
    spliced = [mine[0][0][:20].join((b"", wire[20:])) for wire in other[0]]
    inbox = Inbox()
    assert feed(inbox, spliced, secret=SECRET) == []
    assert [inbox.accept(wire, path + 10, 0, SECRET) for path, wire in enumerate(mine[0])][2][0].content == b"mine"


def test_bad_cloves_are_named_while_the_message_is_open_and_after() -> None:
    first, second = segments([b"a" * 50, b"b" * 50])
    inbox = Inbox()
    changed = first[0][:-1] + bytes((first[0][-1] ^ 1,))
    feed(inbox, [changed, *first[1:]])
    identifier = parse(first[0]).segment.message_id
    assert [(bad.index, bad.source) for bad in inbox.bad(identifier)] == [(0, 0)]
    feed(inbox, second[1:])
    late = second[0][:-1] + bytes((second[0][-1] ^ 1,))
    assert inbox.accept(late, "late path", 0) == []
    assert [bad.source for bad in inbox.bad(identifier)] == [0, "late path"]
    assert inbox.bad(b"unknown" * 2) == []


def test_segments_far_ahead_are_not_kept() -> None:
    sender = Sender(FOUR_THREE)
    wires = [sender.send(b"x") for _ in range(AHEAD + 1)]
    inbox = Inbox()
    for cloves in wires[1:AHEAD]:
        feed(inbox, cloves)
    with pytest.raises(OutOfWindow):
        inbox.accept(wires[AHEAD][0], 0, 0)
    assert len(feed(inbox, wires[0][:3])) == AHEAD


def test_segments_kept_beyond_the_end_are_dropped_with_it() -> None:
    assembly = Assembly()
    sender = Sender(FOUR_THREE)
    wires = [sender.send(b"x") for _ in range(3)]
    for path, wire in enumerate(wires[2][:2]):
        assembly.add(parse(wire), path)
    held = assembly.held_bytes
    rewritten = Sender(FOUR_THREE, random_bytes=lambda count: (sender.message_id * 32)[:count])
    rewritten.send(b"")
    for path, wire in enumerate(rewritten.send(b"end", last=True)):
        assembly.add(parse(wire), path)
    assert assembly.held_bytes < held
    with pytest.raises(LateClove):
        assembly.add(parse(wires[2][2]), 2)


def test_one_source_that_never_ends_its_messages_evicts_its_own() -> None:
    honest = segments([b"honest" * 100, b"end"])
    inbox = Inbox(InboxLimits(messages=10))
    feed(inbox, honest[0][:2])
    for _ in range(50):
        inbox.accept(Sender(FOUR_THREE).send(b"")[0], "attacker", 0)
    assert len(inbox) == 10
    assert {lost.why for lost in inbox.lost} == {"memory is full"}
    assert inbox.accept(honest[0][2], 2, 0)[0].content == b"honest" * 100


def test_a_path_that_opens_a_message_first_cannot_evict_it_by_a_flood() -> None:
    honest = segments([b"honest" * 100, b"end"])
    inbox = Inbox(InboxLimits(messages=10))
    inbox.accept(honest[0][0], "attacker", 0)
    inbox.accept(honest[0][1], 1, 0)
    for _ in range(50):
        inbox.accept(Sender(FOUR_THREE).send(bytes(1000))[0], "attacker", 0)
    assert inbox.accept(honest[0][2], 2, 0)[0].content == b"honest" * 100


def test_a_table_full_of_half_complete_messages_still_takes_new_ones() -> None:
    inbox = Inbox(InboxLimits(messages=10))
    for _ in range(50):
        wires = Sender(FOUR_THREE).send(b"")
        inbox.accept(wires[0], "attacker", 0)
        inbox.accept(wires[1], "colluder", 0)
    (honest,) = segments([b"honest"])
    assert [part.content for part in feed(inbox, honest)] == [b"honest"]


def test_a_flood_of_small_messages_does_not_evict_a_large_one() -> None:
    honest = segments([b"honest" * 10_000, b"end"])
    inbox = Inbox(InboxLimits(messages=10))
    feed(inbox, honest[0][:2])
    for _ in range(50):
        inbox.accept(Sender(FOUR_THREE).send(b"")[0], "attacker", 0)
    assert inbox.accept(honest[0][2], 2, 0)[0].content == b"honest" * 10_000


def test_bytes_held_stay_below_the_limit_and_the_heaviest_source_pays() -> None:
    limit = 200_000
    honest = segments([b"honest" * 100, b"end"])
    inbox = Inbox(InboxLimits(held_bytes=limit))
    feed(inbox, honest[0][:2])
    for _ in range(50):
        inbox.accept(Sender(FOUR_THREE).send(bytes(60_000))[0], "attacker", 0)
        assert inbox.held_bytes <= limit
    assert inbox.accept(honest[0][2], 2, 0)[0].content == b"honest" * 100


def test_accounts_close_with_their_messages() -> None:
    inbox = Inbox(InboxLimits(remembered=3, judged=2))
    for _ in range(10):
        for wires in segments([b"a", b"b"]):
            feed(inbox, wires)
    assert (len(inbox), inbox.held_bytes, inbox._accounts) == (0, 0, {})
    assert (len(inbox._over), len(inbox._judged)) == (3, 2)


def test_a_refused_clove_opens_no_account_for_what_it_does_not_hold() -> None:
    sender = Sender(FOUR_THREE)
    far = [sender.send(b"x") for _ in range(AHEAD + 1)][-1]
    inbox = Inbox()
    for wire in (b"", b"\x01" * 200, far[0]):
        with pytest.raises(CloveRefused):
            inbox.accept(wire, "attacker", 0)
    assert inbox.held_bytes <= GATHERING_OVERHEAD
    with pytest.raises(MalformedClove):
        Inbox(InboxLimits(segment_bytes=10)).accept(Sender(FOUR_THREE).send(bytes(11))[0], 0, 0)


def test_paths_that_choose_a_low_threshold_of_their_own_are_refused_where_one_is_agreed() -> None:
    sender = Sender(FOUR_THREE)
    honest = sender.send(b"honest", last=True)
    forged = Sender(Threshold(2, 2), random_bytes=lambda count: (sender.message_id * 32)[:count]).send(b"forged")
    inbox = Inbox(InboxLimits(threshold=FOUR_THREE))
    for path, wire in enumerate(forged):
        with pytest.raises(MalformedClove):
            inbox.accept(wire, path, 0)
    assert [part.content for part in feed(inbox, honest)] == [b"honest"]


def test_messages_under_different_secrets_never_meet() -> None:
    (wires,) = segments([b"answer"], SECRET)
    inbox = Inbox()
    assert feed(inbox, wires, secret=b"another secret, 16 bytes or more") == []
    assert feed(inbox, wires, secret=SECRET)[0].content == b"answer"
