"""One node's view of its group: updates, gaps, snapshots, expectations, deaths, and what liars gain."""

from __future__ import annotations

import pytest
from support.prefixes import IDLE, naming, stored, view_of, words

from troth.routing.prefixes.announcing import INTERVAL, Announcer
from troth.routing.prefixes.claims import PrefixClaims
from troth.routing.prefixes.errors import GroupFull, UpdateMalformed
from troth.routing.prefixes.following import UpdateFate
from troth.routing.prefixes.local_blocks import BlocksRemoved, Changes, LocalBlocks
from troth.routing.prefixes.members import SILENCE
from troth.routing.prefixes.naming import Naming
from troth.routing.prefixes.update import (
    LARGEST_UPDATE,
    ChunkRun,
    Heartbeat,
    NodeLoad,
    Update,
    encode_heartbeat,
    encode_update,
)
from troth.routing.prefixes.view import PATIENCE, GroupView

NAMING = naming()
EVERYBODY = 0b111


class _Node:
    """A node that tells what its engine does."""

    def __init__(self, epoch: int = 1) -> None:
        self.blocks = LocalBlocks(NAMING)
        self.announcer = Announcer(NAMING.identity, epoch)

    def store(self, *blocks: int) -> None:
        self.announcer.note(self.blocks.apply(stored(blocks)))

    def remove(self, *blocks: int) -> None:
        self.announcer.note(self.blocks.apply(BlocksRemoved(stored(blocks).hashes[-1:])))

    def say(self) -> bytes:
        return encode_update(self.announcer.next_update(IDLE))

    def say_all(self) -> bytes:
        return encode_update(self.announcer.snapshot(IDLE))

    def beat(self, load: NodeLoad = IDLE) -> bytes:
        return encode_heartbeat(self.announcer.heartbeat(load))


def _held(view: GroupView, name: str, *blocks: int) -> int:
    return view.search(NAMING.path(words(blocks)), EVERYBODY).held_by(view.members[name].slot)


def test_what_a_node_says_is_found_and_what_it_takes_back_is_not() -> None:
    view, node = view_of("abc", NAMING), _Node()
    node.store(1, 2, 3)
    assert view.receive("a", node.say(), 1.0) is UpdateFate.APPLY
    assert _held(view, "a", 1, 2, 3, 4) == 96
    assert _held(view, "b", 1, 2, 3) == 0
    node.remove(1, 2, 3)
    node.store(1, 9)
    assert view.receive("a", node.say(), 2.0) is UpdateFate.APPLY
    assert _held(view, "a", 1, 2, 3) == 64
    assert _held(view, "a", 1, 9) == 64
    matches = view.search(NAMING.path(words([1, 2])), EVERYBODY)
    assert (matches.tokens, matches.chunks, matches.levels) == (64, (2,), ((64, 1),))


def test_a_search_is_restricted_to_the_candidates() -> None:
    view, node = view_of("abc", NAMING), _Node()
    node.store(1, 2)
    view.receive("a", node.say(), 1.0)
    assert view.search(NAMING.path(words([1, 2])), 0b110).tokens == 0
    assert view.search(NAMING.path(words([1, 2])), 0).levels == ()


def test_what_comes_and_goes_between_updates_is_not_sent() -> None:
    node = _Node()
    node.store(1)
    node.say()
    node.store(2)
    node.remove(2)
    node.remove(1)
    node.store(1)
    update = node.announcer.next_update(IDLE)
    assert (update.stored, update.removed) == ((), ())


def test_a_replayed_update_changes_nothing() -> None:
    view, node = view_of("abc", NAMING), _Node()
    node.store(1)
    first = node.say()
    view.receive("a", first, 1.0)
    node.remove(1)
    second = node.say()
    view.receive("a", second, 2.0)
    for again in (first, second, node.say_all()):
        assert view.receive("a", again, 3.0) is UpdateFate.REPEATED
    assert _held(view, "a", 1) == 0
    assert view.members["a"].heard == 2.0  # A replay keeps nobody alive.


def test_after_a_gap_only_a_snapshot_helps_and_it_is_asked_for_once_an_interval() -> None:
    view, node = view_of("abc", NAMING), _Node()
    node.store(1)
    view.receive("a", node.say(), 1.0)
    node.store(2)
    node.say()  # Lost.
    node.store(3)
    assert view.receive("a", node.say(), 2.0) is UpdateFate.GAP
    assert _held(view, "a", 3) == 0
    assert view.may_ask("a", 2.0)
    assert not view.may_ask("a", 2.0 + INTERVAL / 2)
    assert view.receive("a", node.say_all(), 3.0) is UpdateFate.APPLY
    assert [_held(view, "a", block) for block in (1, 2, 3)] == [32, 32, 32]
    node.store(4)
    assert view.receive("a", node.say(), 4.0) is UpdateFate.APPLY


def test_a_restarted_node_counts_anew_and_its_old_words_stay_old() -> None:
    view, old, new = view_of("abc", NAMING), _Node(epoch=1), _Node(epoch=2)
    old.store(1)
    before = old.say()
    new.store(2)
    assert view.receive("a", new.say(), 1.0) is UpdateFate.APPLY
    assert view.receive("a", before, 2.0) is UpdateFate.REPEATED
    assert (_held(view, "a", 1), _held(view, "a", 2)) == (0, 32)


def test_a_heartbeat_brings_the_load_and_no_names() -> None:
    view, node = view_of("abc", NAMING), _Node()
    load = NodeLoad(latency=2.0, queued=3, capacity=8, taken=17)
    assert view.receive("a", node.beat(load), 1.0) is UpdateFate.APPLY  # Before its first update.
    assert (view.members["a"].load, view.members["a"].heard) == (load, 1.0)
    node.store(1)
    view.receive("a", node.say(), 2.0)
    assert view.receive("a", node.beat(), 3.0) is UpdateFate.APPLY
    node.store(2)
    assert view.receive("a", node.say(), 4.0) is UpdateFate.APPLY  # No gap behind a heartbeat.
    assert [_held(view, "a", block) for block in (1, 2)] == [32, 32]


def test_a_heartbeat_shows_that_an_update_was_missed() -> None:
    view, node = view_of("abc", NAMING), _Node()
    view.receive("a", node.say(), 1.0)
    node.store(1)
    node.say()  # Lost.
    assert view.receive("a", node.beat(), 2.0) is UpdateFate.GAP
    assert view.receive("a", node.beat(), 3.0) is UpdateFate.GAP
    assert view.receive("a", node.say_all(), 4.0) is UpdateFate.APPLY
    assert view.receive("a", node.beat(), 5.0) is UpdateFate.APPLY
    assert _held(view, "a", 1) == 32


def test_old_heartbeats_change_nothing_and_keep_nobody_alive() -> None:
    view, old, new = view_of("abc", NAMING), _Node(epoch=1), _Node(epoch=2)
    view.receive("a", old.say(), 1.0)
    first, second, late = old.beat(), old.beat(), old.beat()
    assert view.receive("a", second, 2.0) is UpdateFate.APPLY
    update = old.say()
    assert view.receive("a", update, 3.0) is UpdateFate.APPLY
    for again in (first, second, late):  # Out of order, again, and overtaken by an update.
        assert view.receive("a", again, 4.0) is UpdateFate.REPEATED
    before = old.beat()
    assert view.receive("a", new.beat(), 5.0) is UpdateFate.APPLY
    assert view.receive("a", before, 6.0) is UpdateFate.REPEATED  # From before the restart.
    assert view.members["a"].heard == 5.0


def test_a_dead_node_that_sends_heartbeats_is_asked_for_a_snapshot() -> None:
    view, node = view_of("a", NAMING), _Node()
    node.store(1)
    view.receive("a", node.say(), 1.0)
    view.expire(SILENCE + 1.5)
    assert view.receive("a", node.beat(), SILENCE + 2) is UpdateFate.GAP
    assert view.members["a"].alive
    assert view.receive("a", node.say_all(), SILENCE + 3) is UpdateFate.APPLY
    assert _held(view, "a", 1) == 32


def test_the_encoding_is_the_one_that_was_released() -> None:
    load = NodeLoad(0.25, 1, 2, 32, 0.0005, 7_000, 2**32 + 5)
    update = Update(False, b"abcd", 1_700_000_000_000, 3, load, (ChunkRun(0, (7, 8)),), (9,))
    head = "616263640068e5cf8b010000030000000000000090d0030001000200200020a10700581b000005000000"
    body = "01000000010000000000000002070000000800000009000000"
    assert encode_update(update).hex() == "0200" + head + body
    heartbeat = Heartbeat(b"abcd", 1_700_000_000_000, 3, 4, load)
    assert encode_heartbeat(heartbeat).hex() == "0202" + head + "04000000"


@pytest.mark.parametrize(("place", "value"), [(0, b"\1"), (1, b"\3"), (30, b"\0\0"), (46, b"\0\0\0\0")])
def test_a_heartbeat_of_another_version_or_kind_or_without_capacity_or_number_is_refused(
    place: int, value: bytes
) -> None:
    view, content = view_of("abc", NAMING), _Node().beat()
    with pytest.raises(UpdateMalformed):
        view.receive("a", content[:place] + value + content[place + len(value) :], 1.0)
    assert view.members["a"].heard == 0.0


def test_names_of_another_array_are_not_mixed_in() -> None:
    view, other = view_of("abc", NAMING), Announcer(naming(64).identity, 1)
    content = encode_update(other.next_update(IDLE))
    assert view.receive("a", content, 1.0) is UpdateFate.OTHER_CHUNKING
    assert view.receive("a", encode_heartbeat(other.heartbeat(IDLE)), 1.5) is UpdateFate.OTHER_CHUNKING
    assert view.receive("a", content, 2.0) is UpdateFate.REPEATED


def test_strangers_are_not_read() -> None:
    view = view_of("abc", NAMING)
    assert view.receive("stranger", b"anything at all", 1.0) is UpdateFate.REPEATED


@pytest.mark.parametrize("content", [b"", b"\0" * 50, b"\1" * (LARGEST_UPDATE + 1), b"\1\0abcd" + b"\xff" * 60])
def test_bytes_that_are_no_update_change_nothing(content: bytes) -> None:
    view, node = view_of("abc", NAMING), _Node()
    node.store(1)
    view.receive("a", node.say(), 1.0)
    with pytest.raises(UpdateMalformed):
        view.receive("a", content, 2.0)
    assert _held(view, "a", 1) == 32
    assert view.members["a"].heard == 1.0


def test_a_huge_count_costs_nothing() -> None:
    """Four billion runs are announced, and none brought."""
    head = bytearray(encode_update(Update(False, b"abcd", 1, 1, IDLE)))
    for place in (len(head) - 8, len(head) - 4):
        forged = bytes(head[:place]) + b"\xff\xff\xff\xff" + bytes(head[place + 4 :])
        with pytest.raises(UpdateMalformed, match="announces more"):
            view_of("a", NAMING).receive("a", forged, 1.0)


def test_a_prompt_that_was_sent_counts_until_the_node_says_otherwise_or_nothing() -> None:
    view, node = view_of("abc", NAMING), _Node()
    path = list(NAMING.path(words([1, 2])))
    view.sent("a", path, 0.0)
    view.sent("b", path, 0.0)
    assert (_held(view, "a", 1, 2), _held(view, "b", 1, 2)) == (64, 64)
    node.store(1)
    view.receive("a", node.say(), 1.0)
    for name in "abc":
        view.hear(name, IDLE, PATIENCE)
    view.expire(PATIENCE + 1)
    assert (_held(view, "a", 1, 2), _held(view, "b", 1, 2)) == (32, 0)


def test_an_eviction_overrules_what_was_expected() -> None:
    view, node = view_of("abc", NAMING), _Node()
    node.store(1)
    view.receive("a", node.say(), 0.0)
    view.sent("a", NAMING.path(words([1])), 0.0)
    node.remove(1)
    view.receive("a", node.say(), 1.0)
    assert _held(view, "a", 1) == 0


def test_a_dead_node_is_emptied_and_needs_a_snapshot_to_come_back() -> None:
    view, node = view_of("abc", NAMING), _Node()
    node.store(1)
    view.receive("a", node.say(), 1.0)
    for name in "bc":
        view.hear(name, IDLE, SILENCE)
    assert view.expire(SILENCE + 1.5) == ["a"]
    assert len(view.tree) == 0
    node.store(2)
    assert view.receive("a", node.say(), SILENCE + 2) is UpdateFate.GAP
    assert view.receive("a", node.say_all(), SILENCE + 3) is UpdateFate.APPLY
    assert _held(view, "a", 2) == 32


def test_a_node_that_left_the_directory_is_gone_and_cannot_be_played_back() -> None:
    view, node = view_of("abc", NAMING), _Node()
    node.store(1)
    first = node.say()
    view.receive("a", first, 1.0)
    node.remove(1)
    view.receive("a", node.say(), 1.5)
    view.list_members({"b": 1.0, "c": 1.0}, 2.0)
    assert len(view.tree) == 0
    view.list_members({"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}, 3.0)
    assert view.receive("a", first, 4.0) is UpdateFate.REPEATED
    assert len({row.slot for _, row in view.members.rows()}) == 4


def test_a_group_has_a_limit() -> None:
    view = GroupView(NAMING, most=2)
    with pytest.raises(GroupFull):
        view.list_members({"a": 1.0, "b": 1.0, "c": 1.0}, 0.0)


def test_a_member_that_claims_without_end_pushes_out_only_its_own() -> None:
    view = GroupView(NAMING, claims=lambda: PrefixClaims(most=100, most_expected=10))
    view.list_members({"a": 1.0, "liar": 1.0}, 0.0)
    honest = _Node()
    honest.store(1, 2, 3)
    view.receive("a", honest.say(), 1.0)
    chunking = NAMING.identity
    for number in range(1, 40):
        names = tuple(range(number * 1_000, number * 1_000 + 250))
        update = Update(number == 1, chunking, 1, number, IDLE, (ChunkRun(0, names),))
        view.receive("liar", encode_update(update), 1.0)
        view.sent("liar", [(name, 32) for name in names], 1.0)
    assert len(view.tree._claims[view.members["liar"].slot]) <= 110
    assert len(view.tree) <= 113
    assert _held(view, "a", 1, 2, 3) == 96


def test_the_least_used_goes_first_and_leaves_before_their_parents() -> None:
    view = GroupView(NAMING, claims=lambda: PrefixClaims(most=4))
    view.list_members({"a": 1.0}, 0.0)
    node = _Node()
    node.store(1, 2)
    node.store(5, 6)
    view.receive("a", node.say(), 1.0)
    matches = view.search(NAMING.path(words([1, 2])), 1)
    view.tree.use(0, matches)
    node.store(7)
    view.receive("a", node.say(), 2.0)
    assert [_held(view, "a", *blocks) for blocks in ((1, 2), (5, 6), (7,))] == [64, 32, 32]


def test_a_collision_of_one_name_does_not_carry_on_below_it() -> None:
    """Two prefixes with one name at one place: their children have other names, so one chunk is mixed and no more."""
    view, node = view_of("abc", NAMING), _Node()
    node.store(1, 2, 3)
    view.receive("a", node.say(), 1.0)
    real, forged = list(NAMING.path(words([1, 2, 3]))), list(NAMING.path(words([7, 8, 9])))
    mixed = [real[0], *forged[1:]]  # As if the first chunk of the second prompt had the first one's name.
    assert view.search(mixed, EVERYBODY).tokens == 32


def test_two_chunks_of_one_name_at_one_node_do_not_end_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NAMING, "name_of", lambda digest: digest[0] % 2 + 1)
    blocks, seen = LocalBlocks(NAMING), []
    for token in range(20):
        seen += blocks.apply(stored([token])).stored
    assert len(seen) == len(blocks.names) == 2
    quiet = next(token for token in range(20) if stored([token]).hashes[0] not in blocks._claimed.values())
    assert blocks.apply(BlocksRemoved(stored([quiet]).hashes)).removed == ()


def test_after_a_new_naming_nothing_is_known_but_loads_until_it_is_said_again() -> None:
    view, node, other = view_of("ab", NAMING), _Node(), naming(64)
    node.store(1, 2)
    view.receive("a", node.say(), 1.0)
    view.own("b", Changes(stored=((0, 7),)))
    view.rename(other)
    assert view.tree.contents() == {}
    assert view.members["a"].alive
    assert view.receive("a", node.say(), 2.0) is UpdateFate.OTHER_CHUNKING
    announcer = Announcer(other.identity, 2)
    renamed = node.blocks.renamed(other)
    announcer.note(Changes(stored=tuple((parent, name) for name, parent in renamed.names.items()), cleared=True))
    announcer.note(renamed.apply(stored([1, 2, 3])))
    assert view.receive("a", encode_update(announcer.next_update(IDLE)), 3.0) is UpdateFate.APPLY
    assert view.search(other.path(words([1, 2, 3])), EVERYBODY).tokens == 96


def test_names_under_another_key_are_not_mixed_in() -> None:
    view, other = view_of("abc", NAMING), Naming(bytes(32), NAMING.chunking)
    update = Update(True, other.identity, 1, 1, IDLE, (ChunkRun(0, (5,)),))
    assert view.receive("a", encode_update(update), 1.0) is UpdateFate.OTHER_CHUNKING
    assert view.tree.contents() == {}
