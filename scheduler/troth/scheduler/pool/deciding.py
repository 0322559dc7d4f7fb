"""Who should host what, now: a pure function of the members (Parallax, section 3.4).

Nothing moves without need. Slices are placed anew where a layer lacks hosts, where the layers' loads vary too much, or
where more pipelines could be formed; and only if the new placement is better by a margin, so that nodes do not flap.

A plan's windows are handed out so that as few machines as possible load anything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from troth.routing.placement.hardware import Machine, ModelShape, Terms, capacity_of
from troth.routing.placement.objective import sane_seconds
from troth.routing.placement.placing import place
from troth.routing.placement.plan import Slice
from troth.routing.placement.regions import Atlas
from troth.routing.placement.replicas import hosts, joined

SPEED_STEP = 1.25
"""Machines whose speeds lie within this ratio are alike: which of them holds a window makes no difference."""
VARIATION_BOUND = 0.5
"""Coefficient of variation of the layers' loads above which all is placed anew."""
GAIN = 0.8
"""What balancing must bring: a variation at most this share of the present one."""


@dataclass(frozen=True, slots=True)
class ReportingNode:
    """A registered node that reports.

    Args:
        name: its operator address.
        memory_bytes: what its operator lends for weights and cache.
        layer_seconds: as the scheduler believes it, see `measurements`.
        first, end: its slice on chain.
        movable: its operator has agreed to be given slices here, and the chain lets it change its slice now.
    """

    name: str
    memory_bytes: int
    layer_seconds: float
    first: int
    end: int
    movable: bool

    @property
    def hosted(self) -> Slice:
        """What it hosts."""
        return Slice(self.name, self.first, self.end)

    @property
    def machine(self) -> Machine:
        """What it could host."""
        return Machine(self.name, self.memory_bytes, self.layer_seconds)


def keeping(planned: Sequence[Slice], members: Sequence[ReportingNode], shape: ModelShape, tokens: int) -> list[Slice]:
    """The same windows, swapped among machines of like memory and speed so that who holds one keeps it.

    A member without a window keeps its slice: to hold what nobody asks for harms nobody, and to unload it costs.
    """
    windows = {held.name: (held.first, held.end) for held in planned}
    kinds: dict[tuple[int, ...], list[ReportingNode]] = {}
    for member in members:
        if member.name in windows:
            kinds.setdefault(_kind(member, shape, tokens), []).append(member)
    settled = [member.hosted for member in members if member.name not in windows and 0 <= member.first < member.end]
    for kind in kinds.values():
        settled += _swapped(kind, Counter(windows[member.name] for member in kind))
    return settled


def _swapped(kind: Sequence[ReportingNode], left: Counter[tuple[int, int]]) -> list[Slice]:
    held: list[Slice] = []
    moving: list[ReportingNode] = []
    for member in sorted(kind, key=lambda one: one.name):
        window = (member.first, member.end)
        if left[window] > 0:
            left[window] -= 1
            held.append(member.hosted)
        else:
            moving.append(member)
    return held + [Slice(member.name, *window) for member, window in zip(moving, sorted(left.elements()), strict=True)]


def _kind(member: ReportingNode, shape: ModelShape, tokens: int) -> tuple[int, ...]:
    speed = round(math.log(sane_seconds(member.layer_seconds)) / math.log(SPEED_STEP))
    return (*capacity_of(member.memory_bytes, shape, tokens), speed)


def layer_loads(slices: Iterable[Slice], seconds: Mapping[str, float], layers: int) -> list[float]:
    """Seconds that a token costs in each layer if its hosts share the work, each busy with all of its layers alike.

    A host of n layers at s seconds each gives one layer 1 / (n s) tokens a second; infinite where nobody hosts.
    """
    rates = [0.0] * layers
    for held in slices:
        rate = 1.0 / (sane_seconds(seconds.get(held.name, math.inf)) * (held.end - held.first))
        for layer in range(held.first, held.end):
            rates[layer] += rate
    return [1.0 / rate if rate else math.inf for rate in rates]


def variation(loads: Iterable[float]) -> float:
    """Coefficient of variation: standard deviation over mean; infinite if some layer has no host, 0 for no layers."""
    values = list(loads)
    if not values:
        return 0.0
    if any(math.isinf(value) for value in values):
        return math.inf
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) / mean


@dataclass(frozen=True, slots=True)
class PlacementDecision:
    """`slices` for every member, in the order of their names. `reason` is empty where all stay as they are.

    `lacking` says in words what the pool cannot give however it is placed; empty if every segment can have its parties.
    """

    slices: tuple[Slice, ...]
    reason: str
    lacking: str = ""

    def slice_of(self, name: str) -> Slice | None:
        """What a member should host; None for a stranger."""
        return next((held for held in self.slices if held.name == name), None)


def decide(
    members: Sequence[ReportingNode], shape: ModelShape, terms: Terms, atlas: Atlas, *, calm: bool
) -> PlacementDecision:
    """Deterministic, whatever order the members come in.

    Args:
        terms: `verifiers` besides the inferencer are needed for each segment.
        calm: whether enough time has passed since the last decision to improve what works already.
    """
    known = sorted(members, key=lambda member: member.name)
    present = [member.hosted for member in known if 0 <= member.first < member.end <= shape.layers]
    stay = PlacementDecision(tuple(present), "")
    if not known or shape.layers < 1:
        return stay
    placement, planned = _placed_anew(known, shape, terms, atlas)
    before, after = _covered(present, shape.layers), _covered(planned, shape.layers)
    wanted = terms.verifiers + 1
    lacking = placement if after < wanted and before < wanted else ""
    if before < wanted and after > before:
        return PlacementDecision(planned, _thin(present, shape.layers, wanted), lacking)
    stay = PlacementDecision(tuple(present), "", lacking)
    if not calm or after < min(before, wanted):
        return stay
    seconds = {member.name: member.layer_seconds for member in known}
    was, would = (variation(layer_loads(held, seconds, shape.layers)) for held in (present, planned))
    if was > VARIATION_BOUND and would <= GAIN * was:
        return PlacementDecision(planned, f"the layers' loads vary by {was:.2f}, they could by {would:.2f}", lacking)
    if after > before:
        return PlacementDecision(planned, f"every layer can have {after} hosts, {before} are the fewest now", lacking)
    return stay


def _placed_anew(
    known: Sequence[ReportingNode], shape: ModelShape, terms: Terms, atlas: Atlas
) -> tuple[str, tuple[Slice, ...]]:
    """What is lacking in words, and the better of two ways: phase 1 over the movable, or each by the weakest layer."""
    fixed = [member.hosted for member in known if not member.movable and member.end <= shape.layers]
    movable = [member for member in known if member.movable]
    placement = place([member.machine for member in movable], shape, terms, atlas)
    spare = {member.name: capacity_of(member.memory_bytes, shape, terms.cached_tokens) for member in movable}
    ways = [list(placement.hosted)] if not fixed else [list(placement.hosted), joined(fixed, spare, shape.layers)]
    seconds = {member.name: member.layer_seconds for member in known}

    def worth(way: Sequence[Slice]) -> tuple[int, float]:
        together = [*fixed, *way]
        loads = layer_loads(together, seconds, shape.layers)
        return _covered(together, shape.layers), -math.fsum(loads)

    best = max(ways, key=worth)
    kept = keeping(best, movable, shape, terms.cached_tokens)
    return placement.reason, tuple(sorted([*fixed, *kept], key=lambda held: held.name))


def _covered(slices: Sequence[Slice], layers: int) -> int:
    return min(hosts(slices, layers), default=0)


def _thin(slices: Sequence[Slice], layers: int, wanted: int) -> str:
    count = hosts(slices, layers)
    layer = min(range(layers), key=lambda one: (count[one], one))
    return f"layer {layer} has {count[layer]} hosts, {wanted} are needed"
