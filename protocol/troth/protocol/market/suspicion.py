"""Who is under suspicion by verifiers' notes, and how much more often its groups' answers are checked then.

Evidence (`notes`, `sequential`) reaches a strength of x for an honest node with a chance of 1 / x at most, over all
looks. The rate of checks rises with its square root. So a group of honest nodes pays for 3 % more checks on average
at most, whoever looks how often; where evidence finds a node out, a rate of 1 % becomes that of every answer.

The rate is part of the terms that a client signs before anybody is drawn to serve. It is the same whoever serves then,
so that nobody can choose by it which answer is checked, and it stands in the order and the receipt for all to see. No
stake hangs on it. That the node sees it, too, is meant: it may cheat where nobody is on guard, and not here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from troth.protocol.errors import InvalidField
from troth.protocol.market import canonical
from troth.protocol.market.notes import JointEvidence
from troth.protocol.market.prices import MILLION
from troth.protocol.sequential import ERROR
from troth.protocol.types import Address, Hash32, Uint32, Uint64

LEAST_STRENGTH = 100
"""Of evidence that raises the rate: one honest node in a hundred ever has it. From here on the rate is doubled."""
MOST_STRENGTH = 10**18
LIST_LIMIT = 1 << 20
"""Bytes of a list."""
KEPT_EPOCHS = 1
"""Epochs before the present one whose evidence still counts: records begin anew with each."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A node whose ``tasks`` in one class and epoch speak against it; ``strength`` is that of `strength_of`."""

    node: Address
    execution_class: Hash32
    epoch: Uint32
    tasks: Uint32
    strength: Uint64


@dataclass(frozen=True, slots=True)
class SuspectList:
    """Everybody who is suspected in a deployment, by records that somebody put together at ``block``."""

    chain_id: Uint64
    bank: Address
    block: Uint64
    suspects: tuple[Suspect, ...]


def strength_of(evidence: JointEvidence) -> int:
    """By how much evidence speaks against a node, once it is taken into account that records may have been chosen: 1
    and less is nothing; 1 / ERROR is where it is found out."""
    return int(min(evidence.wealth / (evidence.bar * ERROR), MOST_STRENGTH))


def suspected(node: Address, execution_class: Hash32, epoch: int, found: Iterable[JointEvidence]) -> Suspect | None:
    """The node by the strongest of its evidence; None where that is too little."""
    best = max(found, key=strength_of, default=None)
    if best is None or strength_of(best) < LEAST_STRENGTH:
        return None
    return Suspect(node, execution_class, epoch, best.tasks, strength_of(best))


def raised_rate(rate: int, strength: int) -> int:
    """A rate of checks in millionths, raised by evidence of a strength."""
    if strength < LEAST_STRENGTH:
        return rate
    return min(round(rate * 2 * math.sqrt(strength / LEAST_STRENGTH)), MILLION)


def worst_of(known: SuspectList, execution_class: Hash32, nodes: Collection[Address], epoch: int) -> Suspect | None:
    """The most suspected of some nodes in a class, by evidence that is not too old; None where there is none."""
    found = (
        one
        for one in known.suspects
        if one.execution_class == execution_class and one.node in nodes and 0 <= epoch - one.epoch <= KEPT_EPOCHS
    )
    return max(found, key=lambda one: (one.strength, one.node), default=None)


def read_list(data: bytes, *, chain_id: int, bank: Address) -> SuspectList:
    """A list as ``canonical.encode`` wrote it; raises InvalidField where it is none, or one of another deployment."""
    known = canonical.decode(SuspectList, data, LIST_LIMIT)
    if (known.chain_id, known.bank) != (chain_id, bank):
        found = f"chain {known.chain_id}, Bank {known.bank}"
        raise InvalidField("This list of suspects is of another deployment", found, "Audit its verifiers' notes.")
    return known
