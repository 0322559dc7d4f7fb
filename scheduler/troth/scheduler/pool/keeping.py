"""A plan's windows handed out so that as few machines as possible load anything."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from troth.scheduler.placement.capacity import capacity_of
from troth.scheduler.placement.hardware import ModelShape
from troth.scheduler.placement.objective import sane_seconds
from troth.scheduler.placement.plan import Slice
from troth.scheduler.pool.member import Member

SPEED_STEP = 1.25
"""Machines whose speeds lie within this ratio are alike: which of them holds a window makes no difference."""


def keeping(planned: Sequence[Slice], members: Sequence[Member], shape: ModelShape, tokens: int) -> list[Slice]:
    """The same windows, swapped among machines of like memory and speed so that who holds one keeps it.

    A member without a window keeps its slice: to hold what nobody asks for harms nobody, and to unload it costs.
    """
    windows = {held.name: (held.first, held.end) for held in planned}
    kinds: dict[tuple[int, ...], list[Member]] = {}
    for member in members:
        if member.name in windows:
            kinds.setdefault(_kind(member, shape, tokens), []).append(member)
    settled = [member.hosted for member in members if member.name not in windows and 0 <= member.first < member.end]
    for kind in kinds.values():
        settled += _swapped(kind, Counter(windows[member.name] for member in kind))
    return settled


def _swapped(kind: Sequence[Member], left: Counter[tuple[int, int]]) -> list[Slice]:
    held: list[Slice] = []
    moving: list[Member] = []
    for member in sorted(kind, key=lambda one: one.name):
        window = (member.first, member.end)
        if left[window] > 0:
            left[window] -= 1
            held.append(member.hosted)
        else:
            moving.append(member)
    return held + [Slice(member.name, *window) for member, window in zip(moving, sorted(left.elements()), strict=True)]


def _kind(member: Member, shape: ModelShape, tokens: int) -> tuple[int, ...]:
    speed = round(math.log(sane_seconds(member.layer_seconds)) / math.log(SPEED_STEP))
    return (*capacity_of(member.memory_bytes, shape, tokens), speed)
