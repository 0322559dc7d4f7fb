"""Why a placement does not serve, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from troth.scheduler.placement.capacity import Capacity


class Verifiers(NamedTuple):
    """Per segment, besides its inferencer: what the plan gives, what the terms ask, what no plan exceeds."""

    given: int
    asked: int
    bound: int


def reason_for(capacities: Sequence[Capacity], layers: int, pipelines: int, verifiers: Verifiers) -> str:
    """Empty if there is a pipeline and every segment can have the verifiers that were asked for."""
    if not pipelines:
        return _no_pipeline(capacities, layers)
    given, asked, _ = verifiers
    if given >= asked:
        return ""
    if verifiers.bound < asked:
        return (
            f"Some layer can have {given} verifiers, not {asked}: all machines together hold the model, embedding and "
            f"head, at most {verifiers.bound + 1} times. Add machines or ask for fewer verifiers."
        )
    return (
        f"Some layer can have {given} verifiers, not {asked}: no way was found to part the machines into {asked + 1} "
        "groups that each hold the model. Add a machine or ask for fewer verifiers."
    )


def _no_pipeline(capacities: Sequence[Capacity], layers: int) -> str:
    total = sum(capacity.inner for capacity in capacities)
    if total < layers:
        return f"All machines together hold {total} of {layers} layers. Add memory, or keep room for fewer tokens."
    if not any(capacity.first > 0 for capacity in capacities):
        return "No machine holds the embedding and a layer. Add one with more memory."
    if not any(capacity.last > 0 for capacity in capacities):
        return "No machine holds the head and a layer. Add one with more memory."
    return (
        f"The machines hold {total} layers without embedding and head, but no group that may work together holds all "
        f"{layers} with them. Add memory, or let pipelines cross regions."
    )
