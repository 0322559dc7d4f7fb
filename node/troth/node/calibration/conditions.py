"""Every way of running a model that a calibration compares: honest ones, and cheats that must stand out.

The lists follow VeriLLM section 7 and the measurements that Troth's design rests on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import torch

from troth.node.calibration import tampering
from troth.node.calibration.tampering import Change

HONEST, CHEAT, SLOW, TEXT, HIDDEN = "honest", "cheat", "slow", "text", "hidden"
LAZY: tuple[tuple[str, str, Change], ...] = (
    ("bfloat16 weights", CHEAT, partial(tampering.narrow_weights, dtype=torch.bfloat16)),
    ("float16 weights", CHEAT, partial(tampering.narrow_weights, dtype=torch.float16)),
    ("TF32", CHEAT, tampering.tensor_float32),
)


@dataclass(frozen=True, slots=True)
class Condition:
    """One way to produce claimed text and states.

    Args:
        kind: HONEST; CHEAT changes states and must be caught; SLOW changes them by so little that only long windows
            of a bfloat16 trace show it; TEXT keeps states honest and lies about tokens; HIDDEN is measured and
            reported, but too close to honest noise for any class that tolerates noise.
        change: what is done to the model.
        batch: sequences decoded at a time; None for a whole bucket.
        threads: torch threads, None for the caller's.
        attention: how attention is computed, see `Stack`.
        text: the lie about tokens, see `generating`.
        noise: relative noise on honest states.
        chunk: positions of a prefill message; None for all at once.
    """

    name: str
    kind: str
    change: Change | None = None
    batch: int | None = None
    threads: int | None = None
    attention: str = "sdpa"
    text: str = ""
    noise: float = 0.0
    chunk: int | None = None
    note: str = field(default="", compare=False)

    @property
    def looks_closely(self) -> bool:
        """Whether its long windows are measured, too: other kinds need none, or show in 32 rows what they are."""
        return self.kind in {HONEST, SLOW, HIDDEN}


_GROUPS = partial(tampering.rounded, bits=8, group=32)
SLOW_CHEATS = (
    Condition("int8 cache in groups of 32", SLOW, partial(tampering.integer_cache, bits=8, group=32)),
    Condition(
        "int8 attention in groups of 32", SLOW, partial(tampering.rounded_weights, rule=_GROUPS, part="self_attn")
    ),
    Condition("int8 in half the layers, groups of 32", SLOW, partial(tampering.rounded_weights, rule=_GROUPS, every=2)),
)
"""What a bfloat16 class sees over long windows alone."""


def honest() -> list[Condition]:
    """Runs of the registered model that differ in everything a class leaves open."""
    return [
        Condition("decode one by one", HONEST, batch=1, threads=1, note="what a node does"),
        Condition("decode 4 together", HONEST, batch=4),
        Condition("decode 16 together", HONEST),
        Condition("decode on one thread", HONEST, threads=1),
        Condition("prompt in chunks of 16", HONEST, chunk=16),
        Condition("eager attention", HONEST, attention="eager"),
        Condition("attention as one product", HONEST, attention="math", note="a kind that no verifier computes"),
    ]


def cheats(layers: int, dtype: int) -> list[Condition]:
    """Runs of something else. Formats of half the size count in a float32 class: a verifier that is lazy computes in
    them, and its tiles must show it."""
    middle_of_each_half = frozenset({layers // 4, 3 * layers // 4})
    changes: list[tuple[str, str, Change]] = [
        ("int8 weights", CHEAT, partial(tampering.quantise_weights, bits=8)),
        ("fp8 weights", CHEAT, tampering.fp8_weights),
        ("int4 weights", CHEAT, partial(tampering.quantise_weights, bits=4)),
        ("W8A8", CHEAT, tampering.int8_activations),
        ("fp8 attention cache", CHEAT, tampering.fp8_cache),
        ("a layer skipped in each half", CHEAT, partial(tampering.skip_layers, skipped=middle_of_each_half)),
        ("early exit", CHEAT, partial(tampering.skip_layers, skipped=frozenset(range(layers - layers // 5, layers)))),
        *([] if dtype else LAZY),
        ("weights off by 0.3 %", HIDDEN, partial(tampering.disturb_weights, share=0.003)),
        ("weights off by 0.1 %", HIDDEN, partial(tampering.disturb_weights, share=0.001)),
    ]
    return [
        *(Condition(name, kind, change) for name, kind, change in changes),
        *(SLOW_CHEATS if dtype else ()),
        Condition("honest states plus 1 % noise", HIDDEN, noise=0.01),
        Condition("other system prompt", CHEAT, text="other prompt"),
        Condition("cheap model's text, one honest prefill", TEXT, text="forged"),
        Condition("greedy instead of sampled", TEXT, text="greedy"),
        Condition("wrong seed", TEXT, text="wrong seed"),
        Condition("temperature half as high", TEXT, text="cool"),
    ]


def all_conditions(layers: int, dtype: int) -> list[Condition]:
    """Honest ones first; ``dtype`` is that of the class."""
    return [*honest(), *cheats(layers, dtype)]
