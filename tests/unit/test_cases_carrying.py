"""A driver against a scripted chain: what it sends and when, what it does not send, and what it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.cases_scene import of_journey
from support.market_case import CaseScene
from support.market_logs import address
from support.market_scene import TAB
from support.scripted_court import WINDOWS, ScriptedCourt, ScriptedParties

from troth.cases import calls, carrying
from troth.cases.carrying import Carrier, CaseProgress
from troth.cases.journal import CaseJournal
from troth.cases.steps import CaseStep, Move, Submitted, next_step
from troth.chain.errors import ChainUnavailable
from troth.protocol.market.proceedings import CasePhase, Outcome
from troth.protocol.market.types import NO_ADDRESS

SCENE = CaseScene()
REVIEWERS = SCENE.drawn.reviewers
NODE = SCENE.node


class Driver:
    """One driver with its journal in ``path``."""

    def __init__(self, path: Path, court: ScriptedCourt | None = None, **named: Any) -> None:
        self.court = court or ScriptedCourt(SCENE, TAB.payer)
        self.parties = ScriptedParties(SCENE, self.court)
        self.path = path
        self.named = named
        self.start()

    def start(self) -> None:
        self.journal = CaseJournal(self.path)
        self.carrier = Carrier(self.court, self.parties, self.journal, **self.named)

    def restart(self) -> None:
        """kill -9 and start again: only chain and journal are left."""
        self.journal.close()
        self.start()

    async def tick(self) -> CaseProgress:
        return await self.carrier.tick(self.court.case_id)

    async def until(self, over: Callable[[], bool], most: int = 80) -> CaseProgress:
        for _ in range(most):
            progress = await self.tick()
            if over() or progress.over:
                return progress
            self.court.mine()
        raise AssertionError(progress)

    async def carry(self) -> Outcome | None:
        return (await self.until(lambda: False)).outcome


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path / "journal.sqlite")


async def test_a_case_is_carried_from_opening_to_outcome(driver: Driver) -> None:
    assert await driver.carry() is Outcome.CONVICTED
    assert driver.court.sent == ["draw", "commit", "decide"]
    assert driver.journal.cases() == ()
    assert (await driver.tick()).over
    assert len(driver.court.sent) == 3


async def test_a_committee_that_has_spoken_is_convened_in_one_call(driver: Driver) -> None:
    driver.court.foresees = True
    assert await driver.carry() is Outcome.CONVICTED
    assert driver.court.sent == ["convene", "decide"]
    assert driver.court.case.drawer == NO_ADDRESS


async def test_reviewers_are_drawn_alone_where_one_has_not_signed(driver: Driver) -> None:
    """What the others signed before the draw holds after it."""
    driver.court.foresees = True
    driver.parties.silent = {REVIEWERS[0]}
    await driver.until(lambda: driver.court.case.phase is CasePhase.DRAWN)
    first = SCENE.opening.phase_block + WINDOWS.lookahead + 1
    assert driver.court.case.phase_block == first + (WINDOWS.draw_window - 1) // 4
    assert len(driver.journal.pledges(driver.court.case_id, 0)) == len(REVIEWERS) - 1
    driver.parties.silent = set(REVIEWERS) - {REVIEWERS[0]}
    await driver.until(lambda: driver.court.case.phase is CasePhase.COMMITTED)
    assert driver.court.sent == ["draw", "commit"]


async def test_a_word_for_another_round_convenes_nobody(driver: Driver) -> None:
    driver.court.foresees = True
    driver.parties.lying = {REVIEWERS[0]}
    await driver.until(lambda: driver.court.case.phase is CasePhase.DRAWN)
    assert driver.court.sent == ["draw"]


async def test_a_restart_after_every_look_changes_nothing(driver: Driver) -> None:
    for _ in range(80):
        if (await driver.tick()).over:
            break
        driver.restart()
        driver.court.mine()
    assert driver.court.record.outcome is Outcome.CONVICTED
    assert driver.court.sent == ["draw", "commit", "decide"]


async def test_what_was_handed_over_before_a_kill_is_not_asked_for_again(driver: Driver) -> None:
    """A reviewer that answered once and is gone after that is still counted."""
    await driver.until(lambda: driver.court.case.phase is CasePhase.DRAWN)
    driver.parties.silent = {REVIEWERS[-1]}
    await driver.tick()
    assert len(driver.journal.pledges(driver.court.case_id, 0)) == len(REVIEWERS) - 1
    driver.restart()
    driver.parties.silent = set(REVIEWERS) - {REVIEWERS[-1]}
    await driver.tick()
    assert driver.court.case.phase is CasePhase.COMMITTED


async def test_a_silent_reviewer_is_waited_for_until_the_last_quarter(driver: Driver) -> None:
    await driver.until(lambda: driver.court.case.phase is CasePhase.DRAWN)
    drawn = driver.court.case.phase_block
    driver.parties.silent = {REVIEWERS[0]}
    await driver.until(lambda: driver.court.case.phase is CasePhase.COMMITTED)
    assert driver.court.case.phase_block == drawn + WINDOWS.commit_window * 3 // 4 + 1
    assert driver.court.case.commitments[0] == bytes(32)


async def test_a_reviewer_that_takes_for_ever_holds_up_no_step(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack 201: a friend of the judged node's accepts evidence so slowly that the committee's window goes by."""
    monkeypatch.setattr(carrying, "ASKING_SECONDS", 0.01)
    driver.parties.endless = {REVIEWERS[0]}
    async with asyncio.timeout(60):
        assert await driver.carry() is Outcome.CONVICTED
    assert driver.court.sent == ["draw", "commit", "decide"]
    assert driver.court.case.commitments[0] == bytes(32)
    assert driver.parties.asked.count(REVIEWERS[0]) == 1, "one request of its kind is enough"
    assert not driver.carrier._asking


async def test_a_node_that_takes_for_ever_is_left_once_nobody_needs_it(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "ASKING_SECONDS", 0.01)
    driver.parties.endless = {NODE}
    async with asyncio.timeout(60):
        await driver.until(lambda: driver.court.case.phase is CasePhase.COMMITTED)
        await driver.tick()
        (asked,) = driver.carrier._asking.values()
        await driver.carrier.close()
    assert asked.cancelled()
    assert not driver.carrier._asking


async def test_words_that_do_not_hold_are_not_given_on(driver: Driver) -> None:
    await driver.until(lambda: driver.court.case.phase is CasePhase.DRAWN)
    driver.parties.lying = {REVIEWERS[0]}
    await driver.tick()
    assert REVIEWERS[0] not in driver.journal.pledges(driver.court.case_id, 0)
    driver.parties.lying = set()
    await driver.until(lambda: driver.court.case.phase is CasePhase.COMMITTED)
    driver.parties.lying = {REVIEWERS[1], NODE}
    await driver.tick()
    assert REVIEWERS[1] not in driver.journal.reveals(driver.court.case_id, 0)
    assert driver.journal.node(driver.court.case_id, 0) is None
    driver.parties.lying = set()
    assert await driver.carry() is Outcome.CONVICTED


async def test_posts_and_showings_on_chain_count_without_a_word(driver: Driver) -> None:
    """All channels are dead; what parties did by their own calls is read back from the chain."""
    await driver.until(lambda: driver.court.case.phase is CasePhase.DRAWN)
    driver.parties.silent = {*REVIEWERS, NODE}
    for one in REVIEWERS:
        own = driver.court.as_account(one)
        await own.send(calls.post(own.contracts, driver.court.case, driver.parties.commitment(one, 0)))
    await driver.until(lambda: driver.court.case.phase is CasePhase.COMMITTED)
    for place, one in enumerate(REVIEWERS):
        own = driver.court.as_account(one)
        await own.send(calls.reveal(own.contracts, driver.court.case, place, driver.parties.reveal_of(one)))
    node = driver.court.as_account(NODE)
    await node.send(calls.reveal_node(node.contracts, driver.court.case, SCENE.node_reveal))
    assert await driver.carry() is Outcome.CONVICTED


async def test_a_showing_that_cannot_be_read_is_not_left_out(driver: Driver) -> None:
    """The contract would refuse, and gas would be lost: a call through another contract hides its input."""
    await driver.until(lambda: driver.court.case.phase is CasePhase.COMMITTED)
    driver.parties.silent = {REVIEWERS[0]}
    own = driver.court.as_account(REVIEWERS[0])
    mined = await own.send(calls.reveal(own.contracts, driver.court.case, 0, driver.parties.reveal_of(REVIEWERS[0])))
    driver.court.inputs[mined.transaction] = b"hidden"
    driver.court.mine(WINDOWS.reveal_window + 2)
    progress = await driver.tick()
    assert progress.move is Move.SHOWINGS
    assert "decide" not in driver.court.sent
    driver.parties.silent = set()
    assert await driver.carry() is Outcome.CONVICTED


async def test_a_node_that_shows_nothing_is_waited_for_until_the_end(driver: Driver) -> None:
    driver.parties.silent = {NODE}
    assert await driver.carry() is Outcome.NODE_MISSING


async def test_windows_that_ended_while_everybody_was_down_are_expired(driver: Driver) -> None:
    await driver.until(lambda: driver.court.case.phase is CasePhase.DRAWN)
    driver.restart()
    driver.court.mine(WINDOWS.commit_window + 5)
    await driver.tick()
    assert (driver.court.sent[-1], driver.court.case.round) == ("expire", 1)
    driver.court.mine(WINDOWS.lookahead + WINDOWS.draw_window + 1)
    assert (await driver.until(lambda: False)).outcome is Outcome.LAPSED


async def test_who_did_not_open_lets_others_go_first(tmp_path: Path) -> None:
    court = ScriptedCourt(SCENE, TAB.payer)
    stranger = Driver(tmp_path / "stranger", court.as_account(address(77)))
    stranger.parties.court = court
    court.mine(WINDOWS.lookahead + 1)
    progress = await stranger.tick()
    assert "left to others" in progress.words
    assert court.sent == []
    court.mine(WINDOWS.draw_window // 2)
    await stranger.tick()
    assert court.sent == ["draw"]


async def test_two_drivers_on_one_case_send_each_step_once(tmp_path: Path) -> None:
    court = ScriptedCourt(SCENE, TAB.payer)
    drivers = [Driver(tmp_path / str(n), court.as_account(address(70 + n)), share=0.0) for n in range(2)]
    for one in drivers:
        one.parties.court = court
    while court.record.outcome is None:
        for one in drivers:
            await one.tick()
        court.mine()
    assert court.sent == ["draw", "commit", "decide"]


async def test_a_chain_that_is_away_is_an_error_of_this_look_alone(driver: Driver) -> None:
    driver.court.away = True
    with pytest.raises(ChainUnavailable):
        await driver.tick()
    driver.court.away = False
    assert (await driver.carrier.carry(driver.court.case_id)).outcome is Outcome.CONVICTED


async def test_reviewers_are_furnished_once_with_what_the_driver_has(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "journal.sqlite")
    driver.journal.follow(driver.court.case_id, of_journey(SCENE.scene, SCENE.journey), tmp_path)
    driver.parties.silent = {REVIEWERS[0]}
    await driver.carry()
    assert sorted(driver.parties.furnished) == sorted(REVIEWERS)


async def test_a_prompt_is_kept_no_longer_than_the_case(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "journal.sqlite")
    driver.journal.follow(driver.court.case_id, of_journey(SCENE.scene, SCENE.journey), tmp_path)
    await driver.tick()
    followed = driver.journal.case(driver.court.case_id)
    assert followed is not None
    assert followed.evidence is not None
    await driver.carry()
    followed = driver.journal.case(driver.court.case_id)
    assert followed is not None
    assert (followed.evidence, followed.ended) == (None, "CONVICTED")


async def test_a_case_that_nobody_opened_is_waited_for(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "journal.sqlite")
    progress = await driver.carrier.tick(bytes(32))  # type: ignore[arg-type]
    assert (progress.move, progress.over) == (None, False)


# -------------------------------------------------------------------------------------------------------------- steps


def test_steps_follow_the_windows() -> None:
    used = SCENE.scene.view.rules
    opened, drawn, committed = SCENE.opening, SCENE.drawn, SCENE.committed
    due = opened.phase_block + WINDOWS.lookahead
    all_in, none_in = [True] * len(REVIEWERS), [False] * len(REVIEWERS)
    for block, signed, move in (
        (due, [], Move.BLOCKS),
        (due + 1, [], Move.COMMITMENTS),
        (due + 1, none_in, Move.COMMITMENTS),
        (due + 1, all_in, Move.CONVENE),
        (due + 2, [False, *all_in[1:]], Move.DRAW),
        (due + 6, [], Move.DRAW),
        (due + 6, all_in, Move.CONVENE),
        (due + 7, all_in, Move.EXPIRE),
    ):
        assert next_step(opened, block, Submitted(signed, [], False), WINDOWS, used).move is move
    end = drawn.phase_block + WINDOWS.commit_window
    for block, shown, move in (
        (drawn.phase_block + 1, all_in, Move.COMMIT),
        (drawn.phase_block + 1, none_in, Move.COMMITMENTS),
        (end - 1, [False, *all_in[1:]], Move.COMMIT),
        (end - 5, [False, *all_in[1:]], Move.COMMITMENTS),
        (end + 1, all_in, Move.EXPIRE),
    ):
        assert next_step(drawn, block, Submitted(shown, [], False), WINDOWS, used).move is move
    last = committed.phase_block + WINDOWS.reveal_window
    for block, shown, node, move in (
        (last, all_in, True, Move.DECIDE),
        (last, all_in, False, Move.SHOWINGS),
        (last, none_in, True, Move.SHOWINGS),
        (last + 1, none_in, False, Move.DECIDE),
    ):
        assert next_step(committed, block, Submitted([], shown, node), WINDOWS, used).move is move


def test_tiles_and_showings_go_in_one_call_and_after_a_quarter_the_tiles_alone() -> None:
    used, committed = replace(SCENE.scene.view.rules, exact=False), SCENE.committed
    first = committed.phase_block + WINDOWS.lookahead + 1
    last = first + WINDOWS.draw_window - 1
    all_in, none_in = [True] * len(REVIEWERS), [False] * len(REVIEWERS)
    for block, shown, node, move in (
        (first - 1, [], False, Move.BLOCKS),
        (first, all_in, True, Move.CONCLUDE),
        (first, all_in, False, Move.SHOWINGS),
        (first, none_in, True, Move.SHOWINGS),
        (first + 1, none_in, True, Move.SEED),
        (last, all_in, True, Move.CONCLUDE),
        (last + 1, all_in, True, Move.EXPIRE),
    ):
        assert next_step(committed, block, Submitted([], shown, node), WINDOWS, used).move is move


def test_a_step_is_due_after_a_share_of_its_window() -> None:
    step = CaseStep(Move.DRAW, 10, 20)
    assert [step.is_due(block, 0.5) for block in (9, 10, 14, 15)] == [False, False, False, True]
    assert step.is_due(10, 0.0)
    assert not CaseStep(Move.BLOCKS, 10, 20).is_due(15, 0.0)
