"""Names, times and numbers of a text, and what stands in for them: what other texts have in such a place, as often as
they have it.

People type some cities, years and sums more often than others, and round ones most of all. A number that is drawn
evenly is known by that: words and groups of characters told 58 per cent of pairs of a text with such numbers and one as
it was typed, and 51 where they are drawn as other texts have them (`scripts/bench committee`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

FEWEST_NAMES, FEWEST_NUMBERS = 3, 5
"""Different names that came after a word, and numbers that stood in such a place, from which on one stands in for
another."""
TIMES = tuple(
    tuple(names.split())
    for names in (
        "January February March April May June July August September October November December",
        "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    )
)
ENDINGS = {"1": "st", "2": "nd", "3": "rd"}
"""Of ordinals; all others end in th."""
_NAME = re.compile(r"\b(in|near|from|by|around|visit|visiting|called|named) ([A-Z][a-z]{2,}(?: [A-Z][a-z]{2,})*)")
_TIME = re.compile(r"\b(" + "|".join(name for names in TIMES for name in names) + r")\b")
_NUMBER = re.compile(r"(\d+)(?:(st|nd|rd|th)\b)?")

Place = tuple[str, ...]
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class StandIns:
    """What texts have: names by the word that they came after, times by which of ``TIMES`` they are of, numbers by
    their place. Each is there as often as it was found: who is asked in Paris may be in Rome, and seldom in Vaduz."""

    names: dict[str, tuple[str, ...]]
    times: tuple[tuple[str, ...], ...]
    numbers: dict[Place, tuple[str, ...]]

    @classmethod
    def of(cls, texts: Iterable[str]) -> StandIns:
        """What can be known of some texts."""
        names, numbers = dict[str, list[str]](), dict[Place, list[str]]()
        times: tuple[list[str], ...] = tuple(list(each) for each in TIMES)
        for text in texts:
            for before, name in _NAME.findall(text):
                if not _TIME.search(name):
                    names.setdefault(before, []).append(name)
            for time in _TIME.findall(text):
                next(found for found, each in zip(times, TIMES, strict=True) if time in each).append(time)
            for number in _NUMBER.finditer(text):
                for place in _places(number):
                    numbers.setdefault(place, []).append(number[0])
        return cls(_of_many(names, FEWEST_NAMES), tuple(map(tuple, times)), _of_many(numbers, FEWEST_NUMBERS))

    def renamed(self, text: str, chooser: random.Random) -> str:
        """A text with other names, times and numbers, each of the kind that it stands for."""

        def named(found: re.Match[str]) -> str:
            before, name = found.groups()
            if _TIME.search(name):
                return found[0]
            return f"{before} {chooser.choice(self.names.get(before, (name,)))}"

        def timed(found: re.Match[str]) -> str:
            return chooser.choice(next(seen for seen, each in zip(self.times, TIMES, strict=True) if found[0] in each))

        def numbered(found: re.Match[str]) -> str:
            place = next(filter(self.numbers.__contains__, _places(found)), None)
            return _renumbered(found, chooser) if place is None else chooser.choice(self.numbers[place])

        replacements: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
            (_NAME, named),
            (_TIME, timed),
            (_NUMBER, numbered),
        )
        for pattern, other in replacements:
            text = pattern.sub(other, text)
        return text


def _of_many(found: dict[_Key, list[str]], fewest: int) -> dict[_Key, tuple[str, ...]]:
    return {key: tuple(seen) for key, seen in found.items() if len(set(seen)) >= fewest}


def _places(found: re.Match[str]) -> Iterator[Place]:
    """Where a number stands, first as it is told more closely: its kind with the characters around it, its kind."""
    text, (start, end) = found.string, found.span()
    kind = _kind(found[1]) + (" ordinal" if found[2] else "")
    yield kind, text[start - 1 : start], text[end : end + 1]
    yield (kind,)


def _kind(digits: str) -> str:
    """Years, hours or months, days, minutes; all others by their length; what begins with a naught by itself."""
    if len(digits) == 4 and digits[:2] in {"19", "20"}:
        return "year"
    if digits[0] == "0" or len(digits) > 2:
        return f"{digits[0] == '0'} {len(digits)}"
    return "hour" if int(digits) <= 12 else "day" if int(digits) <= 31 else "minute"


# ---- where too few have been seen


def _renumbered(found: re.Match[str], chooser: random.Random) -> str:
    """Another number, with the ending that an ordinal of it has."""
    made = _number(found[1], chooser)
    if found[2] is None:
        return made
    return made + ("th" if made[-2:-1] == "1" else ENDINGS.get(made[-1], "th"))


def _number(digits: str, chooser: random.Random) -> str:
    made = str(chooser.choice(_numbers(digits)))
    return made.zfill(len(digits)) if digits[0] == "0" else made


def _numbers(digits: str) -> range:
    """Numbers that could stand there: years, hours or months, days or minutes, or all that are as long."""
    value = int(digits)
    if len(digits) == 4 and digits[:2] in {"19", "20"}:
        return range(max(1950, value - 8), value + 3)
    if len(digits) <= 2 and value <= 31:
        return range(min(1, value), 13 if value <= 12 else 29)
    return range(10 ** (len(digits) - 1), 10 ** len(digits))
