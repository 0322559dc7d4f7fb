"""Epochs that members carry out by themselves: silent and lying leaders, other prompts, kills, double signatures."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from conftest import Anvil
from support.rating_epochs import MEMBERS, NODES, WORTH, epoch, second_epoch
from support.rating_stage import TERMS, RatingStage, StagedMember

from troth.committee.corpus.texts import Corpus
from troth.committee.corpus.wear import prompts_of_list
from troth.committee.errors import CommitteeError, EpochRefused, RequestRefused, SignedOther
from troth.committee.rating import member as rating
from troth.committee.rating.challenges import new_openings, root_of
from troth.committee.rating.epochs import EpochFile, ExaminedList, with_signature
from troth.committee.rating.member import EpochProposal, encode_message
from troth.committee.rating.requests import REVIEW, SIGNED
from troth.protocol.reputation import ONE
from troth.protocol.types import Address

pytestmark = [pytest.mark.chain, pytest.mark.slow]


@pytest.fixture
async def stage(anvil: Anvil, tmp_path: Path) -> AsyncIterator[RatingStage]:
    async with second_epoch(anvil, tmp_path) as stage:
        yield stage


async def test_an_honest_epoch_is_asked_scored_signed_and_settled(stage: RatingStage) -> None:
    of_list = {opening.prompt for opening in await stage.opened_by_the_leader()}
    leaders = len({await stage.leader(), await stage.leader(by_seed=True)})
    await epoch(stage, 2)
    assert stage.through() == 3
    assert stage.credits() == dict(zip(stage.market.nodes, WORTH, strict=True))
    assert stage.clock.follower.state.settled is not None
    assert stage.clock.follower.state.settled.drawn
    assert stage.clock.follower.state.settled.signers == MEMBERS
    opened = await stage.opened_by_the_leader()
    for member in stage.members.values():
        assert member.rater is not None
        assert not any(member.rater.store.is_new(opening.prompt) for opening in opened)
    asked = [prompt for prompt, _ in stage.market.prompts]
    # No node got a prompt twice, no two the same. All but what was due in the last blocks before the agreement.
    assert len(set(asked)) == len(asked)
    listed = of_list & set(asked)
    assert leaders * (NODES * 2 - 2) <= len(listed) <= leaders * NODES * 2
    assert len(asked) - len(listed) <= MEMBERS * TERMS.attempts
    await stage.to(3, 0.0)
    await epoch(stage, 3)
    assert stage.through() == 4
    asked = [prompt for prompt, _ in stage.market.prompts]
    assert len(set(asked)) == len(asked)
    # Everybody's corpus is as worn as the prompts that it wrote: lists of three epochs, and its own questions.
    worn = [member.awake.rater.store.uses(TERMS.texts) * len(TERMS.texts) for member in stage.members.values()]
    listed = prompts_of_list(TERMS.prompts, NODES)
    lists = [(prompts - 3 * TERMS.attempts) / listed for prompts in worn]
    assert [round(count, 6) for count in lists] == [round(count) for count in lists]
    assert sum(map(round, lists)) == 3


async def test_members_with_one_small_corpus_sign_each_others_lists(stage: RatingStage) -> None:
    """None knows what the others ask by themselves, and yet no prompt of a list is one of these."""
    texts = [" ".join(f"{letter}{word}" * 3 for word in ("ask", "tell", "find")) for letter in _names(200)]
    terms = rating.RatingTerms(prompts=2, tokens=64, attempts=4, characters=100, corpus=Corpus.of(texts))
    for operator in stage.members:
        stage.kill(operator)
        stage.start(operator, terms)
    for number in range(2, 6):
        await stage.to(number, 0.01 if number > 2 else 0.02)
        await epoch(stage, number)
        settled = stage.clock.follower.state.settled
        assert settled is not None
        assert (settled.epoch, settled.signers) == (number, MEMBERS), "\n".join(stage.refusals)


def _names(count: int) -> list[str]:
    return [chr(97 + number // 26) + chr(97 + number % 26) for number in range(count)]


async def test_a_silent_leader_is_followed_by_the_one_that_the_seed_draws(stage: RatingStage) -> None:
    number, last = 2, stage.last_leader()
    first, second = await stage.leader(), await stage.leader(by_seed=True)
    # Draws differ from run to run: an epoch whose two leaders are two members, and the last leader a third or second.
    while first in {second, last}:
        await epoch(stage, number)
        number += 1
        await stage.to(number, 0.0)
        last = stage.last_leader()
        first, second = await stage.leader(), await stage.leader(by_seed=True)
    silent = first
    stage.kill(silent)
    await epoch(stage, number, until=0.74)
    assert stage.through() == number
    await epoch_from(stage, number, 0.76)
    assert stage.through() == number + 1
    settled = stage.clock.follower.state.settled
    assert settled is not None
    assert (settled.leader, settled.drawn) == (second, False)
    assert set(stage.credits().values()) & set(WORTH)


async def epoch_from(stage: RatingStage, number: int, begin: float) -> None:
    for step in (begin, 0.85, 0.92):
        if stage.through() == number:
            await stage.to(number, step)
            await stage.act()


async def test_members_refuse_the_leader_of_the_seed_before_its_turn(stage: RatingStage) -> None:
    """It may be asked by anybody who wants another leader than the last one's VRF draws."""
    await stage.to(2, 0.51)
    second = await stage.leader(by_seed=True)
    file = stage.members[second].awake._file(await stage.clock.moment(), {}, b"")
    judge = stage.members[next(one for one in stage.members if one != second)].rater
    assert judge is not None
    with pytest.raises(EpochRefused, match="whom the last one's VRF draws"):
        await judge.review(second, EpochProposal(rating.VERSION, file, [], []))
    # Later it is its turn, and what is missing is its signature.
    await stage.to(2, 0.76)
    with pytest.raises(EpochRefused, match="leader signs first"):
        await judge.review(second, EpochProposal(rating.VERSION, file, [], []))


async def test_a_leader_that_lies_about_credits_gets_no_signature_and_the_next_one_leads(stage: RatingStage) -> None:
    liar = await stage.leader()
    stage.members[liar].examiner.lie = ONE // 5
    await epoch(stage, 2, until=0.74)
    assert stage.through() == 2
    assert any("not what the answers are worth" in refusal for refusal in stage.refusals)
    await epoch_from(stage, 2, 0.76)
    if stage.through() == 2:
        # The seed draws it as well: the epoch passes, and no score moves.
        assert await stage.leader(by_seed=True) == liar
        assert stage.credits() == {}
        return
    assert stage.credits() == dict(zip(stage.market.nodes, WORTH, strict=True))


async def test_one_member_that_is_down_stops_nothing_and_two_do(stage: RatingStage) -> None:
    leader, last = await stage.leader(), stage.last_leader()
    others = [operator for operator in stage.members if operator not in {leader, last}]
    stage.kill(others[0])
    await epoch(stage, 2)
    assert stage.through() == 3
    assert stage.credits() == dict(zip(stage.market.nodes, WORTH, strict=True))
    number = 3
    await stage.to(number, 0.0)
    while await stage.leader() == others[0]:  # who is down proposes nothing, so nobody would be refused
        await epoch(stage, number)
        number += 1
        await stage.to(number, 0.0)
    leader, last = await stage.leader(), stage.last_leader()
    stage.kill(next(one for one in stage.members if one not in {leader, last, others[0]}))
    before = stage.through()
    await epoch(stage, number)
    assert stage.through() == before
    assert any("3 members must sign" in refusal for refusal in stage.refusals)


async def test_a_member_that_is_killed_at_each_step_goes_on_from_its_files(stage: RatingStage) -> None:
    """Of the leader: after its first question, before and after it signed, before and after it settled."""
    leader = await stage.leader()

    def again() -> StagedMember:
        stage.kill(leader)
        return stage.start(leader)

    await stage.to(2, 0.2)
    await stage.look(leader)
    assert stage.members[leader].examiner.orders
    again()
    await stage.to(2, 0.49)
    await stage.look(leader)
    await stage.to(2, 0.51)
    steps: list[str] = []
    for step in ("keep_proposal", "note_signed", "submit"):
        member = stage.members[leader]
        target: object = member.awake if step == "submit" else member.awake.rater.store
        setattr(target, step, _killed(steps, step))
        with pytest.raises(Killed):
            await stage.look(leader)
        again()
    await stage.look(leader)
    assert steps == ["keep_proposal", "note_signed", "submit"]
    assert stage.through() == 3, stage.refusals
    assert stage.credits() == dict(zip(stage.market.nodes, WORTH, strict=True))
    assert stage.clock.follower.state.expelled == frozenset()
    asked = [prompt for prompt, _ in stage.market.prompts]
    assert len(set(asked)) == len(asked)
    again()
    await stage.to(3, 0.02)
    await stage.act()


class Killed(BaseException):
    """What kill -9 is to the code that it meets."""


def _killed(steps: list[str], step: str):
    def kill(*_: object) -> None:
        steps.append(step)
        raise Killed

    return kill


async def test_what_enough_members_signed_is_settled_by_others_when_its_leader_is_gone(stage: RatingStage) -> None:
    leader = await stage.leader()
    await stage.to(2, 0.49)
    await stage.act()
    await stage.to(2, 0.51)
    stage.members[leader].awake.submit = _never  # type: ignore[assignment]
    await stage.act()
    stage.kill(leader)
    assert stage.through() == 2
    await stage.to(2, 0.92)
    await stage.act()
    assert stage.through() == 3
    settled = stage.clock.follower.state.settled
    assert settled is not None
    assert settled.leader == leader


async def _never(_call: object) -> None:
    raise CommitteeError("The chain node is away")


async def test_a_leader_that_shows_members_different_updates_loses_its_bond(stage: RatingStage) -> None:
    leader = await stage.leader()
    member = stage.members[leader]
    assert member.rater is not None
    moment = await stage.clock.moment()
    first = (await member.rater.prove(2)) if moment.now.state.leader == leader else await member.awake._proof(moment)
    files = []
    for number in range(2):
        openings = new_openings(6, member.rater.store.is_new)
        after = ExaminedList(list(stage.market.nodes), "0x" + root_of(openings).hex())
        file = member.awake._file(moment, {}, first)
        file = msgspec.structs.replace(file, next=after)
        # A journal that forgets, as of a restored backup: the honest one refuses the second.
        journal = type(member.rater.journal)(member.folder / f"forgetful{number}")
        files.append(with_signature(moment.now, file, member.rater.secret, journal))
        journal.close()
    bare = [msgspec.structs.replace(file, signatures={}) for file in files]
    with_signature(moment.now, bare[0], member.rater.secret, member.rater.journal)
    with pytest.raises(SignedOther):
        with_signature(moment.now, bare[1], member.rater.secret, member.rater.journal)
    others = [one for one in stage.members if one != leader]
    for file, other in zip(files, others, strict=False):
        proposal = EpochProposal(rating.VERSION, file, [], [])
        await member.awake.others.ask(other, REVIEW, encode_message(proposal), 2)
    stage.kill(leader)
    # They tell each other what they saw, and whoever sees both brings it to the chain.
    await stage.act()
    await stage.act()
    assert stage.clock.follower.state.expelled == frozenset({leader})


async def test_a_second_signature_convicts_also_after_the_epoch_is_settled(stage: RatingStage) -> None:
    leader = await stage.leader()
    for step in (0.02, 0.25, 0.49):
        await stage.to(2, step)
        await stage.look(leader)
    await stage.to(2, 0.51)
    proposal = await proposed_by(stage, leader)
    other = signed(stage, leader, proposal, {"credits": {}}, {})
    stage.kill(leader)
    stage.start(leader)
    await stage.look(leader)
    assert stage.through() == 3
    witness = stage.members[next(one for one in stage.members if one != leader)].rater
    assert witness is not None
    await witness.hear(other.file)
    await stage.act(but=[leader])
    assert stage.clock.follower.state.expelled == frozenset({leader})
    with pytest.raises(EpochRefused, match="settled"):
        await witness.review(leader, proposal)


async def test_after_a_reorganisation_below_the_epoch_members_sign_again_and_none_is_expelled(
    anvil: Anvil, stage: RatingStage
) -> None:
    """Another block before the epoch is another seed: what was signed under the old one settles nothing, convicts
    nobody, and is shown to nobody's harm."""
    await epoch(stage, 2)
    contract, file = stage.reputation.contract, None
    await stage.to(2, 0.98)
    taken = anvil.rpc("evm_snapshot")
    for member in stage.members.values():
        member.awake.submit = _never  # type: ignore[assignment]
    for step in (0.02, 0.25, 0.49, 0.76):
        await stage.to(3, step)
        await stage.act()
    before = (await stage.clock.moment()).now.seed
    signed = [one for one in stage.members.values() if one.awake.rater.journal.signed(contract, 3, before) is not None]
    assert len(signed) >= stage.reputation.needed, stage.refusals
    for member in signed:
        kept = member.awake.rater.store.proposal(3, before)
        file = file if kept is None else kept[0]
    assert file is not None
    anvil.rpc("evm_revert", taken)
    anvil.rpc("evm_increaseTime", 7)
    await stage.to(3, 0.02, reorganised=True)
    moment = await stage.clock.moment()
    assert moment.now.seed != before
    for operator in stage.members:
        stage.kill(operator)
        stage.start(operator)
    # What was signed before the reorganisation is no update of this epoch any more, whoever brings it.
    witness = next(iter(stage.members.values())).awake.rater
    with pytest.raises(EpochRefused):
        await witness.hear(file)
    await epoch(stage, 3)
    settled = stage.clock.follower.state.settled
    assert settled is not None
    assert (settled.epoch, settled.signers) == (3, MEMBERS), stage.refusals
    assert set(stage.credits().values()) <= set(WORTH)
    both = [one for one in signed if one.awake.rater.journal.signed(contract, 3, moment.now.seed) is not None]
    assert both
    assert not [found for one in stage.members.values() for found in one.awake.rater.store.equivocations()]
    await stage.act()
    assert stage.clock.follower.state.expelled == frozenset()


async def test_wrong_proposals_are_refused(stage: RatingStage) -> None:
    """A node dropped, prompts changed or repeated, one answer shown twice or to another prompt, credits invented."""
    leader = await stage.leader()
    for step in (0.02, 0.25, 0.49):
        await stage.to(2, step)
        await stage.look(leader)
    await stage.to(2, 0.51)
    proposal = await proposed_by(stage, leader)
    file, openings, answers = proposal.file, proposal.openings, proposal.answers
    node = stage.market.nodes[0]
    # One that did not know the prompts before.
    knowing = {leader, stage.last_leader(), await stage.leader(by_seed=True)}
    other = next(one for one in stage.members if one not in knowing)
    judge = stage.members[other].rater
    assert judge is not None
    repeated = [*openings[:-1], openings[0]]
    examined, after = file.examined, file.next
    changes: list[tuple[str, dict[str, object], dict[str, object]]] = [
        ("not examined in", {"examined": msgspec.structs.replace(examined, nodes=examined.nodes[1:])}, {}),
        ("fixed another list", {"examined": msgspec.structs.replace(examined, prompt_root="0x" + "11" * 32)}, {}),
        ("leaves nodes out", {"next": msgspec.structs.replace(after, nodes=after.nodes[1:])}, {}),
        ("cannot be drawn", {"next": msgspec.structs.replace(after, nodes=[*after.nodes, leader])}, {}),
        ("prompts, or neither", {"next": msgspec.structs.replace(after, prompt_root="0x" + "00" * 32)}, {}),
        ("not what the answers are worth", {"credits": {**file.credits, node: ONE}}, {}),
        ("Other nodes have answers", {"credits": {one: c for one, c in file.credits.items() if one != node}}, {}),
        ("not the prompts that were fixed", {}, {"openings": repeated}),
        ("credits without prompts", {}, {"openings": []}),
        ("there twice", {}, {"answers": [*answers, answers[0]]}),
        ("cannot be read", {}, {"answers": [b"nonsense"]}),
    ]
    for what, in_file, in_proposal in changes:
        with pytest.raises(EpochRefused, match=what):
            await judge.review(leader, signed(stage, leader, proposal, in_file, in_proposal))
    judge.store.keep_attempts(1, (await stage.clock.moment()).now.seed, openings[:1])
    with pytest.raises(EpochRefused, match="asked before"):
        await judge.review(leader, proposal)
    with pytest.raises(EpochRefused, match="Let it propose"):
        await judge.review(other, proposal)
    unsigned = msgspec.structs.replace(proposal, file=msgspec.structs.replace(file, signatures={}))
    with pytest.raises(EpochRefused, match="leader signs first"):
        await judge.review(leader, unsigned)
    forged = {**file.signatures, other: file.signatures[leader]}
    with pytest.raises(EpochRefused, match="did not sign this"):
        await judge.review(
            leader, msgspec.structs.replace(proposal, file=msgspec.structs.replace(file, signatures=forged))
        )
    late = msgspec.structs.replace(file, epoch=1)
    with pytest.raises(RequestRefused, match="it is epoch 2"):
        await judge.review(leader, msgspec.structs.replace(proposal, file=late))


async def proposed_by(stage: RatingStage, leader: Address) -> EpochProposal:
    """What the leader sends, as a member sees it."""
    member = stage.members[leader]
    caught: list[bytes] = []

    async def nobody(kind: str, body: bytes, epoch: int, *, enough: int) -> dict[Address, bytes]:
        caught.append(body)
        return {}

    member.awake.others.ask_all = nobody  # type: ignore[method-assign]
    await stage.look(leader)
    return msgspec.msgpack.decode(caught[0], type=EpochProposal)


def signed(
    stage: RatingStage, leader: Address, proposal: EpochProposal, in_file: dict, in_proposal: dict
) -> EpochProposal:
    """A proposal with changes that its leader stands for."""
    from troth.protocol import typed_data

    file: EpochFile = msgspec.structs.replace(proposal.file, **in_file)
    if in_file:
        domain, secret = stage.reputation.chain.domain, stage.reputation.key(leader).secret
        signature = typed_data.sign(file.update().message(), domain, secret)
        file = msgspec.structs.replace(file, signatures={leader: "0x" + signature.hex()})
    return msgspec.structs.replace(proposal, file=file, **in_proposal)


async def test_prompts_are_handed_to_the_leader_alone_and_strangers_hear_nothing(stage: RatingStage) -> None:
    last = stage.last_leader()
    holder = stage.members[last].rater
    assert holder is not None
    leader, second = await stage.leader(), await stage.leader(by_seed=True)
    assert len(await holder.hand_over(leader, 2)) == NODES * 2 * 2
    assert await holder.hand_over(second, 2)
    for operator in stage.members:
        if operator in {leader, second}:
            continue
        with pytest.raises(RequestRefused, match="for the epoch's leader"):
            await holder.hand_over(operator, 2)
    stranger = dataclasses.replace(stage.members[leader].awake.others, secret=b"\7" * 32)  # type: ignore[type-var]
    assert await stranger.ask(last, SIGNED, b"", 2) == b""
    assert "Only members may ask this" in stage.refusals[-1]
