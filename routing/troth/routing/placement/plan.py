"""What phase 1 answers, or in words why it has no answer; and the segments in which a plan can be verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from troth.routing.placement.hardware import Capacity


@dataclass(frozen=True, slots=True)
class Slice:
    """The layers `[first, end)` that a machine hosts, or computes as a stage."""

    name: str
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages in order: together `[0, layers)` without gap or overlap. `crossings` counts hops between regions.

    `segments` are the stages, cut where a whole one has too few eligible machines: the fewest pieces of which each can
    be verified as the terms ask, or as well as the plan can.
    """

    stages: tuple[Slice, ...]
    crossings: int
    segments: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """The plan, how good it is, how good any could be, and what is wrong with it in words.

    `hosted` has a slice for each machine that holds any layer: its stage, widened where verification needs it, or a
    replica of the layers that fewest host. `idle` hold none. `verifiers` machines besides the inferencer are eligible
    for every segment; no plan of these machines gives more than `verifiers_bound`. `score` sums Z over regions, and
    over pipelines across them; `score_bound` is the same sum of bounds. `pipelines_bound` holds whatever the regions
    are. `reason` is empty if the plan serves and gives the verifiers that were asked for.
    """

    pipelines: tuple[Pipeline, ...]
    hosted: tuple[Slice, ...]
    idle: tuple[str, ...]
    score: float
    score_bound: float
    pipelines_bound: int
    verifiers: int
    verifiers_bound: int
    reason: str

    @property
    def crossings(self) -> int:
        """Hops between regions over all pipelines."""
        return sum(pipeline.crossings for pipeline in self.pipelines)


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
