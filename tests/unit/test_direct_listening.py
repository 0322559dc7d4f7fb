"""Who may listen to an answer, from when on, and what is heard."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from troth.node.direct import listening as module
from troth.node.direct.listening import Listening
from troth.node.direct.served import is_signed_by, served
from troth.node.errors import AlreadySigned, Busy, NotAssigned, OutOfOrder
from troth.node.service.answer import Answer
from troth.node.service.work import Work
from troth.overlay.operator import Operator
from troth.protocol.tensors import tokens_from_bytes
from troth.protocol.typed_data import Domain, address_of
from troth.protocol.types import Hash32
from troth.protocol.wire_group import HEARD_LIMIT, Heard, Listen

DOMAIN = Domain(31337, address_of(b"\x77" * 32))
OPERATOR = Operator(b"\x11" * 32, DOMAIN)
TASK, SALT = Hash32(b"t" * 32), Hash32(b"s" * 32)
UNTOLD = msgspec.UNSET


class Stage:
    """One session that begins, is paid for and answers when the test says so."""

    def __init__(self, *, patience: float = 5.0) -> None:
        self.begun = asyncio.Event()
        self.paid, self.expected = True, True
        self.moved = asyncio.Event()
        self.work: Any = None
        self.kept: list[bytes] = []
        taking = SimpleNamespace(
            expects=lambda task, salt: self.expected and task == TASK and salt == SALT, kept=self.kept.append
        )
        self.signed: dict[Any, object] = {}
        self.listening = Listening(cast(Any, self), cast(Any, taking), cast(Any, self), self.sign, patience)

    async def sign(self, subject: Any, message: object) -> bytes:
        """As the signing record does."""
        if self.signed.setdefault(subject, message) != message:
            raise AlreadySigned("this node signed something else there", 0, "Start another attempt.")
        return OPERATOR.sign(message)

    def begin(self, *tokens: int) -> Answer:
        answer = Answer()
        if tokens:
            answer.add(tokens, UNTOLD, None)
        self.work = SimpleNamespace(seat=SimpleNamespace(task_id=TASK, salt=SALT), answer=answer)
        self.begun.set()
        return answer

    def pay(self) -> None:
        self.paid = True
        self.moved.set()

    def answering(self, task_id: bytes) -> Any:
        return self.work if task_id == TASK else None

    def is_paid(self, work: Any) -> bool:
        return self.paid

    async def until(self, condition: Any, timeout: float) -> bool:
        await asyncio.wait_for(self.moved.wait(), timeout)
        return bool(condition())

    async def listen(self, start: int = 0, salt: bytes = SALT) -> tuple[list[int], Heard]:
        heard, payload = await self.listening.listen(Listen(TASK, salt, start))
        return list(tokens_from_bytes(payload, heard.count, 2**31)) if heard.count else [], heard


async def test_tokens_are_heard_as_they_are_chosen() -> None:
    stage = Stage()
    answer = stage.begin(1, 2)
    assert (await stage.listen())[0] == [1, 2]
    waiting = asyncio.create_task(stage.listen(2))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    answer.add([3], UNTOLD, None)
    assert (await waiting)[0] == [3]
    answer.add([4], UNTOLD, "stop")
    tokens, heard = await stage.listen(1)
    assert tokens == [2, 3, 4]
    assert heard.finished == "stop"
    assert heard.signature is not None
    assert is_signed_by(OPERATOR.address, served(TASK, SALT, [1, 2, 3, 4]), heard.signature, DOMAIN)
    assert not is_signed_by(OPERATOR.address, served(TASK, SALT, [1, 2, 3]), heard.signature, DOMAIN)
    # Who had all of it from elsewhere still gets the signature.
    tokens, heard = await stage.listen(4)
    assert (tokens, heard.count, heard.finished) == ([], 0, "stop")
    assert heard.signature is not None


async def test_a_long_answer_comes_in_pieces_and_is_signed_with_the_last() -> None:
    stage = Stage()
    stage.begin().add(range(HEARD_LIMIT + 5), UNTOLD, "length")
    first, heard = await stage.listen()
    assert (len(first), heard.finished, heard.signature) == (HEARD_LIMIT, None, None)
    rest, heard = await stage.listen(HEARD_LIMIT)
    assert (len(rest), heard.finished) == (5, "length")


async def test_log_probabilities_come_for_all_tokens_of_a_piece_or_for_none() -> None:
    stage = Stage()
    answer = stage.begin()
    answer.add([1, 2], b"two", None)  # the first is of an earlier attempt, elsewhere
    assert (await stage.listen())[1].logprobs == ()
    answer.add([3], b"three", None)
    assert (await stage.listen(1))[1].logprobs == (b"two", b"three")


async def test_no_salt_no_answer() -> None:
    stage = Stage()
    stage.begin(1, 2)
    with pytest.raises(NotAssigned) as wrong:
        await stage.listen(salt=b"x" * 32)
    stage.work, stage.expected = None, False
    with pytest.raises(NotAssigned) as unknown:
        await stage.listen()
    # Nobody learns by the answer which tasks are here.
    assert str(wrong.value) == str(unknown.value)


async def test_a_session_that_begins_a_moment_later_is_waited_for() -> None:
    stage = Stage()
    waiting = asyncio.create_task(stage.listen())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    assert not stage.kept
    stage.begin(7)
    assert (await waiting)[0] == [7]
    assert stage.kept == [TASK]


async def test_silence_ends_in_an_empty_answer() -> None:
    stage = Stage(patience=0.05)
    assert (await stage.listen())[1] == Heard(0, 0)
    stage.begin(1)
    assert (await stage.listen(1))[1] == Heard(1, 0)
    stage.paid = False
    assert (await stage.listen())[1] == Heard(0, 0)


async def test_nothing_is_told_before_the_fee_is_locked() -> None:
    stage = Stage()
    stage.paid = False
    stage.begin(1, 2).add([3], UNTOLD, "stop")
    waiting = asyncio.create_task(stage.listen())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    stage.pay()
    assert (await waiting)[0] == [1, 2, 3]


async def test_a_session_that_ends_without_an_answer_says_so() -> None:
    stage = Stage()
    answer = stage.begin(1)
    waiting = asyncio.create_task(stage.listen(1))
    await asyncio.sleep(0.01)
    answer.end()
    with pytest.raises(OutOfOrder):
        await waiting
    # What was chosen before can still be had.
    assert (await stage.listen())[0] == [1]


async def test_listeners_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LISTENERS_PER_TASK", 2)
    stage = Stage()
    answer = stage.begin()
    waiting = [asyncio.create_task(stage.listen()) for _ in range(2)]
    await asyncio.sleep(0.01)
    with pytest.raises(Busy):
        await stage.listen()
    # Who goes away leaves its place.
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    waiting.append(asyncio.create_task(stage.listen()))
    await asyncio.sleep(0.01)
    answer.add([1], UNTOLD, None)
    assert [(await one)[0] for one in waiting[1:]] == [[1], [1]]
    monkeypatch.setattr(module, "MOST_LISTENERS", 0)
    with pytest.raises(Busy):
        await stage.listen()


async def test_words_that_a_scheduler_puts_into_a_node_s_mouth_are_not_signed() -> None:
    """It announces a second attempt, says that the first one chose these tokens, and has only the last one chosen."""
    stage = Stage()
    stage.begin()
    seat = SimpleNamespace(
        task_id=TASK, salt=SALT, index=0, is_first=True, is_last=True, request=SimpleNamespace(prompt_tokens=(1, 2))
    )
    work = Work.begin(cast(Any, seat), 1, 0.0)
    work.inputs.append(np.array([1, 2, 30, 31]))
    work.note_token(3, 32, UNTOLD, "stop")
    stage.work = work
    tokens, heard = await stage.listen()
    assert (tokens, heard.finished, heard.signature) == ([30, 31, 32], "stop", None)
    assert not stage.signed


async def test_one_answer_of_a_task_is_signed() -> None:
    """Two attempts here may choose differently, where a scheduler wants them to; two signed answers would be a lie."""
    stage = Stage()
    stage.begin().add([1], UNTOLD, "stop")
    first = (await stage.listen())[1].signature
    assert first is not None
    stage.begin().add([2], UNTOLD, "stop")
    tokens, heard = await stage.listen()
    assert (tokens, heard.finished, heard.signature) == ([2], "stop", None)
    stage.begin().add([1], UNTOLD, "stop")
    assert (await stage.listen())[1].signature == first
