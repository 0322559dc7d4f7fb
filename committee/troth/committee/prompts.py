"""Prompts of challenges: seeded, of users' lengths, each written once.

Texts that people typed get other names and numbers. A text that was asked in every form that it has, or that is another
member's in each, gets the end of another. Lengths are those of ShareGPT's prompts (Kwon et al., SOSP 2023, figure 11):
a text that is about as long as was drawn, or where there are too few, several about the same, one after another.
"""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Callable, Iterator

from troth.committee.corpus import Corpus, shipped
from troth.committee.errors import MemberConfigurationInvalid

MEAN_TOKENS, SPREAD, TOKEN_CHARACTERS = 161.31, 1.0, 4.2
"""Of prompts: mean, the standard deviation of the logarithm, and characters of a token."""
LONGEST = 8_600
"""Characters."""
TRIES, DRAWN = 1_000, 6
"""Texts that are written until one may be asked, which of 64 members each may of one in 64; texts of which one is
chosen that has to do with another."""
ENOUGH = 24
"""Texts of about a length, of which one is chosen: where there are fewer, everybody would ask the same."""
REWRITTEN, EXCHANGED = 4, 60
"""Forms of one text that are tried before another is: with names and numbers alone, and with another text's end."""
REACH, LEAST_REACH = 0.2, 4
"""How far a text may be from the length that was drawn: as part of it, and in characters."""
JOINED = {" ": 3, "\n": 1}
"""What stands between two texts, and how often."""


def prompts_of(
    seed: bytes, count: int, is_ours: Callable[[str], bool], longest: int = LONGEST, corpus: Corpus | None = None
) -> tuple[str, ...]:
    """``count`` different prompts of ``longest`` characters at most, of those that ``is_ours`` says may be asked.

    Whoever does not know the secret seed cannot guess them; the same seed and corpus write the same. ``corpus`` is by
    default the one that ships.

    Raises:
        MemberConfigurationInvalid: the corpus has nothing new that is short enough.
    """
    chooser, found, source = random.Random(seed), dict[str, None](), corpus or shipped()  # noqa: S311 - a secret seed
    places = [place for place, text in enumerate(source.texts) if len(text) <= longest]
    if not places:
        what = f"The corpus has no prompt of {longest} characters or fewer"
        raise MemberConfigurationInvalid(what, len(source.texts), "Raise reputation.characters, or add short ones.")
    writer = _Writer(chooser, source, places, longest)
    for _ in range(count):
        text, place = next(one for one in writer.written() if one[0] not in found and is_ours(one[0]))
        writer.take(place)
        found[text] = None
    return tuple(found)


class _Writer:
    """Writes prompts of some of a corpus's texts."""

    def __init__(self, chooser: random.Random, corpus: Corpus, places: list[int], longest: int) -> None:
        self._chooser, self._corpus, self._longest = chooser, corpus, longest
        self._places = sorted(places, key=lambda place: len(corpus.texts[place]))
        self._lengths = [len(corpus.texts[place]) for place in self._places]
        self._taken: set[int] = set()

    def written(self) -> Iterator[tuple[str, int | None]]:
        """One after another, with the place of a text that is there by itself; raises MemberConfigurationInvalid after
        many."""
        for _ in range(TRIES):
            for text, place in self._forms():
                if len(text) <= self._longest:
                    yield text, place
        what = f"No new prompt came of {TRIES}"
        raise MemberConfigurationInvalid(what, len(self._places), "Name a larger corpus: reputation.corpus.")

    def take(self, place: int | None) -> None:
        """Never write this text by itself again."""
        if place is not None:
            self._taken.add(place)

    def _forms(self) -> Iterator[tuple[str, int | None]]:
        """Forms of one text of a length that is drawn: none is left out because others have more of them."""
        wanted = self._chooser.lognormvariate(math.log(MEAN_TOKENS) - SPREAD**2 / 2, SPREAD) * TOKEN_CHARACTERS
        wanted = min(self._longest, wanted)
        near = self._near(wanted)
        if not near:
            yield self._joined(wanted), None
            return
        place, reach = self._chooser.choice(near), _reach(wanted)
        for _ in range(REWRITTEN):
            yield self._corpus.rewritten(place, self._chooser), place
        for _ in range(EXCHANGED):
            text = self._corpus.exchanged(place, self._chooser)
            if text is not None and abs(len(text) - wanted) <= reach:
                yield text, place

    def _near(self, wanted: float) -> list[int]:
        """Texts of about a length that were not taken by themselves yet: one that comes twice would be known again."""
        reach = _reach(wanted)
        first, end = bisect.bisect_left(self._lengths, wanted - reach), bisect.bisect(self._lengths, wanted + reach)
        found = [place for place in self._places[first:end] if place not in self._taken]
        return found if len(found) >= ENOUGH else []

    def _joined(self, wanted: float) -> str:
        """Several texts about the same, until they are as long."""
        first = self._chooser.choice(self._places)
        told, used = self._corpus.rewritten(first, self._chooser), {first}
        while fresh := [place for place in self._chooser.choices(self._places, k=DRAWN) if place not in used]:
            place = self._corpus.akin(first, fresh)
            more = self._corpus.rewritten(place, self._chooser)
            # As often a little too long as a little too short.
            if len(more) > 2 * (wanted - len(told)) or len(told) + len(more) >= self._longest:
                break
            told += self._chooser.choices(list(JOINED), list(JOINED.values()))[0] + more
            used.add(place)
        return told


def _reach(wanted: float) -> float:
    return max(LEAST_REACH, REACH * wanted)
