"""How a member asks nodes and judges what they answered: with a client of its own, as any user does.

Orders go from the member's own tab, over the overlay where its `client.toml` names a committee. What was asked is in
the client's journal under a name that follows from epoch and place, so that a member that was killed asks nothing
twice; the client's keeper follows every order to its end and pays.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from troth.client.orders.asking import ask
from troth.client.orders.crediting import credits_of
from troth.client.orders.journal import RUNNING, OrderRecord
from troth.client.orders.own_check import no_model
from troth.client.orders.session import FAILURES, PayerSession
from troth.client.orders.wishes import Wish
from troth.committee.errors import EpochRefused, MemberConfigurationInvalid
from troth.committee.rating.answers import ChallengeAnswer, Expected, answer_of, checked_answer
from troth.committee.rating.challenges import Challenge, PromptOpening
from troth.protocol.credit import Credit, CreditEvidence, CreditRule
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import group_id
from troth.protocol.market.bodies import Admitted, Results
from troth.protocol.market.views import class_of, hosts_of
from troth.protocol.reputation import MAXIMUM_NODES
from troth.protocol.types import Address, Hash32, Segment, address_to_bytes

log = logging.getLogger(__name__)

SILENT_SECONDS = 120.0
"""After which an admitted order without results was not answered, whatever may still come."""


@dataclass(frozen=True, slots=True)
class ExaminableNodes:
    """Nodes that can be drawn: ``since`` when the epoch began, and any of ``now`` or then."""

    since: frozenset[Address]
    now: frozenset[Address]

    def listed(self, seed: Hash32) -> tuple[Address, ...]:
        """Whom the next epoch examines: all, or as many as one can, by rank."""
        return _ranked(self.now, seed)

    def require(self, nodes: Sequence[Address], seed: Hash32) -> None:
        """Raise EpochRefused if a list names somebody who cannot be drawn, or leaves one out who could all along."""
        if strangers := sorted(set(nodes) - self.now - self.since):
            raise EpochRefused("The next list has nodes that cannot be drawn", strangers, "List the class's hosts.")
        wanted = set(_ranked(self.now | self.since, seed)) & self.since & self.now
        if missing := sorted(wanted - set(nodes)):
            raise EpochRefused("The next list leaves nodes out", missing, "List all of the class's hosts.")


def _ranked(nodes: Iterable[Address], seed: Hash32) -> tuple[Address, ...]:
    chosen = sorted(nodes, key=lambda node: keccak256(seed + address_to_bytes(node)))[:MAXIMUM_NODES]
    return tuple(sorted(chosen, key=address_to_bytes))


class Examiner(Protocol):
    """Asks, and judges answers: the part of a member that needs a market and a model."""

    def hosts(self, first: int) -> ExaminableNodes:
        """Who can be drawn now, and could in block ``first``."""

    def asked(self, name: str) -> bool:
        """Whether the question of this name was ordered, whatever became of it."""

    async def ask(self, name: str, challenge: Challenge) -> None:
        """Order an answer, once, and wait for its end; a failure is in the journal and in the log."""

    def under_way(self, names: Iterable[str]) -> bool:
        """Whether one of these may still be answered."""

    def answers(self, names: Mapping[int, str]) -> list[ChallengeAnswer]:
        """What was answered, by place."""

    def silent(self, names: Iterable[str]) -> frozenset[Address]:
        """Nodes that were drawn for some of these and answered none."""

    async def credits(
        self,
        answers: Sequence[ChallengeAnswer],
        openings: Sequence[PromptOpening],
        first: int,
        before: Mapping[Address, CreditEvidence],
    ) -> dict[Address, Credit]:
        """What the answers are worth, by node, with the evidence before them; raises EpochRefused for a wrong one."""


class ClientExaminer:
    """An Examiner over a client's session, whose own model is the committee's.

    Args:
        least: answers of a node below which it is not scored.
    """

    def __init__(self, session: PayerSession, least: int) -> None:
        if session.class_id is None:
            remedy = "Set execution_class in the client.toml of the member's client."
            raise MemberConfigurationInvalid("The member's client names no class to rate", None, remedy)
        if session.own_model is None:
            raise no_model()
        self._session, self._least = session, least
        self._class_id, self._model = session.class_id, session.own_model

    def hosts(self, first: int) -> ExaminableNodes:
        """Who can be drawn now for the whole model, and could in block ``first``."""
        state = self._session.state
        _, descriptor = class_of(state, self._class_id)
        before = state.members_at(group_id(self._class_id, Segment(0, descriptor.layers)), first)
        return ExaminableNodes(
            frozenset(entry.operator for entry in before if entry.seats), frozenset(hosts_of(state, self._class_id))
        )

    def asked(self, name: str) -> bool:
        """Whether the journal has an order of this name."""
        return bool(self._session.journal.of_question(name))

    async def ask(self, name: str, challenge: Challenge) -> None:
        """One order on the tab that a user of this client would use; nothing is asked again at another node."""
        if self.asked(name):
            return
        try:
            prompt = await self._prompt(challenge.prompt)
            async with aclosing(ask(self._session, prompt, Wish(challenge.choices), name, attempts=1)) as updates:
                async for _ in updates:
                    pass
        except FAILURES as error:
            log.info("a challenge was not answered: %s", error)

    def under_way(self, names: Iterable[str]) -> bool:
        """Whether one of these is running and young."""
        return any(self._is_young(entry) and _results(entry) is None for entry in self._entries(names))

    def answers(self, names: Mapping[int, str]) -> list[ChallengeAnswer]:
        """What was answered."""
        found = []
        for place, name in names.items():
            answered = (answer_of(place, entry) for entry in self._session.journal.of_question(name))
            found += [answer for answer in answered if answer is not None][:1]
        return found

    def silent(self, names: Iterable[str]) -> frozenset[Address]:
        """Nodes that were drawn and gave nothing."""
        silent, spoke = set[Address](), set[Address]()
        for entry in self._entries(names):
            admitted = entry.read("admitted", Admitted)
            if admitted is None or (self._is_young(entry) and _results(entry) is None):
                continue
            (silent if _results(entry) is None else spoke).update(admitted.nodes)
        return frozenset(silent - spoke)

    async def credits(
        self,
        answers: Sequence[ChallengeAnswer],
        openings: Sequence[PromptOpening],
        first: int,
        before: Mapping[Address, CreditEvidence],
    ) -> dict[Address, Credit]:
        """One prefill for each answer."""
        proven = []
        for answer in answers:
            await self._session.seen(answer.admitted.admission.message.block_number)
            prompt = await self._prompt(openings[answer.place].prompt)
            proven.append(checked_answer(answer, Expected(self._class_id, first, prompt), self._session.view))
        rule = CreditRule.NORMALISED
        return await credits_of(self._model, self._session.state, proven, least=self._least, rule=rule, before=before)

    async def _prompt(self, text: str) -> tuple[int, ...]:
        if self._session.language is None:
            await self._session.ready()
        assert self._session.language is not None  # ready() loads it
        return self._session.language.prompt_tokens([{"role": "user", "content": text}])

    def _entries(self, names: Iterable[str]) -> Iterable[OrderRecord]:
        for name in names:
            yield from self._session.journal.of_question(name)

    @staticmethod
    def _is_young(entry: OrderRecord) -> bool:
        return entry.phase in RUNNING and entry.created + SILENT_SECONDS > time.time()


def _results(entry: OrderRecord) -> Results | None:
    return entry.read("results", Results)
