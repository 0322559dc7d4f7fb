"""Faults on a whole network of real processes with the real model: kill -9 at bad moments, and look at the money.

One network serves all tests of this module; each leaves it with every process running again. The most telling of them
run always; those marked `network` are run by `make network-tests`, with the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import ssl
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from troth.client.asking import Assigned, Finished, Posted, Text, Verdict, ask
from troth.client.choices import Choices
from troth.client.errors import ClientError
from troth.client.money import parse_amount
from troth.client.ordering import SignedOrder
from troth.client.session import Session, session
from troth.demo import acts, cli
from troth.demo.anvil import rpc
from troth.demo.display import Display
from troth.demo.network import LocalNetwork
from troth.demo.plan import Plan
from troth.demo.processes import wait_until
from troth.demo.weights import prepare_models
from troth.protocol.assignment import Assignment
from troth.protocol.events import Slashed
from troth.protocol.settlement import Outcome, SlashReason
from troth.scheduler.journal import Journal
from troth.scheduler.records import Generating

pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.chain, pytest.mark.timeout(600)]

MODELS = Path(__file__).resolve().parents[2] / ".troth"
SAMPLE_WINDOW = 120
QUESTION = "Count from one to twenty in words."


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[acts.Stage]:
    plan = Plan(block_seconds=0.5, windows=(120, SAMPLE_WINDOW, 16, 60, 1_000))
    display = Display()
    prepare_models(MODELS, plan, display)
    with LocalNetwork(
        tmp_path_factory.mktemp("network") / "network", MODELS, plan, report=lambda line: None
    ) as network:
        network.start()
        made = acts.Stage(network, display, MODELS)
        acts.deposit(made)
        yield made


@contextlib.asynccontextmanager
async def asking(stage: acts.Stage, max_tokens: int = 24) -> AsyncIterator[tuple[Session, SignedOrder]]:
    async with session(stage.home, stage.configuration) as ready:
        messages = [{"role": "user", "content": QUESTION}]
        yield ready, await ready.prepare(messages, Choices(max_tokens), stage.key)


def served_positions(stage: acts.Stage, operator: str) -> float:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    endpoint = stage.network.node_of(operator).endpoint
    with urllib.request.urlopen(f"{endpoint}/metrics", context=context, timeout=60) as answer:
        found = re.findall(r"^troth_node_positions_total\S* (\S+)$", answer.read().decode(), re.MULTILINE)
    return sum(map(float, found))


def kill(stage: acts.Stage, operator: str) -> str:
    node = stage.network.node_of(operator)
    assert node.child is not None
    node.child.stop(kill=True)
    return node.name


def signal_to(stage: acts.Stage, operators: Sequence[str], number: signal.Signals) -> None:
    for operator in operators:
        node = stage.network.node_of(operator)
        assert node.child is not None
        node.child.process.send_signal(number)


def chosen(stage: acts.Stage, task: bytes, assignment: Assignment, segment: int) -> str:
    """The candidate that the scheduler's journal names as inferencer, once it does."""
    with contextlib.closing(Journal(stage.network.scheduler.home / "journal.sqlite")) as journal:

        def attempts() -> list[Generating]:
            return [record for record in journal.history(task) if isinstance(record, Generating)]

        wait_until(lambda: bool(attempts()), "the choice of inferencers", 30)
        return assignment.candidates(segment)[attempts()[0].inferencers[segment]]


def slashes(ready: Session, signed: SignedOrder) -> list[tuple[str, SlashReason]]:
    events = ready.follower.state.tasks[signed.task_id].events
    return [(event.operator, SlashReason(event.reason)) for event in events if isinstance(event, Slashed)]


async def ask_until_killed(stage: acts.Stage, ready: Session, signed: SignedOrder, *, after: type, count: int) -> None:
    """Ask, and kill the scheduler once `count` updates of a kind have come: two Posted are opened and committed."""
    seen = 0
    async for update in ask(ready, signed):
        seen += isinstance(update, after)
        if seen == count and stage.network.scheduler.child is not None:
            stage.network.scheduler.child.stop(kill=True)


@pytest.mark.network
async def test_an_inferencer_killed_in_its_prefill_is_replaced(stage: acts.Stage) -> None:
    name = ""
    async with asking(stage, 8) as (ready, signed):
        async for update in ask(ready, signed):
            match update:
                case Assigned(assignment):
                    # Stopped until it is known whom the prompt went to: segment 1 computes after segment 0.
                    candidates = assignment.candidates(1)
                    signal_to(stage, candidates, signal.SIGSTOP)
                    victim = chosen(stage, signed.task_id, assignment, 1)
                    name = kill(stage, victim)
                    signal_to(stage, [one for one in candidates if one != victim], signal.SIGCONT)
                case Verdict():
                    assert update.outcome == "accepted"
        assert slashes(ready, signed) == []
    stage.network.start_node(name)


@pytest.mark.parametrize("segment", [0, pytest.param(1, marks=pytest.mark.network)])
async def test_an_inferencer_killed_while_it_decodes_is_replaced(stage: acts.Stage, segment: int) -> None:
    killed: list[str] = []
    pieces = 0
    verdict = None
    async with asking(stage) as (ready, signed):
        assignment: Assignment | None = None
        before: dict[str, float] = {}
        async for update in ask(ready, signed):
            match update:
                case Assigned(drawn):
                    assignment = drawn
                    before = {one: served_positions(stage, one) for one in drawn.candidates(segment)}
                case Text():
                    pieces += 1
                    if pieces == 4 and assignment is not None:
                        busy = max(before, key=lambda one: served_positions(stage, one) - before[one])
                        killed.append(kill(stage, busy))
                case Verdict():
                    verdict = update
        assert killed, "the answer was too short to kill anybody in its middle"
        assert verdict is not None
        assert verdict.outcome == "accepted"
        assert slashes(ready, signed) == []
    for name in killed:
        stage.network.start_node(name)


@pytest.mark.network
async def test_a_verifier_killed_while_it_verifies_is_done_without(stage: acts.Stage) -> None:
    name = victim = ""
    async with asking(stage, 8) as (ready, signed):
        async for update in ask(ready, signed):
            match update:
                case Assigned(assignment):
                    victim = assignment.verifiers(0)[0]
                    # It takes the request and cannot answer it before it is killed.
                    signal_to(stage, [victim], signal.SIGSTOP)
                case Finished():
                    name = kill(stage, victim)
                case Verdict(outcome, cost):
                    assert (outcome, cost) == ("accepted", signed.fee - 6 * stage.network.plan.unit)
        assert slashes(ready, signed) == []
    stage.network.start_node(name)


async def test_a_verifier_killed_before_it_reveals_is_slashed_and_the_answer_stands(stage: acts.Stage) -> None:
    name = victim = ""
    async with asking(stage, 8) as (ready, signed):
        async for update in ask(ready, signed):
            match update:
                case Assigned(assignment):
                    victim = assignment.verifiers(1)[0]
                case Posted(step="committed"):
                    name = kill(stage, victim)
                case Verdict(outcome, cost):
                    # The silent verifier's pay stays with the client.
                    assert (outcome, cost) == ("accepted", signed.fee - 6 * stage.network.plan.unit)
        assert slashes(ready, signed) == [(victim, SlashReason.UNREVEALED)]
    stage.network.start_node(name)


@pytest.mark.network
async def test_a_chain_node_that_stalls_in_the_middle_delays_and_loses_nothing(stage: acts.Stage) -> None:
    anvil = stage.network.processes.children["anvil"].process.pid
    pieces = 0
    async with asking(stage, 12) as (ready, signed):
        async for update in ask(ready, signed):
            if isinstance(update, Text):
                pieces += 1
                if pieces == 2:
                    os.kill(anvil, signal.SIGSTOP)
                if pieces == 8:
                    os.kill(anvil, signal.SIGCONT)
        assert ready.follower.state.tasks[signed.task_id].outcome == Outcome.ACCEPTED


async def test_a_scheduler_killed_while_tokens_stream_resumes_or_refunds(stage: acts.Stage) -> None:
    network = stage.network
    async with asking(stage) as (ready, signed):
        before = ready.follower.state.escrow_of(stage.key.address)
        with pytest.raises(ClientError):
            await ask_until_killed(stage, ready, signed, after=Text, count=3)
        network.start_scheduler()
        state = await ready.follower.wait_until(
            lambda seen: signed.task_id in seen.tasks and not seen.tasks[signed.task_id].live, 120
        )
        outcome = state.tasks[signed.task_id].outcome
        paid = before - state.escrow_of(stage.key.address)
        assert (outcome, paid) in {(Outcome.ACCEPTED, signed.fee), (Outcome.ABORTED, 0)}


@pytest.mark.network
async def test_a_scheduler_that_never_settles_costs_the_client_nothing(stage: acts.Stage) -> None:
    network = stage.network
    async with asking(stage, 8) as (ready, signed):
        before = ready.follower.state.escrow_of(stage.key.address)
        with pytest.raises(ClientError):
            await ask_until_killed(stage, ready, signed, after=Posted, count=2)
        rpc(network.rpc, "anvil_mine", hex(SAMPLE_WINDOW + 2))
        home = stage.home.root
        task = "0x" + signed.task_id.hex()
        cli.run(network.password_file, "client", "close", task, "--home", home, "--broadcast")
        state = await ready.follower.wait_until(lambda seen: not seen.tasks[signed.task_id].live, 30)
        assert state.tasks[signed.task_id].outcome == Outcome.EXPIRED
        assert state.escrow_of(stage.key.address) == before
        assert slashes(ready, signed) == [(network.scheduler.operator, SlashReason.SCHEDULER_LATE)]
    network.start_scheduler()


@pytest.mark.network
async def test_two_questions_at_once_are_both_answered(stage: acts.Stage) -> None:
    async def outcome(max_tokens: int) -> str:
        async with asking(stage, max_tokens) as (ready, signed):
            verdicts = [update.outcome async for update in ask(ready, signed) if isinstance(update, Verdict)]
            return verdicts[0]

    assert await asyncio.gather(outcome(6), outcome(10)) == ["accepted", "accepted"]


def test_nothing_was_lost_in_all_of_this(stage: acts.Stage) -> None:
    done = cli.run(stage.network.password_file, "client", "balance", "--home", stage.home.root)
    assert 0 < int(done["escrow_wei"]) < parse_amount(acts.DEPOSIT)
    for name, node in stage.network.nodes.items():
        assert node.child is not None, name
        wait_until(lambda node=node: node.child is not None and node.child.alive, f"{name} running", 5)
