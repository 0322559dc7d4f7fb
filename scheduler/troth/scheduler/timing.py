"""Where a task's time went, in seconds: the breakdown in receipts and metrics.

`model` is what the nodes report; `relay` is what remains of the waiting after it, so it holds the network, TLS and
the nodes' own checks. Signing, verification and storing happen while a node computes and mostly cost no wall time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Breakdown:
    """Seconds per kind of work, and counts; grows while the task runs."""

    waiting: float = 0.0
    model: float = 0.0
    signing: float = 0.0
    checking: float = 0.0
    storing: float = 0.0
    first_token: float = 0.0
    generation: float = 0.0
    verification: float = 0.0
    opening: float = 0.0
    committing: float = 0.0
    settling: float = 0.0
    tokens: int = 0
    messages: int = 0

    @contextmanager
    def spent(self, kind: str) -> Iterator[None]:
        """Add the wall time of the block to `kind`."""
        before = time.perf_counter()
        try:
            yield
        finally:
            setattr(self, kind, getattr(self, kind) + time.perf_counter() - before)

    @property
    def relay(self) -> float:
        """Waiting for nodes beyond their models' time."""
        return max(0.0, self.waiting - self.model)

    @property
    def overhead_per_token(self) -> float:
        """Seconds of a token's way that are no model's: the figure that the inference path is held to."""
        return (self.generation - self.model) / self.tokens if self.tokens else 0.0

    def as_numbers(self) -> dict[str, float]:
        """Every figure by name, for receipts."""
        return {**asdict(self), "relay": self.relay, "overhead_per_token": self.overhead_per_token}
