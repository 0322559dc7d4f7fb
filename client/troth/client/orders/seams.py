"""Where this package ends: what brings a rejected answer to the court, and the model that computes an answer again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from troth.cases.evidence import Evidence as CaseFile
from troth.cases.judging import Inputs, Recomputed
from troth.protocol.credit import Surprises
from troth.protocol.market.proceedings import CaseKind
from troth.protocol.market.types import ExecutionClass
from troth.protocol.types import ModelDescriptor


@dataclass(frozen=True, slots=True)
class OrderEvidence:
    """All that a client holds of one order, and over which ``segments`` it goes to court.

    ``tokens``: the answer; ``file`` holds everything else, and is what anybody acts on.
    """

    kind: CaseKind
    segments: tuple[int, ...]
    file: CaseFile
    tokens: tuple[int, ...]


class CaseOpener(Protocol):
    """Opens a case, or says how."""

    async def open(self, evidence: OrderEvidence) -> str:
        """What was done, or why not, in one line for the user."""


class OwnModel(Protocol):
    """The registered model, in a folder of one's own; both raise OwnModelUnusable."""

    async def require(self, descriptor: ModelDescriptor, definition: ExecutionClass) -> None:
        """Load it for a class, once its weights are those that were registered."""

    async def recompute(self, inputs: Inputs) -> Recomputed:
        """One prefill of a segment over prompt and answer."""

    async def surprises(self, inputs: Inputs) -> Surprises:
        """How likely an answer's tokens are under all layers, for its node's credit."""
