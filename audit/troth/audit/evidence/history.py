"""The folded past of a deployment: each event with the state before it, and what did not fit together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from troth.chain.market import DeploymentPlace
from troth.protocol.errors import ProtocolError
from troth.protocol.logs import EventLog, LogMeta
from troth.protocol.market.court_money import unpack_movements
from troth.protocol.market.events import Event, MovedMany, parse_log
from troth.protocol.market.fold import apply
from troth.protocol.market.state import State
from troth.protocol.market.types import Movement
from troth.protocol.types import Hash32

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """An event and the state in which it happened."""

    event: Event
    before: State

    @property
    def place(self) -> LogMeta:
        """Where it is."""
        return self.event.meta


@dataclass(frozen=True, slots=True)
class History:
    """All steps in the order of the chain, the last state, and what did not fit together."""

    state: State
    steps: tuple[HistoryStep, ...]
    contradictions: tuple[Contradiction, ...]

    @overload
    def of(self, kind: type[Kind], /) -> Iterator[tuple[Kind, State]]: ...
    @overload
    def of(self, *kinds: type[Any]) -> Iterator[tuple[Any, State]]: ...
    def of(self, *kinds: type[Any]) -> Iterator[tuple[Any, State]]:
        """Events of these kinds, each with the state before it."""
        for step in self.steps:
            if isinstance(step.event, kinds):
                yield step.event, step.before

    def before(self, transaction: Hash32) -> State:
        """The state before the first event of a transaction."""
        return next(step.before for step in self.steps if step.event.meta.transaction == transaction)

    def moved(self, transaction: Hash32, case_id: Hash32) -> tuple[Movement, ...]:
        """The movements of a transaction that belong to a case."""
        return tuple(
            one
            for event, _ in self.of(MovedMany)
            if event.meta.transaction == transaction and event.subject == case_id
            for one in unpack_movements(case_id, event.movements)
        )

    def beside(self, event: Any, kind: type[Kind]) -> tuple[Kind, ...]:
        """Events of a kind in the same transaction."""
        same = event.meta.transaction
        return tuple(other for other, _ in self.of(kind) if getattr(other, "meta").transaction == same)  # noqa: B009


def read_history(logs: Iterable[EventLog], place: DeploymentPlace) -> History:
    """Fold ``logs``; stops at the first that cannot follow, since nothing after it would mean anything.

    Those of the deployment's prover are not folded: check M26 plays its disputes.
    """
    state = State()
    steps: list[HistoryStep] = []
    last: LogMeta | None = None
    for log in logs:
        if last is not None and (log.meta.block, log.meta.log_index) <= (last.block, last.log_index):
            broken = Contradiction(log.meta, "A log stands before or at the one that it follows")
            return History(state, tuple(steps), (broken,))
        if state.deployed is not None and log.address == state.deployed.parameters.prover:
            last = log.meta
            continue
        try:
            event = parse_log(log, place.contracts, place.factory)
            after = apply(event, state)
        # Beside the fold's own errors: numbers of no enumeration, and whatever else a stranger's bytes decode to.
        except (ProtocolError, ValueError, LookupError, ArithmeticError) as error:
            return History(state, tuple(steps), (Contradiction(log.meta, f"The log cannot follow: {error}"),))
        steps.append(HistoryStep(event, state))
        state, last = after, log.meta
    return History(state, tuple(steps), ())


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Where and how the events do not fit together."""

    place: LogMeta
    message: str
