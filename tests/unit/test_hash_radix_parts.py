"""Chunk lengths, names, the Sentry, a node's own blocks, groups."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from support.prefixes import naming, stored, words

from troth.routing.prefixes.errors import BlocksUnusable, ChunkingUnusable
from troth.routing.prefixes.local_blocks import AllBlocksCleared, BlocksRemoved, BlocksStored, LocalBlocks
from troth.routing.prefixes.members import split
from troth.routing.prefixes.naming import BLOCK, LONGEST, MOST_LENGTHS, Chunking, Naming, chunking_for
from troth.routing.prefixes.sentry import Sentry, agreed


def test_the_array_cuts_where_the_paper_cuts() -> None:
    chunking = chunking_for([320, 96])
    assert chunking.lengths == (96, 32, 192, 32)  # s1, δ, s2 - s1 - δ, δ
    assert list(chunking.ends(700)) == [96, 128, 320, 352, 480, 608]


def test_no_chunk_is_longer_than_what_a_wrong_length_may_cost() -> None:
    chunking = chunking_for([10_000, 65, 3])
    assert max(chunking.lengths) <= LONGEST
    assert sum(chunking.lengths) == 10_000 - 10_000 % BLOCK + BLOCK
    assert len(chunking_for(range(0, 10**6, 64)).lengths) <= MOST_LENGTHS


@pytest.mark.parametrize("lengths", [(0,), (31,), (-32,), (LONGEST + 32,), (32,) * (MOST_LENGTHS + 1)])
def test_unusable_arrays_are_refused(lengths: tuple[int, ...]) -> None:
    with pytest.raises(ChunkingUnusable):
        Chunking(lengths)


def test_spans_and_ends_say_the_same() -> None:
    chunking = chunking_for([96, 700], default=64)
    ends = [0, *chunking.ends(2_000)]
    for start, end in pairwise(ends):
        assert {chunking.span(token) for token in range(start, end)} == {(start, end)}


def test_names_depend_on_key_array_and_all_that_stands_before() -> None:
    prompt = words([1, 2, 2])
    names = [name for name, _ in naming().path(prompt)]
    assert len(set(names)) == 3  # The second and the third chunk are equal, their names are not.
    assert names != [name for name, _ in Naming(bytes(32), Chunking((), BLOCK)).path(prompt)]
    assert names[0] != next(naming(32, 32).path(prompt))[0]
    assert [name for name, _ in naming().path(prompt + words([3])[:-4])] == names  # A part of a block has no name.


def test_the_identity_of_names_tells_key_and_array() -> None:
    keys, arrays = (bytes(32), b"\1" * 32), (Chunking(), Chunking((64,)), Chunking((), 64))
    identities = {Naming(key, array).identity for key in keys for array in arrays}
    assert len(identities) == 6
    assert {len(identity) for identity in identities} == {4}
    assert Naming(bytes(32), Chunking()).identity in identities


def test_names_are_those_that_were_released() -> None:
    """Members of one group must agree, whatever version they run."""
    path = list(naming(64, 96).path(words([1, 2, 3, 4, 5, 6, 7])))
    assert path == [(1600886419, 64), (1164322254, 160), (414906077, 192), (3930175721, 224)]


def test_a_path_says_what_its_links_say_however_long_it_is() -> None:
    group, prompt = naming(64, 32), words(range(1, 301))
    state, start, linked = group.root, 0, []
    for end in group.chunking.ends(300 * BLOCK):
        state = group.link(state, prompt[4 * start : 4 * end])
        linked.append((group.name_of(state), end))
        start = end
    assert list(group.path(prompt)) == linked
    assert len(linked) == 299


def test_a_path_hashes_no_further_than_it_is_asked() -> None:
    path = naming().path(words([1] * 1_000))
    assert next(path)[1] == BLOCK


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Naming(b"short", Chunking())


def test_the_sentry_finds_common_prompts_and_holds_no_text() -> None:
    sentry = Sentry(random.Random(1))
    system, tool = [7] * 6, [8] * 20
    for number in range(300):
        own = [1_000 + number] * 4
        sentry.observe(words(system + tool + own if number % 3 else system + own))
    found = {common.tokens for common in sentry.common()}
    assert found == {6 * BLOCK, 26 * BLOCK}
    assert words(system)[:8] not in repr(vars(sentry)).encode()
    sentry.start_round()
    assert sentry.common() == ()


@pytest.mark.slow
def test_the_sentry_is_bounded_and_sees_no_pattern_in_different_prompts() -> None:
    sentry = Sentry(random.Random(1), sample=16)
    for number in range(400):
        sentry.observe(words([number] * 600))
    assert sentry.common() == ()
    assert len(sentry._rows) == 16
    assert max(map(len, sentry._rows)) == 512


def test_a_third_of_the_members_cannot_set_a_length() -> None:
    honest = {f"node {number}": [320, 6_400] for number in range(6)}
    liars = {f"liar {number}": [32 * place for place in range(1, 400)] for number in range(3)}
    assert agreed(honest | liars, 9) == (320, 6_400)
    assert agreed(liars, 9) == ()
    assert agreed({"a": [320, 320, 320]}, 3) == ()


def test_a_chunk_is_held_while_all_of_its_blocks_are() -> None:
    blocks = LocalBlocks(naming(64, default=64))
    names = [name for name, _ in naming(64, default=64).path(words([1, 2, 3, 4]))]
    assert blocks.apply(stored([1])).stored == ()
    event = stored([1, 2, 3, 4], start=1)
    assert blocks.apply(event).stored == ((0, names[0]), (names[0], names[1]))
    # The first block goes: its chunk is broken, though its other block stays; so it comes back without a word of that.
    assert blocks.apply(BlocksRemoved((event.parent,))).removed == (names[0],)
    assert blocks.apply(stored([1])).stored == ((0, names[0]),)
    assert blocks.apply(BlocksRemoved((event.hashes[2],))).removed == (names[1],)
    assert blocks.apply(AllBlocksCleared()).cleared
    assert blocks.names == {}


def test_branches_within_a_chunk_break_together() -> None:
    blocks = LocalBlocks(naming(64, default=64))
    blocks.apply(stored([1, 2]))
    blocks.apply(stored([1, 3], start=1))
    assert len(blocks.names) == 2
    assert len(blocks.apply(BlocksRemoved(stored([1]).hashes)).removed) == 2
    assert blocks.names == {}


def test_blocks_of_an_unknown_parent_are_left_out_and_counted() -> None:
    blocks = LocalBlocks(naming())
    assert blocks.apply(BlocksStored((5, 6), 4, words([1, 2]))).stored == ()
    assert blocks.unplaced == 2


def test_removed_blocks_are_forgotten_when_nothing_hangs_on_them() -> None:
    blocks = LocalBlocks(naming())
    event = stored([1, 2, 3])
    blocks.apply(event)
    for key in event.hashes:
        blocks.apply(BlocksRemoved((key,)))
    assert blocks._blocks == {}
    assert blocks.apply(BlocksRemoved(event.hashes)).removed == ()


def test_cache_blocks_must_fit_chunks() -> None:
    with pytest.raises(BlocksUnusable):
        LocalBlocks(naming(), block_tokens=48)
    with pytest.raises(BlocksUnusable):
        LocalBlocks(naming()).apply(BlocksStored((1, 2), None, words([1])))
    small = LocalBlocks(naming(), block_tokens=16)
    assert len(small.apply(BlocksStored((1, 2), None, words([1]))).stored) == 1


def test_a_group_is_split_by_region_and_nobody_chooses_their_part() -> None:
    everybody = {f"eu {number}": "eu" for number in range(120)} | {f"us {number}": "us" for number in range(30)}
    groups = split(everybody, b"round 1", 50)
    assert sorted(map(len, groups)) == [30, 40, 40, 40]
    assert {name for group in groups for name in group} == set(everybody)
    assert all(len({everybody[name] for name in group}) == 1 for group in groups)
    assert groups == split(dict(reversed(everybody.items())), b"round 1", 50)
    assert groups != split(everybody, b"round 2", 50)
    assert split({"a": "x", "b": "y"}, b"") == (("a", "b"),)
    assert split({}, b"") == ()
