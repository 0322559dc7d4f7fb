"""Texts that people typed, of which challenges are made: read, and written again with other names and numbers.

A corpus is a file with one prompt a line, in which `\\n` is a line break. One ships, with a notice
that says whose it is; a member may have one of its own, which nobody else can look up.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from troth.committee.errors import MemberConfigurationInvalid

FEWEST = 200
"""Texts of a member's own corpus: with fewer, whoever saw some prompts has seen most of it."""
LARGEST = 16 * 2**20
"""Bytes of a corpus."""
COMMON = 0.05
"""A word in more than this part of the texts says nothing of what a text is about."""
FEWEST_NAMES = 3
"""Names that came after a word, from which on one stands in for another."""

TIMES = tuple(
    tuple(names.split())
    for names in (
        "January February March April May June July August September October November December",
        "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    )
)
_NAME = re.compile(r"\b(in|near|from|by|around|visit|visiting|called|named) ([A-Z][a-z]{2,}(?: [A-Z][a-z]{2,})*)")
_TIME = re.compile(r"\b(" + "|".join(name for names in TIMES for name in names) + r")\b")
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[^\W\d_]{3,}")


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts, what each is about, and names by the word that they came after: who is asked in Paris may be in Rome."""

    texts: tuple[str, ...]
    about: tuple[frozenset[str], ...]
    names: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Corpus:
        """What can be known of some texts; each is there once."""
        kept = tuple(dict.fromkeys(text for text in texts if text.strip()))
        words = [frozenset(map(str.lower, _WORD.findall(text))) for text in kept]
        counted = Counter(word for found in words for word in found)
        common = {word for word, count in counted.items() if count > COMMON * len(kept)}
        names: dict[str, dict[str, None]] = {}
        for text in kept:
            for before, name in _NAME.findall(text):
                if _TIME.search(name):
                    continue
                names.setdefault(before, {})[name] = None
        usable = {before: tuple(found) for before, found in names.items() if len(found) >= FEWEST_NAMES}
        return cls(kept, tuple(found - common for found in words), usable)

    def akin(self, place: int, among: Sequence[int]) -> int:
        """Of some texts the one that has most to do with a text: which shares most of its words with it."""
        mine = self.about[place]
        return max(among, key=lambda other: len(mine & self.about[other]) / (1 + len(self.about[other])))

    def rewritten(self, place: int, chooser: random.Random) -> str:
        """A text with other names and numbers, each of the kind that it stands for."""

        def renamed(found: re.Match[str]) -> str:
            before, name = found.groups()
            if _TIME.search(name):
                return found[0]
            return f"{before} {chooser.choice(self.names.get(before, (name,)))}"

        def another(found: re.Match[str]) -> str:
            return chooser.choice(next(names for names in TIMES if found[0] in names))

        named = _TIME.sub(another, _NAME.sub(renamed, self.texts[place]))
        return _NUMBER.sub(lambda found: _number(found[0], chooser), named)


@cache
def shipped() -> Corpus:
    """The corpus of this package."""
    return Corpus.of(_lines(resources.files("troth.committee").joinpath("texts", "prompts.txt").read_text("utf-8")))


def read_corpus(path: Path) -> Corpus:
    """A member's own corpus; raises MemberConfigurationInvalid."""
    remedy = "Write one prompt a line, in UTF-8, as people type them."
    try:
        if path.stat().st_size > LARGEST:
            raise MemberConfigurationInvalid(f"A corpus has at most {LARGEST} bytes", path, remedy)
        found = Corpus.of(_lines(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise MemberConfigurationInvalid(f"The corpus of prompts cannot be read: {error}", path, remedy) from error
    if len(found.texts) < FEWEST:
        raise MemberConfigurationInvalid(f"A corpus has at least {FEWEST} different prompts", len(found.texts), remedy)
    return found


def _lines(content: str) -> list[str]:
    return [line.replace("\\n", "\n") for line in content.split("\n")]


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
