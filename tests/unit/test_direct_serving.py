"""One task at its entry: scripted schedulers and nodes, honest and not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from troth.node.direct import serving_task
from troth.node.direct.counters import Counters
from troth.node.direct.hearing import Piece
from troth.node.direct.order import EnteredOrder
from troth.node.direct.served import served
from troth.node.direct.serving_task import OTHER_LINES, UNREAD_LINES, ServingTask
from troth.overlay.errors import ChannelUnavailable
from troth.overlay.operator import Operator
from troth.protocol.logprobs import Logprobs, logprobs_to_bytes
from troth.protocol.typed_data import Domain, address_of
from troth.protocol.types import Address, Hash32

DOMAIN = Domain(31337, address_of(b"\x77" * 32))
NODE, LIAR = Operator(b"\x11" * 32, DOMAIN), Operator(b"\x12" * 32, DOMAIN)
TASK, SALT = Hash32(b"t" * 32), Hash32(b"s" * 32)
PARTIES = [NODE.address, LIAR.address, *(address_of(bytes([number]) * 32) for number in (3, 4, 5))]
ASSIGNED = {"type": "assigned", "task_id": "0x" + TASK.hex(), "ends": [2], "proofs": [], "parties": [PARTIES]}
ANSWER = [5, 6, 7, 8]


class Script:
    """A scheduler and a node that say what the test tells them to, one after the other."""

    def __init__(
        self, *, longest: int = len(ANSWER), logprobs: int = -1, chosen: Address | None = NODE.address
    ) -> None:
        self.upstream: asyncio.Queue[Any] = asyncio.Queue()
        self.node: asyncio.Queue[Any] = asyncio.Queue()
        self.chosen, self.taken = chosen, True
        self.candidates: list[Address] = []
        self.ended: list[float | None] = []
        self.registry = CollectorRegistry()
        self.avoided: list[object] = []
        entering = SimpleNamespace(
            choose=self._choose, ended=self._end, contradicted=lambda *who: self.avoided.append(who)
        )
        order = EnteredOrder(b"{}", Hash32(b"c" * 32), (1, 2), longest, SALT, logprobs)
        self.task = ServingTask(
            order, cast(Any, SimpleNamespace(operator=LIAR.address)), cast(Any, SimpleNamespace(candidates=2)), 64,
            schedulers=cast(Any, SimpleNamespace(choose=self._post)), entering=cast(Any, entering),
            hearing=cast(Any, self), counters=Counters(self.registry), domain=DOMAIN,
        )  # fmt: skip
        self.lines: list[dict[str, Any]] = []
        self.reading = asyncio.create_task(self._collect())

    async def _choose(self, order: EnteredOrder, scheduler: Address, task: Hash32, candidates: Any) -> Address | None:
        self.candidates = list(candidates)
        return self.chosen

    def _end(self, order: EnteredOrder, task: Hash32, seconds: float | None) -> None:
        self.ended.append(seconds)

    async def _post(self, *_: object) -> bool:
        return self.taken

    async def pieces(self, node: Address, task: Hash32, salt: Hash32, known: Any) -> AsyncIterator[Piece]:
        assert (node, task, salt) == (self.chosen, TASK, SALT)
        while (piece := await self.node.get()) is not None:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def _upstream(self) -> AsyncIterator[bytes]:
        while (line := await self.upstream.get()) is not None:
            yield line if isinstance(line, bytes) else json.dumps(line).encode()

    async def _collect(self) -> None:
        async for line in self.task.lines(self._upstream()):
            assert line.endswith(b"\n")
            self.lines.append(json.loads(line))

    async def scheduler(self, *lines: Any) -> None:
        for line in lines:
            self.upstream.put_nowait(line)
        await settle()

    async def says(self, start: int, *tokens: int, by: Operator | None = None, **more: Any) -> None:
        signature = None if by is None else by.sign(served(TASK, SALT, more.pop("answer", ANSWER)))
        self.node.put_nowait(Piece(start, tokens, more.get("logprobs", ()), signature))
        await settle()

    async def end(self) -> list[dict[str, Any]]:
        self.upstream.put_nowait(None)
        await self.reading
        return self.lines

    def tokens(self) -> list[int]:
        return [line["id"] for line in self.lines if line["type"] == "token"]

    def kinds(self) -> list[str]:
        return [line["type"] for line in self.lines if line["type"] != "token"]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def token(position: int, number: int) -> dict[str, object]:
    return {"type": "token", "id": number, "position": position}


FINISHED = {"type": "finished", "reason": "length", "output_hash": "0x"}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_task, "SERVED_SECONDS", 0.05)


@pytest.fixture
def script() -> Any:
    """Makes scripts; inside a running loop."""
    return Script


async def test_tokens_come_from_the_node_and_the_signature_before_the_end(script: Any) -> None:
    play = script()
    await play.scheduler(ASSIGNED)
    assert play.candidates == PARTIES[:2]
    await play.says(0, 5, 6)
    assert play.tokens() == [5, 6]
    await play.scheduler(token(0, 5), token(1, 6), token(2, 7))
    assert play.tokens() == [5, 6, 7]
    await play.says(2, 7, 8, by=NODE)
    await play.scheduler(token(3, 8), FINISHED)
    lines = await play.end()
    assert play.tokens() == ANSWER
    assert play.kinds() == ["assigned", "served", "finished"]
    assert lines[-2]["node"] == NODE.address
    assert play.ended[0] is not None


async def test_a_node_that_fails_costs_nothing(script: Any) -> None:
    play = script()
    await play.scheduler(ASSIGNED, {"type": "opened"})
    await play.says(0, 5)
    play.node.put_nowait(ChannelUnavailable("gone"))
    await play.scheduler(*(token(position, one) for position, one in enumerate(ANSWER)), FINISHED)
    await play.end()
    assert play.tokens() == ANSWER
    assert play.kinds() == ["assigned", "opened", "finished"]


async def test_a_node_that_lies_is_dropped_and_its_signature_is_not_passed_on(script: Any) -> None:
    play = script()
    await play.scheduler(ASSIGNED, token(0, 5))
    await play.says(0, 4, 6)
    assert play.tokens() == [5]
    await play.says(1, 6, 7, 8, by=NODE)
    await play.scheduler(*(token(position, one) for position, one in enumerate(ANSWER) if position), FINISHED)
    await play.end()
    assert play.tokens() == ANSWER
    assert play.kinds() == ["assigned", "finished"]
    assert play.registry.get_sample_value("troth_node_entry_contradictions_total") == 1
    assert play.avoided == [(LIAR.address, NODE.address)]


async def test_a_lie_that_was_passed_on_stays_and_the_scheduler_goes_on(script: Any) -> None:
    play = script()
    await play.scheduler(ASSIGNED)
    await play.says(0, 5, 9)
    await play.scheduler(*(token(position, one) for position, one in enumerate(ANSWER)))
    # What the client has is not the answer, and the hash that follows will say so.
    assert play.tokens() == [5, 9, 7, 8]
    await play.says(2, 7, 8, by=NODE, answer=[5, 9, 7, 8])
    await play.scheduler(FINISHED)
    await play.end()
    assert play.kinds() == ["assigned", "finished"]


@pytest.mark.parametrize(("by", "answer"), [(LIAR, ANSWER), (NODE, [5, 6, 7, 9])], ids=["another's", "another answer"])
async def test_a_signature_that_says_something_else_is_left_out(script: Any, by: Operator, answer: list[int]) -> None:
    play = script()
    await play.scheduler(ASSIGNED)
    await play.says(0, *ANSWER, by=by, answer=answer)
    await play.scheduler(*(token(position, one) for position, one in enumerate(ANSWER)), FINISHED)
    await play.end()
    assert play.kinds() == ["assigned", "finished"]
    assert play.tokens() == ANSWER


async def test_the_end_waits_a_moment_for_the_signature_and_not_for_ever(script: Any) -> None:
    play = script()
    await play.scheduler(ASSIGNED, *(token(position, one) for position, one in enumerate(ANSWER)), FINISHED)
    await play.says(4, by=NODE)
    await play.end()
    assert play.kinds() == ["assigned", "served", "finished"]
    silent = script()
    await silent.scheduler(ASSIGNED, *(token(position, one) for position, one in enumerate(ANSWER)), FINISHED)
    await silent.end()
    assert silent.kinds() == ["assigned", "finished"]


async def test_a_scheduler_cannot_say_who_served(script: Any) -> None:
    play = script(chosen=None)
    forged = {"type": "served", "node": NODE.address, "signature": "0x" + "00" * 65}
    await play.scheduler(ASSIGNED, forged, token(0, 5), FINISHED)
    await play.end()
    assert play.kinds() == ["assigned", "finished"]


async def test_what_the_scheduler_does_not_take_is_not_listened_to(script: Any) -> None:
    play = script()
    play.taken = False
    await play.scheduler(ASSIGNED)
    await play.says(0, 5)
    await play.scheduler(token(0, 6), FINISHED)
    await play.end()
    assert play.tokens() == [6]


@pytest.mark.parametrize(
    "assigned",
    [
        {**ASSIGNED, "parties": [PARTIES, PARTIES]},
        {**ASSIGNED, "parties": [["0x12"]]},
        {**ASSIGNED, "task_id": "0x12"},
        {"type": "assigned"},
    ],
    ids=["two segments", "no addresses", "no task", "nothing"],
)
async def test_an_assignment_that_is_none_is_the_client_s_to_judge(script: Any, assigned: dict[str, Any]) -> None:
    play = script()
    await play.scheduler(assigned, token(0, 5), FINISHED)
    await play.end()
    assert (play.kinds(), play.tokens(), play.candidates) == (["assigned", "finished"], [5], [])


@pytest.mark.parametrize("line", [b"", b"[]", b"{", b"\xff", b'{"type": "token"', b"1" * 100])
async def test_a_stream_that_is_none_ends(script: Any, line: bytes) -> None:
    play = script()
    await play.scheduler(ASSIGNED, line, token(0, 5))
    await asyncio.wait_for(play.reading, 5)
    assert play.kinds() == ["assigned"]
    assert play.ended == [None]


async def test_a_scheduler_that_does_not_end_is_cut_off(script: Any) -> None:
    play = script()
    await play.scheduler(*({"type": "noise"} for _ in range(len(ANSWER) + OTHER_LINES + 5)))
    await asyncio.wait_for(play.reading, 5)
    assert len(play.lines) == len(ANSWER) + OTHER_LINES


async def test_a_node_cannot_make_an_answer_longer(script: Any) -> None:
    play = script()
    await play.scheduler(ASSIGNED)
    await play.says(0, *ANSWER, 9)
    assert play.tokens() == []


async def test_log_probabilities_are_passed_on_where_they_can_be(script: Any) -> None:
    play = script(logprobs=1)
    await play.scheduler(ASSIGNED)
    found = logprobs_to_bytes(Logprobs(-0.5, ((5, -0.5),)))
    impossible = logprobs_to_bytes(Logprobs(0.5, ((6, 0.5),)))
    await play.says(0, 5, 6, logprobs=(found, impossible))
    assert play.lines[1:] == [{**token(0, 5), "logprob": -0.5, "top": [[5, -0.5]]}, token(1, 6)]
    await play.end()


async def test_a_client_that_reads_slowly_holds_its_scheduler_up_and_no_memory(script: Any) -> None:
    """The entry stops reading; nothing piles up here."""
    play = script(longest=5000)
    await settle()
    play.reading.cancel()
    await asyncio.gather(play.reading, return_exceptions=True)
    stream = play.task.lines(play._upstream())
    play.upstream.put_nowait(ASSIGNED)
    assert json.loads(await anext(stream))["type"] == "assigned"
    for position in range(2000):
        play.upstream.put_nowait(token(position, 1))
    for _ in range(5000):
        await asyncio.sleep(0)
    assert play.upstream.qsize() >= 2000 - UNREAD_LINES - 2
    await stream.aclose()  # type: ignore[attr-defined]
    assert play.ended == [None]


async def test_a_task_without_an_end_gives_its_place_back(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler and a client that are in it together, one line each few minutes."""
    monkeypatch.setattr(serving_task, "LONGEST_SECONDS", 0.3)
    play = script()
    await play.scheduler(ASSIGNED)
    await asyncio.wait_for(play.reading, 10)
    assert play.kinds() == ["assigned"]
    assert play.ended == [None]
