"""What the tree costs: search and update times with 100,000 prefixes and 64 nodes; bytes of the synchronisation."""

from __future__ import annotations

import hashlib
import random
import statistics
import time
from collections.abc import Callable, Iterator

import msgspec
from benchmarks.figures import Figure

from research.forwarding.engine import Cache
from research.forwarding.scenario import KEY
from research.forwarding.workloads import prepared
from troth.routing.prefixes.announcing import Announcer
from troth.routing.prefixes.local_blocks import BlocksRemoved, BlocksStored, KvEvent, LocalBlocks
from troth.routing.prefixes.naming import BLOCK, Chunking, Naming, packed
from troth.routing.prefixes.update import ChunkRun, NodeLoad, decode_update, encode_update
from troth.routing.prefixes.view import GroupView

PREFIXES, NODES = 100_000, 64
PROMPT = 7_206
"""Tokens: the mean of ToolBench's prompts (section 5.1)."""
RAW, DELTA, REPORTED = 61_000, 3_200, 7.0
"""Bytes of an engine's raw events and of a delta, bytes per block: measured for this project before."""


def times() -> Iterator[Figure]:
    """Microseconds of one search along a whole prompt, and of one stored chunk."""
    chance = random.Random(1)  # noqa: S311
    naming = Naming(KEY, Chunking((512,) * 12))
    view = GroupView(naming, NODES)
    view.list_members({str(node): 1.0 for node in range(NODES)}, 0.0)
    prompts = [packed([chance.randrange(128_000) for _ in range(PROMPT)]) for _ in range(200)]
    paths = [tuple(naming.path(prompt)) for prompt in prompts]
    for path in paths:
        for node in chance.sample(range(NODES), 8):
            view.tree.store(node, [ChunkRun(0, tuple(name for name, _ in path))])
    while len(view.tree) < PREFIXES:
        names = tuple(chance.getrandbits(32) | 1 for _ in range(20))
        view.tree.store(chance.randrange(NODES), [ChunkRun(0, names)])
    everybody = (1 << NODES) - 1
    note = f"{PREFIXES:,} prefixes, {NODES} nodes; 20 chunks, all of them held"
    turn = iter(range(10**9))
    searched = _micros(lambda: view.search(paths[next(turn) % 200], everybody))
    hashed = _micros(lambda: list(naming.path(prompts[next(turn) % 200])))
    both = _micros(lambda: view.search(naming.path(prompts[next(turn) % 200]), everybody))
    blake = _micros(lambda: hashlib.blake2b(prompts[next(turn) % 200], key=KEY).digest())
    yield Figure("search, its chunks hashed before", searched, "µs", None, 50, note)
    yield Figure(f"hashing {PROMPT:,} tokens", hashed, "µs", None, None, "20 chunks, 28.8 kB; AES-GCM's tags and AES")
    yield Figure("search and hashing", both, "µs", None, 50, f"BLAKE2b once over the tokens, now: {blake:.1f} µs")
    fresh = [[ChunkRun(0, tuple(chance.getrandbits(32) | 1 for _ in range(20)))] for _ in range(4_000)]
    stored = _micros(lambda: view.tree.store(next(turn) % NODES, fresh[next(turn) % 4_000])) / 20
    yield Figure("update of one chunk", stored, "µs", None, 20, "stored, in runs of 20")
    blocks, changes = LocalBlocks(naming), []
    width = BLOCK * 4
    events = [
        BlocksStored(tuple(range(place * 225, place * 225 + 225)), None, prompts[place][: 225 * width])
        for place in range(200)
    ]
    start = time.perf_counter()
    for event in events:
        changes.append(blocks.apply(event))
    spent = (time.perf_counter() - start) * 1e6 / (200 * 225)
    yield Figure(
        "update of a node's own block", spent, "µs", None, 20, f"from the engine's event, {len(changes)} prompts"
    )


def bytes_sent(requests: int = 1_500) -> Iterator[Figure]:
    """What one node would send in 5 s steps, one prompt a second, on a full cache: delta, full tree, raw events."""
    for chunking, label in ((Chunking(default=BLOCK), "chunks of one block"), (Chunking(), "chunks of four blocks")):
        yield from _sync(requests, chunking, label)


def _sync(count: int, chunking: Chunking, label: str) -> Iterator[Figure]:
    naming = Naming(KEY, chunking)
    blocks, announcer = LocalBlocks(naming), Announcer(naming.identity, 1)
    told: list[KvEvent] = []
    cache = Cache(13_000, told.append)
    deltas, wholes, raws, stored = [], [], [], 0
    work: dict[str, list[float]] = {"delta": [], "whole": []}
    near, far = (GroupView(naming) for _ in range(2))
    for view in (near, far):
        view.list_members({"a": 1.0}, 0.0)
    load = NodeLoad(capacity=32)
    for number, request in enumerate(prepared("tool use", count, 3), 1):
        hit = cache.match(request)
        cache.store(request, hit // BLOCK, len(request.blocks))
        if number % 5:
            continue
        raws.append(sum(len(_raw(event)) for event in told))
        stored += sum(len(event.hashes) for event in told if isinstance(event, BlocksStored))
        for event in told:
            announcer.note(blocks.apply(event))
        told.clear()
        start = time.perf_counter()
        delta = encode_update(announcer.next_update(load))
        near.receive("a", delta, 0.0)
        work["delta"].append(time.perf_counter() - start)
        deltas.append(len(delta))
        start = time.perf_counter()
        whole = encode_update(announcer.snapshot(load))
        far.tree.replace(0, decode_update(whole).stored)
        work["whole"].append(time.perf_counter() - start)
        wholes.append(len(whole))
    reach = {"reach": 8.0, "paper": REPORTED}
    yield Figure(
        f"{label}: bytes per stored block", sum(deltas) / stored, "B", note="removals, heads and loads in it", **reach
    )
    yield Figure(
        f"{label}: a delta", statistics.fmean(deltas), "B", DELTA, note="five prompts of 7,000 tokens; peer: before"
    )
    yield Figure(f"{label}: full broadcast over delta", sum(wholes) / sum(deltas), "x", note="bytes (A6, figure 20)")
    spent = sum(work["whole"]) / sum(work["delta"])
    yield Figure(f"{label}: the same in time", spent, "x", note="encode, decode, apply (A6, figure 19)")
    yield Figure(
        f"{label}: raw events over delta", sum(raws) / sum(deltas), "x", RAW / DELTA, note="msgpack; peer: before"
    )


def _raw(event: KvEvent) -> bytes:
    """The event as the engine writes it: msgpack of its hashes, parent and token ids."""
    if isinstance(event, BlocksStored):
        words = memoryview(event.tokens).cast("I").tolist()
        return msgspec.msgpack.encode(["BlockStored", list(event.hashes), event.parent, words, BLOCK, None])
    return msgspec.msgpack.encode(["BlockRemoved", list(event.hashes) if isinstance(event, BlocksRemoved) else []])


def _micros(action: Callable[[], object], repeats: int = 500, batches: int = 12) -> float:
    """The lowest of some batches' medians: what other work on the machine takes is left out."""
    medians = []
    for _ in range(batches):
        spent = []
        for _ in range(repeats):
            start = time.perf_counter()
            action()
            spent.append(time.perf_counter() - start)
        medians.append(statistics.median(spent))
    return min(medians) * 1e6
