"""Reputation as events alone: six epochs of three nodes, of which one falls below the bar and one says nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from support.market_logs import META, address
from support.market_record import PLACE
from support.market_scene import hash_of

from troth.chain.reputation_reading import LeaderCheck, ReputationReading, SettledEpoch
from troth.protocol.reputation import ONE, ReputationPlace, newcomer, paper_rules, rated
from troth.protocol.reputation_events import EpochSettled, NodeRated, RaterEnrolled, ReputationDeployed
from troth.protocol.types import ZERO_HASH, Address

CONTRACT, COMMITTEE, START, BLOCKS, EPOCHS = address(91), address(92), 1_000, 100, 6
MEMBERS = tuple(address(number) for number in (93, 94, 95))
RULES = paper_rules(BLOCKS, 0)
CREDITS = ((ONE, ONE // 5, 970_000_000), (ONE, ONE // 5, None))
"""Of the first node, the second, which cheats, and the third, which is silent in every other epoch."""
CHECKS = (LeaderCheck.PROVED, LeaderCheck.BY_SEED, LeaderCheck.UNSEEN)


def ratings_reading(nodes: Sequence[Address], epochs: int = EPOCHS) -> ReputationReading:
    """What a reader has read; ``nodes`` are three, each with an owner of its own."""
    block = START + epochs * BLOCKS + 7
    reading = ReputationReading(ReputationPlace(CONTRACT, START), block)
    assert reading.take(ReputationDeployed(COMMITTEE, PLACE.contracts.registry, RULES, START, META))
    for number, member in enumerate(MEMBERS):
        assert reading.take(RaterEnrolled(member, member, number + 1, number + 1, 0, META))
    for epoch in range(epochs):
        place = replace(META, block=START + epoch * BLOCKS + 90, transaction=hash_of(f"epoch {epoch}"))
        for number, node in enumerate(nodes):
            credit = CREDITS[epoch % 2][number]
            before = reading.state.standings.get(node) or newcomer(RULES, address(96 + number))
            after = rated(before, credit or 0, epoch, RULES)
            said = (epoch, credit or 0, credit is None, after.score, after.abnormal)
            assert reading.take(NodeRated(node, before.owner, *said, place)), reading.broken
        settled = EpochSettled(
            epoch, MEMBERS[epoch % 3], hash_of(f"update {epoch}"), ZERO_HASH, 3, epoch % 3 == 0, place
        )
        assert reading.take(settled)
        silent = epoch % 2
        gas = None if CHECKS[epoch % 3] is LeaderCheck.UNSEEN else 190_000 + epoch
        reading.epochs.append(SettledEpoch(settled, CHECKS[epoch % 3], gas, len(nodes) - silent, silent))
    return reading
