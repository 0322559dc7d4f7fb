"""One trial: an adversary is seated in one task, a client asks, and everything that came of it is recorded."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from adversaries.notes import SCHEDULER
from adversaries.registry import BEFORE_REPLAY, NEVER_SETTLES, Adversary
from adversaries.stage import AdversaryStage
from troth.client.asking import Finished, Posted, Text, Verdict, ask
from troth.client.choices import Choices
from troth.client.errors import ClientError
from troth.client.ordering import SignedOrder
from troth.client.session import Session, session
from troth.demo import cli
from troth.protocol.events import (
    Credited,
    EscrowReleased,
    Slashed,
    TaskAborted,
    TaskCommitted,
    TaskExpired,
    TaskOpened,
    TaskSettled,
)
from troth.protocol.settlement import SlashReason
from troth.protocol.types import Address

END_SECONDS = 240.0
TRIAL_SECONDS = 480.0
"""How long one trial may take on a busy machine. Nothing in it waits for ever, and some of it for half an hour."""
COMPARED = re.compile(
    r"compared: verdict (\w+), root \w+, states (\S+) of (\S+) .*tokens (\S+) of ([\d.e+-]+), end (\w+)"
)


@dataclass(frozen=True, slots=True)
class Judged:
    """What one honest verifier found: scores against their cuts, and whether the end was valid."""

    accepts: bool
    states: float
    state_cut: float
    tokens: float
    token_cut: float
    end_ok: bool

    @property
    def caught_by(self) -> str:
        """The check that rejects, or nothing."""
        if self.states > self.state_cut:
            return "verdict: states"
        return "" if self.tokens <= self.token_cut and self.end_ok else "verdict: tokens"


@dataclass(slots=True)
class Finding:
    """What a trial showed. Amounts are in units of pay; blocks and seconds count from the commit to the settlement.

    ``since_answer`` counts the seconds from the answer's last token to the settlement, ``awaited`` is what came last or
    never came.
    """

    adversary: Adversary
    awaited: str = "a session with the scheduler"
    outcome: str = ""
    cost: int = 0
    fee: int = 0
    text: str = ""
    blocks: int = 0
    seconds: float = 0.0
    since_answer: float = 0.0
    slashed: dict[Address, tuple[SlashReason, int]] = field(default_factory=dict)
    credited: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    released: int = 0
    unit: int = 1
    parties: tuple[Address, ...] = ()
    rogues: frozenset[str] = frozenset()
    scheduler: str = ""
    error: str = ""
    judged: list[Judged] = field(default_factory=list)

    @property
    def slashed_seats(self) -> dict[str, SlashReason]:
        """Seat ("inferencer", "verifier 1", …) to the reason for which its holder was slashed."""
        return {self.seat(operator): reason for operator, (reason, _) in self.slashed.items()}

    def seat(self, operator: str) -> str:
        """What an operator was in this task; dishonest verifiers come before honest ones in the names."""
        if operator in (self.parties[0], self.scheduler):
            return "inferencer" if operator == self.parties[0] else "scheduler"
        return "cheating verifier" if operator in self.rogues else "honest verifier"


async def play_all(
    stage: AdversaryStage,
    adversaries: Sequence[Adversary],
    together: int = 1,
    report: Callable[[Finding], None] = lambda found: None,
    seconds: float = float("inf"),
) -> list[Finding]:
    """Play several adversaries, so many at a time, schedulers last, after the honest task whose rows one replays.

    After `seconds` the trials that have not ended are broken off, and say what they were waiting for.
    """
    places, until = asyncio.Semaphore(together), asyncio.get_running_loop().time() + seconds

    async def one(adversary: Adversary) -> Finding:
        async with places:
            found = await _bounded(stage, adversary, until)
        report(found)
        return found

    found = await asyncio.gather(*[one(adversary) for adversary in adversaries if not adversary.scheduler])
    if any(adversary.scheduler for adversary in adversaries):
        stage.network.replace_scheduler()
        found.append(await one(BEFORE_REPLAY))
        found += await asyncio.gather(*[one(adversary) for adversary in adversaries if adversary.scheduler])
    return found


async def _bounded(stage: AdversaryStage, adversary: Adversary, until: float) -> Finding:
    """A trial that ends by `until` (the loop's time) and after TRIAL_SECONDS at the latest, whatever breaks in it."""
    begun, found = asyncio.get_running_loop().time(), Finding(adversary)
    try:
        async with asyncio.timeout_at(min(begun + TRIAL_SECONDS, until)):
            await play(stage, found)
    except TimeoutError:
        waited = asyncio.get_running_loop().time() - begun
        found.outcome = f"broke: {found.awaited} did not come, the trial was broken off after {waited:.0f} s"
    except Exception as error:  # noqa: BLE001 - one trial that breaks must not hide the others
        found.outcome = f"broke while waiting for {found.awaited}: {error!r}"
    return found


async def play(stage: AdversaryStage, found: Finding) -> None:
    """Seat the finding's adversary, ask, wait for the verdict; everything seen goes into the finding."""
    adversary = found.adversary
    async with session(stage.client.home, stage.client.configuration) as ready:
        choices = Choices(adversary.tokens, int(adversary.temperature * 1_000_000))
        signed, parties = await stage.drawn_order(
            ready,
            choices,
            rogue_inferencer=None if adversary.scheduler else bool(adversary.inferencer),
            rogue_verifiers=len(adversary.verifiers),
            ends=adversary.temperature == 0,
        )
        cheats = _parts_of(adversary, parties, stage)
        stage.network.notes.write(signed.task_id, cheats)
        found.fee, found.parties, found.rogues = signed.fee, parties, frozenset(cheats)
        found.unit, found.scheduler = stage.network.plan.unit, stage.network.scheduler.operator
        await _ask(ready, signed, found, impatient=adversary.scheduler == NEVER_SETTLES)
        if not found.outcome:
            await _wait_for_the_end(stage, ready, signed, found)
        _read_events(ready, signed, found)
        found.judged = _judgements(stage, signed, [party for party in parties[1:] if party not in cheats])


def _parts_of(adversary: Adversary, parties: Sequence[Address], stage: AdversaryStage) -> dict[str, str]:
    """Who plays which cheat."""
    if adversary.scheduler:
        return {SCHEDULER: adversary.scheduler}
    dishonest = [party for party in parties[1:] if party in stage.rogues]
    cheats = dict(zip(dishonest, adversary.verifiers, strict=True))
    return {**cheats, parties[0]: adversary.inferencer} if adversary.inferencer else cheats


async def _ask(ready: Session, signed: SignedOrder, found: Finding, *, impatient: bool) -> None:
    begun = answered = time.monotonic()
    found.awaited = "the answer"
    try:
        async with aclosing(ask(ready, signed)) as updates:
            async for update in updates:
                match update:
                    case Text(text):
                        found.text += text
                    case Finished():
                        answered, found.awaited = time.monotonic(), "the commitments"
                    case Posted(step="committed"):
                        begun, found.awaited = time.monotonic(), "the verdict"
                        if impatient:
                            break
                    case Verdict(outcome, cost):
                        found.outcome, found.cost = outcome, cost
    except ClientError as error:
        found.error = f"{type(error).__name__}: {error.what}"
    ended = time.monotonic()
    found.seconds, found.since_answer = ended - begun, ended - answered


async def _wait_for_the_end(stage: AdversaryStage, ready: Session, signed: SignedOrder, found: Finding) -> None:
    """The stream ended without a verdict: see what becomes of the fee on chain, and close what the scheduler left."""
    begun = time.monotonic()
    task, network = signed.task_id, stage.network
    found.awaited = f"the end on chain of what the client was told was {found.error or 'committed'!r}"
    if found.adversary.scheduler == NEVER_SETTLES:
        await ready.follower.wait_until(lambda seen: task in seen.tasks, END_SECONDS)
        due = ready.follower.state.tasks[task].task.progress.phase_block + network.plan.windows[1] + 1
        await ready.follower.reach(due, END_SECONDS)
        arguments = ("client", "close", "0x" + task.hex(), "--home", stage.client.home.root, "--broadcast")
        await asyncio.to_thread(cli.run, network.password_file, *arguments)
    state = await ready.follower.wait_until(lambda seen: task in seen.tasks and not seen.tasks[task].live, END_SECONDS)
    outcome = state.tasks[task].outcome
    assert outcome is not None
    found.outcome = outcome.name.lower()
    found.seconds += time.monotonic() - begun


def _read_events(ready: Session, signed: SignedOrder, found: Finding) -> None:
    begun = 0
    for event in ready.follower.state.tasks[signed.task_id].events:
        match event:
            case TaskOpened() | TaskCommitted():
                begun = event.meta.block
            case TaskSettled() | TaskAborted() | TaskExpired():
                found.blocks = event.meta.block - begun
            case Slashed():
                found.slashed[event.operator] = (SlashReason(event.reason), event.amount // found.unit)
            case Credited():
                found.credited[event.account] += event.amount // found.unit
            case EscrowReleased():
                found.released += event.amount


def _judgements(stage: AdversaryStage, signed: SignedOrder, verifiers: list[Address]) -> list[Judged]:
    found = []
    for operator in verifiers:
        child = stage.network.node_of(operator).child
        assert child is not None
        for line in child.log.read_text(errors="replace").splitlines():
            if signed.task_id.hex() in line and (match := COMPARED.search(json.loads(line)["message"])):
                verdict, states, state_cut, tokens, token_cut, end = match.groups()
                numbers = (float(states), float(state_cut), float(tokens), float(token_cut))
                found.append(Judged(verdict == "accept", *numbers, end_ok=end == "ok"))
    return found
