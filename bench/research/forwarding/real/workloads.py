"""The requests: seeded, the same for every policy. Texts are random tokens: only which parts are equal matters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

LOWEST, HIGHEST = 100, 40_000
"""Tokens that texts are made of, all in SmolLM2's vocabulary."""
LONGEST = 700
"""Tokens of a prompt at most."""
BLOCK = 32
"""Tokens of the engine's cache block on CPU."""
SYSTEM, TURN, ANSWER = 300, 40, 8
TOOLS, TOOL, QUERY, ZIPF = 6, 400, 60, 1.1


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt; `pause`: seconds since the answer before it, in the same session."""

    number: int
    prompt: tuple[int, ...]
    pause: float = 0.0


Session = tuple[Request, ...]
"""Requests of which each waits for the answer before it."""


def chat(count: int, seed: int) -> list[Session]:
    """Conversations of 2 to 4 turns that all begin with one system prompt of 300 tokens."""
    system, draw = _text(np.random.default_rng(1), SYSTEM), np.random.default_rng(seed)
    sessions: list[Session] = []
    made = 0
    while made < count:
        history, turns = system, []
        for turn in range(min(int(draw.integers(2, 5)), count - made)):
            history = history + _text(draw, int(draw.integers(TURN // 2, 2 * TURN)))
            turns.append(Request(made, history, float(draw.exponential(1.0)) if turn else 0.0))
            history = history + _text(draw, ANSWER)
            made += 1
        sessions.append(tuple(turns))
    return sessions


def tool_use(count: int, seed: int) -> list[Session]:
    """ToolBench-like: one of 6 tools' descriptions of 400 tokens (Zipf 1.1), of which 64 are alike, then a query."""
    author, draw = np.random.default_rng(2), np.random.default_rng(seed)
    start = _text(author, 2 * BLOCK)
    tools = [start + _text(author, TOOL - len(start)) for _ in range(TOOLS)]
    weights = np.arange(1, TOOLS + 1, dtype=float) ** -ZIPF
    ranks = draw.choice(TOOLS, count, p=weights / weights.sum()).tolist()
    return [
        (Request(number, tools[rank] + _text(draw, int(draw.integers(QUERY // 2, 2 * QUERY)))),)
        for number, rank in enumerate(ranks)
    ]


WORKLOADS: dict[str, Callable[[int, int], list[Session]]] = {"chat": chat, "tool use": tool_use}


def best_hit_rate(sessions: Sequence[Session]) -> float:
    """Share of prompt tokens that one endless cache would have had, the requests coming in order of their numbers."""
    requests = sorted((request for session in sessions for request in session), key=lambda request: request.number)
    seen: set[tuple[int, ...]] = set()
    hits = total = 0
    for request in requests:
        prefixes = [request.prompt[:end] for end in range(BLOCK, len(request.prompt) + 1, BLOCK)]
        held = next((place for place, prefix in enumerate(prefixes) if prefix not in seen), len(prefixes))
        # An engine computes at least the last token, and reuses whole blocks only.
        hits += min(held, (len(request.prompt) - 1) // BLOCK) * BLOCK
        total += len(request.prompt)
        seen.update(prefixes)
    return hits / total


def _text(draw: np.random.Generator, tokens: int) -> tuple[int, ...]:
    return tuple(draw.integers(LOWEST, HIGHEST, tokens).tolist())
