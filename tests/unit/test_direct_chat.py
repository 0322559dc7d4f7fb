"""`troth client chat` in direct mode: who served is said, and the conversation goes on there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from support.client_stage import CLIENT, DOMAIN
from support.direct_client_stage import Entries, candidates, direct_lines, entries
from typer.testing import CliRunner

from troth.client import answers, conversation
from troth.client.answers import fetch_answer
from troth.client.choices import Choices
from troth.client.command import app
from troth.client.configuration import Configuration, load
from troth.client.connection import Connection
from troth.client.conversation import converse, print_json_answer
from troth.client.errors import ConfigurationError
from troth.client.home import Home
from troth.client.ordering import SignedOrder
from troth.client.receipts import Receipts
from troth.client.session import Session

HERE = Configuration("0x" + "cc" * 20)


@pytest.fixture
async def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Entries]:
    async with entries() as found:

        @asynccontextmanager
        async def session(*_: object) -> AsyncIterator[Session]:
            async with found.session(Home(tmp_path)) as ready:
                yield ready

        monkeypatch.setattr(conversation, "session", session)
        yield found


def orders(nodes: Entries) -> list[SignedOrder]:
    return list(nodes.signed.values())


async def test_who_served_is_said_beside_the_answer(nodes: Entries, tmp_path: Path, capsys: Any) -> None:
    await converse(Home(tmp_path), HERE, CLIENT, Choices(64), "", "hello")
    out, err = capsys.readouterr()
    assert out == "Hello!\n"
    (signed,) = orders(nodes)
    assert f"served by  {candidates(signed)[0]}, which signed this answer\nanswer     7 tokens" in err
    await print_json_answer(Home(tmp_path), HERE, CLIENT, Choices(64), "", "hello")
    assert json.loads(capsys.readouterr().out)["served_by"] == candidates(orders(nodes)[1])[0]


async def test_a_conversation_goes_on_where_it_was_served(
    nodes: Entries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"one\ntwo\nthree\nfour\n")))
    await converse(Home(tmp_path), HERE, CLIENT, Choices(64), "", "")
    served = [candidates(signed)[0] for signed in orders(nodes)]
    assert len(served) == 4
    assert nodes.entered[1:] == served[:3]


async def test_a_node_that_breaks_off_is_left(
    nodes: Entries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def script(signed: SignedOrder) -> list[Any]:
        lines = direct_lines(signed)
        return [*lines[:4], ...] if len(orders(nodes)) == 2 else lines

    nodes.script = script
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"one\ntwo\nthree\n")))
    await converse(Home(tmp_path), HERE, CLIENT, Choices(64), "", "")
    assert nodes.entered[1] == candidates(orders(nodes)[0])[0]
    assert nodes.entered[2] != nodes.entered[1]
    assert "error: " in capsys.readouterr().err


async def test_an_answer_is_fetched_again_from_the_node_that_knows_it(
    nodes: Entries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await converse(Home(tmp_path), HERE, CLIENT, Choices(64), "", "hello")
    (signed,) = orders(nodes)
    receipts = Receipts(Home(tmp_path).receipts, DOMAIN)
    receipts.answered(signed.task_id, [])
    receipts.close()

    @asynccontextmanager
    async def view(*_: object) -> AsyncIterator[Any]:
        class Chain:
            domain = DOMAIN

        yield Chain(), nodes.follower

    @asynccontextmanager
    async def connection(*_: object) -> AsyncIterator[Connection]:
        async with nodes.session(Home(tmp_path)) as ready:
            yield Connection(ready.api, None)

    monkeypatch.setattr(answers, "view", view)
    monkeypatch.setattr(answers, "connection", connection)
    Home(tmp_path).create()
    assert await fetch_answer(Home(tmp_path), HERE, "0x" + signed.task_id.hex()) == "Hello!"
    assert nodes.shown == [(candidates(signed)[0], "0x" + signed.salt.hex())]


def test_init_writes_the_mode_and_refuses_it_without_a_committee(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("correct horse\n")
    password.chmod(0o600)
    run = CliRunner()
    arguments = [
        "init",
        "--contract",
        HERE.contract,
        "--password-file",
        str(password),
        "--home",
        str(tmp_path),
        "--direct",
    ]
    refused = run.invoke(app, arguments)
    assert isinstance(refused.exception, ConfigurationError)
    assert not Home(tmp_path).keystore.exists()
    made = run.invoke(app, [*arguments, "--committee", "0x" + "12" * 20])
    assert made.exit_code == 0, made.output
    assert load(Home(tmp_path).configuration).direct
