"""What a member asks the others for that missed an update: the list which it fixed, and what epochs have added up to.

A list's hash is on the chain, so that it does not matter who shows it. What epochs have added up to is each member's
own word, and no signature proves it. So a member that leads takes the middle of many words, and stays unsure: whoever
is sure computes every credit again and signs nothing else. A lie costs the leader its turn, and moves no score.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

from troth.committee.errors import EpochRefused
from troth.committee.rating.epochs import ExaminedList
from troth.committee.rating.evidence import MOST_NODES, SURE, KnownEvidence
from troth.protocol.credit import MOST
from troth.protocol.errors import ProtocolError
from troth.protocol.types import Address, Hash32, to_address

log = logging.getLogger(__name__)

LISTED, ADDED_UP = "epoch list", "epoch sums"
"""Kinds of requests; the body is a hash: of the list, or of the update that was settled last."""


class AsksMembers(Protocol):
    """Whoever sends a request to all other members (``MemberCalls``)."""

    async def ask_all(self, kind: str, body: bytes, epoch: int, *, enough: int) -> dict[Address, bytes]:
        """The answers of those who gave one."""


async def missed_list(others: AsksMembers, digest: Hash32, epoch: int) -> ExaminedList:
    """The list of a hash that is on the chain; raises EpochRefused where nobody shows it."""
    answers = await others.ask_all(LISTED, digest, epoch, enough=1)
    for sender, answer in answers.items():
        found = _list_of(answer, digest)
        if found is not None:
            return found
        log.warning("%s shows another list than the chain names", sender)
    what = "This member does not know the list that was fixed, and nobody shows it"
    raise EpochRefused(what, digest.hex(), "It asks again.")


def _list_of(answer: bytes, digest: Hash32) -> ExaminedList | None:
    try:
        found = msgspec.json.decode(answer, type=ExaminedList)
        nodes, root = found.read()
        return ExaminedList(list(nodes), "0x" + root.hex()) if found.hash == digest else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, EpochRefused):
        return None


async def others_evidence(
    others: AsksMembers, digest: Hash32, epoch: int, members: Collection[Address]
) -> KnownEvidence | None:
    """What others say that epochs up to an update have added up to; None where too few are sure of it.

    More than a third of the members have to say it, so that one of them is honest. For each node and direction it is
    the middle of their words; of two middle ones the lower. The result is as unsure as knowing nothing.
    """
    needed = len(members) // 3 + 1
    answers = await others.ask_all(ADDED_UP, digest, epoch, enough=needed)
    words = [found for sender, answer in answers.items() if sender in members and (found := _evidence_of(answer))]
    return _middle(words) if len(words) >= needed else None


def _evidence_of(answer: bytes) -> KnownEvidence | None:
    try:
        found = msgspec.msgpack.decode(answer, type=KnownEvidence)
        for node, sums in found.sums.items():
            if to_address(node) != node or not all(math.isfinite(one) and 0 <= one <= MOST for one in sums):
                return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ProtocolError):
        return None
    return found if found.judged == SURE and len(found.sums) <= MOST_NODES else None


def _middle(words: list[KnownEvidence]) -> KnownEvidence:
    nodes = sorted({node for word in words for node in word.sums})
    sums = {node: (_lower(words, node, 0), _lower(words, node, 1)) for node in nodes}
    return KnownEvidence(0, {node: one for node, one in sums.items() if max(one) > 0})


def _lower(words: list[KnownEvidence], node: str, direction: int) -> float:
    nothing: Mapping[str, tuple[float, float]] = {node: (0.0, 0.0)}
    return sorted({**nothing, **word.sums}[node][direction] for word in words)[(len(words) - 1) // 2]
