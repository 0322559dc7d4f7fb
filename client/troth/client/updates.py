"""What becomes of a question that both ways of paying have in common: pieces of text, and the end of the answer."""

from __future__ import annotations

from dataclasses import dataclass

from troth.client.chosen import Chosen
from troth.protocol.types import Address


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
