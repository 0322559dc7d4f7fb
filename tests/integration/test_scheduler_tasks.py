"""Whole tasks against a real contract: what a client sees, and what the chain says afterwards."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.scheduler_stage import second_scheduler, stage
from support.scripted_journal import ScriptedJournal
from support.waiting import eventually

from troth.protocol.calls import reveal
from troth.protocol.calls.views import escrow_of
from troth.protocol.settlement import Outcome
from troth.protocol.task import Phase, Progress
from troth.protocol.types import ZERO_HASH
from troth.protocol.wire import Commit, Compare, Forward, Open
from troth.scheduler.assembly import assembled
from troth.scheduler.errors import AlreadyOrdered, Busy
from troth.scheduler.receipts import receipt
from troth.scheduler.service import Scheduler

pytestmark = [pytest.mark.chain, pytest.mark.slow]


async def run_order(scheduler: Scheduler, submitted: Any) -> list[dict[str, Any]]:
    lifecycle = await scheduler.submit(submitted)
    return [line async for line in lifecycle.stream.lines()]


def kinds(lines: list[dict[str, Any]]) -> list[str]:
    return [line["type"] for line in lines]


def tokens(lines: list[dict[str, Any]]) -> list[int]:
    return [line["id"] for line in lines if line["type"] == "token"]


def task_of(lines: list[dict[str, Any]]) -> bytes:
    return bytes.fromhex(lines[0]["task_id"][2:])


@pytest.mark.parametrize("exact", [False, True])
async def test_an_order_becomes_tokens_and_an_accepted_task(deployed: Any, tmp_path: Path, exact: bool) -> None:
    async with (
        stage(deployed, tmp_path, exact=exact) as scene,
        assembled(scene.configuration(), scene.keys) as scheduler,
    ):
        lines = await run_order(scheduler, await scene.order(max_tokens=6))
        assert kinds(lines) == [
            "assigned",
            "opened",
            *["token"] * 6,
            "finished",
            "committed",
            "settled",
        ], lines[-1]
        assert [line["position"] for line in lines if line["type"] == "token"] == list(range(6))
        assert lines[-1]["outcome"] == "accepted"
        assert await scene.outcome(task_of(lines)) is Outcome.ACCEPTED
        shown = receipt(task_of(lines), scheduler.desk.journal)
        assert shown is not None
        assert shown["state"] == "settled"
        assert shown["tokens"] is None


@pytest.mark.parametrize("position", [1, 5], ids=["prefill", "decode"])
@pytest.mark.parametrize("segment", [0, 1])
async def test_a_node_that_dies_in_the_middle_is_replaced_and_its_tokens_stay(
    deployed: Any, tmp_path: Path, segment: int, position: int
) -> None:
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lifecycle = await scheduler.submit(await scene.order(max_tokens=8))
        dying = scene.node(lifecycle.task.assignment.candidates(segment)[0])
        dying.faults.dies_at_position = position
        lines = [line async for line in lifecycle.stream.lines()]
        assert lines[-1].get("outcome") == "accepted", lines[-1]
        assert lifecycle.story.generated is not None
        assert lifecycle.story.generated.attempt >= 1
        dying.faults.dies_at_position = None
        whole = await run_order(scheduler, await scene.order(max_tokens=8))
        assert tokens(lines) == tokens(whole)
        assert [line["position"] for line in lines if line["type"] == "token"] == list(range(8))


async def test_a_wrongly_signed_row_ends_the_attempt_before_its_token_is_shown(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lifecycle = await scheduler.submit(await scene.order(max_tokens=5))
        first = scene.node(lifecycle.task.assignment.candidates(0)[0])
        first.faults.wrong_signature_at = 4
        second = lifecycle.task.assignment.candidates(0)[1]
        lines = [line async for line in lifecycle.stream.lines()]
        shown = receipt(lifecycle.task.task_id, scheduler.desk.journal)
        assert shown is not None
        assert lines[-1]["outcome"] == "accepted"
        assert shown["attempt"] == 1
        assert lifecycle.task.assignment.candidates(0)[shown["inferencers"][0]] == second
        assert kinds(lines).count("token") == 5


async def test_without_a_candidate_the_client_has_its_fee_back(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        before = scheduler.desk.ledger.state.escrow_of(scene.client.address)
        for node in scene.nodes:
            node.faults.silent.add(Forward)
        lines = await run_order(scheduler, await scene.order())
        assert lines[-1]["type"] == "failed"
        assert (lines[-1]["code"], lines[-1]["charged"]) == ("no_candidate_left", False)
        assert await scene.outcome(task_of(lines)) is Outcome.ABORTED
        assert scheduler.desk.ledger.state.escrow_of(scene.client.address) == before


async def test_a_dead_verifier_is_done_without(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lifecycle = await scheduler.submit(await scene.order())
        scene.node(lifecycle.task.assignment.verifiers(0)[0]).faults.refuses.add(Compare)
        lines = [line async for line in lifecycle.stream.lines()]
        assert lines[-1].get("outcome") == "accepted", lines[-1]
        posts = scheduler.desk.ledger.task(lifecycle.task.task_id).task.progress.posts  # type: ignore[union-attr]
        assert posts[1] == bytes(32)


async def test_without_a_quorum_the_client_has_its_fee_back(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        for node in scene.nodes:
            node.faults.refuses.add(Compare)
        lines = await run_order(scheduler, await scene.order())
        assert lines[-1]["code"] == "quorum_missed"
        assert await scene.outcome(task_of(lines)) is Outcome.ABORTED


async def test_an_inferencer_that_is_gone_before_it_commits_is_replaced(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lifecycle = await scheduler.submit(await scene.order())
        await eventually(lambda: lifecycle.story.generating is not None)
        chosen = lifecycle.story.generating.inferencers  # type: ignore[union-attr]
        scene.node(lifecycle.task.assignment.candidates(1)[chosen[1]]).faults.refuses.add(Commit)
        lines = [line async for line in lifecycle.stream.lines()]
        assert lines[-1].get("outcome") == "accepted", lines[-1]
        assert lifecycle.story.generated is not None
        assert lifecycle.story.generated.attempt >= 1


async def test_a_silent_opening_costs_its_party_and_nobody_else(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lifecycle = await scheduler.submit(await scene.order())
        inferencer = lifecycle.task.assignment.candidates(0)[0]
        silent = next(party for party in lifecycle.task.assignment.verifiers(1) if party != inferencer)
        scene.node(silent).faults.refuses.add(Open)

        async def mine() -> None:
            while True:
                await asyncio.sleep(0.05)
                if lifecycle.story.sampled is not None:
                    await asyncio.to_thread(deployed.anvil.mine, 2)

        mining = asyncio.create_task(mine())
        lines = [line async for line in lifecycle.stream.lines()]
        mining.cancel()
        assert lines[-1].get("outcome") == "accepted", lines[-1]
        stake = scheduler.desk.ledger.state.account(silent).stake
        assert stake < scene.execution_class.minimum_stake


async def mine_blocks(deployed: Any) -> None:
    while True:
        await asyncio.sleep(0.05)
        await asyncio.to_thread(deployed.anvil.mine, 1)


async def test_who_reveals_on_chain_alone_holds_nothing_up(deployed: Any, tmp_path: Path) -> None:
    """What was revealed must be part of the settlement, though its party never gave it to the scheduler."""
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lifecycle = await scheduler.submit(await scene.order())
        assignment, key = lifecycle.task.assignment, lifecycle.task.task_id
        silent = next(party for party in assignment.verifiers(1) if party != assignment.candidates(0)[0])
        scene.node(silent).faults.refuses.add(Open)

        def progress() -> Progress:
            record = scheduler.desk.ledger.task(key)
            return Progress(Phase.NONE, 0, 2, 0) if record is None else record.task.progress

        await eventually(lambda: progress().phase is Phase.SAMPLED)
        seats = [segment for segment in range(2) if silent in assignment.verifiers(segment)]
        for count, segment in enumerate(seats):
            await eventually(lambda count=count: sum(hash_ != ZERO_HASH for hash_ in progress().revealed) == count)
            opening = scene.node(silent).opening(key, segment, progress().attempt, progress().seed)
            party = 1 + assignment.verifiers(segment).index(silent)
            call = reveal(key, scheduler.desk.ledger.task(key).task, segment, party, opening)
            await scene.chain.execute(call, scene.client)
        mining = asyncio.create_task(mine_blocks(deployed))
        lines = [line async for line in lifecycle.stream.lines()]
        mining.cancel()
        assert lines[-1].get("outcome") == "accepted", lines[-1]
        assert scheduler.desk.ledger.state.account(silent).stake == scene.execution_class.minimum_stake


async def test_false_states_are_rejected_and_the_client_pays_nothing(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        before = scheduler.desk.ledger.state.escrow_of(scene.client.address)
        lifecycle = await scheduler.submit(await scene.order())
        scene.node(lifecycle.task.assignment.candidates(0)[0]).faults.wrong_states = True
        lines = [line async for line in lifecycle.stream.lines()]
        assert lines[-1].get("outcome") == "rejected", lines[-1]
        assert scheduler.desk.ledger.state.escrow_of(scene.client.address) == before


async def test_places_are_limited_and_free_again_afterwards(deployed: Any, tmp_path: Path) -> None:
    async with (
        stage(deployed, tmp_path) as scene,
        assembled(scene.configuration(concurrent=1), scene.keys) as scheduler,
    ):
        lifecycle = await scheduler.submit(await scene.order())
        with pytest.raises(Busy):
            await scheduler.submit(await scene.order())
        assert [line async for line in lifecycle.stream.lines()][-1]["outcome"] == "accepted"
        await scheduler.drain()
        scheduler.draining = False
        assert (await run_order(scheduler, await scene.order()))[-1]["outcome"] == "accepted"


async def test_concurrent_orders_all_settle(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        orders = [await scene.order(prompt=(1, 2, number)) for number in range(1, 5)]
        results = await asyncio.gather(*[run_order(scheduler, order) for order in orders])
        assert [lines[-1].get("outcome") for lines in results] == ["accepted"] * 4


@pytest.mark.parametrize("ahead", [-90.0, 90.0])
async def test_a_node_with_a_wrong_clock_is_done_without(deployed: Any, tmp_path: Path, ahead: float) -> None:
    async with stage(deployed, tmp_path, nodes=5) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        scene.nodes[0].faults.clock_ahead = ahead
        lines = await run_order(scheduler, await scene.order())
        assert lines[-1].get("outcome") == "accepted", lines[-1]
        assert all(kind == "Release" for kind, _, _ in scene.nodes[0].seen)


async def test_a_scheduler_with_a_wrong_clock_charges_nobody(
    deployed: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """To the scheduler it looks as if all nodes' clocks were wrong; each says by how much."""
    async with stage(deployed, tmp_path, nodes=5) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        for node in scene.nodes:
            node.faults.clock_ahead = 90.0
        before = await scene.chain.read(escrow_of(scene.client.address))
        lines = await run_order(scheduler, await scene.order())
        assert (lines[-1]["code"], lines[-1]["charged"]) == ("no_candidate_left", False)
        assert await scene.chain.read(escrow_of(scene.client.address)) == before
        assert "s behind" in caplog.text


async def test_one_order_sent_many_times_at_once_is_taken_once(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        submitted = await scene.order()
        tries = await asyncio.gather(*[scheduler.submit(submitted) for _ in range(4)], return_exceptions=True)
        (taken,) = [one for one in tries if not isinstance(one, BaseException)]
        assert sum(isinstance(one, AlreadyOrdered) for one in tries) == 3
        assert [line async for line in taken.stream.lines()][-1]["outcome"] == "accepted"


async def test_two_schedulers_racing_for_one_fee(deployed: Any, tmp_path: Path) -> None:
    """The escrow covers one of two orders: one scheduler answers, the other one's client is not charged."""
    both_admitted = threading.Event()
    waiting = partial(ScriptedJournal, script={"opening": lambda: both_admitted.wait(120)})
    async with (
        stage(deployed, tmp_path) as scene,
        second_scheduler(scene, deployed.anvil.keys[4]) as rival,
        assembled(scene.configuration(), scene.keys, waiting) as scheduler,
        assembled(rival.configuration(), rival.keys, waiting) as other,
    ):
        await scene.withdraw(await scene.chain.read(escrow_of(scene.client.address)) - scene.fee)
        lifecycles = [await scheduler.submit(await scene.order()), await other.submit(await rival.order())]
        both_admitted.set()
        results = [[line async for line in one.stream.lines()] for one in lifecycles]
        assert sorted(lines[-1]["type"] for lines in results) == ["failed", "settled"]
        for lines, lifecycle in zip(results, lifecycles, strict=True):
            outcome = await scene.outcome(lifecycle.task.task_id)
            if lines[-1]["type"] == "settled":
                assert (lines[-1]["outcome"], outcome) == ("accepted", Outcome.ACCEPTED)
            else:
                assert (lines[-1]["charged"], outcome, tokens(lines)) == (False, None, [])
        assert await scene.chain.read(escrow_of(scene.client.address)) == 0
        for one in (scene, rival):
            stake = scheduler.desk.ledger.state.account(one.scheduler.address).stake
            assert stake == deployed.parameters.minimum_scheduler_stake


async def test_two_processes_with_one_schedulers_key_open_a_task_once(deployed: Any, tmp_path: Path) -> None:
    """A second process started by mistake: each order has one opening, whoever sends it."""
    async with stage(deployed, tmp_path) as scene:
        twin = replace(scene.configuration(), folder=tmp_path / "twin")
        async with assembled(scene.configuration(), scene.keys) as one, assembled(twin, scene.keys) as other:
            before = await scene.chain.read(escrow_of(scene.client.address))
            orders = [await scene.order(), await scene.order()]
            results = await asyncio.gather(run_order(one, orders[0]), run_order(other, orders[1]))
            assert [lines[-1].get("outcome") for lines in results] == ["accepted", "accepted"]
            assert before - await scene.chain.read(escrow_of(scene.client.address)) == 2 * scene.fee


async def test_nodes_are_told_that_the_task_is_over(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lines = await run_order(scheduler, await scene.order())
        await scheduler.drain()
        parties = {party for segment in lines[0]["parties"] for party in segment}
        assert {node.address for node in scene.nodes if task_of(lines) in node.released} == parties
