"""Phase 1 as a whole: capacities, a search per region, what is left across regions, shares, replicas, verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from troth.routing.placement.hardware import Capacity, Machine, ModelShape, Terms, capacity_of
from troth.routing.placement.objective import SANE_EXPONENT, most_pipelines, sane_seconds
from troth.routing.placement.parts import PlacementPart, parts_of, rescored
from troth.routing.placement.plan import Pipeline, Placement, Slice, Verifiers, reason_for
from troth.routing.placement.pool import pool_of
from troth.routing.placement.regions import Atlas
from troth.routing.placement.replicas import hosts, joined, widened
from troth.routing.placement.segments import coverage, cut
from troth.routing.placement.staging import Placed, crossings_of

MOST_LAYERS = 4096
"""Models with more layers are refused: memory and time grow with them, and none is near."""


def place(machines: Iterable[Machine], shape: ModelShape, terms: Terms, atlas: Atlas) -> Placement:
    """Choose slices for all machines. Deterministic, whatever order they come in, and never raises.

    A name that comes twice counts once, with its smallest memory; one that `atlas` does not know is a region of its
    own; an impossible size or time counts as none or as the slowest. See `Placement` for the answer.
    """
    known = _placed(machines, shape, terms, atlas)
    if not known:
        return _nothing(known, "There are no machines.")
    if not 0 < shape.layers <= MOST_LAYERS:
        return _nothing(known, f"A model of {shape.layers} layers cannot be placed, only of 1 to {MOST_LAYERS}.")
    parts = parts_of(known, shape.layers, terms, atlas)
    hosted = _hosted(known, parts, shape.layers, terms)
    given, asked, bound = _verifiers(known, hosted, shape.layers, terms)
    if given < min(asked, bound):
        # Any slices that hold every layer m + 1 times can be parted into m + 1 pipelines: so build as many as can be.
        more = parts_of(known, shape.layers, replace(terms, exponent=SANE_EXPONENT), atlas)
        hosted_by_more = _hosted(known, more, shape.layers, terms)
        if _verifiers(known, hosted_by_more, shape.layers, terms).given > given:
            parts, hosted = rescored(more, parts), hosted_by_more
    return _answer(known, parts, hosted, terms)


def _placed(machines: Iterable[Machine], shape: ModelShape, terms: Terms, atlas: Atlas) -> list[Placed]:
    regions = {name: number for number, region in enumerate(atlas.regions) for name in region.names}
    chosen: dict[str, tuple[int, float]] = {}
    for machine in machines:
        offer = machine.memory_bytes, -sane_seconds(machine.layer_seconds)
        chosen[machine.name] = min(offer, chosen.get(machine.name, offer))
    capacities: dict[int, Capacity] = {}
    placed = []
    for number, name in enumerate(sorted(chosen)):
        memory, negative_seconds = chosen[name]
        if memory not in capacities:
            capacities[memory] = capacity_of(memory, shape, terms.cached_tokens)
        region = regions.get(name, len(atlas.regions) + number)
        placed.append(Placed(name, capacities[memory], -1 / negative_seconds, region))
    return placed


def _hosted(known: Sequence[Placed], parts: Sequence[PlacementPart], layers: int, terms: Terms) -> list[Slice]:
    stages = [stage for part in parts for pipeline in part.pipelines for stage in pipeline]
    used = {stage.name for stage in stages}
    capacities = {placed.name: placed.capacity for placed in known}
    spare = {name: capacity for name, capacity in capacities.items() if name not in used}
    hosted = stages + joined(stages, spare, layers)
    wanted = min(terms.verifiers + 1, len(known))
    return hosted if min(hosts(hosted, layers)) >= wanted else widened(hosted, capacities, layers, wanted)


def _verifiers(known: Sequence[Placed], hosted: Sequence[Slice], layers: int, terms: Terms) -> Verifiers:
    given = min(hosts(hosted, layers)) - 1
    return Verifiers(max(0, given), max(0, terms.verifiers), max(0, _most(known, layers) - 1))


def _most(known: Sequence[Placed], layers: int) -> int:
    """No plan has more pipelines, whatever the regions."""
    capacities = [placed.capacity for placed in known]
    return sum(held.whole >= layers for held in capacities) + most_pipelines(pool_of(capacities, layers))


def _answer(
    known: Sequence[Placed], parts: Sequence[PlacementPart], hosted: Sequence[Slice], terms: Terms
) -> Placement:
    layers = parts[0].found.pool.layers
    verifiers = _verifiers(known, hosted, layers, terms)
    region = {placed.name: placed.region for placed in known}
    table = coverage(hosted, layers) if verifiers.asked else []
    required = min(verifiers.given, verifiers.asked)
    pipelines = tuple(
        Pipeline(pipeline, crossings_of(pipeline, region), cut(pipeline, table, required) if table else pipeline)
        for part in parts
        for pipeline in part.pipelines
    )
    busy = {held.name for held in hosted}
    return Placement(
        pipelines=pipelines,
        hosted=tuple(sorted(hosted, key=lambda held: (held.first, held.end, held.name))),
        idle=tuple(placed.name for placed in known if placed.name not in busy),
        score=sum(part.found.score for part in parts),
        score_bound=sum(part.found.score_bound for part in parts),
        pipelines_bound=_most(known, layers),
        verifiers=verifiers.given,
        verifiers_bound=verifiers.bound,
        reason=reason_for([placed.capacity for placed in known], layers, len(pipelines), verifiers),
    )


def _nothing(known: Sequence[Placed], reason: str) -> Placement:
    return Placement((), (), tuple(placed.name for placed in known), 0.0, 0.0, 0, 0, 0, reason)
