"""What a user wants of an answer beside the answer: how it is checked, what it may cost."""

from __future__ import annotations

import re
from dataclasses import dataclass

from troth.client.choices import SamplingChoices
from troth.client.errors import ConfigurationError
from troth.protocol.amounts import COIN, Asset
from troth.protocol.market.prices import MILLION

_SHARE = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,4}))?%")
WORDS = {"always": MILLION, "self": 0, "court": 0}
"""Words in place of a share, with their rates in millionths: checks by oneself or by the court need no drawn ones."""


@dataclass(frozen=True, slots=True)
class CheckWish:
    """How answers are checked: by lot at ``rate`` millionths, and "self" or "court" beside it.

    A rate below the class's smallest is raised to it, since the class's penalty deters only from that rate on.
    """

    mode: str = "lot"
    rate: int = 0

    @classmethod
    def read(cls, text: str) -> CheckWish:
        """From "5%", "always", "self" or "court"; empty: at the class's own rate. ConfigurationError otherwise."""
        word = text.strip().lower()
        if word in WORDS:
            return cls("lot" if word == "always" else word, WORDS[word])
        match = _SHARE.fullmatch(word)
        rate = int(match[1]) * 10_000 + int((match[2] or "").ljust(4, "0")) if match else 0
        if word and not 0 < rate <= MILLION:
            raise ConfigurationError("This is no way to check an answer", text[:40], "Use 5%, always, self or court.")
        return cls("lot", rate)


@dataclass(frozen=True, slots=True)
class PriceLimit:
    """The most that a position may cost, in asset units per 10^9; None: any."""

    prompt: int | None = None
    written: int | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """One question's answer as it is wanted; ``choices.max_cost`` in the asset's smallest unit.

    ``state``: the state behind the last token is wanted, too (``last_state``). ``asset``: in which amounts are shown.
    """

    choices: SamplingChoices
    check: CheckWish = CheckWish()
    price: PriceLimit = PriceLimit()
    state: bool = False
    asset: Asset = COIN
