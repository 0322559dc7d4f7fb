"""What becomes of a question, as its asker hears it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from troth.client.orders.chosen import AnswerToken
from troth.client.orders.failing import StateUnknown
from troth.protocol.market.signed import Opinion
from troth.protocol.types import Address, Hash32

__all__ = [
    "CourseStep",
    "DrawnUpdate",
    "EndedUpdate",
    "FinishedUpdate",
    "OrderOutcome",
    "RecomputedUpdate",
    "SentUpdate",
    "ServedUpdate",
    "SignedUpdate",
    "StateUpdate",
    "TextUpdate",
    "TokenUpdate",
    "Update",
]


@dataclass(frozen=True, slots=True)
class TextUpdate:
    """A piece of the answer, and the tokens that it completes.

    The piece is empty only at the end, where log probabilities were ordered and tokens without a text are left.
    """

    text: str
    chosen: tuple[AnswerToken, ...] = ()


@dataclass(frozen=True, slots=True)
class FinishedUpdate:
    """The answer is whole ("end" or "length"); what follows is its verification.

    `served_by` is the candidate that signed it to the client, None where none did: the verification is the same.
    """

    reason: str
    tokens: int
    served_by: Address | None = None


@dataclass(frozen=True, slots=True)
class SentUpdate:
    """An order was written down and is sent; ``again``: one before it failed midway."""

    order: Hash32
    scheduler: Address
    most: int
    again: bool


@dataclass(frozen=True, slots=True)
class ServedUpdate:
    """The scheduler admitted the order; these nodes were drawn, and the client checked the proof."""

    order: Hash32
    nodes: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class TokenUpdate:
    """One token of one order."""

    chosen: AnswerToken


@dataclass(frozen=True, slots=True)
class SignedUpdate:
    """Every node signed its result, and they are what was received; ``cached`` of the prompt's tokens cost less."""

    order: Hash32
    reason: str
    fee: int
    prompt: int
    cached: int
    written: int
    nodes: tuple[Address, ...]


@dataclass(frozen=True, slots=True, eq=False)
class StateUpdate:
    """The state of the last position as its node signed it, shape (hidden size,); or why there is none."""

    order: Hash32
    state: NDArray[np.float32] | None
    failure: StateUnknown | None = None


@dataclass(frozen=True, slots=True)
class DrawnUpdate:
    """The lottery hit: these verifiers check the answer now."""

    order: Hash32
    verifiers: tuple[tuple[Address, ...], ...]


@dataclass(frozen=True, slots=True)
class RecomputedUpdate:
    """The client computed the answer again with its own model; CANNOT_TELL: it could not, and ``words`` say why."""

    order: Hash32
    opinion: Opinion
    words: str


class OrderOutcome(StrEnum):
    """How an order ended for its client."""

    UNDRAWN = "undrawn"
    CHECKED = "checked"
    REJECTED = "rejected"
    UNCLEAR = "no majority"
    REFUSED_CHECK = "check refused"
    UNCHECKED = "not checked yet"


@dataclass(frozen=True, slots=True)
class EndedUpdate:
    """The order is over; ``due``: the block from which its fee is paid. ``advice`` says what the user may do."""

    order: Hash32
    outcome: OrderOutcome
    fee: int
    due: int
    advice: str = ""


Update = (
    SentUpdate
    | ServedUpdate
    | TextUpdate
    | FinishedUpdate
    | SignedUpdate
    | StateUpdate
    | DrawnUpdate
    | RecomputedUpdate
    | EndedUpdate
)
"""What ``asking.ask`` yields."""
CourseStep = ServedUpdate | TokenUpdate | SignedUpdate | DrawnUpdate | EndedUpdate
"""What one order's course yields."""
