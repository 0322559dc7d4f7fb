"""Scripted disputes on the real contract: what moved for each party, in the first round and by the review."""

from __future__ import annotations

import random

from benchmarks.disputes.network import UNIT, Network
from benchmarks.disputes.play import Play
from benchmarks.disputes.rules import Conduct
from benchmarks.disputes.scenarios import scenes
from benchmarks.disputes.simulate import wave
from benchmarks.disputes.table import Table
from troth.protocol.settlement import Outcome
from troth.protocol.types import Address


async def play_scenes(network: Network, seed: int) -> list[Play]:
    """All scenes, in one wave."""
    source = random.Random(seed)  # noqa: S311 - a simulation's draws, which a seed must repeat
    return await wave(network, scenes(network.rules.reviewers), source, 1 << 32)


def described(play: Play) -> Table:
    """One row per party; what sums to zero is shown to do so."""
    assert play.review is not None
    assert play.result is not None
    rows = [_row(play, name, [account]) for name, account in _people(play)]
    reviewers = list(zip(play.review.progress.parties[1:], play.reviewing, strict=True))
    for conduct, name in ((Conduct.HONEST, "honest"), (Conduct.HOSTILE, "attacking")):
        accounts = [account for account, own in reviewers if own is conduct]
        rows.append(_row(play, f"{len(accounts)} {name} reviewers, all together", accounts))
    total = sum(play.moved.values())
    first = play.first.outcome.name.lower()
    return Table(
        play.scenario.name,
        ("who", "first round", "review", "in all"),
        tuple(rows),
        f"First {first}, then {Outcome(play.result.task_outcome).name.lower()}. All movements add up to {total} wei.",
    )


def _people(play: Play) -> list[tuple[str, Address]]:
    kind = "honest" if play.scenario.inferencer_honest else "cheating"
    found = [("client", play.network.client.address), (f"{kind} inferencer", play.parties[0])]
    for index, (account, conduct) in enumerate(zip(play.parties[1:], play.conducts, strict=True)):
        found.append((f"verifier {index + 1}, {conduct.value}", account))
    return [*found, ("scheduler", play.network.scheduler.address), ("reserve", play.network.owner.address)]


def _row(play: Play, name: str, accounts: list[Address]) -> tuple[str, ...]:
    before = sum(play.before.get(account, 0) for account in accounts) / UNIT
    after = sum(play.moved.get(account, 0) for account in accounts) / UNIT
    return (name, *(f"{units:+.2f}" if abs(units) > 1e-6 else "0" for units in (before, after - before, after)))
