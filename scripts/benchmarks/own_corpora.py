"""How long a member's own corpus lasts: whether lists that it writes late are told from users' prompts.

Corpora of different sizes and users are drawn from one pool, the prompts that ship and those that are kept out, which
people typed all alike; no text is in two of them. The member writes lists of 200 and none of its prompts twice, those
that the rule of seven members leaves to it. Seven lists in a row are looked at together, up to the one that is named,
as a node sees lists of seven members; a classifier learns from one half's lists and users, and is asked about the
other half's, both ways round (`indistinguishable`).
"""

from __future__ import annotations

import math
import random
import sys
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.figures import Figure
from benchmarks.indistinguishable import CHANCE, LIST, MEMBERS, REACH, WAYS, across, kept_out, may_write, paired
from troth.committee.corpus.prompts import prompts_of
from troth.committee.corpus.texts import Corpus, shipped
from troth.protocol.types import Address, address_to_bytes

SIZES, USERS, SECRETS = (250, 500, 750), 250, 4
"""Texts of a corpus; users' prompts in each half; secrets of which everything is drawn."""
LISTS = {250: (5, 10, 20, 40), 500: (10, 20, 40), 750: (7, 20, 40)}
"""Which lists of a corpus of each size are looked at."""


def measure() -> Iterator[Figure]:
    """Per cent of pairs told apart, for each size, list and way of looking."""
    for size in SIZES:
        found = [dict(_with_secret(size, secret)) for secret in range(SECRETS)]
        for what in found[0]:
            told = [each[what][0] for each in found]
            pairs = sum(each[what][1] for each in found)
            error = float(np.std(told, ddof=1)) / math.sqrt(SECRETS)
            note = f"standard error {error:.1f}; {pairs} pairs; {SECRETS} secrets: {min(told):.1f} to {max(told):.1f}"
            yield Figure(what, float(np.mean(told)), "%", paper=CHANCE, reach=REACH, note=note)


def _with_secret(size: int, secret: int) -> Iterator[tuple[str, tuple[float, int]]]:
    """What is looked at, with per cent of pairs that are told apart and their number."""
    print(f"lists of {size} texts, secret {secret + 1} of {SECRETS}", file=sys.stderr, flush=True)
    pool = [*shipped().texts, *kept_out()]
    random.Random(f"pool {secret}").shuffle(pool)  # noqa: S311 - a reproducible measurement
    users, rest = (pool[:USERS], pool[USERS : 2 * USERS]), pool[2 * USERS :]
    member = MEMBERS[secret % len(MEMBERS)]
    corpora = [Corpus.of(rest[:size]), Corpus.of(rest[size : 2 * size])]
    for way, told in _told([texts.texts for texts in corpora], users):
        yield f"a corpus of {size} as it was typed told by {way}, of pairs", told
    halves = [_late(corpus, member, bytes([half, secret]), LISTS[size]) for half, corpus in enumerate(corpora)]
    for number, written in zip(LISTS[size], zip(*halves, strict=True), strict=True):
        for way, told in _told(written, users):
            yield f"list {number} of a corpus of {size} of the member's own told by {way}, of pairs", told


def _told(written: Sequence[Sequence[str]], users: Sequence[Sequence[str]]) -> Iterator[tuple[str, tuple[float, int]]]:
    """For each way of looking, per cent of pairs that are told apart, and their number."""
    pairs = [paired(lists, half) for lists, half in zip(written, users, strict=True)]
    ours, theirs = [one for one, _ in pairs], [one for _, one in pairs]
    for way, learn in WAYS.items():
        yield way, (across(ours, theirs, learn), sum(map(len, ours)))


def _late(corpus: Corpus, member: Address, seed: bytes, numbers: Sequence[int]) -> Iterator[list[str]]:
    """The prompts of lists up to each number, in an order that says nothing."""
    known, last = set[str](), deque[tuple[str, ...]](maxlen=len(MEMBERS))
    for number in range(1, max(numbers) + 1):
        drawn = address_to_bytes(member) + seed + bytes([number])
        last.append(prompts_of(drawn, LIST, may_write(member, known), corpus=corpus))
        known.update(last[-1])
        if number in numbers:
            together = [text for each in last for text in each]
            random.Random(drawn).shuffle(together)  # noqa: S311 - a reproducible measurement
            yield together
