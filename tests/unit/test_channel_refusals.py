"""Who is refused is said once, not at each of its attempts: the log of a node is not a stranger's to fill."""

from __future__ import annotations

import logging

import pytest

from troth.chain.keystore import Key
from troth.protocol.typed_data import Domain
from troth.protocol.types import to_address
from troth.transport import channel_server as module
from troth.transport.channel_server import MOST_SAID, ChannelServer
from troth.transport.errors import NotAuthorised, Overloaded
from troth.transport.identity import Operator
from troth.transport.server import _is_news

LEFT = NotAuthorised("0x12 is not allowed here")


def server() -> ChannelServer:
    operator = Operator(Key.generate().secret, Domain(1, to_address("0x" + "ab" * 20)))

    async def handler(*_given: object) -> object:
        raise AssertionError

    return ChannelServer(operator, handler, lambda _sender: False, requests=())  # type: ignore[arg-type]


def test_a_node_that_left_is_told_of_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    caplog.set_level(logging.INFO, module.__name__)
    channel = server()
    for _ in range(401):
        channel._say_refused("0x12", LEFT)
    channel._say_refused("0x13", LEFT)
    assert len(caplog.messages) == 2
    now[0] = module.SAID_SECONDS + 1
    channel._say_refused("0x12", LEFT)
    assert len(caplog.messages) == 3, "after a while it is news again"


def test_a_node_that_left_and_still_reports_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, module.__name__)
    channel, sender = server(), to_address("0x" + "12" * 20)
    for _ in range(401):
        channel._failed(sender, NotAuthorised("not a node any more"))
    channel._failed(sender, Overloaded("too many"))
    assert len(caplog.messages) == 2, "once for each reason"


def test_made_up_names_fill_neither_log_nor_memory(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, module.__name__)
    channel = server()
    for number in range(10 * MOST_SAID):
        channel._say_refused(f"{number}" + "x" * 10_000, LEFT)
    assert len(caplog.messages) == MOST_SAID
    assert sum(map(len, channel._said)) <= MOST_SAID * module.LONGEST_NAME


def test_what_uvicorn_says_of_a_refusal_is_left_out() -> None:
    def record(text: str) -> logging.LogRecord:
        return logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, text, (), None)

    assert not _is_news(record("ASGI callable returned without completing handshake."))
    assert not _is_news(record("Invalid HTTP request received."))
    assert _is_news(record("Exception in ASGI application"))
