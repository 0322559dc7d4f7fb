"""Where this package ends: what brings a rejected answer to the court, and what checks an answer with one's own model.

Both are other packages' work. They are handed everything that was signed about the order, and what only its client
knows: request, salt and tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from troth.protocol.market.life import Check
from troth.protocol.market.messages import Signed
from troth.protocol.market.types import Admission, CaseKind, Draw, Opinion, Order, Result, Tab
from troth.protocol.types import Address, Hash32


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a client holds of one order when it goes to court over ``segments``.

    ``secret``, ``second_secret`` and ``checks`` are None and empty where the answer was not drawn. ``request`` is
    ``canonical_bytes``; ``bond``: the most that may be put up, None: whatever it takes.
    """

    kind: CaseKind
    segments: tuple[int, ...]
    order: Signed[Order]
    tab: Tab
    admission: Signed[Admission]
    nodes: tuple[Address, ...]
    infer_proof: bytes
    results: tuple[Signed[Result], ...]
    draw: Signed[Draw]
    draw_proof: bytes
    secret: Hash32 | None
    second_secret: Hash32 | None
    checks: tuple[Check, ...]
    request: bytes
    salt: Hash32
    tokens: tuple[int, ...]
    bond: int | None = None


class CaseOpener(Protocol):
    """Opens a case, or hands the evidence to who does."""

    async def open(self, evidence: Evidence) -> str:
        """What was done, or why not, in one line for the user."""


class OwnCheck(Protocol):
    """Computes an answer again with a model of one's own."""

    async def check(self, evidence: Evidence) -> Opinion:
        """What it says of the answer."""
