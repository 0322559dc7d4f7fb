"""Log lines carry the bound task and are JSON off a terminal."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest

from troth.transport.logs import configure, task_bound


@pytest.fixture
def lines(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = getattr(request, "param", io.StringIO)()
    configure("INFO", stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)


def test_json_with_the_task_of_the_block(lines: io.StringIO) -> None:
    log = logging.getLogger("troth.test")
    with task_bound(b"\x0a" * 32):
        log.info("opened in block %d", 7)
    log.info("outside")
    first, second = (json.loads(line) for line in lines.getvalue().splitlines())
    assert first["task"] == "0x" + "0a" * 32
    assert (first["level"], first["logger"], first["message"]) == ("info", "troth.test", "opened in block 7")
    assert "task" not in second


async def test_concurrent_tasks_keep_their_own(lines: io.StringIO) -> None:
    log = logging.getLogger("troth.test")

    async def one(number: int) -> None:
        with task_bound(bytes([number]) * 32):
            await asyncio.sleep(0)
            log.info("%d", number)

    await asyncio.gather(*[one(number) for number in range(1, 6)])
    for line in map(json.loads, lines.getvalue().splitlines()):
        assert line["task"] == "0x" + f"{int(line['message']):02x}" * 32


def test_a_traceback_stays_on_one_line(lines: io.StringIO) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("troth.test").exception("failed")
    (line,) = lines.getvalue().splitlines()
    assert "ValueError: broken" in json.loads(line)["traceback"]


def test_a_line_after_standard_error_was_replaced_and_closed_goes_to_the_present_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    first, second = io.StringIO(), io.StringIO()
    try:
        monkeypatch.setattr("sys.stderr", first)
        configure()
        monkeypatch.setattr("sys.stderr", second)
        first.close()
        logging.getLogger("troth.test").warning("late")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    (line,) = second.getvalue().splitlines()
    assert json.loads(line)["message"] == "late"


def test_an_rpc_address_and_its_credentials_are_not_told(lines: io.StringIO) -> None:
    logging.getLogger("web3.providers.AsyncHTTPProvider").info("Successfully disconnected from: https://rpc/v3/key")
    assert lines.getvalue() == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("lines", [Terminal], indirect=True)
def test_a_terminal_gets_words(lines: io.StringIO) -> None:
    with task_bound(b"\x0b" * 32):
        logging.getLogger("troth.test").info("settled")
    assert "0x0b0b0b0b…" in lines.getvalue()
    assert "0b" * 32 not in lines.getvalue()
    assert "settled" in lines.getvalue()
    assert not lines.getvalue().startswith("{")


@pytest.mark.parametrize("lines", [Terminal], indirect=True)
def test_what_a_stranger_sent_begins_no_line_and_changes_no_terminal(lines: io.StringIO) -> None:
    logging.getLogger("troth.test").warning("refused: %s", "x\n12:00:00 [info] all is well\x1b]0;title\x07\x9b2J")
    assert lines.getvalue().count("\n") == 1
    assert r"x\n12:00:00 [info] all is well\x1b]0;title\x07\x9b2J" in lines.getvalue()
