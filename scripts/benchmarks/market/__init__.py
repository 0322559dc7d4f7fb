"""What the market costs. `scripts/bench gas`: receipts of real calls on a local chain. `scripts/bench market`: figures
of a running network of real processes, in ``running``.

``stage`` deploys and registers, ``orders`` makes what parties sign over one order; ``tabs``, ``cases``, ``convictions``
and ``groups`` measure; ``table`` puts the figures beside what was set out to be reached.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.figures import Figure


def measure(options: Sequence[str] = ()) -> list[Figure]:
    """The rows of `scripts/bench market` that are asked for."""
    from benchmarks.market.running import command

    return command.measure(options)
