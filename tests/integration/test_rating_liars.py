"""One member that lies to the others in an epoch: false proofs, other prompts, signatures that do not count, bytes that
are no message. It costs the epoch no more than a member that says nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from conftest import Anvil
from support.rating_epochs import MEMBERS, NODES, STEPS, WORTH, second_epoch
from support.rating_stage import RatingStage

from troth.committee import requests
from troth.committee.rating.challenges import new_openings
from troth.committee.rating.member import Agreement, EpochProposal, encode_message
from troth.committee.rating.missed import ADDED_UP, LISTED
from troth.committee.rating.requests import HAND_OVER, PATHS, PROVE, REVIEW, SIGNED
from troth.protocol import reputation_calls as calls
from troth.protocol import typed_data
from troth.protocol.types import Address

pytestmark = [pytest.mark.chain, pytest.mark.slow]


@pytest.fixture
async def stage(anvil: Anvil, tmp_path: Path) -> AsyncIterator[RatingStage]:
    async with second_epoch(anvil, tmp_path) as stage:
        yield stage


async def honest_leaders(stage: RatingStage) -> tuple[int, Address]:
    """An epoch that two others than the last leader lead, and the last leader."""
    number = 2
    while stage.last_leader() in {await stage.leader(), await stage.leader(by_seed=True)}:
        await through(stage, number)
        number += 1
        await stage.to(number, 0.01)
    return number, stage.last_leader()


async def through(stage: RatingStage, number: int, but: Address | None = None, begin: float = 0.0) -> None:
    """All looks of an epoch from a moment on, also after it is settled."""
    for step in STEPS:
        if step < begin:
            continue
        await stage.to(number, step)
        await stage.act(but=() if but is None else (but,))


def answering(stage: RatingStage, liar: Address, kind: str, answer: Callable[[bytes], bytes]) -> None:
    """The liar's word to one kind of request, whoever asks; its own looks are left out by the test."""
    for operator, member in stage.members.items():
        if operator != liar:
            wire: Any = member.awake.others

            async def ask(to: Address, asked: str, body: bytes, epoch: int, before: Any = wire.ask) -> bytes:
                return answer(body) if (to, asked) == (liar, kind) else await before(to, asked, body, epoch)

            wire.ask = ask


@pytest.mark.parametrize(
    "proof", [b"\1" * 81, b"\0" * 81, b"no proof", b"\xff" * 81], ids=["ones", "zeros", "short", "large"]
)
async def test_a_last_leader_with_a_false_proof_stops_nobody(stage: RatingStage, proof: bytes) -> None:
    """It stays the last leader until an epoch is settled without it, and would stop all that come."""
    number, liar = await honest_leaders(stage)
    second = await stage.leader(by_seed=True)
    answering(stage, liar, PROVE, lambda body: proof)
    await through(stage, number, liar)
    settled = stage.clock.follower.state.settled
    assert settled is not None
    assert (settled.epoch, settled.leader, settled.drawn) == (number, second, False), stage.refusals
    # It hands the prompts over all the same: nodes are scored.
    assert set(stage.credits().values()) & set(WORTH)


WRONG_PROMPTS: list[Callable[[], bytes]] = [
    lambda: b"\xc1nonsense",
    lambda: b"\x95" * 10_000,
    lambda: encode_message([1, 2, 3]),
    lambda: encode_message(new_openings(NODES * 4, lambda text: True)),
    lambda: encode_message(new_openings(1, lambda text: True)),
    # A line's end in place of the last digit: a pattern that ends with $ lets it through.
    lambda: encode_message([{"salt": "a" * 63 + "\n", "prompt": "x"}]),
]


@pytest.mark.parametrize("wrong", range(len(WRONG_PROMPTS)))
async def test_a_last_leader_that_hands_over_other_prompts_stops_nobody(stage: RatingStage, wrong: int) -> None:
    """As if it handed over none: nobody is scored, and the next list is fixed."""
    number, liar = await honest_leaders(stage)
    leader = await stage.leader()
    answering(stage, liar, HAND_OVER, lambda body: WRONG_PROMPTS[wrong]())
    asked, before = len(stage.market.prompts), stage.credits()
    await through(stage, number, liar)
    settled = stage.clock.follower.state.settled
    assert settled is not None
    assert (settled.epoch, settled.leader, settled.drawn) == (number, leader, True), stage.refusals
    # What members asked by themselves comes from their own lists.
    own = {one.prompt for member in stage.members.values() for one in await own_questions(stage, member.rater)}
    assert {prompt for prompt, _ in stage.market.prompts[asked:]} <= own
    assert stage.credits() == before
    await stage.to(number + 1, 0.01)
    assert len(await stage.opened_by_the_leader()) == 4 * NODES


async def own_questions(stage: RatingStage, rater: Any) -> list[Any]:
    return rater.attempts(await stage.clock.moment())


async def test_who_does_not_count_in_an_epoch_signs_in_vain(stage: RatingStage) -> None:
    """A member that left the raters, and signs all the same: the chain would take no update with its signature."""
    number, leaver = await honest_leaders(stage)
    secret, domain = stage.reputation.key(leaver).secret, stage.reputation.chain.domain
    await stage.reputation.send(calls.leave(leaver), stage.reputation.key(leaver))
    # It serves the epoch in which it left.
    await through(stage, number, begin=0.2)
    assert stage.through() == number + 1, stage.refusals
    await stage.to(number + 1, 0.01)
    assert not stage.clock.follower.state.raters[leaver].counts(number + 1)
    signed: list[str] = []

    def sign(body: bytes) -> bytes:
        update = msgspec.msgpack.decode(body, type=EpochProposal).file.update()
        signed.append("0x" + typed_data.sign(update.message(), domain, secret).hex())
        return encode_message(Agreement(signed[-1]))

    answering(stage, leaver, REVIEW, sign)
    await through(stage, number + 1, leaver)
    assert signed
    assert stage.through() == number + 2, stage.refusals
    settled = stage.clock.follower.state.settled
    assert settled is not None
    assert settled.signers == MEMBERS - 1


async def test_no_bytes_of_a_member_are_more_than_refused(stage: RatingStage) -> None:
    """Every route, by a member's own signature: a body that is none, and each field of an update as something else."""
    number, liar = await honest_leaders(stage)
    await stage.to(number, 0.51)
    judge = next(one for one in stage.members if one != liar)
    file = stage.members[judge].awake._file(await stage.clock.moment(), {}, b"")
    whole = msgspec.to_builtins(file)
    bodies = [b"", b"\xc1", b"\x94" * 3_000, b"\xdd\xff\xff\xff\xff", encode_message([1, 2, 3, 4])]
    openings = [{"salt": "a" * 63 + "\n", "prompt": "x"}], [{"salt": "a" * 64, "prompt": ""}], {"salt": "a" * 64}
    bodies += [encode_message([1, whole, opened, []]) for opened in openings]
    for field in whole:
        for value in (
            None,
            -1,
            2**63,
            1e400,
            "0x" + "zz" * 32,
            "\u0000",
            [[]] * 70,
            {"a": {"b": 1}},
            "0x" + "11" * 200,
        ):
            changed = {**whole, field: value}
            bodies += [encode_message([1, changed, [], []]), encode_message(changed)]
    wire: Any = stage.members[liar].awake.others
    app = stage.members[judge].app
    assert app is not None
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="https://member") as client:
        for kind in (REVIEW, SIGNED, LISTED, ADDED_UP):
            for body in bodies:
                headers = requests.headers_of(kind, body, number, stage.membership.domain, wire.secret)
                answer = await client.post("/v1/reputation/" + PATHS[kind], content=body, headers=headers)
                told = answer.status_code in range(400, 500) or "takes at most" in answer.text
                assert told, (kind, body[:200], answer.status_code, answer.text)
    await through(stage, number, begin=0.52)
    assert stage.through() == number + 1, stage.refusals
