"""A conversation: what goes where, what a script sees, and which answers become part of the history."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from support.client_stage import (
    CLIENT,
    FAILED_LINE,
    ClientStage,
    client_stage,
    honest_lines,
    record,
    signed_order,
    tokens_of,
)

from troth.client import conversation
from troth.client.choices import Choices
from troth.client.configuration import Configuration
from troth.client.conversation import converse, print_json_answer
from troth.client.errors import AnswerNotAccepted, ClientError, PromptError, SchedulerRefused
from troth.client.home import Home
from troth.client.session import Session
from troth.protocol.settlement import Outcome

HERE = Configuration("0x" + "cc" * 20)


class Talk:
    """Sessions whose every question gets `answer` and `outcome`; what was asked is in `asked`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.answer = "yes\x1b[31m"
        self.outcome = Outcome.ACCEPTED
        self.lines: list[Any] | None = None
        self.asked: list[list[str]] = []
        self.stage: ClientStage | None = None
        monkeypatch.setattr(conversation, "session", self.session)
        monkeypatch.setattr(Session, "prepare", staticmethod(self.prepare))

    @asynccontextmanager
    async def session(self, *_: object) -> AsyncIterator[Session]:
        self.stage = client_stage(self.folder, [], signed_order(), None)
        yield self.stage.session

    async def prepare(self, messages: Any, _choices: object, _key: object) -> Any:
        assert self.stage is not None
        self.asked.append([f"{message['role']}: {message['content']}" for message in messages])
        signed, tokens = signed_order(), tokens_of(self.answer)
        self.stage.api.lines = honest_lines(signed, tokens) if self.lines is None else self.lines
        self.stage.follower.put(signed, record(signed, tokens, self.outcome))
        return signed

    async def run(self, question: str = "", system: str = "", *, as_json: bool = False) -> None:
        talk = print_json_answer if as_json else converse
        await talk(Home(self.folder), HERE, CLIENT, Choices(), system, question)


@pytest.fixture
def talk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Talk:
    return Talk(tmp_path, monkeypatch)


async def test_the_answer_goes_to_standard_output_and_all_else_to_standard_error(talk: Talk, capsys: Any) -> None:
    await talk.run("really?", "be brief")
    out, err = capsys.readouterr()
    assert out == "yes[31m\n"
    assert "accepted; you paid 0.000054 ether" in err
    assert talk.asked == [["system: be brief", "user: really?"]]


async def test_json_is_one_object_with_all_that_a_script_needs(talk: Talk, capsys: Any) -> None:
    await talk.run("really?", as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert shown["answer"] == "yes\x1b[31m"
    assert (shown["outcome"], shown["cost_wei"], shown["finish_reason"]) == ("accepted", str(54 * 10**12), "end")
    assert shown["settled"]["gas"] == 100_000


@pytest.mark.parametrize("as_json", [True, False])
async def test_a_rejected_answer_is_an_error_for_scripts(talk: Talk, capsys: Any, as_json: bool) -> None:
    talk.outcome = Outcome.REJECTED
    with pytest.raises(AnswerNotAccepted) as raised:
        await talk.run("really?", as_json=as_json)
    assert raised.value.exit_code == 3
    out, err = capsys.readouterr()
    assert (json.loads(out)["outcome"] == "rejected") if as_json else "REJECTED: do not rely" in err


async def test_json_shows_task_and_answer_so_far_also_after_an_error(talk: Talk, capsys: Any) -> None:
    talk.lines = [FAILED_LINE]
    with pytest.raises(SchedulerRefused):
        await talk.run("really?", as_json=True)
    assert set(json.loads(capsys.readouterr().out)) == {"answer", "task_id", "fee_wei"}


def typed(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(text)))


async def test_a_conversation_remembers_accepted_answers_only(talk: Talk, monkeypatch: Any) -> None:
    talk.answer = "fine"
    original = talk.prepare

    async def prepare(messages: Any, choices: object, key: object) -> Any:
        talk.outcome = Outcome.REJECTED if messages[-1]["content"] == "bad\n" else Outcome.ACCEPTED
        return await original(messages, choices, key)

    monkeypatch.setattr(Session, "prepare", staticmethod(prepare))
    typed(monkeypatch, b"one\nbad\n\n  \ntwo\n/exit\nthree\n")
    await talk.run()
    assert talk.asked[-1] == ["user: one\n", "assistant: fine", "user: two\n"]
    assert len(talk.asked) == 3


async def test_an_error_in_a_turn_does_not_end_the_conversation(talk: Talk, monkeypatch: Any, capsys: Any) -> None:
    typed(monkeypatch, b"\xff\nafter\n")
    await talk.run()
    assert "not valid UTF-8" in capsys.readouterr().err
    assert talk.asked == [["user: after\n"]]


@pytest.mark.parametrize("system", ["\udcff", "x" * 300_000])
async def test_a_system_message_is_checked_like_a_question(talk: Talk, system: str) -> None:
    with pytest.raises(PromptError):
        await talk.run("hello", system)
    assert issubclass(PromptError, ClientError)
    assert talk.asked == []
