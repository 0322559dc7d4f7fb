"""An entry's side of an order and of its check: what is passed on, and when the stream ends instead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry
from support.toy_entry import ENTRY
from support.toy_market import NODE_KEYS

from troth.node.direct import serving
from troth.node.direct.checking import ServingCheck
from troth.node.direct.counters import Counters
from troth.node.direct.dealing import EntryDealing, Ranked
from troth.node.direct.hearing import Piece
from troth.node.direct.order import EnteredOrder
from troth.node.direct.serving import ServingContext, ServingOrder
from troth.protocol.logprobs import NO_LOGPROBS
from troth.protocol.market import canonical
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Opinion, Result, TraceCommitment, Verdict
from troth.protocol.types import Address, Hash32
from troth.scheduler.orders.choosing import MOST_PREFERRED, ProspectiveOrder, choose, read_preferred
from troth.transport.errors import ChannelUnavailable

HASH = Hash32(b"\x07" * 32)
ORDER = EnteredOrder(b"", HASH, HASH, (1, 2, 3), 4, HASH, NO_LOGPROBS)
SIGNATURE = b"\x01" * 65
RESULT = Signed(Result(HASH, 0, HASH, HASH, 3, 0, 2, HASH, HASH), SIGNATURE)
SCHEDULER, OTHER, THIRD = list(NODE_KEYS)[1:4]
ADMITTED = {
    "type": "admitted",
    "admission": {
        "message": {"order": "0x" + HASH.hex(), "nodes": "0x" + HASH.hex(), "block_number": "5"},
        "signature": "0x" + SIGNATURE.hex(),
    },
    "nodes": [ENTRY],
    "infer_proof": "0x00",
}
FIRST, SECOND = Piece((5,), (), SIGNATURE, None, None), Piece((6,), (), SIGNATURE, "length", None)
LAST = Piece((), (), b"", "length", RESULT)


def token(position: int, value: int) -> dict[str, Any]:
    return {"type": "token", "position": position, "id": value}


RESULTS, DRAW = {"type": "results", "reason": "length", "results": []}, {"type": "draw"}
WHOLE = [ADMITTED, token(0, 5), token(1, 6), RESULTS, DRAW]


class FakeGroup:
    own = ENTRY

    def __init__(self) -> None:
        self.forwarder: Any = self
        self.ranked: tuple[Address, ...] = (OTHER, ENTRY)
        self.counted: list[str] = []
        self.over: list[float | None] = []

    def path(self, _tokens: Any) -> Any:
        return ()

    def ranking(self, _path: Any) -> tuple[Address, ...]:
        return self.ranked

    def admitted(self, _path: Any, _tokens: int, name: str, _now: float) -> int | None:
        if name not in self.ranked:
            return None
        self.counted.append(name)
        return 0

    def is_member(self, node: Address) -> bool:
        return node in self.ranked

    def ended(self, _name: bytes, _now: float, seconds: float | None) -> None:
        self.over.append(seconds)


class FakeHearing:
    """Says pieces; an exception among them is raised, None waits for ever."""

    def __init__(self, *pieces: Any, words: dict[tuple[Address, str], Any] | None = None) -> None:
        self._pieces, self._words = pieces, words or {}

    async def pieces(self, *_arguments: Any) -> AsyncIterator[Piece]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            if piece is None:
                await asyncio.Event().wait()
            yield piece

    async def recall(self, node: Address, message: Any) -> bytes:
        word = self._words.get((node, message.kind))
        if word is None:
            await asyncio.sleep(0.01)
        return b"" if word is None else canonical.encode(word)


async def upstream(lines: list[Any], pause: float = 0.02) -> AsyncIterator[bytes]:
    for line in lines:
        await asyncio.sleep(pause)
        if line is None:
            await asyncio.Event().wait()
        yield json.dumps(line).encode()


async def passed(hearing: FakeHearing, lines: list[Any], group: FakeGroup | None = None) -> list[str]:
    """What a client hears, in short."""
    counters = Counters(CollectorRegistry())
    group = group or FakeGroup()
    dealing = EntryDealing(group, counters)
    tools = ServingContext(dealing, cast(Any, hearing), counters, 64)
    order = ServingOrder(ORDER, SCHEDULER, Ranked((), ()), tools)
    async with asyncio.timeout(5):
        heard = [json.loads(line) async for line in order.lines(upstream(lines))]
    return [f"{line['type']} {line.get('id', line.get('written', ''))}".strip() for line in heard]


ANSWER = ["admitted", "token 5", "said 1", "token 6", "said 2"]


async def test_tokens_and_result_are_the_node_s_and_the_rest_the_scheduler_s() -> None:
    group = FakeGroup()
    assert await passed(FakeHearing(FIRST, SECOND, LAST), WHOLE, group) == [*ANSWER, "results", "draw"]
    assert group.over[0] is not None


async def test_a_result_that_is_late_comes_from_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "RESULT_SECONDS", 0.1)
    assert await passed(FakeHearing(FIRST, SECOND, None), WHOLE) == [*ANSWER, "results", "draw"]
    # Without all tokens nobody signed the answer, and the client has to ask the scheduler.
    assert await passed(FakeHearing(FIRST, None), WHOLE) == ANSWER[:3]


DIFFERS = Piece((9,), (), SIGNATURE, None, None)


@pytest.mark.parametrize(
    ("said", "expected"), [(ChannelUnavailable("away"), []), (DIFFERS, ["token 9", "said 1"])], ids=["away", "differs"]
)
async def test_the_stream_ends_where_the_node_is_away_or_differs(said: Any, expected: list[str]) -> None:
    assert await passed(FakeHearing(said, None), [*WHOLE[:2], None]) == ["admitted", *expected]


@pytest.mark.parametrize(("node", "way"), [(ENTRY, "here"), (OTHER, "forwarded"), (THIRD, "stranger")])
def test_each_way_is_counted(node: Address, way: str) -> None:
    registry = CollectorRegistry()
    EntryDealing(cast(Any, FakeGroup()), Counters(registry)).dealt(ORDER, Ranked((), ()), node)
    assert registry.get_sample_value("troth_node_entry_ways_total", {"way": way}) == 1


def test_an_order_that_is_dealt_twice_is_one_request_of_its_node() -> None:
    """Else the node would seem to serve one more for ever, since the second end has nothing to end."""
    group = FakeGroup()
    dealing = EntryDealing(cast(Any, group), Counters(CollectorRegistry()))
    for _ in range(2):
        dealing.dealt(ORDER, Ranked((), ()), OTHER)
    for _ in range(2):
        dealing.ended(ORDER, 1.0)
    assert (group.counted, group.over) == ([OTHER], [1.0])


async def test_who_differed_is_not_wanted_for_that_scheduler_any_more() -> None:
    group, counters = FakeGroup(), Counters(CollectorRegistry())
    dealing = EntryDealing(group, counters)
    assert dealing.ranked(ORDER, SCHEDULER).nodes == (OTHER, ENTRY)
    dealing.contradicted(SCHEDULER, OTHER)
    assert dealing.ranked(ORDER, SCHEDULER).nodes == (ENTRY,)
    assert dealing.ranked(ORDER, THIRD).nodes == (OTHER, ENTRY)


@pytest.mark.parametrize("lines", [[{"type": "admitted"}], [ADMITTED | {"nodes": [ENTRY, OTHER]}], [], [{"type": 3}]])
async def test_a_stream_that_is_none_ends(lines: list[Any]) -> None:
    heard = await passed(FakeHearing(None), lines)
    assert heard in ([], ["admitted"])


async def test_verifiers_words_need_no_scheduler() -> None:
    commitment = Signed(TraceCommitment(HASH, 0, HASH, HASH), SIGNATURE)
    verdict = Signed(Verdict(HASH, 0, HASH, HASH, Opinion.ACCEPT, locks=False), SIGNATURE)
    words = {
        (one, kind): word for one in (OTHER, THIRD) for kind, word in (("commitment", commitment), ("verdict", verdict))
    }
    check = ServingCheck(HASH, cast(Any, FakeHearing(words=words)))
    checking = {"type": "checking", "segments": [[OTHER, THIRD, OTHER]]}
    heard = []
    async with asyncio.timeout(5):
        async for line in check.lines(upstream([checking, None])):
            heard.append(json.loads(line))
            if heard[-1]["type"] == "verdicts":
                break
    assert [line["type"] for line in heard] == ["checking", "committed", "verdicts"]
    assert len(heard[1]["commitments"]) == len(heard[2]["verdicts"]) == 2


async def test_commitments_come_once() -> None:
    check = ServingCheck(HASH, cast(Any, FakeHearing()))
    lines = [{"type": "checking", "segments": [[OTHER]]}, {"type": "committed"}, {"type": "committed"}, {"type": "end"}]
    async with asyncio.timeout(5):
        heard = [json.loads(line)["type"] async for line in check.lines(upstream(lines))]
    assert heard == ["checking", "committed", "end"]


# The scheduler's side of the hint


def chosen(allowed: list[list[Address]], preferred: tuple[Address, ...], failed: tuple[Address, ...] = ()) -> Any:
    peers = SimpleNamespace(failed_lately=lambda node: node in failed, preference=lambda node: node != allowed[-1][-1])
    context = cast(Any, SimpleNamespace(peers=peers, routes=None))
    return choose(context, cast(ProspectiveOrder, None), allowed, preferred)


def test_a_hint_chooses_among_those_drawn_alone() -> None:
    assert chosen([[OTHER, THIRD]], (SCHEDULER, OTHER, THIRD)) == (OTHER,)
    assert chosen([[OTHER, THIRD]], (SCHEDULER,)) == (THIRD,)
    assert chosen([[OTHER, THIRD]], (OTHER,), failed=(OTHER,)) == (THIRD,)
    assert chosen([[OTHER], [OTHER, THIRD]], (OTHER,)) == (OTHER, THIRD)


def test_a_hint_that_cannot_be_read_is_none() -> None:
    assert read_preferred(f"{OTHER}, {THIRD}") == (OTHER, THIRD)
    assert read_preferred("") == read_preferred("x,y") == read_preferred("0x12") == ()
    assert len(read_preferred(",".join([OTHER] * 1000))) <= MOST_PREFERRED
