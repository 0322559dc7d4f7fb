"""What happens to one question, as the client tells it."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.assignment import Assignment


@dataclass(frozen=True, slots=True)
class Assigned:
    """The parties, drawn and proven; the client checked the proof."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is whole; what follows is its verification."""

    reason: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Posted:
    """A transaction of this task was mined: its step, hash and gas, as the scheduler tells them."""

    step: str
    transaction: str
    gas: int


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The stream broke off; the client goes on asking for the rest."""

    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the chain closed the task, and what the client paid in wei."""

    outcome: str
    cost: int


Update = Assigned | Text | Finished | Posted | Interrupted | Verdict
