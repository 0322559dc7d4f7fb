"""What phase 1 answers."""

from __future__ import annotations

from dataclasses import dataclass


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
    def feasible(self) -> bool:
        """Whether a request can be served, and verified as the terms ask."""
        return not self.reason

    @property
    def crossings(self) -> int:
        """Hops between regions over all pipelines."""
        return sum(pipeline.crossings for pipeline in self.pipelines)
