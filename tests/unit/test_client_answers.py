"""An earlier answer asked for again: shown only if it is the one that the chain knows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.client_stage import (
    DOMAIN,
    LANGUAGE,
    VOCABULARY,
    FakeFollower,
    base_state,
    record,
    signed_order,
    tokens_of,
)

from troth.client import answers
from troth.client.answers import fetch_answer
from troth.client.configuration import Configuration
from troth.client.connection import Connection
from troth.client.errors import AnswerUnavailable, ClientError, ProofError, ReceiptNotFound, StreamError
from troth.client.home import Home
from troth.client.ordering import SignedOrder
from troth.client.receipts import Receipts
from troth.protocol.settlement import Outcome
from troth.protocol.state import State
from troth.protocol.types import Hash32

TOKENS = tokens_of("grüß dich")
HERE = Configuration(DOMAIN.contract)


class Scene:
    """A wallet with one receipt, a chain, and a scheduler that answers `reply` to GET /v1/tasks."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = Home(folder)
        self.home.create()
        self.signed: SignedOrder = signed_order()
        self.follower = FakeFollower(base_state())
        self.follower.put(self.signed, record(self.signed, TOKENS, Outcome.ACCEPTED))
        self.reply: Any = {"tokens": TOKENS}
        self.asked: list[tuple[Hash32, Hash32]] = []
        self.receipts = Receipts(self.home.receipts, DOMAIN)
        self.receipts.ordered(self.signed)
        monkeypatch.setattr(answers, "view", self.view)
        monkeypatch.setattr(answers, "connection", self.connection)
        monkeypatch.setattr(answers, "load_language", self.load_language)

    @asynccontextmanager
    async def view(self, *_: object) -> AsyncIterator[Any]:
        class Chain:
            domain = DOMAIN

        yield Chain(), self.follower

    @asynccontextmanager
    async def connection(self, *_: object) -> AsyncIterator[Any]:
        yield Connection(self, None)  # type: ignore[arg-type]

    async def task(self, identifier: Hash32, salt: Hash32) -> Any:
        self.asked.append((identifier, salt))
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    async def load_language(self, *_: object) -> Any:
        return LANGUAGE

    async def fetch(self) -> str:
        return await fetch_answer(self.home, HERE, "0x" + self.signed.task_id.hex()[:20])


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


async def test_the_answer_is_fetched_with_the_salt_checked_and_kept(scene: Scene) -> None:
    assert await scene.fetch() == "grüß dich"
    assert scene.asked == [(scene.signed.task_id, scene.signed.salt)]
    assert scene.receipts.all()[0].tokens == tuple(TOKENS)
    assert await scene.fetch() == "grüß dich"
    assert len(scene.asked) == 1, "what is there and is right is not asked for again"


async def test_a_half_answer_that_was_kept_is_replaced(scene: Scene) -> None:
    scene.receipts.answered(scene.signed.task_id, TOKENS[:3])
    assert await scene.fetch() == "grüß dich"


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ({"tokens": tokens_of("grüß mich")}, ProofError),
        ({"tokens": TOKENS[:-1]}, ProofError),
        ({"tokens": []}, ProofError),
        ({"tokens": None}, AnswerUnavailable),
        ({}, AnswerUnavailable),
        ({"tokens": "abc"}, StreamError),
        ({"tokens": [VOCABULARY]}, StreamError),
        ({"tokens": [1] * 65_537}, StreamError),
    ],
    ids=lambda value: repr(value)[:24],
)
async def test_any_other_answer_is_not_shown_or_kept(scene: Scene, reply: Any, kind: type[ClientError]) -> None:
    scene.reply = reply
    with pytest.raises(kind):
        await scene.fetch()
    assert scene.receipts.all()[0].tokens == ()


@pytest.mark.parametrize("outcome", [None, Outcome.ABORTED, Outcome.EXPIRED])
async def test_without_a_commitment_no_text_is_shown(scene: Scene, outcome: Outcome | None) -> None:
    scene.follower.put(scene.signed, record(scene.signed, None, outcome))
    with pytest.raises(AnswerUnavailable, match="No answer was committed"):
        await scene.fetch()
    assert scene.asked == []


async def test_a_task_or_scheduler_that_is_not_there_is_told(scene: Scene) -> None:
    with pytest.raises(ReceiptNotFound):
        await fetch_answer(scene.home, HERE, "0xffff%")
    scene.follower.state = replace(scene.follower.state, schedulers=State().schedulers)
    with pytest.raises(AnswerUnavailable, match="left the network"):
        await scene.fetch()
