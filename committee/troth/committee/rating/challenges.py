"""What an epoch asks: prompts that were committed to an epoch before, when each is asked, and how.

Every prompt has a salt of 32 secret bytes. Its commitment is keccak256(salt ‖ prompt), and when it is asked, with which
temperature and for how many tokens, follows from the salt as well: so nobody learns any of it before it is opened, and
a leader that was killed goes on with the same ones.

A list has a part for each of the two members that may lead: no prompt is asked twice, whoever asked before.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from troth.client.choices import SamplingChoices
from troth.committee.corpus.prompts import LONGEST, MOST_PROMPTS, PARTS, prompts_of
from troth.committee.corpus.texts import Corpus
from troth.committee.errors import EpochRefused
from troth.protocol.hashing import keccak256
from troth.protocol.reputation import prompt_commitment, prompt_root
from troth.protocol.types import ZERO_HASH, Address, Hash32, address_to_bytes

TEMPERATURES = {1_000_000: 5, 700_000: 3, 800_000: 1, 600_000: 1}
"""In millionths, with their weights: what programs and people set. A greedy answer has no entropy to compare with."""
OUTPUT_MEAN, OUTPUT_SPREAD, FEWEST_TOKENS = 337.99, 1.0, 16
"""Tokens of ShareGPT's answers (Kwon et al., SOSP 2023, figure 11)."""


class PromptOpening(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A prompt with its salt, 64 hexadecimal digits."""

    salt: Annotated[str, msgspec.Meta(min_length=64, max_length=64, pattern=r"^[0-9a-f]*\Z")]
    prompt: Annotated[str, msgspec.Meta(min_length=1, max_length=2 * LONGEST)]

    @property
    def commitment(self) -> Hash32:
        """What stood in the list."""
        return prompt_commitment(bytes.fromhex(self.salt), self.prompt)


Openings = Annotated[list[PromptOpening], msgspec.Meta(max_length=MOST_PROMPTS)]


@dataclass(frozen=True, slots=True)
class Challenge:
    """A prompt at its ``place`` of the list; ``moment``, 0 to 1, is when it is asked in its leader's time."""

    place: int
    prompt: str
    moment: float
    choices: SamplingChoices


def new_openings(
    count: int, is_ours: Callable[[str], bool], longest: int = LONGEST, corpus: Corpus | None = None
) -> list[PromptOpening]:
    """``count`` fresh prompts of a fresh secret, ``MOST_PROMPTS`` at most; from the shipped corpus unless another is
    given."""
    seed = secrets.token_bytes(32)
    prompts = prompts_of(seed, min(count, MOST_PROMPTS), is_ours, longest, corpus)
    salts = [keccak256(seed + place.to_bytes(4, "big")) for place in range(len(prompts))]
    return [PromptOpening(salt.hex(), prompt) for salt, prompt in zip(salts, prompts, strict=True)]


def writer_of(prompt: str, members: Sequence[Address]) -> Address:
    """Which member may write a prompt: whom the least hash of prompt and operator names.

    Two members never write the same, though neither knows what the other one hides. Who joins or leaves changes this
    for that member's part alone.
    """
    hashed = keccak256(prompt.encode())
    return min(members, key=lambda member: keccak256(hashed + address_to_bytes(member)))


def root_of(openings: Sequence[PromptOpening]) -> Hash32:
    """The root of a list's prompts; zero for none."""
    return prompt_root([one.commitment for one in openings]) if openings else ZERO_HASH


def require_openings(openings: Sequence[PromptOpening], root: Hash32) -> None:
    """Raise EpochRefused unless these are the prompts of a root, each there once."""
    if root_of(openings) != root:
        raise EpochRefused("These are not the prompts that were fixed", root.hex(), "Open those of this epoch.")
    if len({one.prompt for one in openings}) < len(openings):
        raise EpochRefused("A prompt is there twice", len(openings), "Each is asked once.")


def places_of(part: int, count: int) -> range:
    """The places of ``count`` whose prompts one leader asks."""
    return range(count * part // PARTS, count * (part + 1) // PARTS)


def challenges_of(openings: Sequence[PromptOpening], places: range, most_tokens: int) -> tuple[Challenge, ...]:
    """What is asked of some places, in the order of the moments."""
    made = (_challenge(place, openings[place], most_tokens) for place in places)
    return tuple(sorted(made, key=lambda one: one.moment))


def _challenge(place: int, opening: PromptOpening, most_tokens: int) -> Challenge:
    # Another use of the salt than its commitment's: from neither follows the other.
    chooser = random.Random(keccak256(b"troth/challenge/1" + bytes.fromhex(opening.salt)))  # noqa: S311 - a secret seed
    # Moments of a Poisson process, given how many there are, are independent and even.
    moment = chooser.random()
    temperature = chooser.choices(list(TEMPERATURES), list(TEMPERATURES.values()))[0]
    drawn = chooser.lognormvariate(math.log(OUTPUT_MEAN) - OUTPUT_SPREAD**2 / 2, OUTPUT_SPREAD)
    tokens = min(most_tokens, max(FEWEST_TOKENS, round(drawn)))
    return Challenge(place, opening.prompt, moment, SamplingChoices(tokens, temperature))
