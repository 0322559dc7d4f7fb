"""Texts that people typed, of which challenges are made: read, and written again with other names, numbers,
words and ends.

A corpus is a file with one prompt a line, in which `\\n` is a line break. One ships, with a notice
that says whose it is; a member may have one of its own, which nobody else can look up.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from troth.committee.corpus.stand_ins import StandIns
from troth.committee.errors import MemberConfigurationInvalid

FEWEST = 200
"""Texts of a member's own corpus: with fewer, whoever saw some prompts has seen most of it."""
LARGEST = 16 * 2**20
"""Bytes of a corpus."""
EDGE = "\n"
"""Stands for the word before a text's first, and after its last."""
COMMON = 0.05
"""A word in more than this part of the texts says nothing of what a text is about."""
_WORD = re.compile(r"[^\W\d_]{3,}")
_PIECE = re.compile(r"\s*\S+\s*?(?=\s|$)")
JOINT_WORDS = (2, 1)
"""How many words two texts have to have in common, if possible, where one goes on as the other."""
PARTNERS, LEAST_OWN = 6, 1
"""Texts of which the one is chosen that has to do with another; words that each must have of its own."""
BETWEEN = (1, 2)
"""How many words may stand between two, where others stand between the same two elsewhere."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts, what each is about, and what stands in for names, times and numbers of one: what others have there.

    ``pieces`` are a text's words with the spaces before them, ``plain`` the same without them and in small letters;
    ``joints`` say in which texts, and where, one or two words stand that others have as well; ``gaps`` where something
    stands between two words between which others have something else: its first word, and how many there are.
    """

    texts: tuple[str, ...]
    about: tuple[frozenset[str], ...]
    stand_ins: StandIns
    pieces: tuple[tuple[str, ...], ...]
    plain: tuple[tuple[str, ...], ...]
    joints: dict[tuple[str, ...], tuple[tuple[int, int], ...]]
    gaps: dict[tuple[str, str], tuple[tuple[int, int, int], ...]]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Corpus:
        """What can be known of some texts; each is there once."""
        kept = tuple(dict.fromkeys(text for text in texts if text.strip()))
        words = [frozenset(map(str.lower, _WORD.findall(text))) for text in kept]
        counted = Counter(word for found in words for word in found)
        common = {word for word, count in counted.items() if count > COMMON * len(kept)}
        pieces = tuple(tuple(_PIECE.findall(text)) for text in kept)
        plain = tuple(tuple(piece.strip().lower() for piece in found) for found in pieces)
        joints: dict[tuple[str, ...], list[tuple[int, int]]] = {}
        for place, found_ in enumerate(plain):
            for size in JOINT_WORDS:
                for at in range(len(found_) - size + 1):
                    joints.setdefault(found_[at : at + size], []).append((place, at))
        shared = {joint: tuple(where) for joint, where in joints.items() if len({place for place, _ in where}) > 1}
        about = tuple(found - common for found in words)
        return cls(kept, about, StandIns.of(kept), pieces, plain, shared, _gaps(plain))

    def akin(self, place: int, among: Sequence[int]) -> int:
        """Of some texts the one that has most to do with a text: which shares most of its words with it."""
        mine = self.about[place]
        return max(among, key=lambda other: len(mine & self.about[other]) / (1 + len(self.about[other])))

    def exchanged(self, place: int, chooser: random.Random) -> str | None:
        """A text that ends as another one does from words on that both have; None where there is none.

        Begun as this one or as the other. Like every text that is written again, with other names and numbers.
        """
        for size in JOINT_WORDS:
            mine = self.plain[place]
            places = [at for at in range(LEAST_OWN, len(mine) - size) if mine[at : at + size] in self.joints]
            chooser.shuffle(places)
            for at in places:
                joined = self.joints[mine[at : at + size]]
                there = [one for one in joined if self._differ((place, at), one, size)]
                if there:
                    return self.stand_ins.renamed(self._spliced((place, at), there, size, chooser), chooser)
        return None

    def _spliced(
        self, mine: tuple[int, int], there: Sequence[tuple[int, int]], size: int, chooser: random.Random
    ) -> str:
        """Both texts at a joint, with the one of some of ``there`` that has most to do with this one."""
        drawn = dict(chooser.choices(there, k=PARTNERS))
        other = self.akin(mine[0], list(drawn))
        begun, ended = mine, (other, drawn[other])
        if chooser.random() < 0.5:
            begun, ended = ended, begun
        head, tail = self.pieces[begun[0]][: begun[1] + size], self.pieces[ended[0]][ended[1] + size :]
        return "".join((*head, *tail)).strip()

    def _differ(self, first: tuple[int, int], second: tuple[int, int], size: int) -> bool:
        """Whether two texts have words of their own before a joint, and after it."""
        (one, at), (other, where) = first, second
        mine, theirs = self.plain[one], self.plain[other]
        if min(at, where, len(mine) - at - size, len(theirs) - where - size) < LEAST_OWN:
            return False
        # Whoever has the same before or after it would come out as it is.
        return mine[:at] != theirs[:where] and mine[at + size :] != theirs[where + size :]

    def swapped(self, place: int, chooser: random.Random, times: int) -> str:
        """A text in which, so many times, other words stand between two: what others have there, as often.

        Everything else stays as it was typed. Like every text that is written again, with other names and numbers.
        """
        pieces, plain = list(self.pieces[place]), [EDGE, *self.plain[place], EDGE]
        for _ in range(times):
            gaps = [(first, last) for first, last in _gaps_of(plain) if (plain[first], plain[last]) in self.gaps]
            chooser.shuffle(gaps)
            for first, last in gaps:
                drawn = (chooser.choice(self.gaps[plain[first], plain[last]]) for _ in range(PARTNERS))
                found = ((there, slice(at, at + size)) for there, at, size in drawn)
                own = tuple(plain[first + 1 : last])
                other = next(((there, part) for there, part in found if self.plain[there][part] != own), None)
                if other is not None:
                    there, part = other
                    # The edge before a text is no piece of it.
                    pieces[first : last - 1] = self.pieces[there][part]
                    plain[first + 1 : last] = self.plain[there][part]
                    break
        return self.stand_ins.renamed("".join(pieces), chooser)

    def rewritten(self, place: int, chooser: random.Random) -> str:
        """A text with other names and numbers, each of the kind that it stands for."""
        return self.stand_ins.renamed(self.texts[place], chooser)


def _gaps_of(plain: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Places of two words between which one or two stand."""
    for size in BETWEEN:
        for first in range(len(plain) - size - 1):
            yield first, first + size + 1


def _gaps(texts: Sequence[tuple[str, ...]]) -> dict[tuple[str, str], tuple[tuple[int, int, int], ...]]:
    """Between which words something stands, and where, if it is not the same everywhere."""
    found: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    for place, words in enumerate(texts):
        plain = (EDGE, *words, EDGE)
        for first, last in _gaps_of(plain):
            found.setdefault((plain[first], plain[last]), []).append((place, first, last - first - 1))
    return {
        around: tuple(where)
        for around, where in found.items()
        if len({texts[place][at : at + size] for place, at, size in where}) > 1
    }


@cache
def shipped() -> Corpus:
    """The corpus of this package."""
    return Corpus.of(lines_of(resources.files("troth.committee.corpus").joinpath("prompts.txt").read_text("utf-8")))


def read_corpus(path: Path) -> Corpus:
    """A member's own corpus; raises MemberConfigurationInvalid."""
    remedy = "Write one prompt a line, in UTF-8, as people type them."
    try:
        if path.stat().st_size > LARGEST:
            raise MemberConfigurationInvalid(f"A corpus has at most {LARGEST} bytes", path, remedy)
        found = Corpus.of(lines_of(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise MemberConfigurationInvalid(f"The corpus of prompts cannot be read: {error}", path, remedy) from error
    if len(found.texts) < FEWEST:
        raise MemberConfigurationInvalid(f"A corpus has at least {FEWEST} different prompts", len(found.texts), remedy)
    return found


def lines_of(content: str) -> list[str]:
    """The texts of a file with one a line."""
    return [line.replace("\\n", "\n") for line in content.split("\n")]
