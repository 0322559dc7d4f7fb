"""What grammar masks and penalties cost a token, at the vocabulary of SmolLM2 (49,152), beside what judging it costs.

The logits are random: masks do not depend on them.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import numpy as np

from benchmarks.figures import Figure, median_milliseconds
from benchmarks.weights import weights
from troth.protocol.grammar import Grammar
from troth.protocol.margins import margin
from troth.protocol.masks import RowRule, TextRules, compiled
from troth.protocol.request import Request
from troth.protocol.tokens import Sampling, choose, noise
from troth.protocol.transforms import MILLION, Transforms
from troth.protocol.types import ZERO_HASH, Hash32

VOCABULARY, END, TOKENS = 49_152, 2, 200
SEED, SAMPLING = Hash32(b"\x05" * 32), Sampling(0.7, 0.9)
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "born": {"type": "string", "format": "date"},
        "works": {"type": "array", "items": {"type": "string"}, "maxItems": 20},
        "kind": {"enum": ["poet", "engineer", "both"]},
    },
    "required": ["name", "born", "works", "kind"],
    "additionalProperties": False,
}
ANYTHING = {"type": "object"}


def measure() -> list[Figure]:
    """Medians on one thread of this machine."""
    tokenizer = weights().tokenizer_json.decode()
    logits = np.random.default_rng(1).normal(size=(32, VOCABULARY)).astype(np.float32) * 4
    plain = _judging(logits, lambda: None)
    figures = [
        Figure("choose a token, T 0.7, top_p 0.9", _choosing(logits, lambda: None), "µs"),
        Figure("judge a token, head and states not counted", plain, "µs"),
        Figure("read a tokenizer, once", _once(tokenizer), "ms"),
    ]
    for name, schema in (("a person's schema", PERSON), ("any JSON object", ANYTHING)):
        grammar = Grammar(json.dumps(schema))
        figures.append(
            Figure(
                f"compile {name}",
                median_milliseconds(lambda g=grammar: compiled(g, tokenizer, VOCABULARY, (END,)), 20),
                "ms",
            )
        )
        seconds = _masks(grammar, tokenizer, logits)
        mask = statistics.median(seconds) * 1e6
        note = f"longest of {len(seconds)}: {max(seconds) * 1e6:.0f} µs"
        figures.append(Figure(f"mask of {name}, a token", mask, "µs", note=note))
        figures.append(Figure(f"mask of {name}, share of judging a token", 100 * mask / (plain + mask), "%"))
    rule = TextRules(_request(Transforms(presence=MILLION, repetition=1_200_000)), VOCABULARY, "").row()
    figures.append(Figure("judge a token with penalties", _judging(logits, lambda: rule), "µs"))
    return figures


def _request(transforms: Transforms) -> Request:
    return Request(ZERO_HASH, tuple(range(3, 40)), TOKENS, 700_000, 900_000, (END,), transforms)


def _once(tokenizer: str) -> float:
    begun = time.perf_counter()
    compiled(Grammar('{"const": 1}'), tokenizer, VOCABULARY, (END,))
    return (time.perf_counter() - begun) * 1e3


def _masks(grammar: Grammar, tokenizer: str, logits: np.ndarray) -> list[float]:
    """Seconds of each mask along texts that follow the grammar."""
    seconds: list[float] = []
    while len(seconds) < TOKENS:
        rules = TextRules(_request(Transforms(grammar=grammar)), VOCABULARY, tokenizer)
        for position in range(TOKENS):
            begun = time.perf_counter()
            rule = rules.row()
            seconds.append(time.perf_counter() - begun)
            token = choose(logits[position % 32], SAMPLING, noise(SEED, len(seconds), VOCABULARY), rule)
            if token == END:
                break
            rules.take(token)
    return seconds


def _choosing(logits: np.ndarray, rule: Callable[[], RowRule | None]) -> float:
    gumbel = noise(SEED, 1, VOCABULARY)
    return 1e3 * median_milliseconds(lambda: choose(logits[0], SAMPLING, gumbel, rule()), 100)


def _judging(logits: np.ndarray, rule: Callable[[], RowRule | None]) -> float:
    """A token's noise and margin."""
    places = iter(range(10, 10_000_000))

    def judge() -> None:
        margin(logits[1], 7, SAMPLING, noise(SEED, next(places), VOCABULARY), rule())

    return 1e3 * median_milliseconds(judge, 100)
