"""What one task says of a node, as numbers from 0 to 1 for the evidence over many (`sequential`).

A finding is nothing that a single task could be refused for. It is chosen so that an honest node's is small on average
whatever a client asks: it compares the node's rounding with the verifier's own on the same positions, and what is
doubted is looked at twice (`doubts`) before it counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from troth.protocol.comparison import StateReport
from troth.protocol.straying import Straying
from troth.protocol.tokens import Sampling, TokenReport

MEAN_RATIO = 1.15
"""bfloat16: noise of a whole trace over the verifier's own beyond which a task counts against its node. SmolLM2 on
ordinary prompts: honest ones reach 1.10, the weakest cheat of weights or cache begins at 1.20."""
LOOKED_AT = 1.06
"""By the sixth rules a trace with a larger mean is looked at again, by one more run with other attention."""
HONEST_RATIO = 0.25
"""Share of an honest node's tasks that may be beyond: odd prompts under another attention are, and clients choose."""
LOST_LOGITS = 0.01
"""float32: logits that no honest token loses, but by noise that the verifier sees as well."""
HONEST_LOST = 0.001
"""Share of an honest node's tasks in which one may."""
HONEST_SHARE = 0.55
"""bfloat16: the node's share of what its tokens and the verifier's own choices lose together, on average at most. Were
their noise alike it would be one half."""
LEAST_TEMPERATURE = 0.3
"""Below it a client knows beforehand which of two near ties a node will take, and could choose prompts by that."""
LEAST_TOP_P = 0.7
"""Below it, too: a bias draws two tokens level, the nucleus is the one that rounding puts first, and no noise of the
order has a say. With a larger share both are in it. How much top_k and min_p leave depends on the prompt: biases draw
a thousand tokens level, and rounding says which four are left. So texts that they cut say nothing here."""
LEAST_LOST = 1e-4
"""Logits that both lose together in a task; less says nothing."""


class Kind(StrEnum):
    """What evidence is gathered of, for each node and class."""

    STATES = "states"
    TOKENS = "tokens"


@dataclass(frozen=True, slots=True)
class TaskFinding:
    """``value`` is from 0 to 1; that of an honest node is ``honest`` on average at most."""

    test: Kind
    value: float
    honest: float


def of_states(states: StateReport) -> TaskFinding:
    """Of a trace in a tolerant bfloat16 class; elsewhere a single task tells all there is."""
    counts = states.mean > MEAN_RATIO or states.by_long_windows
    return TaskFinding(Kind.STATES, float(counts), HONEST_RATIO)


def of_trace(states: StateReport, straying: Straying) -> TaskFinding:
    """Of a trace in a tolerant bfloat16 class by the fifth rules: by its noise, and by tokens that it does not choose.

    What a client asks has no part in the latter, and no sampling is left out.
    """
    found = of_states(states)
    return TaskFinding(found.test, max(found.value, float(straying.counts)), found.honest)


def of_precise_text(tokens: TokenReport, straying: Straying | None = None) -> TaskFinding:
    """Of a text in a float32 class; in an exact one by its ``straying``: bfloat16 heads round logits there, too."""
    lost = tokens.worst > LOST_LOGITS if straying is None else straying.counts
    return TaskFinding(Kind.TOKENS, float(lost), HONEST_LOST)


def of_text(sampling: Sampling, *, lost: float, own: float, noise: float) -> TaskFinding | None:
    """Of a text in a tolerant bfloat16 class: ``lost`` are the logits that its tokens lose by the reference, ``own``
    those that the verifier's own choices lose there, both of tokens that no client foresaw (`foresight`). None where
    the task says nothing.

    ``noise``: mean rho of the rows that chose these tokens. Prompts can make one engine's rows noisier than another's,
    and what rows do over a whole text was judged with them; so own choices lose so many times as much.
    """
    foreseen = sampling.cuts or sampling.temperature < LEAST_TEMPERATURE or sampling.top_p < LEAST_TOP_P
    if foreseen or lost + own < LEAST_LOST:
        return None
    return TaskFinding(Kind.TOKENS, lost / (lost + own * max(noise, 1.0)), HONEST_SHARE)
