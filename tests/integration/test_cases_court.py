"""Cases from evidence to outcome, against the real contracts: what is brought, by whom, and who pays for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.cases_scene import without_prompt
from support.court_stage import CourtStage, court_stage, quantised

from troth.cases import calls
from troth.cases.carrying import Carrier
from troth.cases.errors import NothingToDo
from troth.cases.office import Office
from troth.cases.opening import WantedCase
from troth.cases.steps import Move
from troth.chain.transactions import Transactions
from troth.protocol.calls import Call
from troth.protocol.market import messages
from troth.protocol.market.proceedings import CasePhase, CaseState, Outcome
from troth.protocol.market.signed import Opinion
from troth.protocol.market.types import PotKind
from troth.protocol.types import Address, Hash32

MOST_LOOKS = 200
"""At a case, before a test gives up."""

pytestmark = [pytest.mark.chain, pytest.mark.slow]


@pytest.fixture
async def court(anvil: Any, tmp_path: Path) -> AsyncIterator[CourtStage]:
    async with court_stage(anvil, tmp_path) as made:
        yield made


async def test_a_rejected_cheat_is_convicted(court: CourtStage) -> None:
    evidence = await court.serve(cheat=quantised)
    node = evidence.nodes[0]
    court.defend(node)
    stake = court.follower.state.pot(PotKind.STAKE, node)
    watcher = court.stage.anvil.keys[7]
    carrier = court.carrier(watcher)
    said = await carrier.opener.dry_run(evidence)
    assert "rejection" in said[0]
    assert "it would succeed" in said[0]
    case_id = await carrier.opener.bring(evidence, WantedCase(0))
    progress = await court.drive(carrier, case_id)
    assert progress.outcome is Outcome.CONVICTED
    state = court.follower.state
    assert state.pot(PotKind.STAKE, node) + court.stage.execution_class.penalty == stake
    # Bond, gas and half of the reward, since neither client nor verifier brought it.
    bond = state.cases[case_id].state.bond
    assert state.pot(PotKind.CREDIT, watcher.address) > bond
    assert carrier.journal.cases() == ()


async def test_a_case_in_which_everybody_speaks_has_three_calls(court: CourtStage) -> None:
    evidence = await court.serve(cheat=quantised)
    court.defend(evidence.nodes[0])
    carrier = court.carrier(court.stage.client)
    case_id = await carrier.opener.bring(evidence, WantedCase(0))
    assert (await court.drive(carrier, case_id)).outcome is Outcome.CONVICTED
    assert court.sent == [("open", "mined"), ("convene", "mined"), ("conclude", "mined")]


async def test_an_honest_node_is_upheld_and_the_opener_loses_its_bond(court: CourtStage) -> None:
    evidence = await court.serve()
    node = evidence.nodes[0]
    court.defend(node)
    stake = court.follower.state.pot(PotKind.STAKE, node)
    watcher = court.stage.anvil.keys[7]
    carrier = court.carrier(watcher)
    case_id = await carrier.opener.bring(evidence, WantedCase(0))
    assert (await court.drive(carrier, case_id)).outcome is Outcome.UPHELD
    state = court.follower.state
    assert state.pot(PotKind.STAKE, node) == stake
    assert state.pot(PotKind.CREDIT, watcher.address) < state.cases[case_id].state.bond
    # The verifiers that rejected pay, each for its seats.
    for verdict in evidence.verdicts:
        verifier = next(one for one in state.cases[case_id].state.verifiers)
        assert state.pot(PotKind.STAKE, verifier) < 2 * court.stage.execution_class.seat
        assert verdict.message.opinion == Opinion.REJECT


async def test_who_opens_a_case_without_prompt_loses_it_and_the_leaf_stays_open(court: CourtStage) -> None:
    evidence = await court.serve(cheat=quantised)
    court.defend(evidence.nodes[0])
    friend = court.carrier(court.stage.anvil.keys[6], "friend")
    with pytest.raises(NothingToDo, match="the request"):
        await friend.opener.bring(without_prompt(evidence), WantedCase(0))
    case_id = await friend.opener.bring(without_prompt(evidence), WantedCase(0, unready=True))
    assert (await court.drive(friend, case_id)).outcome is Outcome.OPENER_MISSING
    # A sham case acquits nobody: who has the data brings it again.
    client = court.carrier(court.stage.client, "client")
    assert await client.opener.bring(evidence, WantedCase(0)) == case_id
    assert (await court.drive(client, case_id)).outcome is Outcome.CONVICTED


async def test_silent_reviewers_pay_and_the_others_decide(court: CourtStage) -> None:
    evidence = await court.serve(cheat=quantised)
    court.defend(evidence.nodes[0])
    carrier = court.carrier(court.stage.client)
    case_id = await carrier.opener.bring(evidence, WantedCase(0))
    state = await drawn(court, carrier, case_id)
    fewest = min(zip(state.seats, state.reviewers, strict=True))[1]
    court.deaf.add(fewest)
    court.asleep.add(fewest)
    stake = court.follower.state.pot(PotKind.STAKE, fewest)
    progress = await court.drive(carrier, case_id)
    left = sum(seats for seats, one in zip(state.seats, state.reviewers, strict=True) if one != fewest)
    strong = 3 * left >= 2 * sum(state.seats)
    assert progress.outcome is (Outcome.CONVICTED if strong else Outcome.REFUNDED)
    assert court.follower.state.pot(PotKind.STAKE, fewest) < stake


async def test_reviewers_and_node_help_themselves_where_no_driver_asks(court: CourtStage) -> None:
    """The driver knows nobody's endpoint; everybody posts and shows by its own call, and the chain is enough."""
    evidence = await court.serve(cheat=quantised)
    node = evidence.nodes[0]
    court.defend(node)
    court.store.evidence = evidence  # the scheduler has the prompt, and reviewers ask it
    client, stranger = court.stage.client, court.stage.anvil.keys[5]
    opener = court.carrier(client, "opener")
    case_id = await opener.opener.bring(without_prompt(evidence), WantedCase(0, unready=True))
    court.deaf.add(client.address)
    court.deaf.add(stranger.address)
    carrier = court.carrier(stranger, "stranger", share=0.0)
    assert (await court.drive(carrier, case_id)).outcome is Outcome.CONVICTED
    record = court.follower.state.cases[case_id]
    assert len(record.posts) == len(record.state.reviewers)
    assert len(record.reveals) == len(record.state.reviewers) + 1


async def test_a_node_that_shows_nothing_has_lost(court: CourtStage) -> None:
    evidence = await court.serve()
    carrier = court.carrier(court.stage.client)
    case_id = await carrier.opener.bring(evidence, WantedCase(0))
    assert (await court.drive(carrier, case_id)).outcome is Outcome.NODE_MISSING


async def test_a_case_that_nobody_carries_on_lapses_and_can_be_brought_again(court: CourtStage) -> None:
    evidence = await court.serve(cheat=quantised)
    court.defend(evidence.nodes[0])
    carrier = court.carrier(court.stage.client)
    case_id = await carrier.opener.bring(evidence, WantedCase(0))
    court.stage.anvil.mine(2 + 8 + 1)
    stranger = court.carrier(court.stage.anvil.keys[5], "stranger", share=0.0)
    progress = await court.drive(stranger, case_id)
    assert progress.outcome is Outcome.LAPSED
    assert await carrier.opener.bring(evidence, WantedCase(0)) == case_id
    assert (await court.drive(carrier, case_id)).outcome is Outcome.CONVICTED


async def test_a_client_doubts_an_answer_that_was_not_drawn(court: CourtStage) -> None:
    evidence = await court.serve(cheat=quantised, opinion=None)
    court.defend(evidence.nodes[0])
    stranger = court.carrier(court.stage.anvil.keys[5], "stranger")
    with pytest.raises(NothingToDo, match="Only its client"):
        await stranger.opener.bring(evidence, WantedCase(0))
    carrier = court.carrier(court.stage.client)
    case_id = await carrier.opener.bring(evidence, WantedCase(0))
    assert (await court.drive(carrier, case_id)).outcome is Outcome.REFUNDED
    assert court.follower.state.is_voided(evidence.order_id, 0)


async def test_a_bond_above_what_was_allowed_is_not_put_up(court: CourtStage) -> None:
    evidence = await court.serve(cheat=quantised)
    carrier = court.carrier(court.stage.client)
    with pytest.raises(NothingToDo, match="bond"):
        await carrier.opener.bring(evidence, WantedCase(0, most_bond=1))
    assert carrier.journal.cases() == ()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["open", "convene", "draw", "commit", "conclude", "seed", "decide"])
async def test_a_driver_killed_at_any_step_goes_on(court: CourtStage, step: str, when: str) -> None:
    evidence = await court.serve(cheat=quantised)
    court.defend(evidence.nodes[0])
    if step in {"draw", "commit", "seed", "decide"}:
        court.give_late()
    client = court.stage.client
    carrier = court.carrier(client)
    carrier.opener.courtroom = carrier._courtroom = Killing(carrier._courtroom, step, when)
    case_id = messages.case_id(evidence.order_id, 0)
    with pytest.raises(Killed):
        await brought(court, carrier, evidence)
    carrier.journal._database.close()
    again = court.carrier(client)
    assert again.journal.cases() == (case_id,)
    assert (await court.drive(again, case_id)).outcome is Outcome.CONVICTED
    mined = [call for call, what in court.sent if what == "mined"]
    assert len(mined) == len(set(mined))


async def test_an_opening_that_a_reorganisation_took_away_is_made_again(court: CourtStage) -> None:
    evidence = await court.serve(cheat=quantised)
    court.defend(evidence.nodes[0])
    carrier = court.carrier(court.stage.client)
    before = court.stage.anvil.rpc("evm_snapshot")
    case_id = await carrier.opener.bring(evidence, WantedCase(0))
    assert court.follower.state.cases[case_id].live
    court.stage.anvil.rpc("evm_revert", before)
    court.stage.anvil.mine(2)
    await court.follower.catch_up()
    assert case_id not in court.follower.state.cases
    assert (await court.drive(carrier, case_id)).outcome is Outcome.CONVICTED


async def test_who_lacks_the_bond_opens_once_it_is_there(court: CourtStage) -> None:
    evidence = await court.serve(cheat=quantised)
    court.defend(evidence.nodes[0])
    watcher = court.stage.anvil.keys[7]
    carrier = court.carrier(watcher)
    court.stage.anvil.rpc("anvil_setBalance", watcher.address, hex(10**12))
    office = Office(carrier._courtroom, carrier.journal, carrier.opener, carrier)
    await office.rejected(evidence, 0)
    (case_id,) = carrier.journal.cases()
    progress = await carrier.tick(case_id)
    assert "not opened yet" in progress.words
    court.stage.anvil.fund(watcher)
    assert (await court.drive(carrier, case_id)).outcome is Outcome.CONVICTED


async def test_a_case_that_became_too_late_is_given_up(court: CourtStage) -> None:
    evidence = await court.serve(cheat=quantised)
    carrier = court.carrier(court.stage.client)
    await Office(carrier._courtroom, carrier.journal, carrier.opener, carrier).rejected(evidence, 0)
    (case_id,) = carrier.journal.cases()
    court.stage.anvil.mine(20 + 15 * 6 + 1)
    # A view of an older block has it sent all the same; the chain refuses, and it is looked at again.
    await court.follower.catch_up()
    progress = await carrier.tick(case_id)
    assert progress.over
    assert progress.outcome is None
    assert carrier.journal.cases() == ()


async def brought(court: CourtStage, carrier: Any, evidence: Any) -> Any:
    return await court.drive(carrier, await carrier.opener.bring(evidence, WantedCase(0)))


async def test_several_drivers_do_not_hurt_each_other(court: CourtStage) -> None:
    evidence = await court.serve(cheat=quantised)
    court.defend(evidence.nodes[0])
    keys = (court.stage.client, *court.stage.anvil.keys[5:7])
    carriers = [court.carrier(key, f"driver {number}") for number, key in enumerate(keys)]
    cases = await asyncio.gather(*(one.opener.bring(evidence, WantedCase(0)) for one in carriers))
    assert len(set(cases)) == 1
    nonces = [int(court.stage.anvil.rpc("eth_getTransactionCount", key.address, "latest"), 16) for key in keys]
    assert await driven(court, carriers, cases[0]) is Outcome.CONVICTED
    after = [int(court.stage.anvil.rpc("eth_getTransactionCount", key.address, "latest"), 16) for key in keys]
    # Convene and conclude, each once: others let who opened the case go first.
    assert sum(after) - sum(nonces) == 2


async def test_of_two_that_open_a_case_in_one_block_both_follow_it(
    court: CourtStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later one's call was fine when it was sent, and fails where it is mined."""
    estimate, both = Transactions.estimate, asyncio.Barrier(2)

    async def together(self: Transactions, call: Call, sender: Address, to: Address | None) -> int:
        # Whoever estimates after the other one has sent is refused already, and sends nothing.
        gas = await estimate(self, call, sender, to)
        if call.function == "open":
            await both.wait()
        return gas

    monkeypatch.setattr(Transactions, "estimate", together)
    evidence, anvil = await court.serve(cheat=quantised), court.stage.anvil
    carriers = [court.carrier(key, key.address) for key in (court.stage.client, anvil.keys[5])]
    anvil.rpc("evm_setAutomine", False)
    opening = [asyncio.create_task(one.opener.bring(evidence, WantedCase(0))) for one in carriers]
    try:
        async with asyncio.timeout(60):
            while int(anvil.rpc("txpool_status")["pending"], 16) < len(carriers):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.05)
        anvil.mine(1)
    finally:
        anvil.rpc("evm_setAutomine", True)
    cases = await asyncio.gather(*opening)
    assert len(set(cases)) == 1
    assert [one.journal.case(cases[0]) is not None for one in carriers] == [True, True]
    said = [what for call, what in court.sent if call == "open"]
    assert sorted(said, key=lambda what: what != "mined") == ["mined", "Reverted"]


async def test_drivers_that_do_not_wait_lose_no_more_than_gas(court: CourtStage) -> None:
    evidence = await court.serve(cheat=quantised)
    court.defend(evidence.nodes[0])
    keys = court.stage.anvil.keys[5:7]
    carriers = [court.carrier(key, f"hasty {number}", share=0.0) for number, key in enumerate(keys)]
    case_id = await carriers[0].opener.bring(evidence, WantedCase(0))
    assert await driven(court, carriers, case_id, hurt=True) is Outcome.CONVICTED


async def test_whose_tiles_somebody_else_drew_decides_in_a_call_of_its_own(court: CourtStage) -> None:
    """Anybody may send the seed before a conclusion that is on its way; what the parties showed holds for it, too."""
    evidence = await court.serve(cheat=quantised)
    court.defend(evidence.nodes[0])
    carrier = court.carrier(court.stage.client)
    carrier._courtroom = Overtaken(carrier._courtroom, court.courtroom(court.stage.anvil.keys[5]))
    case_id = await carrier.opener.bring(evidence, WantedCase(0))
    assert (await court.drive(carrier, case_id)).outcome is Outcome.CONVICTED
    assert ("conclude", "StateMismatch") in court.sent
    assert court.sent[-1] == ("decide", "mined")
    assert court.follower.state.cases[case_id].state.seeder == court.stage.anvil.keys[5].address


async def test_parties_show_no_tiles_before_their_block_is_there(court: CourtStage) -> None:
    evidence = await court.serve(cheat=quantised)
    node = evidence.nodes[0]
    defender = court.defend(node)
    carrier = court.carrier(court.stage.client)
    case_id = await carrier.opener.bring(evidence, WantedCase(0))
    state = await until(court, carrier, case_id, Move.CONVENE)
    assert await defender.show(court.seen(), case_id, 0) is None
    reviewer = court.case_contexts[state.reviewers[0]].reviewer
    assert reviewer is not None
    assert await reviewer.show(court.seen(), case_id, 0) is None
    court.stage.anvil.mine(2)
    await court.follower.catch_up()
    assert await defender.show(court.seen(), case_id, 0) is not None
    assert await reviewer.show(court.seen(), case_id, 0) is not None
    # Once the tiles' window is over, the round is, too.
    court.stage.anvil.mine(8 + 1)
    await court.follower.catch_up()
    assert await defender.show(court.seen(), case_id, 0) is None


async def drawn(court: CourtStage, carrier: Carrier, case_id: Hash32) -> CaseState:
    """The state right after a draw that was sent alone: nobody had signed before it."""
    court.give_late()
    state = await until(court, carrier, case_id, Move.DRAW)
    court.give_late(0)
    assert state.phase is CasePhase.DRAWN
    return state


async def until(court: CourtStage, carrier: Carrier, case_id: Hash32, move: Move) -> CaseState:
    """The state right after a move was sent."""
    for _ in range(MOST_LOOKS):
        await court.look()
        progress = await carrier.tick(case_id)
        if progress.move is move and f"{move.value} in block " in progress.words:
            return court.follower.state.cases[case_id].state
        court.stage.anvil.mine(1)
    raise AssertionError(f"No {move.value} was sent: {progress}")


async def driven(court: CourtStage, carriers: list[Carrier], case_id: Hash32, hurt: bool = False) -> Outcome:
    """How a case ends that several drivers look at in each block; ``hurt``: one may fail where another was faster."""
    for _ in range(MOST_LOOKS):
        outcome = court.follower.state.cases[case_id].outcome
        if outcome is not None:
            return outcome
        await court.look()
        await asyncio.gather(*(one.tick(case_id) for one in carriers), return_exceptions=hurt)
        court.stage.anvil.mine(1)
        await court.follower.catch_up()
    raise AssertionError(f"The case did not end: {court.follower.state.cases[case_id].state}")


class Overtaken:
    """A courtroom before whose first conclusion somebody else draws the tiles."""

    def __init__(self, court: Any, other: Any) -> None:
        self._court, self._other = court, other
        self._done = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._court, name)

    async def send(self, call: Any) -> Any:
        if call.call.function == "conclude" and not self._done:
            self._done = True
            cases = (await self._court.seen()).state.cases
            (record,) = [record for _, record in cases.items() if record.live]
            header = await self._other.header(record.state.phase_block + 2)
            await self._other.send(calls.seed(self._other.contracts, record.state, header.raw))
        return await self._court.send(call)


class Killed(BaseException):
    """kill -9."""


class Killing:
    """A courtroom whose process dies before or after a call is sent."""

    def __init__(self, court: Any, step: str, when: str) -> None:
        self._court, self._step, self._when = court, step, when

    def __getattr__(self, name: str) -> Any:
        return getattr(self._court, name)

    async def send(self, call: Any) -> Any:
        if call.call.function == self._step and self._when == "before":
            raise Killed
        sent = await self._court.send(call)
        if call.call.function == self._step:
            raise Killed
        return sent
