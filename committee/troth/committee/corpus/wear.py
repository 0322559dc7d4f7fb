"""How worn a member's corpus is: how many prompts it made of each text, and from which list on nodes tell them.

A text has few forms. Once these were asked it gets words and ends of other texts, and lists come to look as no user's
prompts do. What counts is how many prompts were made of each text: twice as many texts last twice as long.
"""

from __future__ import annotations

from dataclasses import dataclass

from troth.committee.corpus.prompts import MOST_PROMPTS, PARTS

USES = 10
"""Prompts of each text after which lists are told in more than 52 per cent of pairs (`scripts/bench committee`)."""
AHEAD = 0.75
"""Which part of them was made when a member is warned."""


@dataclass(frozen=True, slots=True)
class CorpusWear:
    """Texts of a corpus, prompts that were made of each on average, and prompts of one list."""

    texts: int
    uses: float
    listed: int

    @property
    def first_told(self) -> int:
        """Number of the list, counted from the first of a fresh corpus, that nodes come to tell from users' prompts."""
        return int(USES * self.texts / self.listed) + 1

    @property
    def is_near(self) -> bool:
        """Whether another corpus has to be made soon."""
        return self.uses >= AHEAD * USES

    def __str__(self) -> str:
        written = self.uses * self.texts
        return (
            f"{written:,.0f} challenges made of {self.texts:,} texts, as many as {written / self.listed:.1f} lists of "
            f"{self.listed}; from list {self.first_told} on nodes come to tell them by their form"
        )

    @property
    def remedy(self) -> str:
        """What to do, and until when."""
        return (
            f"Before list {self.first_told}, make another corpus of prompts that are not in this one: troth committee "
            'reputation corpus FILES --output another.txt, then corpus = "another.txt" in [reputation] of '
            "committee.toml, and start the member again (docs/how-to/reputation.md)"
        )

    @property
    def warning(self) -> str | None:
        """What is said while there is time left, and afterwards; None before."""
        return f"the corpus wears out: {self}. {self.remedy}" if self.is_near else None


def prompts_of_list(prompts: int, nodes: int) -> int:
    """How many prompts a leader writes for a list: ``prompts`` for each node and each of the two who may lead."""
    return min(MOST_PROMPTS, PARTS * prompts * nodes)


def lists_of(texts: int, listed: int) -> int:
    """How many lists of so many prompts a fresh corpus is for."""
    return CorpusWear(texts, 0.0, listed).first_told - 1
