"""When a circuit has served long enough."""

from __future__ import annotations

import secrets
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rotation:
    """After how many seconds and bytes a client replaces a circuit. Relays close it at several times that."""

    seconds: float = 600.0
    bytes: int = 2**30

    def drawn(self) -> Rotation:
        """These limits times a random factor from 0.75 to 1.25: circuits built together do not end together."""
        factor = 0.75 + secrets.randbelow(1001) / 2000
        return Rotation(self.seconds * factor, int(self.bytes * factor))

    def due(self, age: float, carried: int) -> bool:
        """Whether a circuit of `age` seconds that carried `carried` bytes is to be replaced."""
        return age >= self.seconds or carried >= self.bytes
