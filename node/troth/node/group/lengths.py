"""Which common prompt lengths this node proposes: what its Sentry found, in rounds, so that it seldom changes."""

from __future__ import annotations

import random

from troth.overlay.hash_radix.sentry import ROUND, SAMPLE, Sentry


class Proposal:
    """Looks at the sample once it is full, and then after each round of requests."""

    def __init__(self, chance: random.Random) -> None:
        self._sentry = Sentry(chance)
        self._first = True
        self.lengths: tuple[int, ...] = ()
        """In tokens, ascending."""

    def note(self, tokens: bytes) -> None:
        """A prompt that entered here, packed."""
        self._sentry.observe(tokens)
        if self._sentry.seen >= (SAMPLE if self._first else ROUND):
            self.lengths = tuple(common.tokens for common in self._sentry.common())
            self._first = False
            self._sentry.start_round()
