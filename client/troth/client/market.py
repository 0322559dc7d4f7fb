"""What the chain tells a client: the scheduler, the execution class and its model, the fee, the balance."""

from __future__ import annotations

from dataclasses import dataclass

from troth.client.configuration import Configuration
from troth.client.errors import ConfigurationError, ModelUnavailable
from troth.protocol.errors import InvalidField
from troth.protocol.identifiers import class_id, fee, group_id
from troth.protocol.state import Scheduler, State, bonded
from troth.protocol.types import ExecutionClass, Hash32, ModelDescriptor, Segment, segments_from_ends


@dataclass(frozen=True, slots=True)
class Offer:
    """A class that a scheduler serves, with all that the client reads from the chain and not from the scheduler."""

    scheduler: Scheduler
    rules: ExecutionClass
    model: ModelDescriptor
    ends: tuple[int, ...]

    @property
    def class_id(self) -> Hash32:
        """Id of the class."""
        return class_id(self.rules)

    @property
    def fee(self) -> int:
        """Wei for one task, recomputed from the class."""
        return fee(self.rules, len(self.ends))


def find_scheduler(state: State, configuration: Configuration) -> Scheduler:
    """The configured scheduler, or the only bonded one; raises ConfigurationError when that is nobody or not clear."""
    bonded = [
        scheduler
        for scheduler in state.schedulers.values()
        if state.account(scheduler.operator).exit_block == 0 and state.account(scheduler.operator).stake > 0
    ]
    if configuration.scheduler:
        bonded = [one for one in bonded if one.operator.lower() == configuration.scheduler.lower()]
    if len(bonded) == 1:
        return bonded[0]
    names = ", ".join(one.operator for one in bonded) or configuration.scheduler or "none is registered"
    what = "There are several schedulers" if bonded else "There is no such scheduler with a stake"
    raise ConfigurationError(what, names, "Name the operator address of one with --scheduler.")


def find_class(state: State, configuration: Configuration, served: dict[Hash32, tuple[int, ...]]) -> Hash32:
    """The configured class, or the only one that the scheduler serves and the chain knows."""
    known = [identifier for identifier in served if identifier in state.classes]
    if configuration.execution_class:
        known = [identifier for identifier in known if "0x" + identifier.hex() == configuration.execution_class.lower()]
    if len(known) == 1:
        return known[0]
    names = ", ".join("0x" + identifier.hex() for identifier in (known or served)) or "none"
    what = "The scheduler serves several classes" if known else "The scheduler serves no such execution class"
    raise ModelUnavailable(what, names, "Name one with --execution-class.")


def offer_of(state: State, scheduler: Scheduler, identifier: Hash32, ends: tuple[int, ...]) -> Offer:
    """The offer; raises ModelUnavailable if the chain does not know the class, or the layers should not be split so."""
    rules = state.classes.get(identifier)
    model = state.models.get(rules.model) if rules else None
    if rules is None or model is None:
        raise ModelUnavailable("The chain knows no such class", "0x" + identifier.hex(), "Use another class.")
    try:
        segments = segments_from_ends(ends, model.layers)
    except InvalidField as error:
        raise ModelUnavailable("The scheduler's split of the layers is impossible", ends, "Use another one.") from error
    for segment in segments:
        _require_common(state, identifier, segment)
    return Offer(scheduler, rules, model, ends)


def require_whole(offer: Offer) -> None:
    """Raise ModelUnavailable where no one node serves the whole model: in direct mode there is no relay between."""
    if len(offer.ends) != 1:
        raise ModelUnavailable(
            "The scheduler splits the model over several nodes, and direct mode needs one that hosts all of it",
            f"segments end at {offer.ends}",
            "Go through the scheduler with --no-direct, or use another class or scheduler.",
        )


def _require_common(state: State, identifier: Hash32, segment: Segment) -> None:
    """Refuses a segment whose group most of the nodes that host its layers have not joined.

    Anybody can form a group for an unusual segment out of nodes of its own; a draw from it proves nothing.
    """
    hosts = [
        node.operator
        for node in state.nodes.values()
        if node.execution_class == identifier
        and node.slice.first <= segment.first
        and segment.end <= node.slice.end
        and bonded(state, node.operator, state.classes[identifier])
    ]
    group = state.groups.get(group_id(identifier, segment))
    joined = 0 if group is None else sum(history[-1].to_block == 0 for history in group.slots)
    if 2 * joined < len(hosts):
        raise ModelUnavailable(
            f"Of {len(hosts)} nodes that host layers [{segment.first}, {segment.end}) only {joined} serve just these",
            (segment.first, segment.end),
            "Use a scheduler that splits the layers as most nodes do.",
        )
