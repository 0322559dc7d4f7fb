"""The tree against plain dictionaries, updates through loss and restart, bounds, and the codec."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.prefixes import IDLE, naming, stored, view_of, words

from troth.routing.prefixes.announcing import Announcer
from troth.routing.prefixes.claims import PrefixClaims
from troth.routing.prefixes.errors import UpdateMalformed
from troth.routing.prefixes.following import UpdateFate
from troth.routing.prefixes.local_blocks import AllBlocksCleared, BlocksRemoved, Changes, KvEvent, LocalBlocks
from troth.routing.prefixes.tree import HashRadixTree
from troth.routing.prefixes.update import (
    ChunkRun,
    Heartbeat,
    NodeLoad,
    Update,
    decode,
    decode_heartbeat,
    decode_update,
    encode_heartbeat,
    encode_update,
    runs_of,
)
from troth.routing.prefixes.view import GroupView

NAMING = naming(64, default=32)
PROMPTS = st.lists(st.integers(1, 3), min_size=1, max_size=5)

names = st.integers(1, 2**32 - 1)
loads = st.builds(
    NodeLoad,
    latency=st.integers(0, 2**31).map(lambda ticks: ticks * 1e-6),
    queued=st.integers(0, 2**16 - 1),
    running=st.integers(0, 2**16 - 1),
    capacity=st.integers(1, 2**16 - 1),
    pace=st.integers(0, 2**31).map(lambda ticks: ticks * 1e-9),
    pending=st.integers(0, 2**32 - 1),
    taken=st.integers(0, 2**32 - 1),
)
numbers = st.integers(0, 2**64 - 1)
heartbeats = st.builds(Heartbeat, st.binary(min_size=4, max_size=4), numbers, numbers, st.integers(1, 2**32 - 1), loads)


@st.composite
def updates(draw: st.DrawFn) -> Update:
    chosen = draw(st.lists(names, unique=True, max_size=40))
    cut = draw(st.integers(0, len(chosen)))
    whole = draw(st.booleans())
    runs, place = [], 0
    while place < cut:
        length = draw(st.integers(1, cut - place))
        runs.append(ChunkRun(draw(st.integers(0, 2**32 - 1)), tuple(chosen[place : place + length])))
        place += length
    removed = () if whole else tuple(sorted(chosen[cut:]))
    epoch, sequence = draw(st.integers(0, 2**64 - 1)), draw(st.integers(1, 2**64 - 1))
    return Update(whole, draw(st.binary(min_size=4, max_size=4)), epoch, sequence, draw(loads), tuple(runs), removed)


@given(updates())
def test_an_update_survives_its_encoding(update: Update) -> None:
    assert decode_update(encode_update(update)) == update


@given(heartbeats)
def test_a_heartbeat_survives_its_encoding_and_is_no_update(heartbeat: Heartbeat) -> None:
    content = encode_heartbeat(heartbeat)
    assert decode_heartbeat(content) == decode(content) == heartbeat
    with pytest.raises(UpdateMalformed):
        decode_update(content)


@given(st.binary(max_size=300) | updates().map(encode_update) | heartbeats.map(encode_heartbeat), st.data())
def test_bytes_are_refused_or_are_the_one_encoding(content: bytes, data: st.DataObject) -> None:
    if content and data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(content) - 1))
        changed = data.draw(st.binary(max_size=6))
        content = content[:place] + changed + content[place + data.draw(st.integers(0, 6)) :]
    try:
        said = decode(content)
    except UpdateMalformed:
        return
    assert (encode_update(said) if isinstance(said, Update) else encode_heartbeat(said)) == content


@pytest.mark.slow
@given(updates().map(encode_update) | heartbeats.map(encode_heartbeat), st.integers(0, 400))
def test_a_cut_update_is_refused(content: bytes, place: int) -> None:
    with pytest.raises(UpdateMalformed):
        decode(content[: place % len(content)])


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(["update", "heartbeat"]), st.booleans(), st.booleans()), max_size=40))
def test_a_missed_update_is_noticed_and_a_heartbeat_makes_no_gap(steps: list[tuple[str, bool, bool]]) -> None:
    """Updates and heartbeats get lost or come twice: a view is behind exactly from a lost update to a snapshot."""
    view, announcer = view_of("a", NAMING), Announcer(NAMING.identity, 1)
    behind, first = False, True
    for taken, (kind, lost, twice) in enumerate(steps, 1):
        load = NodeLoad(capacity=8, taken=taken)
        if kind == "update":
            update = announcer.next_update(load)
            content, behind = encode_update(update), (behind or lost) and not (update.whole and not lost)
            first = False
        else:
            content = encode_heartbeat(announcer.heartbeat(load))
        if lost:
            continue
        assert view.receive("a", content, 1.0) is (UpdateFate.GAP if behind else UpdateFate.APPLY)
        assert view.members["a"].load.taken == taken
        if behind and not first:
            assert view.receive("a", encode_update(announcer.snapshot(load)), 1.0) is UpdateFate.APPLY
            behind = False
        if twice:
            assert view.receive("a", content, 2.0) is UpdateFate.REPEATED
            assert view.members["a"].heard == 1.0


@given(st.dictionaries(names, st.integers(0, 2**32 - 1), max_size=60), st.integers(1, 5))
def test_runs_say_every_parent(parents: dict[int, int], longest: int) -> None:
    # Names that are each other's ancestors do not come from a chain of hashes.
    acyclic = {name: parent for name, parent in parents.items() if parent < name}
    said = {}
    for run in runs_of(acyclic, longest):
        assert 0 < len(run.names) <= longest
        for parent, name in zip((run.parent, *run.names), run.names, strict=False):
            assert name not in said
            said[name] = parent
    assert said == acyclic


class _Engine:
    """A cache as a set of prefixes, and the events that it gives out."""

    def __init__(self) -> None:
        self.held: set[tuple[int, ...]] = set()

    def store(self, prompt: list[int]) -> list[KvEvent]:
        events: list[KvEvent] = []
        for end in range(1, len(prompt) + 1):
            if tuple(prompt[:end]) not in self.held:
                self.held.add(tuple(prompt[:end]))
                events.append(stored(prompt[:end], start=end - 1))
        return events

    def remove(self, place: int) -> list[KvEvent]:
        if not self.held:
            return []
        gone = sorted(self.held)[place % len(self.held)]
        self.held.remove(gone)
        return [BlocksRemoved((hash(gone),))]

    def clear(self) -> list[KvEvent]:
        self.held.clear()
        return [AllBlocksCleared()]

    def match(self, prompt: list[int]) -> int:
        """Tokens in whole chunks that are there, by the plain rule: every block of each chunk is held."""
        tokens = 0
        for end in NAMING.chunking.ends(32 * len(prompt)):
            if not all(tuple(prompt[: block + 1]) in self.held for block in range(tokens // 32, end // 32)):
                break
            tokens = end
        return tokens


def _happening(engine: _Engine, action: str, prompt: list[int]) -> list[KvEvent]:
    match action:
        case "store":
            return engine.store(prompt)
        case "remove":
            return engine.remove(sum(prompt))
    return engine.clear()


ACTIONS = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from(["store"] * 5 + ["remove"] * 4 + ["clear", "say", "lose", "ask"]), PROMPTS
    ),
    max_size=60,
)


@pytest.mark.slow
@given(ACTIONS, st.lists(PROMPTS, min_size=1, max_size=8))
def test_views_converge_to_what_the_caches_hold(
    actions: list[tuple[int, str, list[int]]], questions: list[list[int]]
) -> None:
    """Whatever is stored, evicted, cleared and lost on the way: after one snapshot each, a view is the plain model."""
    members = ["a", "b", "c"]
    engines = [_Engine() for _ in members]
    blocks = [LocalBlocks(NAMING) for _ in members]
    announcers = [Announcer(NAMING.identity, 1) for _ in members]
    view, late = view_of(members, NAMING), view_of(members, NAMING)

    def deliver(node: int, target: GroupView, content: bytes) -> None:
        if target.receive(members[node], content, 1.0) is UpdateFate.GAP:
            whole = encode_update(announcers[node].snapshot(IDLE))
            assert target.receive(members[node], whole, 1.0) is UpdateFate.APPLY

    for node, action, prompt in actions:
        if action in ("say", "lose", "ask"):
            content = encode_update(announcers[node].next_update(IDLE))
            if action == "say":
                deliver(node, view, content)
            if action == "ask":
                view.receive(members[node], encode_update(announcers[node].snapshot(IDLE)), 1.0)
            continue
        for event in _happening(engines[node], action, prompt):
            announcers[node].note(blocks[node].apply(event))
    for node in range(3):
        for _ in range(2):  # A name that moved below another parent takes two.
            content = encode_update(announcers[node].next_update(IDLE))
            deliver(node, view, content)
        deliver(node, late, content)
    assert view.tree.contents() == late.tree.contents()
    for prompt in questions:
        matches = view.search(NAMING.path(words(prompt)), 0b111)
        assert [matches.held_by(slot) for slot in range(3)] == [engine.match(prompt) for engine in engines]


@pytest.mark.slow
@given(ACTIONS, st.integers(0, 60), st.sampled_from([(), (96,), (32, 64), (128, 32)]))
def test_renamed_blocks_are_those_that_had_the_names_from_the_start(
    actions: list[tuple[int, str, list[int]]], place: int, lengths: tuple[int, ...]
) -> None:
    other = naming(*lengths, default=64)
    engine, fresh, renamed = _Engine(), LocalBlocks(other), LocalBlocks(NAMING)
    for number, (_, action, prompt) in enumerate(actions):
        if number == place:
            renamed = renamed.renamed(other)
        if action in ("store", "remove", "clear"):
            for event in _happening(engine, action, prompt):
                fresh.apply(event)
                renamed.apply(event)
    if place >= len(actions):
        before = renamed.names
        changed = renamed.renamed(other)
        assert renamed.names == before
        renamed = changed
    assert renamed.names == fresh.names


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from("sSrexu"), st.lists(st.integers(1, 30), max_size=6)), max_size=60
    )
)
def test_the_tree_is_the_sum_of_what_its_members_claim(
    actions: list[tuple[int, str, list[int]]],
) -> None:
    """No order of stores, snapshots, removals, expectations and evictions leaves an edge unclaimed, or loses one."""
    tree, tables = HashRadixTree(), [PrefixClaims(most=12, most_expected=5) for _ in range(3)]
    for slot, claims in enumerate(tables):
        tree.add(slot, claims)
    for now, (slot, action, said) in enumerate(actions):
        once = tuple(dict.fromkeys(said))
        match action:
            case "s" | "S" if once:
                (tree.store if action == "s" else tree.replace)(slot, (ChunkRun(len(said) % 3, once),))
            case "r":
                tree.remove(slot, once)
            case "e":
                tree.expect(slot, [(name, 32) for name in said], now + 5.0)
            case "x":
                tree.expire(float(now))
            case "u":
                tree.use(slot, tree.search([(name, 32) for name in said], 0b111))
        expected: dict[int, int] = defaultdict(int)
        for place, claims in enumerate(tables):
            assert len(claims) <= 17
            for edge in claims.edges():
                expected[edge] |= 1 << place
        assert tree.contents() == expected


@pytest.mark.slow
@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), max_size=8), max_size=20))
def test_an_announcer_says_in_deltas_what_its_snapshot_says(steps: list[list[tuple[int, int]]]) -> None:
    announcer = Announcer(b"abcd", 1)
    held: dict[int, int] = {}
    said: dict[int, int] = {}
    for step in steps:
        removed = tuple(name for _, name in step if name in held)[:1]
        for name in removed:
            del held[name]
        added = {name: parent for parent, name in step if name not in held and parent < name}
        held |= added
        announcer.note(Changes(tuple((parent, name) for name, parent in added.items()), removed))
        update = announcer.next_update(IDLE)
        if update.whole:
            said = {}
        for name in update.removed:
            del said[name]
        for run in update.stored:
            for parent, name in zip((run.parent, *run.names), run.names, strict=False):
                said[name] = parent
        whole = announcer.snapshot(IDLE)
        assert {name for run in whole.stored for name in run.names} == set(said)
