"""One trial: an adversary is seated in one task, a client asks, and everything that came of it is recorded."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from adversaries.registry import Adversary
from adversaries.stage import AdversaryStage
from troth.client.asking import Posted, Text, Verdict, ask
from troth.client.errors import ClientError
from troth.client.ordering import Choices, SignedOrder
from troth.client.session import Session, session
from troth.protocol.events import Credited, EscrowReleased, Slashed, TaskCommitted, TaskSettled
from troth.protocol.settlement import SlashReason
from troth.protocol.types import Address

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
    """What a trial showed. Amounts are in units of pay; blocks and seconds count from the commit to the settlement."""

    adversary: Adversary
    outcome: str = ""
    cost: int = 0
    fee: int = 0
    text: str = ""
    blocks: int = 0
    seconds: float = 0.0
    slashed: dict[Address, tuple[SlashReason, int]] = field(default_factory=dict)
    credited: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    released: int = 0
    unit: int = 1
    parties: tuple[Address, ...] = ()
    rogues: frozenset[str] = frozenset()
    judged: list[Judged] = field(default_factory=list)

    @property
    def slashed_seats(self) -> dict[str, SlashReason]:
        """Seat ("inferencer", "verifier 1", …) to the reason for which its holder was slashed."""
        return {self.seat(operator): reason for operator, (reason, _) in self.slashed.items()}

    @property
    def honest_slashed(self) -> list[str]:
        """Seats of honest parties that were slashed."""
        return [self.seat(operator) for operator in self.slashed if operator not in self.rogues]

    def seat(self, operator: str) -> str:
        """What an operator was in this task; dishonest verifiers come before honest ones in the names."""
        if operator == self.parties[0]:
            return "inferencer"
        return "cheating verifier" if operator in self.rogues else "honest verifier"


async def play_all(stage: AdversaryStage, adversaries: Sequence[Adversary], together: int = 1) -> list[Finding]:
    """Play several adversaries, so many at a time; findings in their order."""
    places = asyncio.Semaphore(together)

    async def one(adversary: Adversary) -> Finding:
        async with places:
            return await play(stage, adversary)

    return await asyncio.gather(*[one(adversary) for adversary in adversaries])


async def play(stage: AdversaryStage, adversary: Adversary) -> Finding:
    """Seat the adversary, ask, wait for the verdict."""
    async with session(stage.client.home, stage.client.configuration) as ready:
        choices = Choices(adversary.tokens, int(adversary.temperature * 1_000_000))
        signed, parties = await stage.drawn_order(
            ready,
            choices,
            rogue_inferencer=bool(adversary.inferencer),
            rogue_verifiers=len(adversary.verifiers),
            ends=adversary.temperature == 0,
        )
        rogue_verifiers = [party for party in parties[1:] if party in stage.rogues]
        cheats = dict(zip(rogue_verifiers, adversary.verifiers, strict=True))
        if adversary.inferencer:
            cheats[parties[0]] = adversary.inferencer
        stage.network.notes.write(signed.task_id, cheats)
        found = Finding(adversary, fee=signed.fee, parties=parties, rogues=frozenset(cheats))
        found.unit = stage.network.plan.unit
        await _ask(ready, signed, found)
        _read_events(ready, signed, found)
        found.judged = _judgements(stage, signed, [party for party in parties[1:] if party not in cheats])
        return found


async def _ask(ready: Session, signed: SignedOrder, found: Finding) -> None:
    committed = 0.0
    try:
        async for update in ask(ready, signed):
            match update:
                case Text(text):
                    found.text += text
                case Posted(step="committed"):
                    committed = time.monotonic()
                case Verdict(outcome, cost):
                    found.outcome, found.cost = outcome, cost
                    found.seconds = time.monotonic() - committed
    except ClientError as error:
        found.outcome = f"failed: {error.what}"


def _read_events(ready: Session, signed: SignedOrder, found: Finding) -> None:
    begun = 0
    for event in ready.follower.state.tasks[signed.task_id].events:
        match event:
            case TaskCommitted():
                begun = event.meta.block
            case TaskSettled():
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
