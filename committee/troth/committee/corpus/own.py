"""A corpus of a member's own: made of prompts that it has, with what was left out and why, and how long it lasts.

Nobody can look up what nobody else has. So what stands in the corpus that ships is left out, and what is there already
but for numbers, capitals and marks; and, since nodes get to read it, what may be somebody's address or number.
"""

from __future__ import annotations

import bisect
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.chain.new_files import create_file
from troth.committee.corpus.prompts import LONGEST, sources_of
from troth.committee.corpus.texts import FEWEST, LARGEST, Corpus, shipped
from troth.committee.corpus.wear import USES, lists_of, prompts_of_list
from troth.committee.errors import MemberConfigurationInvalid

SHORTEST = 3
"""Characters."""
PRIVATE = re.compile(r"@|https?:|www\.|\d{7}|[0-9a-f]{16}", re.IGNORECASE)
"""What may be somebody's: addresses, and long numbers."""
GROUP, KNOWN, MOST_KNOWN = 3, 0.5, 0.1
"""A text is known where this part of its groups of so many words stand in the corpus that ships; and which part of a
member's texts may be before it is warned."""
TOLD = 95.6
"""Per cent of pairs of a challenge and a user's prompt that are told apart by looking texts up in the corpus that
ships, where the challenge is made of it (`scripts/bench committee`)."""
MAKE_ONE = (
    "Give it one of prompts that people typed and nobody else has, at least "
    f"{FEWEST}, better 1,000: troth committee reputation corpus FILES --output own.txt, then corpus = "
    '"own.txt" in [reputation] of committee.toml (docs/how-to/reputation.md)'
)
LANGUAGES = {
    "English": "the and is what how for with you are of my can please find want",
    "German": "der die das und ist wie ich nicht mit ein",
    "French": "le la les et est une pour dans je que",
    "Spanish": "el los es una para por con como en que",
    "Italian": "il gli che di una per sono come della non",
    "Portuguese": "o os que uma para com como não em do",
}
"""Frequent words. A text is in the language that most of its frequent words are of."""
SCRIPTS = {
    "Cyrillic": "\u0400-\u04ff", "Greek": "\u0370-\u03ff", "Hebrew": "\u0590-\u05ff", "Arabic": "\u0600-\u06ff",
    "Devanagari": "\u0900-\u097f", "Thai": "\u0e00-\u0e7f", "Korean": "\uac00-\ud7af", "Japanese": "\u3040-\u30ff",
    "Chinese": "\u4e00-\u9fff",
}  # fmt: skip
MET, MOST_MET = (0.1, 0.5), 10**7
"""Parts of a member's challenges of which it is said when a node has met them before, and how many it can meet."""
UNTOLD = "not told"


@dataclass(frozen=True, slots=True)
class AskingPlan:
    """How much a committee asks in an epoch: who must share it, and what one member asks by itself."""

    nodes: int = 50
    members: int = 7
    prompts: int = 4
    attempts: int = 6

    @property
    def at_a_node(self) -> float:
        """Of a member's prompts, how many a node gets in an epoch on average: a leader's, and members' own."""
        return self.prompts / self.members + self.attempts / self.nodes

    @property
    def written(self) -> float:
        """Prompts that a member writes in an epoch on average: lists of the epochs that it leads, and its own."""
        return prompts_of_list(self.prompts, self.nodes) / self.members + self.attempts


@dataclass(frozen=True, slots=True)
class Sifted:
    """Texts that are kept, and how many were left out for which reason."""

    texts: tuple[str, ...]
    left_out: dict[str, int]


def sifted(texts: Iterable[str]) -> Sifted:
    """Each text once that says nothing of anybody, and that the corpus that ships does not have."""
    kept, left_out, shapes, known = list[str](), Counter[str](), set[str](), _KnownTexts(shipped())
    for text in filter(None, (each.replace("\r", "").strip() for each in texts)):
        shape = _without_marks(text)
        if len(text) < SHORTEST or not shape:
            left_out["too short"] += 1
        elif len(text) > LONGEST:
            left_out["too long"] += 1
        elif PRIVATE.search(text):
            left_out["with an address or a long number"] += 1
        elif shape in shapes:
            left_out["there already"] += 1
        elif known.has(text):
            left_out["in the corpus that ships"] += 1
        else:
            shapes.add(shape)
            kept.append(text)
    return Sifted(tuple(kept), dict(left_out))


def make_corpus(texts: Iterable[str], path: Path, plan: AskingPlan) -> dict[str, Any]:
    """Write a corpus, mode 0600, and say what it is.

    Raises:
        MemberConfigurationInvalid: there are too few texts or too many, or there is a file already.
    """
    found = sifted(texts)
    why = ", ".join(f"{count} {reason}" for reason, count in found.left_out.items()) or "none"
    if len(found.texts) < FEWEST:
        what = f"A corpus has at least {FEWEST} different prompts; left out: {why}"
        raise MemberConfigurationInvalid(what, len(found.texts), "Give more prompts that people typed.")
    content = "".join(text.replace("\n", "\\n") + "\n" for text in found.texts).encode()
    if len(content) > LARGEST:
        raise MemberConfigurationInvalid(f"A corpus has at most {LARGEST} bytes", len(content), "Give fewer prompts.")
    try:
        create_file(path, content)
    except OSError as error:
        remedy = "Choose another --output, in a folder that there is."
        raise MemberConfigurationInvalid(f"The corpus cannot be written: {error}", path, remedy) from error
    corpus = Corpus.of(found.texts)
    lengths, sources = sorted(map(len, corpus.texts)), sources_of(corpus)
    joined = sum(len(texts) > 1 for texts in sources) / len(sources)
    return {
        "file": str(path),
        "prompts": len(corpus.texts),
        "left_out": dict(sorted(found.left_out.items())),
        "languages": languages_of(corpus.texts),
        "characters": f"{lengths[0]} to {lengths[-1]}, half of them below {lengths[len(lengths) // 2]}",
        "joined": f"{joined:.0%} of challenges are several of these texts, since few are as long: give long ones, too",
        "met_again": met_again(sources, plan),
        "lasts": _lasting(len(corpus.texts), plan),
        "next": 'corpus = "…" in [reputation] of committee.toml, below the member\'s home; then start the member again',
    }


def _lasting(texts: int, plan: AskingPlan) -> str:
    """For how many lists and epochs."""
    listed = prompts_of_list(plan.prompts, plan.nodes)
    epochs = USES * texts / plan.written
    return (
        f"{lists_of(texts, listed)} lists of {listed} prompts, {epochs:.0f} epochs; then nodes tell them by their form"
    )


def met_again(sources: Sequence[Sequence[int]], plan: AskingPlan) -> dict[str, str]:
    """After how many epochs a node has met a text of so many of a member's challenges before, as is expected.

    A text comes again with other names and numbers, or with another end; a node may know it all the same.

    Args:
        sources: of which texts each of some challenges is made.
    """
    used = Counter(text for texts in sources for text in texts)
    unmet = [math.prod(1 - used[text] / len(sources) for text in texts) for texts in sources]

    def after(part: float) -> str:
        first = bisect.bisect_left(range(MOST_MET), part, key=lambda count: 1 - _mean_power(unmet, count))
        return f"after {math.ceil(first / plan.at_a_node)} epochs"

    return {f"{part:.0%} of its challenges": after(part) for part in MET}


def _mean_power(bases: Sequence[float], exponent: int) -> float:
    return sum(base**exponent for base in bases) / len(bases)


def languages_of(texts: Iterable[str]) -> dict[str, int]:
    """How many texts are in which language or script, the most frequent first."""
    return dict(Counter(map(_language, texts)).most_common())


def said_of(corpus: Corpus | None) -> str:
    """One line on what a member makes its challenges of, for its status."""
    if corpus is None:
        return f"the corpus that ships: looking them up, a node tells {TOLD} % of them from users' prompts"
    return f"its own, {len(corpus.texts)} prompts, {_known_part(corpus):.0%} of them in the corpus that ships"


def warning_of(corpus: Corpus | None) -> str | None:
    """What is wrong with a member's corpus, and what to do; None where nothing is."""
    if corpus is not None and _known_part(corpus) <= MOST_KNOWN:
        return None
    return f"challenges are made of {said_of(corpus)}. {MAKE_ONE}"


def _known_part(corpus: Corpus) -> float:
    known = _KnownTexts(shipped())
    return sum(map(known.has, corpus.texts)) / len(corpus.texts)


class _KnownTexts:
    """What anybody can look up."""

    def __init__(self, corpus: Corpus) -> None:
        self._groups = {group for text in corpus.texts for group in _groups(text)}

    def has(self, text: str) -> bool:
        """Whether a text, or a good part of it, stands there."""
        found = _groups(text)
        return sum(group in self._groups for group in found) >= KNOWN * len(found)


def _groups(text: str) -> list[tuple[str, ...]]:
    """Groups of a text's words, or all of a short one."""
    words = tuple(_without_marks(text).split())
    return [words[at : at + GROUP] for at in range(len(words) - GROUP + 1)] or [words]


def _without_marks(text: str) -> str:
    """Words in small letters; a naught for each number."""
    return " ".join(re.sub(r"\d+", "0", re.sub(r"[^\w\s]|_", "", text.lower())).split())


def _language(text: str) -> str:
    scripts = {name: len(re.findall(f"[{span}]", text)) for name, span in SCRIPTS.items()}
    if 2 * sum(scripts.values()) > sum(map(str.isalpha, text)):
        # Japanese texts have Chinese characters, too.
        return "Japanese" if scripts["Japanese"] else max(scripts, key=lambda name: scripts[name])
    words = text.lower().split()
    counted = {name: sum(word in frequent.split() for word in words) for name, frequent in LANGUAGES.items()}
    best = max(counted, key=lambda name: counted[name])
    return best if counted[best] else UNTOLD
