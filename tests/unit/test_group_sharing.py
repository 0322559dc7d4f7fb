"""Members of a group over real channels: what each knows of the others, whatever is lost, dies or lies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from support.group_stage import Member, Stage, group_stage, heard_again, hurry, keeps_its_names, seems_silent
from support.waiting import eventually

from troth.node.group import telling
from troth.protocol.types import Segment
from troth.protocol.wire_group import Tell, Told
from troth.routing.prefixes.announcing import BURST
from troth.routing.prefixes.update import LARGEST_UPDATE, ChunkRun, NodeLoad, Update, encode_update
from troth.transport.errors import OverlayError, RemoteFailure

PROMPT = list(range(512))
OTHER = list(range(1000, 1512))
SHARE = bytes(32)


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    hurry(monkeypatch)
    async with group_stage(tmp_path) as made:
        yield made


async def _everybody_knows(members: Sequence[Member], holder: Member, tokens: Sequence[int], held: int) -> None:
    await eventually(lambda: all(member.known(holder, tokens) == held for member in members))


@pytest.mark.slow
async def test_after_a_few_rounds_each_knows_what_the_others_hold_and_how_loaded_they_are(stage: Stage) -> None:
    members = await stage.started(4)
    members[1].engine.holds_prompt(PROMPT)
    members[2].engine.holds_prompt(OTHER)
    await _everybody_knows(members, members[1], PROMPT, 512)
    await _everybody_knows(members, members[2], OTHER, 512)
    assert all(member.known(members[2], PROMPT) == 0 for member in members)
    members[1].engine.evicts(PROMPT)
    await _everybody_knows(members, members[1], PROMPT, 0)
    members[3].engine.waiting = 7
    rows = [member.group.sharing.view.members for member in members]
    await eventually(lambda: all(row[members[3].address].load.queued == 7 for row in rows))


async def test_a_request_goes_to_the_member_that_holds_its_prompt(stage: Stage) -> None:
    members = await stage.started(3)
    members[2].engine.holds_prompt(PROMPT)
    await _everybody_knows(members, members[2], PROMPT, 512)
    entry = members[0].group
    choice = entry.forwarder.choose(entry.path(PROMPT), len(PROMPT), [m.address for m in members], 0.0)
    assert choice is not None
    assert (choice.name, choice.tokens) == (members[2].address, 512)
    assert entry.channel(members[2].address).recipient == members[2].address
    with pytest.raises(OverlayError):
        entry.channel(entry.own)


async def test_a_burst_of_requests_is_heard_before_the_next_word_is_due(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = await stage.started(3)
    monkeypatch.setattr(telling, "HEARTBEAT", 600.0)
    await asyncio.sleep(1.0)
    for _ in range(BURST):
        members[1].group.took()
    rows = [member.group.sharing.view.members for member in members]
    await eventually(lambda: all(row[members[1].address].load.taken == BURST for row in rows[::2]))


async def test_a_gap_is_closed_by_a_snapshot(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = await stage.started(2)
    lost: list[bytes] = []
    announce = one.group.sharing.telling.announce
    monkeypatch.setattr(one.group.sharing.telling, "announce", lost.append)
    one.engine.holds_prompt(PROMPT)
    await eventually(lambda: one.known(one, PROMPT) == 512)
    before = len(lost)
    await eventually(lambda: len(lost) > before)
    monkeypatch.setattr(one.group.sharing.telling, "announce", announce)
    await _everybody_knows([two], one, PROMPT, 512)


async def test_a_dead_member_is_emptied_and_the_key_moves_on_once(stage: Stage) -> None:
    members = await stage.started(3)
    lowest, *others = members
    lowest.engine.holds_prompt(PROMPT)
    others[0].engine.holds_prompt(OTHER)
    await _everybody_knows(members, lowest, PROMPT, 512)
    before = lowest.names
    changes = [len(member.group.sharing._agreement._changes) for member in others]
    await lowest.stop()
    seems_silent(lowest, others)
    await eventually(lambda: not any(member.alive(lowest) for member in others))
    await eventually(lambda: all(member.names != before for member in others))
    assert others[0].names == others[1].names
    assert all(member.known(lowest, PROMPT) == 0 for member in others)
    # What is held is known under the new names too, without the engines' saying it again.
    await _everybody_knows(others, others[0], OTHER, 512)
    await heard_again(others)
    assert all(keeps_its_names(member) for member in others)
    assert [len(member.group.sharing._agreement._changes) for member in others] == [one + 1 for one in changes]


@pytest.mark.slow
async def test_a_restarted_member_is_followed_again(stage: Stage) -> None:
    members = await stage.started(3)
    for restarted in (members[2], members[0]):
        restarted.engine.holds_prompt(PROMPT)
        await _everybody_knows(members, restarted, PROMPT, 512)
        await restarted.stop()
        restarted.engine.clears()
        restarted.engine.holds_prompt(OTHER)
        restarted.begin()
        await restarted.start()
        await _everybody_knows(members, restarted, PROMPT, 0)
        await _everybody_knows(members, restarted, OTHER, 512)
        restarted.engine.clears()


async def test_what_is_no_update_changes_nothing(stage: Stage) -> None:
    one, two = await stage.started(2)
    one.engine.holds_prompt(PROMPT)
    await _everybody_knows([two], one, PROMPT, 512)
    liar = one.channel_to(two)
    tell = Tell(one.share)
    for content in (b"", b"\xff" * 60, bytes(LARGEST_UPDATE + 1), two.group.sharing.whole()[:-1]):
        with pytest.raises(RemoteFailure) as refusal:
            await liar.request(tell, content)
        assert refusal.value.remote_code in {"update_malformed", "busy"}
    with pytest.raises(RemoteFailure):
        await liar.request(Tell(one.share, (*range(16), 2**32)), b"")
    assert two.known(one, PROMPT) == 512
    await liar.close()


async def test_old_words_change_nothing(stage: Stage) -> None:
    one, two = await stage.started(2)
    one.engine.holds_prompt(PROMPT)
    await _everybody_knows([two], one, PROMPT, 512)
    old = Update(True, one.names, 1, 10**6, NodeLoad(), (ChunkRun(0, (1, 2, 3)),))
    liar = one.channel_to(two)
    told = (await liar.request(Tell(bytes([7]) * 32, (64,)), encode_update(old))).header
    await liar.close()
    assert told == Told(two.group.load_part(), whole=False)
    assert two.known(one, PROMPT) == 512
    shares = two.group.sharing._agreement._shares._voices
    assert shares[one.address].share == one.share


async def test_a_stranger_is_turned_away(stage: Stage) -> None:
    one, two = await stage.started(2)
    names = two.names
    strangers = [stage.make(number) for number in (7, 8, 9)]
    stage.register(strangers[1], exit_block=9)
    stage.register(strangers[2], hosted=Segment(0, 1))
    update = encode_update(Update(True, names, 2**60, 1, NodeLoad(), (ChunkRun(0, (1,)),)))
    for stranger in strangers:
        channel = stranger.channel_to(two)
        with pytest.raises(RemoteFailure) as refusal:
            await channel.request(Tell(SHARE), update)
        assert refusal.value.remote_code == "not_authorised"
        with pytest.raises(Exception, match="in no group") as refused:
            await two.group.tell(stranger.address, Tell(SHARE), memoryview(update))
        assert getattr(refused.value, "code", "") == "not_a_member"
        assert not stranger.group.is_member(two.address)
    assert len(two.group.sharing.view.members) == 2
    assert two.names == one.names == names


async def test_a_member_that_leaves_the_chain_is_let_go(stage: Stage) -> None:
    members = await stage.started(3)
    stage.register(members[1], exit_block=9)
    await eventually(lambda: all(m.address not in members[0].group.sharing.telling._ears for m in members[1:2]))
    assert not members[0].group.is_member(members[1].address)
    assert members[1].address not in members[0].group.sharing.view.members
    with pytest.raises(OverlayError):
        members[0].group.channel(members[1].address)
    assert members[0].group.is_member(members[2].address)


@pytest.mark.slow
async def test_who_tells_too_much_is_not_read(stage: Stage) -> None:
    one, two = await stage.started(2)
    liar = one.channel_to(two)
    held = tuple(ChunkRun(0, (name,)) for name in range(1, 60_000))
    codes = []
    for number in range(4):
        update = encode_update(Update(True, one.names, 2**60, number + 1, NodeLoad(), held))
        try:
            await liar.request(Tell(one.share), update)
        except RemoteFailure as refusal:
            codes.append(refusal.remote_code)
    await liar.close()
    assert set(codes) == {"busy"}


async def test_junk_lengths_of_one_member_change_nothing(stage: Stage) -> None:
    members = await stage.started(3)
    names = members[0].names
    members[2].group.sharing.proposal.lengths = (32, 64, 2**32 - 1)
    heard = members[0].group.sharing._agreement._proposals
    await eventually(lambda: heard.get(members[2].address) == (32, 64))
    await heard_again(members)
    assert all(keeps_its_names(member) for member in members)
    assert {member.names for member in members} == {names}
    members[1].group.sharing.proposal.lengths = (64, 4096)
    await eventually(lambda: all(member.names != names for member in members))
    await eventually(lambda: len({member.names for member in members}) == 1)
    assert members[0].group.sharing.view.naming.chunking.lengths == (64, 32)
