"""Ways to run a model: what honest nodes may do, and what saves money.

A way changes a `Stack`, and says in which pieces positions are computed. Every way is run along the text that an
honest node wrote: its rows are what it would have claimed there, its logits choose what it would have written next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.judging import shortcuts
from troth.node.calibration import tampering
from troth.node.calibration.stack import Stack

Change = Callable[[Stack], None]
DECODE, WHOLE = 0, -1


@dataclass(frozen=True, slots=True)
class Way:
    """``piece``: DECODE (the prompt at once, then one by one), WHOLE, or so many positions at a time; ``batch``: so
    many prompts at a time, 0 for all. A model that is ``kept`` is changed once, and stays loaded.

    ``saves``: what a cheat saves of an honest node's memory traffic and arithmetic when it decodes, in per cent, by
    the weights and cache that it does not read; see the README.
    """

    name: str
    change: Change | None = None
    piece: int = DECODE
    attention: str = "sdpa"
    saves: float = 0.0
    batch: int = 0
    kept: bool = False


HONEST = (
    Way("decode"),
    Way("chunks of 16", piece=16),
    Way("eager attention", attention="eager", piece=WHOLE),
)


def two_halves(matrix: torch.Tensor) -> torch.Tensor:
    """A float32 matrix as the sum of two bfloat16: 16 bits of mantissa."""
    high = matrix.bfloat16().float()
    return high + (matrix - high).bfloat16().float()


def cheats(dtype: int) -> Iterator[Way]:
    """Those of one class; SmolLM2's matrices are 79 % of what a decode of 112 positions reads, the head 20 %."""
    int8, g32 = partial(tampering.rounded, bits=8), partial(tampering.rounded, bits=8, group=32)
    yield _cheat("int8 weights", partial(tampering.rounded_weights, rule=int8), 39 if dtype else 59)
    yield _cheat("int8 g32 weights", partial(tampering.rounded_weights, rule=g32), 37 if dtype else 57)
    yield from _shortcuts()
    if dtype:
        yield _cheat("int8 KV per head", partial(tampering.integer_cache, bits=8), 0.5)
        yield _cheat("int8 KV g32", partial(tampering.integer_cache, bits=8, group=32), 0.5)
        yield _cheat("int8 g32, half the layers", partial(tampering.rounded_weights, rule=g32, every=2), 18)
        yield _cheat("int8 g32, attention only", partial(tampering.rounded_weights, rule=g32, part="self_attn"), 9)
        yield _cheat("int8, a third of the layers", partial(tampering.rounded_weights, rule=int8, every=3), 13)
        return
    yield _cheat("int16 weights", partial(tampering.rounded_weights, rule=partial(tampering.rounded, bits=16)), 39)
    yield _cheat(
        "int16 g32 weights", partial(tampering.rounded_weights, rule=partial(tampering.rounded, bits=16, group=32)), 37
    )
    yield _cheat("two bfloat16", partial(tampering.rounded_weights, rule=two_halves), 0)


def _shortcuts() -> Iterator[Way]:
    """Caches, heads and positions that are not read; what they save at 112 positions, of which the cache is 1 %."""
    yield _cheat("fp8 KV per head", tampering.fp8_cache, 0.5)
    yield _cheat("fp8 KV g32", partial(shortcuts.fp8_cache, group=32), 0.5)
    yield _cheat("fp8 KV without scales", shortcuts.fp8_cache, 0.5)
    yield _cheat("one head of nine not computed", partial(shortcuts.without_heads, count=1), 2)
    yield _cheat("one head, every fifth layer", partial(shortcuts.without_heads, count=1, every=5), 0.4)
    for width in (32, 64):
        yield _looking(f"window of {width} and sinks", shortcuts.window(width), saves=0.7 if width == 32 else 0.4)
    yield _looking("a third of the prompt dropped", shortcuts.without(16, 32), saves=0.1)
    yield _looking("two positions dropped", shortcuts.without(20, 22), saves=0.02)
    yield _looking("attention below 0.01 skipped", least=0.01, saves=0.4)
    yield _looking("attention below 0.001 skipped", least=0.001, saves=0.2)
    yield _cheat("an adapter of rank 1, 1 %", partial(shortcuts.adapted, rank=1, share=0.01), 0)
    yield _cheat("an adapter of rank 8, 10 %", partial(shortcuts.adapted, rank=8, share=0.1), 0)


def _looking(name: str, kept: shortcuts.Kept | None = None, least: float = 0.0, *, saves: float) -> Way:
    attention = shortcuts.attend("troth " + name, kept, least)
    return Way(name, lambda stack: None, piece=16, attention=attention, saves=saves)


def _cheat(name: str, change: Change, saves: float) -> Way:
    # In pieces, since a cheat's own error is larger than what their sizes change.
    return Way(name, change, piece=16, saves=saves)
