"""The seeded workloads, as tokens: who asks what, in which order; arrival times are drawn when the rate is known.

Sizes are those of PlanetServe's section 5.1 (prompts of 7,206, 1,802 and 10,985 tokens on average, Zipf 1.1, 0.8, 0.6,
outputs of 100, 1,000, 100). Texts are random tokens: only which parts are equal matters. The data sets' own sharing is
not published, so each workload's best possible hit rate is printed beside what was reached.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from troth.routing.prefixes.naming import BLOCK, TOKEN, packed

Words = NDArray[np.uint32]
VOCABULARY = 128_000


@dataclass(slots=True)
class Request:
    """One request. `after` is the request of the same session before it, which must be answered first."""

    number: int
    tokens: bytes
    output: bytes
    after: Request | None = None
    pause: float = 0.0
    kind: str = ""
    blocks: list[int] = field(default_factory=list)
    """Chained hashes of its whole blocks, prompt and output."""
    path: list[tuple[int, int]] = field(default_factory=list)

    @property
    def prompt_tokens(self) -> int:
        return len(self.tokens) // TOKEN

    @property
    def output_tokens(self) -> int:
        return len(self.output) // TOKEN


class _Author:
    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def text(self, tokens: float) -> Words:
        return self.random.integers(0, VOCABULARY, max(1, int(tokens)), dtype=np.uint32)

    def about(self, tokens: float, spread: float = 0.3) -> float:
        """Log-normal with this mean."""
        return float(tokens * np.exp(self.random.normal(-(spread**2) / 2, spread)))

    def ranks(self, texts: int, exponent: float, count: int) -> NDArray[np.intp]:
        weights = np.arange(1, texts + 1, dtype=float) ** -exponent
        return self.random.choice(texts, count, p=weights / weights.sum())


def tool_use(count: int, seed: int) -> list[Request]:
    """ToolBench-like: instructions for all, a description for each of 240 tools (Zipf 1.1), a query of its own."""
    texts, author = _Author(1), _Author(seed)
    start = texts.text(320)
    tools = [np.concatenate([start, texts.text(texts.about(6_250))]) for _ in range(240)]
    prompts = [np.concatenate([tools[rank], author.text(author.about(640))]) for rank in author.ranks(240, 1.1, count)]
    return _requests(prompts, author, 100, "tool use")


def coding(count: int, seed: int) -> list[Request]:
    """APPS-like: a short instruction for all, one of 10,000 problems (Zipf 0.8), a wish of its own; long answers."""
    texts, author = _Author(2), _Author(seed)
    start = texts.text(96)
    ranks = author.ranks(10_000, 0.8, count)
    problems: dict[int, Words] = {}
    for rank in ranks.tolist():
        if rank not in problems:
            own = _Author(20_000 + rank)
            problems[rank] = own.text(own.about(1_560))
    prompts = [np.concatenate([start, problems[rank], author.text(author.about(146))]) for rank in ranks.tolist()]
    return _requests(prompts, author, 1_000, "coding")


def documents(count: int, seed: int) -> list[Request]:
    """LooGLE-like: one of 776 long documents (Zipf 0.6), then a question."""
    texts, author = _Author(3), _Author(seed)
    library = [texts.text(texts.about(10_920)) for _ in range(776)]
    prompts = [np.concatenate([library[rank], author.text(author.about(65))]) for rank in author.ranks(776, 0.6, count)]
    return _requests(prompts, author, 100, "documents")


def mixed(count: int, seed: int) -> list[Request]:
    """The three above as 3 : 6 : 1, shuffled."""
    parts = [tool_use(count * 3 // 10, seed), coding(count * 6 // 10, seed + 1), documents(count // 10, seed + 2)]
    requests = [request for part in parts for request in part]
    order = np.random.default_rng(seed).permutation(len(requests))
    shuffled = [requests[place] for place in order]
    for number, request in enumerate(shuffled):
        request.number = number
    return shuffled


def chat(count: int, seed: int) -> list[Request]:
    """Conversations of 1 to 7 turns that all begin with one system prompt of 1,200 tokens."""
    texts, author = _Author(5), _Author(seed)
    system = texts.text(1_200)
    requests: list[Request] = []
    while len(requests) < count:
        history, before = system, None
        for _ in range(int(author.random.integers(1, 8))):
            history = np.concatenate([history, author.text(author.about(90, 0.5))])
            answer = author.text(author.about(120, 0.5))
            pause = float(author.random.exponential(8.0)) if before else 0.0
            before = Request(len(requests), packed(history), packed(answer), before, pause, "chat")
            requests.append(before)
            history = np.concatenate([history, answer])
    return requests[:count]


WORKLOADS: dict[str, Callable[[int, int], list[Request]]] = {
    "tool use": tool_use,
    "coding": coding,
    "documents": documents,
    "mixed": mixed,
    "chat": chat,
}


def prepared(name: str, count: int, seed: int) -> list[Request]:
    """A workload with its blocks named."""
    requests = WORKLOADS[name](count, seed)
    for request in requests:
        request.blocks = block_hashes(request.tokens + request.output)
    return requests


def block_hashes(tokens: bytes) -> list[int]:
    """A chained 64-bit hash for each whole block, as an engine makes them."""
    width, digest, hashes = BLOCK * TOKEN, b"", []
    for start in range(0, len(tokens) - width + 1, width):
        digest = hashlib.blake2b(digest + tokens[start : start + width], digest_size=8).digest()
        hashes.append(int.from_bytes(digest, "little"))
    return hashes


def best_hit_rate(requests: list[Request]) -> float:
    """Tokens that one endless cache would hold, over all prompt tokens: no network of nodes can do better."""
    seen: set[int] = set()
    hits = 0
    for request in requests:
        blocks = request.blocks[: request.prompt_tokens // BLOCK]
        held = next((place for place, block in enumerate(blocks) if block not in seen), len(blocks))
        hits += min(held * BLOCK, request.prompt_tokens - 1)
        seen.update(request.blocks)
    return hits / sum(request.prompt_tokens for request in requests)


def _requests(prompts: list[Words], author: _Author, output: int, kind: str) -> list[Request]:
    return [
        Request(number, packed(prompt), packed(author.text(min(output, author.about(0.8 * output)))), kind=kind)
        for number, prompt in enumerate(prompts)
    ]
