"""What becomes of a question, as its asker hears it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from troth.client.orders.chosen import Chosen
from troth.protocol.market.types import Opinion
from troth.protocol.types import Address, Hash32


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer, and the tokens that it completes.

    The piece is empty only at the end, where log probabilities were ordered and tokens without a text are left.
    """

    text: str
    chosen: tuple[Chosen, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is whole ("end" or "length"); what follows is its verification.

    `served_by` is the candidate that signed it to the client, None where none did: the verification is the same.
    """

    reason: str
    tokens: int
    served_by: Address | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the chain closed the task, and what the client paid in wei."""

    outcome: str
    cost: int


@dataclass(frozen=True, slots=True)
class Sent:
    """An order was written down and is sent; ``again``: one before it failed midway."""

    order: Hash32
    scheduler: Address
    most: int
    again: bool


@dataclass(frozen=True, slots=True)
class Served:
    """The scheduler admitted the order; these nodes were drawn, and the client checked the proof."""

    order: Hash32
    nodes: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Token:
    """One token of one order."""

    chosen: Chosen


@dataclass(frozen=True, slots=True)
class Signed:
    """Every node signed its result, and they are what was received; ``cached`` of the prompt's tokens cost less."""

    order: Hash32
    reason: str
    fee: int
    prompt: int
    cached: int
    written: int
    nodes: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """The lottery hit: these verifiers check the answer now."""

    order: Hash32
    verifiers: tuple[tuple[Address, ...], ...]


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The client computed the answer again with its own model; CANNOT_TELL: it could not, and ``words`` say why."""

    order: Hash32
    opinion: Opinion
    words: str


class Outcome(StrEnum):
    """How an order ended for its client."""

    UNDRAWN = "undrawn"
    CHECKED = "checked"
    REJECTED = "rejected"
    UNCLEAR = "no majority"
    REFUSED_CHECK = "check refused"


@dataclass(frozen=True, slots=True)
class Ended:
    """The order is over; ``due``: the block from which its fee is paid. ``advice`` says what the user may do."""

    order: Hash32
    outcome: Outcome
    fee: int
    due: int
    advice: str = ""


Update = Sent | Served | Text | Finished | Signed | Drawn | Recomputed | Ended
"""What ``asking.ask`` yields."""
Step = Served | Token | Signed | Drawn | Ended
"""What one order's course yields."""

__all__ = [
    "Drawn",
    "Ended",
    "Finished",
    "Outcome",
    "Recomputed",
    "Sent",
    "Served",
    "Signed",
    "Step",
    "Text",
    "Token",
    "Update",
]
