"""Who should host what, now: a pure function of the members (Parallax, section 3.4).

Nothing moves without need. Slices are placed anew where a layer lacks hosts, where the layers' loads vary too much, or
where more pipelines could be formed; and only if the new placement is better by a margin, so that nodes do not flap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from troth.scheduler.placement.capacity import capacity_of
from troth.scheduler.placement.hardware import ModelShape, Terms
from troth.scheduler.placement.placing import place
from troth.scheduler.placement.plan import Slice
from troth.scheduler.placement.regions import Atlas
from troth.scheduler.placement.replicas import hosts, joined
from troth.scheduler.pool.balance import layer_loads, variation
from troth.scheduler.pool.keeping import keeping
from troth.scheduler.pool.member import Member

VARIATION_BOUND = 0.5
"""Coefficient of variation of the layers' loads above which all is placed anew."""
GAIN = 0.8
"""What balancing must bring: a variation at most this share of the present one."""


@dataclass(frozen=True, slots=True)
class Decision:
    """`slices` for every member, in the order of their names. `reason` is empty where all stay as they are.

    `lacking` says in words what the pool cannot give however it is placed; empty if every segment can have its parties.
    """

    slices: tuple[Slice, ...]
    reason: str
    lacking: str = ""

    def slice_of(self, name: str) -> Slice | None:
        """What a member should host; None for a stranger."""
        return next((held for held in self.slices if held.name == name), None)


def decide(members: Sequence[Member], shape: ModelShape, terms: Terms, atlas: Atlas, *, calm: bool) -> Decision:
    """Deterministic, whatever order the members come in.

    Args:
        terms: `verifiers` besides the inferencer are needed for each segment.
        calm: whether enough time has passed since the last decision to improve what works already.
    """
    known = sorted(members, key=lambda member: member.name)
    present = [member.hosted for member in known if 0 <= member.first < member.end <= shape.layers]
    stay = Decision(tuple(present), "")
    if not known or shape.layers < 1:
        return stay
    placement, planned = _placed_anew(known, shape, terms, atlas)
    before, after = _covered(present, shape.layers), _covered(planned, shape.layers)
    wanted = terms.verifiers + 1
    lacking = placement if after < wanted and before < wanted else ""
    if before < wanted and after > before:
        return Decision(planned, _thin(present, shape.layers, wanted), lacking)
    stay = Decision(tuple(present), "", lacking)
    if not calm or after < min(before, wanted):
        return stay
    seconds = {member.name: member.layer_seconds for member in known}
    was, would = (variation(layer_loads(held, seconds, shape.layers)) for held in (present, planned))
    if was > VARIATION_BOUND and would <= GAIN * was:
        return Decision(planned, f"the layers' loads vary by {was:.2f}, they could by {would:.2f}", lacking)
    if after > before:
        return Decision(planned, f"every layer can have {after} hosts, {before} are the fewest now", lacking)
    return stay


def _placed_anew(
    known: Sequence[Member], shape: ModelShape, terms: Terms, atlas: Atlas
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
