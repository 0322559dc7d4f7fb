"""Nodes that answer no member, in epochs that members carry out by themselves; whoever settles shows the reports, or
does not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Anvil
from support.rating_epochs import WORTH, epoch, second_epoch
from support.rating_stage import RatingStage, ToyWire

from troth.chain.errors import ChainError, ChainRejected, ChainUnavailable
from troth.chain.keystore import Key
from troth.committee.errors import CommitteeError, EpochRefused
from troth.committee.rating.epochs import EpochFile, ExaminedList, SilenceSaid
from troth.committee.rating.member import RatingTerms, decode_proposal_of_epoch, encode_message
from troth.committee.rating.requests import REVIEW, SIGNED
from troth.committee.rating.turns import EpochTurns
from troth.protocol import typed_data
from troth.protocol.committee import reports_needed
from troth.protocol.contract_errors import ContractError
from troth.protocol.reputation import SilenceReport, list_hash
from troth.protocol.types import Address

pytestmark = [pytest.mark.chain, pytest.mark.slow]


def refusal(name: str) -> ChainRejected:
    return ChainRejected("reportSilence", ContractError(name, {}, ""))


@pytest.fixture
async def stage(anvil: Anvil, tmp_path: Path) -> AsyncIterator[RatingStage]:
    async with second_epoch(anvil, tmp_path) as stage:
        yield stage


async def met_by_everybody(stage: RatingStage) -> Address:
    """Epoch 3 begins with a node that answers nobody.

    Enough attempts that each member meets it before it signs: draws decide whom a member asks, and half of its attempts
    come after that.
    """
    await epoch(stage, 2)
    silent = stage.market.nodes[0]
    stage.market.silent.add(silent)
    for operator in stage.members:
        stage.kill(operator)
        stage.start(operator, RatingTerms(prompts=2, tokens=64, attempts=64))
    await stage.to(3, 0.0)
    return silent


async def test_more_than_a_third_call_a_silent_node_silent(stage: RatingStage) -> None:
    silent = await met_by_everybody(stage)
    await epoch(stage, 3)
    rating_of = stage.clock.follower.state.ratings[silent]
    assert (rating_of.silent, rating_of.credit, rating_of.epoch) == (True, 0, 3)
    assert all(
        stage.clock.follower.state.ratings[node].credit == WORTH[i] for i, node in enumerate(stage.market.nodes) if i
    )


async def test_a_node_that_answers_only_prompts_of_earlier_epochs_is_silent(stage: RatingStage) -> None:
    """It has seen every prompt that was ever asked, and none of them comes again."""
    await epoch(stage, 2)
    node = stage.market.nodes[0]
    stage.market.knows[node] = frozenset(prompt for prompt, _ in stage.market.prompts)
    # Enough attempts that each member meets the node before it signs.
    for operator in stage.members:
        stage.kill(operator)
        stage.start(operator, RatingTerms(prompts=2, tokens=64, attempts=64))
    await stage.to(3, 0.0)
    await epoch(stage, 3)
    found = stage.clock.follower.state.ratings[node]
    assert (found.silent, found.credit, found.epoch) == (True, 0, 3)


def outrun(stage: RatingStage) -> None:
    """Of every member: somebody reads its settlement on its way, leaves out the reports, and is mined first."""
    for member in stage.members.values():
        turns = member.awake

        async def settle(moment: Any, file: EpochFile, turns: EpochTurns = turns) -> None:
            assert file.silences, "there are reports to leave out"
            await turns.submit(moment.now.settlement(msgspec.structs.replace(file, silences={})))
            await EpochTurns._settle(turns, moment, file)

        turns._settle = settle  # type: ignore[method-assign]


async def acted(stage: RatingStage) -> None:
    """All look, and what the chain refuses ends that look alone, as `EpochTurns.run` has it."""
    for operator, member in stage.members.items():
        if member.turns is not None:
            with suppress(ChainRejected):
                await stage.look(operator)
            await stage.followed()


async def test_who_settles_first_does_not_keep_a_silent_node_from_its_rating(stage: RatingStage) -> None:
    silent = await met_by_everybody(stage)
    outrun(stage)
    for step in (0.02, 0.2, 0.35, 0.49, 0.52, 0.76):
        if stage.through() == 3:
            await stage.to(3, step)
            await acted(stage)
    assert stage.through() == 4, stage.refusals
    assert stage.clock.follower.state.ratings[silent].epoch == 2, "it was left out"
    await acted(stage)
    found = stage.clock.follower.state.ratings[silent]
    assert (found.silent, found.credit, found.epoch) == (True, 0, 3)
    before = await stage.reputation.chain.block_number()
    await acted(stage)
    assert await stage.reputation.chain.block_number() == before, "nobody sends it again"


def hold_back(stage: RatingStage) -> list[EpochFile]:
    """What leaders tell the others of what was signed is on its way until a test brings it."""
    held: list[EpochFile] = []
    for member in stage.members.values():
        wire = member.awake.others

        async def ask_all(
            kind: str, body: bytes, number: int, *, enough: int, wire: Any = wire, among: Any = None
        ) -> dict[Address, bytes]:
            if kind != SIGNED:
                return dict(await ToyWire.ask_all(wire, kind, body, number, enough=enough, among=among))
            held.append(msgspec.msgpack.decode(body, type=EpochFile))
            return {}

        wire.ask_all = ask_all  # type: ignore[method-assign]
    return held


@pytest.mark.parametrize("late", [False, True], ids=["heard before", "heard afterwards"])
async def test_other_members_bring_the_reports_where_the_leader_is_gone(stage: RatingStage, late: bool) -> None:
    """They hear of them before the epoch is settled, or after it was."""
    silent = await met_by_everybody(stage)
    outrun(stage)
    held = hold_back(stage) if late else []
    for step in (0.02, 0.2, 0.35, 0.49, 0.52, 0.76):
        if stage.through() == 3:
            await stage.to(3, step)
            await acted(stage)
    settled = stage.clock.follower.state.settled
    assert settled is not None
    assert settled.epoch == 3
    stage.kill(settled.leader)
    others = [member.awake.rater for member in stage.members.values() if member.turns is not None]
    for rater in others:
        for file in held:
            await rater.hear(file)
    await acted(stage)
    assert stage.clock.follower.state.ratings[silent].epoch == 2, "it is the leader's turn"
    # Nobody looks in what is left of the epoch.
    await stage.to(4, 0.02)
    await acted(stage)
    found = stage.clock.follower.state.ratings[silent]
    assert (found.silent, found.credit, found.epoch) == (True, 0, 3)


def withhold(stage: RatingStage, leader: Address, away: Address) -> None:
    """The leader is in league with a silent node: it forgets what members report, and reports nothing itself. Its
    proposals have false reports of all others.

    When it settles the epoch, a member is away, which hears nothing of others for a while.
    """
    turns = stage.members[leader].awake
    joined, settle = turns._joined, turns._settle

    def without(*given: Any) -> EpochFile:
        return msgspec.structs.replace(joined(*given), silences={})

    async def alone(moment: Any, file: EpochFile) -> None:
        assert not file.silences
        stage.members[away].app = None
        await settle(moment, file)

    async def shown(_moment: Any) -> None:
        """Nothing."""

    ask_all = turns.others.ask_all

    async def with_junk(kind: str, body: bytes, number: int, **others: Any) -> dict[Address, bytes]:
        if kind == REVIEW:
            proposal = decode_proposal_of_epoch(body)
            file = with_strangers(stage, with_forged_reports(stage, proposal.file))
            body = encode_message(msgspec.structs.replace(proposal, file=file))
        return await ask_all(kind, body, number, **others)

    turns.others.ask_all = with_junk  # type: ignore[method-assign]
    turns.rater.silent = lambda _moment, _file: []  # type: ignore[method-assign]
    turns._joined, turns._settle = without, alone  # type: ignore[method-assign]
    turns._show_left_out = turns._tell_left_out = shown  # type: ignore[method-assign]


@pytest.mark.parametrize("at", [(3, 0.65), (4, 0.02)], ids=["in its epoch", "in the next one"])
async def test_a_leader_that_keeps_reports_to_itself_does_not_keep_a_silent_node_from_its_rating(
    stage: RatingStage, at: tuple[int, float]
) -> None:
    """Each member knew of its own report alone: they tell each other, and one that was away when they did."""
    silent = await met_by_everybody(stage)
    leader = await stage.leader()
    away = next(operator for operator in stage.members if operator != leader)
    app = stage.members[away].app
    withhold(stage, leader, away)
    for step in (0.02, 0.2, 0.35, 0.49, 0.52):
        await stage.to(3, step)
        await acted(stage)
    assert (stage.through(), stage.last_leader()) == (4, leader), stage.refusals
    assert stage.clock.follower.state.ratings[silent].epoch == 2, "it was left out"
    assert len(kept_reports(stage, away)) == 1, "it hears nothing"
    stage.members[away].app = app
    await stage.to(*at)
    await acted(stage)
    # Of all three, unless the first in turn brought enough of them before.
    assert len(kept_reports(stage, away)) >= reports_needed(len(stage.members)), "it is told again"
    # Members bring them one after the other.
    await stage.to(at[0], at[1] + 0.3)
    await acted(stage)
    found = stage.clock.follower.state.ratings[silent]
    assert (found.silent, found.credit, found.epoch) == (True, 0, 3)


async def test_who_signed_the_first_leaders_update_does_not_lead_instead_of_it(stage: RatingStage) -> None:
    """Its journal signs no second one, and what it reported would be gone."""
    await met_by_everybody(stage)
    leader = await stage.leader()
    for member in stage.members.values():
        member.awake._settle = not_yet  # type: ignore[method-assign]
    hold_back(stage)
    for step in (0.02, 0.2, 0.35, 0.49, 0.52):
        await stage.to(3, step)
        await acted(stage)
    second = next(operator for operator in stage.members if operator != leader)
    stage.members[second].awake._part = lambda _moment, _proof: 1  # type: ignore[method-assign]
    await stage.to(3, 0.8)
    before = kept_reports(stage, second)
    await stage.members[second].awake.act()
    assert kept_reports(stage, second) == before
    assert before.keys() == {second}


async def test_a_forged_report_is_not_kept_after_the_epoch_was_settled_either(stage: RatingStage) -> None:
    """It would stand where that of the member should, and have the chain refuse all others."""
    leader = await settled_without_reports(stage)
    assert (stage.through(), stage.last_leader()) == (4, leader), stage.refusals
    for operator, member in stage.members.items():
        if operator == leader:
            continue
        rater, known = member.awake.rater, kept_reports(stage, operator)
        assert known.keys() == {operator}
        (file,) = rater.store.proposals(3)
        with pytest.raises(EpochRefused, match="did not sign this"):
            await rater.hear(with_forged_reports(stage, file))
        assert kept_reports(stage, operator) == known


async def test_with_a_report_nothing_else_of_a_file_is_believed(stage: RatingStage) -> None:
    """Should the settlement be undone, members settle the epoch again: with a proof and signatures that hold."""
    leader = await settled_without_reports(stage)
    await stage.to(4, 0.02)
    teller, *others = [operator for operator in stage.members if operator != leader]
    (told,) = stage.members[teller].awake.rater.store.proposals(3)
    false = msgspec.structs.replace(
        told, proof="0x" + "11" * 81, signatures=dict.fromkeys(told.signatures, "0x" + "22" * 65)
    )
    for operator in others:
        rater = stage.members[operator].awake.rater
        (before,) = rater.store.proposals(3)
        await rater.hear(false)
        (after,) = rater.store.proposals(3)
        assert after.silences.keys() == {operator, teller}
        assert msgspec.structs.replace(after, silences=before.silences) == before
        rater.store.forget_before(4)
        await rater.hear(false)
        assert rater.store.proposals(3) == [msgspec.structs.replace(false, signatures={})]


async def settled_without_reports(stage: RatingStage) -> Address:
    """Epoch 3 is settled by a leader that shows no reports; each member has its own alone, and tells nobody."""
    await met_by_everybody(stage)
    leader = await stage.leader()
    withhold(stage, leader, leader)
    for member in stage.members.values():
        member.awake._tell_left_out = nothing_told  # type: ignore[method-assign]
    for step in (0.02, 0.2, 0.35, 0.49, 0.52):
        await stage.to(3, step)
        await acted(stage)
    return leader


async def nothing_told(_moment: Any) -> None:
    """In place of what members tell each other."""


def with_forged_reports(stage: RatingStage, file: EpochFile) -> EpochFile:
    """A report of each member, none of which it signed."""
    said = SilenceSaid("0x" + (1).to_bytes(32, "big").hex(), file.signatures[file.leader])
    return msgspec.structs.replace(file, silences=dict.fromkeys(map(str, stage.members), said))


def kept_reports(stage: RatingStage, operator: Address) -> dict[str, SilenceSaid]:
    """What a member has of reports in epoch 3."""
    (file,) = stage.members[operator].awake.rater.store.proposals(3)
    return file.silences


async def test_who_shows_the_update_without_reports_has_nobody_forget_them(stage: RatingStage) -> None:
    """A member shows it to all others and to the leader, with names that nobody counts, and settles the epoch then."""
    silent = await met_by_everybody(stage)
    for member in stage.members.values():
        member.awake._settle = not_yet  # type: ignore[method-assign]
    for step in (0.02, 0.2, 0.35, 0.49, 0.52):
        await stage.to(3, step)
        await acted(stage)
    now = (await stage.clock.moment()).now
    for member in stage.members.values():
        store = member.awake.rater.store
        (file,) = store.proposals(3)
        assert len(file.silences) >= reports_needed(len(stage.members))
        stripped = msgspec.structs.replace(file, silences={})
        for _ in range(2):
            await member.awake.rater.hear(with_strangers(stage, stripped))
        assert store.proposals(3) == [file]
    await stage.send(now.settlement(stripped), stage.last_leader())
    await stage.followed()
    assert stage.clock.follower.state.ratings[silent].epoch == 2, "it was left out"
    await acted(stage)
    found = stage.clock.follower.state.ratings[silent]
    assert (found.silent, found.credit, found.epoch) == (True, 0, 3)


async def not_yet(_moment: Any, _file: EpochFile) -> None:
    """In place of a settlement."""


def with_strangers(stage: RatingStage, file: EpochFile) -> EpochFile:
    """As many signatures as a file may have, most of them of nobody that counts."""
    keys = [Key.generate() for _ in range(60)]
    signed = {key.address: sign_of(file.update().message(), stage, key) for key in keys}
    return msgspec.structs.replace(file, signatures={**file.signatures, **signed})


def sign_of(message: object, stage: RatingStage, key: Key) -> str:
    return "0x" + typed_data.sign(message, stage.reputation.chain.domain, key.secret).hex()


@pytest.mark.parametrize("error", [ChainUnavailable("The chain node is away", "x"), refusal("NotARater")])
async def test_reports_that_cannot_be_brought_hold_nothing_up_and_are_tried_again(
    stage: RatingStage, error: ChainError
) -> None:
    silent = await met_by_everybody(stage)
    outrun(stage)
    for step in (0.02, 0.2, 0.35, 0.49, 0.52, 0.76):
        if stage.through() == 3:
            await stage.to(3, step)
            await acted(stage)
    settled = stage.clock.follower.state.settled
    assert settled is not None
    turns, tried = stage.members[settled.leader].awake, list[object]()
    send = turns.submit

    async def fails(call: object) -> object:
        tried.append(call)
        raise error

    turns.submit = fails
    for _ in range(3):
        await turns.act()
    assert len(tried) == 1, "not at each look"
    turns.submit = send
    await stage.to(3, 0.9)
    await turns.act()
    await stage.followed()
    found = stage.clock.follower.state.ratings[silent]
    assert (found.silent, found.credit, found.epoch) == (True, 0, 3)


async def kept_by_others(stage: RatingStage) -> list[tuple[Any, EpochFile]]:
    """Members with the file of epoch 2 that its leader, who is gone, did not settle."""
    leader = await stage.leader()
    await stage.to(2, 0.49)
    await stage.act()
    await stage.to(2, 0.51)
    stage.members[leader].awake.submit = _never  # type: ignore[assignment]
    await stage.act()
    stage.kill(leader)
    seed = (await stage.clock.moment()).now.seed
    others = [member.awake.rater for operator, member in stage.members.items() if operator != leader]
    known = [(rater, kept[0]) for rater in others if (kept := rater.store.proposal(2, seed)) is not None]
    assert known, stage.refusals
    return known


async def test_what_enough_signed_is_kept_where_this_member_signs_another_leaders_update(stage: RatingStage) -> None:
    """A leader that heard of nothing proposes its own; the first one's update may be settled by nobody else."""
    for rater, file in await kept_by_others(stage):
        signed = dict.fromkeys((str(rater.operator), str(file.leader)), file.signatures[file.leader])
        other = msgspec.structs.replace(file, next=ExaminedList(), silences={}, signatures=signed)
        rater.keep(other, ())
        assert rater.store.proposals(2) == [file]
    await stage.to(2, 0.92)
    await stage.act()
    assert stage.through() == 3


async def _never(_call: object) -> None:
    raise CommitteeError("The chain node is away")


async def test_a_forged_report_of_silence_does_not_spoil_what_settles_the_epoch(stage: RatingStage) -> None:
    known = await kept_by_others(stage)
    for rater, file in known:
        said = SilenceSaid("0x" + (1).to_bytes(32, "big").hex(), file.signatures[file.leader])
        with pytest.raises(EpochRefused):
            await rater.hear(msgspec.structs.replace(file, silences={**file.silences, file.leader: said}))
        assert rater.store.proposals(2) == [file]
    await stage.to(2, 0.92)
    await stage.act()
    assert stage.through() == 3


@pytest.mark.parametrize("bits", [1 << 200, 1], ids=["a node that is not in the list", "a node with a credit"])
async def test_a_report_that_the_chain_refuses_does_not_spoil_it_either(stage: RatingStage, bits: int) -> None:
    """Signed by a member, and handed to all others with the update."""
    for rater, file in await kept_by_others(stage):
        now = (await stage.clock.moment()).now
        assert len(file.credits) == len(file.examined.nodes), "all have credits"
        report = SilenceReport(now.epoch, now.seed, list_hash(*file.examined.read()), bits)
        said = {
            operator: SilenceSaid(
                "0x" + bits.to_bytes(32, "big").hex(),
                "0x" + typed_data.sign(report, now.domain, stage.reputation.key(operator).secret).hex(),
            )
            for operator in stage.members
        }
        await rater.hear(msgspec.structs.replace(file, silences=said))
    await stage.to(2, 0.92)
    await stage.act()
    assert stage.through() == 3, stage.refusals
    assert stage.credits() == dict(zip(stage.market.nodes, WORTH, strict=True))
