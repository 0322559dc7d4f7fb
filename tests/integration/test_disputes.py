"""Second verifications with the real scheduler, node services, engines and watchdogs on a real chain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from support.real_nodes import RealNode, real_stage
from support.scheduler_stage import Stage
from support.waiting import eventually

from troth.chain import keystore
from troth.node import disputing
from troth.node.configuration import Choices
from troth.node.dispute_policy import DisputePolicy
from troth.node.service import comparing
from troth.node.setup import set_up
from troth.protocol.calls import (
    dispute,
    views,
)
from troth.protocol.errors import NotDisputable
from troth.protocol.events import BondReturned, ReviewSettled, Slashed
from troth.protocol.review import review_id
from troth.protocol.settlement import Outcome, SlashReason
from troth.protocol.slots import review_slot, task_slot
from troth.protocol.types import Hash32
from troth.protocol.wire import Commit
from troth.scheduler.assembly import assembled
from troth.scheduler.service import Scheduler

pytestmark = [pytest.mark.chain, pytest.mark.slow]

NODES, REVIEWERS = 10, 5
SEGMENT = 1


@dataclass
class Play:
    """A task on a stage whose verifiers of the last segment are the test's to corrupt."""

    scene: Stage
    scheduler: Scheduler
    deployed: Any
    deniers: set[str]

    async def run(self, corrupt: Any, max_tokens: int = 6) -> tuple[Hash32, Any]:
        """A task whose parties `corrupt(assignment)` may change before the first message; its id and assignment."""
        lifecycle = await self.scheduler.submit(await self.scene.order(max_tokens=max_tokens))
        corrupt(lifecycle.task.assignment)
        async for _ in lifecycle.stream.lines():
            pass
        return lifecycle.task.task_id, lifecycle.task.assignment

    @property
    def state(self) -> Any:
        return self.scheduler.desk.ledger.state

    def node(self, address: str) -> RealNode:
        found = self.scene.node(address)
        assert isinstance(found, RealNode)
        return found

    def stake(self, address: str) -> int:
        return self.state.account(address).stake

    def gain(self, address: str) -> float:
        """What an operator has more than it staked, in units."""
        account = self.state.account(address)
        return (account.stake + account.credit - self.scene.execution_class.minimum_stake) / self.unit

    @property
    def unit(self) -> int:
        return self.scene.execution_class.unit

    async def reviewed(self, task: Hash32, segment: int = SEGMENT) -> Any:
        """The review's record once it has ended; everything on chain agrees with the fold."""
        id_ = review_id(task, segment)
        await eventually(lambda: id_ in self.state.reviews and not self.state.reviews[id_].live)
        record, chain = self.state.reviews[id_], self.scene.chain
        assert await chain.read(views.task_state(task)) == task_slot(self.state.tasks[task])
        assert await chain.read(views.task_state(id_)) == review_slot(record)
        assert self.state.held() == await chain.balance(chain.contract)
        return record


@asynccontextmanager
async def play(
    deployed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, watched: bool = True, policy: Any = None
) -> AsyncIterator[Play]:
    deniers: set[str] = set()
    honest = comparing.judge

    async def judge(engine: Any, work: Any, claimed: Any, root: bytes) -> Any:
        judgement = await honest(engine, work, claimed, root)
        if (work.seat.review, work.seat.index) == (None, SEGMENT) and work.seat.me in deniers:
            return replace(judgement, root_matches=not judgement.verdict)
        return judgement

    monkeypatch.setattr(comparing, "judge", judge)
    stage = real_stage(deployed, tmp_path, nodes=NODES, reviewers=REVIEWERS, disputes=policy)
    async with stage as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        mining = asyncio.create_task(_mine(deployed))
        watching = [asyncio.create_task(node.watchdog(scene.chain).run()) for node in scene.nodes if watched]
        try:
            yield Play(scene, scheduler, deployed, deniers)
        finally:
            for task in (mining, *watching):
                task.cancel()
            await asyncio.gather(mining, *watching, return_exceptions=True)


async def _mine(deployed: Any) -> None:
    while True:
        await asyncio.sleep(0.25)
        await asyncio.to_thread(deployed.anvil.mine, 1)


async def test_a_captured_committee_is_overturned(
    deployed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with play(deployed, tmp_path, monkeypatch) as stage:
        task, drawn = await stage.run(lambda assignment: stage.deniers.update(assignment.verifiers(SEGMENT)))
        record = await stage.reviewed(task)
        settled = next(event for event in record.events if isinstance(event, ReviewSettled))
        assert (settled.outcome, settled.task_outcome) == (Outcome.ACCEPTED, Outcome.ACCEPTED)
        first = stage.state.tasks[task].settled
        assert first.outcomes[SEGMENT] == Outcome.REJECTED
        inferencer = record.review.progress.parties[0]
        if inferencer not in {*drawn.verifiers(0), drawn.candidates(0)[0]}:
            assert stage.gain(inferencer) == 6
        for denier in drawn.verifiers(SEGMENT):
            assert stage.stake(denier) < stage.scene.execution_class.minimum_stake
        reasons = {event.reason for event in record.events if isinstance(event, Slashed)}
        assert reasons == {SlashReason.OVERTURNED}


async def test_a_cheat_that_disputes_loses_more(deployed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with play(deployed, tmp_path, monkeypatch) as stage:

        def corrupt(assignment: Any) -> None:
            for candidate in assignment.candidates(SEGMENT):
                stage.node(candidate).engine.wrong_segment = SEGMENT

        task, _ = await stage.run(corrupt)
        record = await stage.reviewed(task)
        assert record.outcome is Outcome.REJECTED
        assert stage.state.tasks[task].outcome is Outcome.REJECTED
        cheat = record.review.progress.parties[0]
        lost = stage.scene.execution_class.minimum_stake - stage.stake(cheat)
        assert lost >= (2 + 6 * 2 + 8 + 6 * 3) * stage.unit
        assert any(isinstance(event, Slashed) and event.reason is SlashReason.DISPUTE_LOST for event in record.events)


async def test_who_is_cheated_by_all_first_verifiers_can_dispute(
    deployed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with play(deployed, tmp_path, monkeypatch) as stage:

        def corrupt(assignment: Any) -> None:
            for party in assignment.parties[0]:
                stage.node(party).engine.wrong_segment = 0

        before = stage.state.escrow_of(stage.scene.client.address)
        task, _ = await stage.run(corrupt)
        first = stage.state.tasks[task]
        assert first.outcome is Outcome.ACCEPTED
        await stage.scene.chain.execute(dispute(task, first.task, first.settled, 0), stage.scene.client)
        record = await stage.reviewed(task, 0)
        assert record.outcome is Outcome.REJECTED
        assert stage.state.tasks[task].outcome is Outcome.REJECTED
        # The whole fee and the bond are back.
        assert stage.state.escrow_of(stage.scene.client.address) == before
        assert stage.state.account(stage.scene.client.address).credit == 6 * stage.unit


async def test_what_is_undecided_escalates_by_itself(
    deployed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with play(deployed, tmp_path, monkeypatch) as stage:

        def corrupt(assignment: Any) -> None:
            _, no, gone = assignment.verifiers(SEGMENT)
            stage.deniers.add(no)
            stage.node(gone).refuses_from = (Commit, 0)

        task, _ = await stage.run(corrupt)
        assert stage.state.tasks[task].settled.outcomes[SEGMENT] == Outcome.INDETERMINATE
        record = await stage.reviewed(task)
        assert record.outcome is Outcome.ACCEPTED
        assert stage.state.tasks[task].outcome is Outcome.ACCEPTED
        assert record.review.terms.fee == 0


async def test_a_restarted_scheduler_finishes_the_review(
    deployed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with play(deployed, tmp_path, monkeypatch) as stage:

        def corrupt(assignment: Any) -> None:
            stage.deniers.update(assignment.verifiers(SEGMENT))

        task, _ = await stage.run(corrupt)
        id_ = review_id(task, SEGMENT)
        await eventually(lambda: id_ in stage.state.reviews)
        monkeypatch.setattr(stage.scheduler.reviews, "_due", lambda state: [])
        await stage.scheduler.reviews.abandon()
        await stage.scheduler.desk.ledger.close()
        async with assembled(stage.scene.configuration(), stage.scene.keys) as again:
            await eventually(lambda: not again.desk.ledger.state.reviews[id_].live)
            assert again.desk.ledger.state.reviews[id_].outcome is Outcome.ACCEPTED


async def test_a_scheduler_that_leaves_a_dispute_lying_pays_for_it(
    deployed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with play(deployed, tmp_path, monkeypatch) as stage:
        monkeypatch.setattr(stage.scheduler.reviews, "_due", lambda state: [])
        task, _ = await stage.run(lambda assignment: stage.deniers.update(assignment.verifiers(SEGMENT)))
        id_ = review_id(task, SEGMENT)
        await eventually(lambda: id_ in stage.state.reviews)
        before = stage.stake(stage.scene.scheduler.address)
        await asyncio.to_thread(deployed.anvil.mine, deployed.parameters.commit_window + 1)
        record = await stage.reviewed(task)
        assert record.outcome is Outcome.EXPIRED
        assert before - stage.stake(stage.scene.scheduler.address) == 28 * stage.unit
        disputer = record.review.terms.client
        assert stage.state.account(disputer).credit >= 28 * stage.unit
        returned = [event for event in record.events if isinstance(event, BondReturned)]
        assert [(event.disputer, event.amount) for event in returned] == [(disputer, 8 * stage.unit)]


async def test_the_operators_command_disputes(deployed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with play(deployed, tmp_path, monkeypatch, watched=False) as stage:
        task, _ = await stage.run(lambda assignment: stage.deniers.update(assignment.verifiers(SEGMENT)))
        inferencer = stage.node(stage.state.tasks[task].task.parties_of(SEGMENT)[0])
        home, password = tmp_path / "home", tmp_path / "password"
        password.write_text("secret\n")
        password.chmod(0o600)
        keystore.create_account(tmp_path / "key.json", "secret", scrypt_n=2, key=inferencer.key)
        choices = Choices(
            rpc=stage.scene.url, contract=stage.scene.chain.contract, execution_class="0x" + stage.scene.class_id.hex(),
            model="tiny", slice="0:2", segments=("0:1", "1:2"), host="127.0.0.1", port=1,
            endpoint="https://127.0.0.1:1", device="cpu", threads=1, start_block=deployed.block,
        )  # fmt: skip
        set_up(home, choices, tmp_path / "key.json", password)
        named = "0x" + task.hex()
        dry = await asyncio.to_thread(disputing.dispute, home, named, None, password, broadcast=False)
        assert not dry["sent"]
        assert (dry["segment"], dry["outcome"], dry["bond_from"]) == (SEGMENT, "rejected", "stake")
        assert (int(dry["bond"]), int(dry["lost_at_most"])) == (8 * stage.unit, (8 + 6 * REVIEWERS) * stage.unit)
        assert not stage.state.reviews
        sent = await asyncio.to_thread(disputing.dispute, home, named, None, password, broadcast=True)
        assert sent["sent"]
        assert (await stage.reviewed(task)).outcome is Outcome.ACCEPTED
        with pytest.raises(NotDisputable, match="at most once"):
            await asyncio.to_thread(disputing.dispute, home, named, None, password, broadcast=True)


async def test_an_outvoted_verifier_has_a_cheat_found_out(
    deployed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """m - 1 of m verifiers collude with the inferencer: the last one disputes, if its operator lets it."""
    policy = DisputePolicy(outvoted=True)
    async with play(deployed, tmp_path, monkeypatch, policy=policy) as stage:

        def corrupt(assignment: Any) -> None:
            for party in assignment.parties[SEGMENT][:-1]:
                stage.node(party).engine.wrong_segment = SEGMENT

        task, drawn = await stage.run(corrupt)
        assert stage.state.tasks[task].settled.outcomes == (Outcome.ACCEPTED, Outcome.ACCEPTED)
        record = await stage.reviewed(task)
        assert record.review.terms.client == drawn.verifiers(SEGMENT)[-1]
        assert record.outcome is Outcome.REJECTED
        slashed = {event.operator for event in record.events if isinstance(event, Slashed)}
        assert slashed == {record.review.progress.parties[0], *drawn.verifiers(SEGMENT)[:-1]}
        assert stage.state.escrow_of(stage.scene.client.address) == 100 * stage.scene.fee
