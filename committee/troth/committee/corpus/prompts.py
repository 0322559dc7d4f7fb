"""Prompts of challenges: seeded, of users' lengths, each written once.

Texts that people typed get other names and numbers. A text that was asked in every form that it has, or that is another
member's in each, gets other words between two of its own, or the end of another. Lengths are those of ShareGPT's
prompts (Kwon et al., SOSP 2023, figure 11): a text that is about as long as was drawn, or where there are too few,
several about the same, one after another.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Callable

from troth.committee.corpus.texts import Corpus, shipped
from troth.committee.errors import MemberConfigurationInvalid

MEAN_TOKENS, SPREAD, TOKEN_CHARACTERS = 161.31, 1.0, 4.2
"""Of prompts: mean, the standard deviation of the logarithm, and characters of a token."""
LONGEST = 8_600
"""Characters."""
MOST_PROMPTS = 1_024
"""Of one list."""
PARTS = 2
"""The leader whom the last leader's VRF draws, and the one whom the seed draws: each has prompts of its own."""
TRIES, DRAWN = 200, 6
"""Lengths that are drawn until a prompt of one may be asked; texts of which one is chosen that has to do with
another."""
SAMPLED = 2_000
"""Prompts by which uses of texts are counted."""
ENOUGH = 24
"""Texts of about a length, of which one is chosen: where there are fewer, everybody would ask the same."""
REWRITTEN, FORMS, CHOICE, LIKEST = 4, 60, 4, 8
"""Forms of one text that are tried: with names and numbers alone; with other words, or another text's end, of which so
many are chosen from; and texts that are tried."""
SWAPS = (1, 2, 4)
"""How many times other words are put between two, one after the other until a text came of it."""
QUESTION = 0.05
"""What a question mark at the end counts, beside shares of characters."""
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
        found[writer.write(lambda text: text not in found and is_ours(text))] = None
    return tuple(found)


def sources_of(corpus: Corpus) -> list[list[int]]:
    """Of which texts, by their places, each of some prompts would be made: a sample that is the same each time."""
    chooser = random.Random("sources")  # noqa: S311 - a reproducible sample
    writer = _Writer(chooser, corpus, list(range(len(corpus.texts))), LONGEST)
    return [writer.sources() for _ in range(SAMPLED)]


class _Writer:
    """Writes prompts of some of a corpus's texts."""

    def __init__(self, chooser: random.Random, corpus: Corpus, places: list[int], longest: int) -> None:
        self._chooser, self._corpus, self._longest = chooser, corpus, longest
        self._places = sorted(places, key=lambda place: len(corpus.texts[place]))
        self._lengths = [len(corpus.texts[place]) for place in self._places]
        self._of_kind: dict[bool, list[int]] = {False: [], True: []}
        for place in self._places:
            self._of_kind[_is_numbered(corpus.texts[place])].append(place)
        self._taken: set[int] = set()
        self._shapes: dict[int, tuple[float, ...]] = {}

    def write(self, may: Callable[[str], bool]) -> str:
        """A prompt that ``may`` be asked; raises MemberConfigurationInvalid after many that may not.

        A length is drawn, and a text of it, and then forms are tried. Were all drawn anew each time, what has few forms
        would be asked less often than people ask it, and lists would be known by that.
        """
        for _ in range(TRIES):
            wanted = self._length()
            text = self._of_length(wanted, lambda text: len(text) <= self._longest and may(text))
            if text is not None:
                return text
        what = f"No new prompt came of {TRIES}"
        raise MemberConfigurationInvalid(what, len(self._places), "Name a larger corpus: reputation.corpus.")

    def sources(self) -> list[int]:
        """Places of texts for one prompt: one that is as long, or as many as fit where there are too few."""
        wanted = self._length()
        near = self._near(wanted)
        if near:
            return [self._chooser.choice(near)]
        mean = sum(self._lengths) / len(self._lengths)
        count = min(len(self._places), max(1, round(wanted / mean)))
        return self._chooser.sample(self._places, count)

    def _length(self) -> float:
        """A length in characters, as users' prompts have them."""
        drawn = self._chooser.lognormvariate(math.log(MEAN_TOKENS) - SPREAD**2 / 2, SPREAD) * TOKEN_CHARACTERS
        return min(self._longest, drawn)

    def _of_length(self, wanted: float, may: Callable[[str], bool]) -> str | None:
        near = self._near(wanted)
        if not near:
            return next(filter(may, (self._joined(wanted) for _ in range(FORMS))), None)
        drawn = self._chooser.choice(near)
        shape, traits = self._shape_of(drawn), _traits(self._corpus.texts[drawn])

        def alike(text: str) -> bool:
            return _traits(text) == traits and may(text)

        # The text that was drawn comes first, and then those that look most like it.
        likest = sorted(near, key=lambda one: _apart(shape, self._shape_of(one)))[:LIKEST]
        # What has numbers has more forms. Were any form as good, more would have numbers from list to list.
        for allowed, place in itertools.product((alike, may), likest):
            text = self._form(place, wanted, allowed)
            if text is not None:
                # A text that came twice in a list by itself would be known again.
                self._taken.add(place)
                return text
        return None

    def _form(self, place: int, wanted: float, may: Callable[[str], bool]) -> str | None:
        """A text with other names and numbers, or of some with other words, or with another's end, the likest."""
        for text in (self._corpus.rewritten(place, self._chooser) for _ in range(REWRITTEN)):
            if may(text):
                return text
        reach, shape, found = _reach(wanted), self._shape_of(place), list[str]()
        for times in itertools.chain.from_iterable(itertools.repeat(times, FORMS) for times in SWAPS):
            text = self._corpus.swapped(place, self._chooser, times)
            if abs(len(text) - wanted) <= reach and may(text):
                found.append(text)
            if len(found) == CHOICE:
                break
        if found:
            return min(found, key=lambda one: _apart(shape, _shape(one)))
        for _ in range(FORMS):
            text = self._corpus.exchanged(place, self._chooser) or ""
            if text and abs(len(text) - wanted) <= reach and may(text):
                found.append(text)
            if len(found) == CHOICE:
                break
        return min(found, key=lambda one: _apart(shape, _shape(one)), default=None)

    def _shape_of(self, place: int) -> tuple[float, ...]:
        if place not in self._shapes:
            self._shapes[place] = _shape(self._corpus.texts[place])
        return self._shapes[place]

    def _near(self, wanted: float) -> list[int]:
        """Texts of about a length that were not taken by themselves yet; none where there are few."""
        reach = _reach(wanted)
        first, end = bisect.bisect_left(self._lengths, wanted - reach), bisect.bisect(self._lengths, wanted + reach)
        found = [place for place in self._places[first:end] if place not in self._taken]
        return found if len(found) >= ENOUGH else []

    def _joined(self, wanted: float) -> str:
        """Several texts about the same, until they are as long; all of them with numbers, or none.

        Of any three texts one has a number more often than one text that is as long.
        """
        first = self._chooser.choice(self._places)
        told, used = self._corpus.rewritten(first, self._chooser), {first}
        alike = self._of_kind[_is_numbered(self._corpus.texts[first])]
        while fresh := [place for place in self._chooser.choices(alike, k=DRAWN) if place not in used]:
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


def _is_numbered(text: str) -> bool:
    return any(map(str.isdigit, text))


def _traits(text: str) -> tuple[bool, ...]:
    """Whether a text has numbers and capitals, and is a question."""
    return _is_numbered(text), any(map(str.isupper, text)), text.rstrip().endswith("?")


def _shape(text: str) -> tuple[float, ...]:
    """How a text looks: shares of digits, capitals, marks and spaces, and whether it ends with a question mark."""
    counts = (
        sum(map(str.isdigit, text)),
        sum(map(str.isupper, text)),
        sum(not one.isalnum() and not one.isspace() for one in text),
        sum(map(str.isspace, text)),
    )
    return (*(count / len(text) for count in counts), QUESTION * text.rstrip().endswith("?"))


def _apart(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    return sum(abs(one - other) for one, other in zip(first, second, strict=True))
