"""Whether a node can tell a member's challenge from a user's order: a classifier over what it sees of both.

Users are a stand-in: lengths of ShareGPT's requests, arrivals of a Poisson process (`pool/trace.py`), sampled plainly.
Members are the real thing: lists of an epoch for fifty nodes, asked when and how their salts say. A classifier
(`classifiers`) learns from half of the orders; of pairs of one challenge and one user's order in the other half it says
which is which. 50 % is chance.

For texts, users are prompts that people typed and that are in no corpus that ships (`scripts/make_prompt_corpus`), each
beside a challenge of its length. They are of the same source as the corpus: what is measured is what writing them
again changes, and not how the users of some network differ from those of that source. Three ways of looking are tried:
structure, groups of characters, and looking the text up in the corpus, which everybody has.

Lists that seven members write later, when much was asked already and every prompt has one member that may write it, are
looked at by structure and by words. Corpus and users are halved there: whoever learned from one half is asked about
challenges of the other, of which it knows no text. So it goes by what the generator does, and not by what texts say.
"""

from __future__ import annotations

import bisect
import math
import random
import sys
import zlib
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.classifiers import boosted, logistic, told_apart, worded
from benchmarks.figures import Figure
from benchmarks.trace import sharegpt
from troth.committee.corpus.prompts import MOST_PROMPTS, PARTS, TOKEN_CHARACTERS, prompts_of
from troth.committee.corpus.texts import Corpus, shipped
from troth.committee.rating.challenges import Challenge, PromptOpening, challenges_of, writer_of
from troth.committee.rating.moments import due_of_attempt, late_part
from troth.protocol.hashing import keccak256
from troth.protocol.types import Address, address_from_bytes, address_to_bytes

NODES, PROMPTS, ATTEMPTS, TOKENS, EPOCHS = 50, 4, 6, 2048, 6
"""What troth committee start takes without being told otherwise; epochs that are measured."""
ASKING = 1 - 120 / 1800
PROMPT_PRICE, WRITTEN_PRICE = 0.8, 1.6
"""Of a token; only their ratio matters."""
DRAWS, RUNS = 8, 4
ALIKE, HASHED = 0.05, 512
"""By which part two lengths may differ; places of hashed groups."""
CHANCE, REACH = 50.0, 52.0
LATER, LIST, SECRETS = (1, 10, 40), 200, 4
"""Lists that are looked at, the prompts of each from half of the corpus, and secrets of which each member writes all of
them."""
MEMBERS = [address_from_bytes(bytes([1 + number]) * 20) for number in range(7)]
KEPT_OUT = Path(__file__).parent / "kept_out_prompts.txt"

Features = NDArray[np.float64]
Halves = Sequence[Sequence[str]]
Learner = Callable[[Sequence[str], Sequence[str]], Callable[[Sequence[str]], Features]]


@dataclass(frozen=True, slots=True)
class SeenOrder:
    """What a node sees of an order: tokens, the most that is paid, when in the epoch, and how long after the last."""

    prompt: float
    most: float
    phase: float
    gap: float

    @property
    def row(self) -> tuple[float, ...]:
        """Its features."""
        cost = self.prompt * PROMPT_PRICE + self.most * WRITTEN_PRICE
        return math.log(self.prompt), math.log(self.most), math.log(cost), self.phase, math.log(self.gap + 1e-6)


def measure() -> Iterator[Figure]:
    """Per cent of pairs by length, timing and pay, and by texts."""
    yield _plain()
    yield from _texts()
    yield from _later()


def _plain() -> Figure:
    """Per cent of pairs that length, timing and pay tell apart."""
    told, count = list[float](), 0
    for number in range(RUNS):
        challenges, users = _orders(number)
        told.append(_accuracy(_rows(challenges), _rows(users)))
        count += len(challenges)
    note = f"{count:,} challenges; seeds 0 to {RUNS - 1}: {min(told):.1f} to {max(told):.1f}"
    what = "challenge told from a user's request by length, timing and pay, of pairs"
    return Figure(what, float(np.mean(told)), "%", paper=CHANCE, reach=REACH, note=note)


def _rows(orders: Sequence[SeenOrder]) -> Features:
    return np.array([one.row for one in orders])


# ---- both sides, as one node sees them


def _orders(number: int) -> tuple[list[SeenOrder], list[SeenOrder]]:
    """Orders of some epochs at fifty nodes, in the order in which each node gets them; others for each seed."""
    source = random.Random(f"arrivals {number}")  # noqa: S311 - a reproducible measurement
    found: tuple[list[SeenOrder], list[SeenOrder]] = ([], [])
    for epoch in range(number * EPOCHS, (number + 1) * EPOCHS):
        arrivals = [(moment, True, prompt, most) for moment, prompt, most in _asked(epoch)]
        requests = sharegpt(len(arrivals), 1.0, epoch)
        end = requests[-1].arrival
        arrivals += [(one.arrival / end, False, float(one.prompt), float(one.output)) for one in requests]
        last = [0.0] * NODES
        for phase, ours, prompt, most in sorted(arrivals):
            node = source.randrange(NODES)
            found[0 if ours else 1].append(SeenOrder(prompt, most, phase, phase - last[node]))
            last[node] = phase
    return found


def _asked(epoch: int) -> list[tuple[float, float, float]]:
    """When, with how many tokens and for how many, members ask in one epoch."""
    openings = _opened(PARTS * PROMPTS * NODES, MEMBERS[0], f"list {epoch}")
    asked = [_seen(one, one.moment * ASKING) for one in _all(openings)]
    late = late_part(ASKING, len(openings), ATTEMPTS * len(MEMBERS))
    for member in MEMBERS:
        own = _opened(ATTEMPTS, member, f"attempts {epoch} {member}")
        asked += [_seen(one, due_of_attempt(one.moment, ASKING, late)) for one in _all(own)]
    return asked


def _all(openings: Sequence[PromptOpening]) -> tuple[Challenge, ...]:
    return challenges_of(openings, range(len(openings)), TOKENS)


def _opened(count: int, member: Address, seed: str) -> list[PromptOpening]:
    """What a member hides, of a seed that can be drawn again."""
    secret = keccak256(seed.encode())
    prompts = prompts_of(secret, count, may_write(member))
    salts = [keccak256(secret + place.to_bytes(4, "big")) for place in range(len(prompts))]
    return [PromptOpening(salt.hex(), prompt) for salt, prompt in zip(salts, prompts, strict=True)]


def may_write(member: Address, known: Container[str] = ()) -> Callable[[str], bool]:
    """What a member may ask: what is new, and no other member's."""
    return lambda text: text not in known and writer_of(text, MEMBERS) == member


def _seen(challenge: Challenge, phase: float) -> tuple[float, float, float]:
    return phase, max(1.0, len(challenge.prompt) / TOKEN_CHARACTERS), float(challenge.choices.max_tokens)


# ---- texts


def kept_out() -> list[str]:
    """The kept-out prompts, in an order that says nothing."""
    found = [line.replace("\\n", "\n") for line in KEPT_OUT.read_text("utf-8").splitlines()]
    random.Random("kept out").shuffle(found)  # noqa: S311 - a reproducible measurement
    return found


def _texts() -> list[Figure]:
    """Per cent of pairs that each way of looking tells apart, with the shipped corpus and with a secret one."""
    users, known = kept_out(), _Known(shipped().texts)
    half = len(users) // 2
    ways: dict[str, Callable[[Sequence[str]], Features]] = {
        "structure": _structures,
        "characters": _trigrams,
        "looking it up in the shipped corpus": known.rows,
    }
    secret = Corpus.of(users[:half])
    found = []
    for name, rows in ways.items():
        reach = REACH if name == "structure" else None
        told = [_told(rows, users, shipped(), number) for number in range(DRAWS)]
        note = f"against {len(users):,} of users; seeds 0 to {DRAWS - 1}: {min(told):.1f} to {max(told):.1f}"
        what = f"challenge told from a user's request by {name}, of pairs"
        found.append(Figure(what, float(np.mean(told)), "%", paper=CHANCE, reach=reach, note=note))
        told = [_told(rows, users[half:], secret, number) for number in range(DRAWS)]
        note = f"against {len(users) - half}; {min(told):.1f} to {max(told):.1f}"
        what = f"the same by {name}, a corpus of the member's own"
        found.append(Figure(what, float(np.mean(told)), "%", paper=CHANCE, reach=reach, note=note))
        both = _accuracy(rows(users[:half]), rows(users[half:]))
        found.append(Figure(f"two halves of the users told apart by {name}", both, "%"))
    return found


def _later() -> list[Figure]:
    """Per cent of pairs that structure and words tell apart in lists of members that come to use their corpus up.

    Those of all members together: a node does not see who asks. So there are as many pairs as users' prompts allow.
    """
    found = [_with_secret(secret) for secret in range(SECRETS)]
    pairs = min(pairs for pairs, _ in found)
    error = 100 * math.sqrt((pairs + 1) / (12 * (pairs / 2) ** 2) / 2)
    figures = []
    for what in found[0][1]:
        told = [each[what] for _, each in found]
        note = f"{pairs} pairs; {SECRETS} secrets: {min(told):.1f} to {max(told):.1f}, chance ± {error:.1f} each"
        figures.append(Figure(what, float(np.mean(told)), "%", paper=CHANCE, reach=REACH, note=note))
    return figures


def _with_secret(secret: int) -> tuple[int, dict[str, float]]:
    """Pairs, and per cent of them that are told apart in each list, in each way; and of the corpus as it was typed."""
    print(f"lists of {len(MEMBERS)} members, secret {secret + 1} of {SECRETS}", file=sys.stderr, flush=True)
    users, texts = _halved(kept_out(), secret), _halved(shipped().texts, secret)
    told = {"the corpus as it was typed told from users by words, of pairs": across(texts, users, worded)}
    lists, pairs = [_written(Corpus.of(half), secret) for half in texts], 0
    for number in LATER:
        both = [paired(written[number], half) for written, half in zip(lists, users, strict=True)]
        ours, theirs = [one for one, _ in both], [one for _, one in both]
        pairs = sum(map(len, ours))
        for way, learn in WAYS.items():
            what = f"list {number} of all {len(MEMBERS)} members told from users by {way}, of pairs"
            told[what] = across(ours, theirs, learn)
    return pairs, told


def _by_structure(
    learn: Callable[[Features, Features], Callable[[Features], Features]], ours: Sequence[str], theirs: Sequence[str]
) -> Callable[[Sequence[str]], Features]:
    learned = learn(_structures(ours), _structures(theirs))
    return lambda asked: learned(_structures(asked))


WAYS: dict[str, Learner] = {
    "structure": partial(_by_structure, logistic),
    "structure, by trees": partial(_by_structure, boosted),
    "words": worded,
}


def _halved(texts: Sequence[str], number: int) -> Halves:
    """Two halves, others for each number."""
    drawn = list(texts)
    random.Random(f"halves {number}").shuffle(drawn)  # noqa: S311 - a reproducible measurement
    return drawn[::2], drawn[1::2]


def _written(corpus: Corpus, secret: int) -> dict[int, list[str]]:
    """Lists of all members, each by its number, in an order that says nothing."""
    lists: dict[int, list[str]] = {number: [] for number in LATER}
    for member in MEMBERS:
        known: set[str] = set()
        for number in range(1, max(LATER) + 1):
            seed = address_to_bytes(member) + bytes([number, secret])
            written = prompts_of(seed, LIST, may_write(member, known), corpus=corpus)
            known.update(written)
            lists.get(number, []).extend(written)
    for number, both in lists.items():
        random.Random(f"pairs {secret} {number}").shuffle(both)  # noqa: S311 - a reproducible measurement
    return lists


def across(ours: Halves, theirs: Halves, learn: Learner) -> float:
    """Per cent of pairs of one half that are told apart by whoever learned from the other, both ways round."""
    found = []
    for here, there in ((0, 1), (1, 0)):
        learned = learn(ours[here], theirs[here])
        found.append(told_apart(learned(ours[there]), learned(theirs[there])))
    return float(np.mean(found))


def _told(rows: Callable[[Sequence[str]], Features], users: Sequence[str], corpus: Corpus, number: int) -> float:
    """Per cent of pairs of a challenge of one list and a user's prompt of its length."""
    written = prompts_of(bytes([number]) * 32, MOST_PROMPTS, lambda text: True, corpus=corpus)
    ours, theirs = paired(written, users)
    return _accuracy(rows(ours), rows(theirs))


def paired(written: Sequence[str], users: Sequence[str]) -> tuple[list[str], list[str]]:
    """Challenges, and users' prompts of their lengths, as far as there are any."""
    left, ours, theirs = sorted(users, key=len), list[str](), list[str]()
    for text in written:
        place = min(bisect.bisect_left(left, len(text), key=len), len(left) - 1)
        if left and abs(len(left[place]) - len(text)) <= ALIKE * len(text):
            ours.append(text)
            theirs.append(left.pop(place))
    return ours, theirs


def _structures(texts: Sequence[str]) -> Features:
    return np.array([_structure(text) for text in texts])


def _structure(text: str) -> tuple[float, ...]:
    words = text.split()
    shares: Sequence[Callable[[str], bool]] = (str.isdigit, str.isupper, lambda one: one in ",;:.", str.isspace)
    counted = [sum(map(share, text)) / len(text) for share in shares]
    return (*counted, len(text) / len(words), float(text.rstrip().endswith("?")))


def _trigrams(texts: Sequence[str]) -> Features:
    """How often groups of three characters are in each text, by a hash of them, as logarithms."""
    rows = np.zeros((len(texts), HASHED))
    for row, text in zip(rows, texts, strict=True):
        padded = f"^{text.lower()}$"
        for start in range(len(padded) - 2):
            row[zlib.crc32(padded[start : start + 3].encode()) % HASHED] += 1
    return np.log1p(rows)


class _Known:
    """What somebody has who has the corpus: every group of words in it."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._groups = {size: {group for text in texts for group in _groups(text, size)} for size in (2, 3, 5)}

    def rows(self, texts: Sequence[str]) -> Features:
        """For each text, which share of its groups of words is known, and its length."""
        return np.array([(*map(partial(self._share, text), self._groups), math.log(len(text))) for text in texts])

    def _share(self, text: str, size: int) -> float:
        found = _groups(text, size)
        return sum(group in self._groups[size] for group in found) / max(1, len(found))


def _groups(text: str, size: int) -> list[tuple[str, ...]]:
    words = text.lower().split()
    return [tuple(words[start : start + size]) for start in range(len(words) - size + 1)]


# ---- telling them apart


def _accuracy(ours: Features, theirs: Features) -> float:
    """Per cent of pairs in which the challenge is the one that a classifier finds more likely to be one.

    It learns from one half and is asked about the other, both ways round.
    """
    halves = []
    for number in range(2):
        learned = logistic(ours[number::2], theirs[number::2])
        halves.append(told_apart(learned(ours[1 - number :: 2]), learned(theirs[1 - number :: 2])))
    return float(np.mean(halves))
