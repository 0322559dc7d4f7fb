"""Many tasks on the real contract, each in a block with all others, and what they paid beside the exact value."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.disputes import acts
from benchmarks.disputes.acts import Sent
from benchmarks.disputes.game import deviation, mean
from benchmarks.disputes.network import Network
from benchmarks.disputes.play import Play, place
from benchmarks.disputes.rules import CLIENT, review_by_votes, review_pay
from benchmarks.disputes.scenarios import Scenario, scenarios
from troth.protocol.types import Hash32

SHARES = (0.55, 0.65, 0.75, 0.85, 0.95)
WAVE = 128
"""Tasks that go through their blocks together."""
ROUNDING = 1e-6
"""Units by which the chain may differ from the rules: each share is rounded up to a wei."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A strategy at one honest share: mean units per task on chain, and the exact value with its deviation.

    ``error`` is the standard error of the measured mean; ``worst`` the largest difference, in any task and for any
    party of its first round, between what the contract moved and what the rules say of the votes that were cast.
    """

    scenario: Scenario
    tasks: int
    mean: float
    error: float
    expected: float
    spread: float
    disputed: int
    worst: float

    @property
    def off(self) -> float:
        """How many standard errors, by the exact deviation, the mean is from the exact value."""
        difference = abs(self.mean - self.expected)
        return 0.0 if difference < ROUNDING else difference * math.sqrt(self.tasks) / self.spread


async def simulate(
    network: Network, tasks: int, seed: int, shares: Iterable[float] = SHARES, only: Callable[[Scenario], bool] = bool
) -> list[Measured]:
    """``tasks`` tasks of every strategy at every share."""
    chosen = [one for share in shares for one in scenarios(share) if only(one)]
    source = random.Random(seed)  # noqa: S311 - a simulation's draws, which a seed must repeat
    waiting = [one for one in chosen for _ in range(tasks)]
    played: defaultdict[Scenario, list[Play]] = defaultdict(list)
    for start in range(0, len(waiting), WAVE):
        for done in await wave(network, waiting[start : start + WAVE], source, start):
            played[done.scenario].append(done)
    return [measure(played[one], network.rules.reviewers) for one in chosen]


async def wave(network: Network, chosen: list[Scenario], source: random.Random, first_nonce: int) -> list[Play]:
    """One task of each scenario, all through the same five blocks."""
    head = await network.chain.block()
    assert head is not None
    plays = [
        place(network, one, source, first_nonce + index, (head.number, head.timestamp))
        for index, one in enumerate(chosen)
    ]
    await _mine(network, plays, [acts.open_and_commit(play) for play in plays])
    block_hash = await _newest(network)
    await _mine(network, plays, [acts.settle(play, block_hash) for play in plays])
    sent = [(play, acts.dispute(play)) for play in plays]
    disputed = [play for play, call in sent if call is not None]
    if disputed:
        await _mine(network, disputed, [call for _, call in sent if call is not None])
        block_hash = await _newest(network)
        await _mine(network, disputed, [acts.commit_review(play, block_hash) for play in disputed])
        block_hash = await _newest(network)
        await _mine(network, disputed, [acts.settle_review(play, block_hash) for play in disputed])
    return plays


def predicted(play: Play, party: int) -> float:
    """What the rules of ``rules`` say of a play's own votes; it must be what the contract moved."""
    first = play.first
    if play.result is None:
        return 0.0 if party == CLIENT else float(first.pay[party])
    outcome, cluster = review_by_votes(play.scenario.inferencer_honest, play.reviewing)
    pay, client = review_pay(first, outcome, cluster, play.disputer)
    return client if party == CLIENT else first.pay[party] + pay[party]


def measure(plays: list[Play], reviewers: int) -> Measured:
    """Mean and standard error of the measured party's units, and the largest difference from the rules of any party."""
    scenario = plays[0].scenario
    paid = [play.units(scenario.party) for play in plays]
    average = math.fsum(paid) / len(paid)
    variance = math.fsum((one - average) ** 2 for one in paid) / max(1, len(paid) - 1)
    exact = scenario.lottery(reviewers)
    worst = max(abs(play.units(party) - predicted(play, party)) for play in plays for party in range(len(play.parties)))
    return Measured(
        *(scenario, len(paid), average, math.sqrt(variance / len(paid)), mean(exact), deviation(exact)),
        *(sum(play.result is not None for play in plays), worst),
    )


async def _mine(network: Network, plays: list[Play], sent: list[Sent]) -> None:
    by_id = {identifier: play for play in plays for identifier in (play.task_id, play.review_id)}
    for event in await network.mine(sent):
        identifier = getattr(event, "task_id", None) or getattr(event, "review_id", None)
        if identifier in by_id:
            by_id[identifier].note(event)


async def _newest(network: Network) -> Hash32:
    block = await network.chain.block()
    assert block is not None
    return block.hash
