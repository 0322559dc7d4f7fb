"""A conversation at a terminal: what its commands do, and that the client keeps its watch while a line is typed."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import re
import select
import stat
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.toy_tab_stage import Stage, toy_stage
from unit.test_tabs_asking import ALWAYS

from troth.client.errors import ModelUnavailable, PromptError
from troth.client.gateway.catalogue import require_model
from troth.client.gateway.errors import NotFound
from troth.client.home import Home
from troth.client.orders import talking
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.models import choose_model, models_on_offer
from troth.client.orders.running import Running
from troth.client.orders.session import _class_id
from troth.client.orders.talking import Conversation, Typing, read_saved, talk
from troth.client.terminal import coloured
from troth.protocol.amounts import Asset
from troth.protocol.errors import InvalidField
from troth.protocol.market.heads import with_head
from troth.protocol.market.layers import with_layers
from troth.protocol.market.signed import Opinion
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.types import Hash32

ASSET = Asset(NO_ADDRESS, "usdc", 6)
RECEIPT = r"checked · \d+ read( \(\d+ cached\))?, \d+ written · \d verifiers · .* usdc · 0x[0-9a-f]{10}"


@asynccontextmanager
async def conversation_in(folder: Path, **options: Any) -> AsyncIterator[tuple[Stage, Conversation]]:
    async with toy_stage(folder, **options) as stage, OrderKeeper(stage.session) as keeper:
        home = Home(folder / "home")
        home.create()
        yield stage, Conversation(Running(stage.session, ASSET, keeper), ALWAYS, home)


def typed(*lines: str) -> Typing:
    return Typing(None, io.BytesIO("".join(f"{line}\n" for line in lines).encode()))


@pytest.mark.slow
async def test_a_turn_ends_with_one_line_and_the_next_remembers_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with conversation_in(tmp_path) as (_, conversation):
        await talk(conversation, typed("hello", "", "hello again", "/receipts"))
        said = capsys.readouterr()
    assert said.out == "hello world\nhello world\n"
    receipts = [line for line in said.err.splitlines() if line.startswith("checked · ")]
    assert len(receipts) == 2
    assert re.fullmatch(RECEIPT, receipts[0])
    assert [one["role"] for one in conversation.messages] == ["user", "assistant"] * 2
    assert len(conversation.orders) == 2
    assert all(order in said.err for order in conversation.orders)


async def test_a_rejected_answer_is_not_remembered_and_said_loudly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with conversation_in(tmp_path) as (stage, conversation):
        stage.scheduler.node_noise, stage.scheduler.opinion = 1.0, Opinion.REJECT
        await talk(conversation, typed("hello"))
        assert "REJECTED: do not rely on this answer" in capsys.readouterr().err
        assert conversation.messages == []
        assert len(conversation.orders) == 1, "its receipt can be asked for"


async def test_a_conversation_is_saved_and_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kept.json"
    async with conversation_in(tmp_path) as (_, conversation):
        await talk(conversation, typed("hello", f"/save {file}", "/new", "/receipts", "/save"))
        assert conversation.messages == []
        said = capsys.readouterr().err
        assert "nothing was asked in this conversation yet" in said
        assert "There is no name to save under" in said
        for name in (str(file), "last"):
            conversation.resume(name)
            assert [one["content"] for one in conversation.messages] == ["hello", "hello world"]
    last = tmp_path / "home" / "client" / "conversations" / "last.json"
    for path in (file, last):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, "it holds prompts"


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b'{"version": 2, "execution_class": "", "messages": [], "orders": []}',
     b'{"version": 1, "execution_class": "", "messages": [{"role": "tool", "content": ""}], "orders": []}',
     b'{"version": 1, "execution_class": "", "messages": [], "orders": [], "more": 1}', b"\xff" * 100],
)  # fmt: skip
def test_what_is_no_conversation_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "saved"
    path.write_bytes(content)
    with pytest.raises(PromptError, match="no saved conversation"):
        read_saved(path)
    with pytest.raises(PromptError, match="cannot be read"):
        read_saved(tmp_path / "none")


async def test_what_cannot_be_saved_is_said_and_the_conversation_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    async with conversation_in(tmp_path) as (_, conversation):
        await talk(conversation, typed(f"/save {tmp_path}/file/below", f"/save {tmp_path}", "hello"))
    said = capsys.readouterr()
    assert said.err.count("The conversation cannot be saved") == 2
    assert said.out == "hello world\n"
    assert not os.path.lexists(f"{tmp_path.parent}/.{tmp_path.name}.{os.getpid()}"), "nothing is left half-written"  # noqa: ASYNC240


@pytest.mark.parametrize("failure", [TimeoutError(), InvalidField("A field is wrong", "x", "Mend it.")])
async def test_no_failure_of_a_turn_ends_a_conversation(
    failure: Exception, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: Any) -> Any:
        raise failure

    async with conversation_in(tmp_path) as (_, conversation):
        await conversation.running.session.ready()
        monkeypatch.setattr(talking, "models_on_offer", failing)
        await talk(conversation, typed("/models", "hello"))
    said = capsys.readouterr()
    assert "error: " in said.err
    assert said.out == "hello world\n"


async def test_an_unknown_command_is_not_asked_and_not_paid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with conversation_in(tmp_path) as (stage, conversation):
        await talk(conversation, typed("/halp", "/help", "/exit", "never"))
        assert stage.session.journal.all() == []
    said = capsys.readouterr().err
    assert "There is no such command" in said
    assert "/save FILE" in said


async def test_models_are_listed_by_price_and_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with conversation_in(tmp_path) as (stage, conversation):
        await stage.session.ready()
        (offered,) = await models_on_offer(stage.session)
        assert offered.tab
        assert "usdc a million written" in offered.line(ASSET) or "units per 10^9 written" in offered.line(ASSET)
        told = offered.to_json(ASSET)
        assert int(told["written_units_per_billion"]) == offered.offer.quote.written_price
        await talk(conversation, typed("/models", "/model 1", f"/model {offered.name}", "hello", "/model 7"))
        said = capsys.readouterr()
        assert "hello world" in said.out
        assert "There is no such model on offer" in said.err
        assert stage.session.class_id == offered.offer.class_id
        for wrong in ("", "0", "2", "nothing"):
            with pytest.raises(ModelUnavailable):
                choose_model([offered], wrong)
        name = offered.offer.execution_class.name
        assert _class_id(name, stage.session.state) == offered.offer.class_id
        with pytest.raises(ModelUnavailable, match="No class has this name"):
            _class_id("nobody/has/this", stage.session.state)


async def test_a_class_that_names_its_head_is_asked_by_the_name_that_is_listed(tmp_path: Path) -> None:
    async with conversation_in(tmp_path) as (stage, _):
        await stage.session.ready()
        (offered,) = await models_on_offer(stage.session)
        plain, class_id = offered.offer.execution_class, offered.offer.class_id
        whole = replace(plain, name=with_layers(with_head("Tiny/torch/float32", "model.embed"), Hash32(b"\7" * 32)))
        classes = stage.session.state.classes
        state = replace(stage.session.state, classes=classes.set(class_id, whole))
        assert _class_id("tiny/torch/float32", state) == _class_id(whole.name, state) == class_id
        twice = replace(state, classes=state.classes.set(Hash32(b"\1" * 32), replace(whole, name=whole.name + "x")))
        assert _class_id(whole.name, twice) == class_id, "the whole name says which"
        with pytest.raises(ModelUnavailable, match="Several classes"):
            _class_id("tiny/torch/float32", twice)
        headed = replace(offered.offer, execution_class=whole)
        for name in ("Tiny/torch/float32", "tiny", "TINY", whole.name, "0x" + class_id.hex(), "Tiny-torch-float32"):
            assert require_model(headed, name) == "Tiny-torch-float32"
        for name in ("", "/", "tin", "gpt-4"):
            with pytest.raises(NotFound):
                require_model(headed, name)


async def test_the_client_keeps_its_watch_while_a_pipe_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()

    class Input:
        def isatty(self) -> bool:
            return False

        def fileno(self) -> int:
            return reading

    monkeypatch.setattr(sys, "stdin", Input())
    rounds = 0

    async def watch() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            if rounds == 50:
                os.write(writing, b"hello\nmore\n")
            await asyncio.sleep(0.001)

    typing, watching = Typing(None), asyncio.create_task(watch())
    async with asyncio.timeout(20):
        assert await typing.next() == b"hello\n"
        assert rounds >= 50
        assert await typing.next() == b"more\n"
        os.close(writing)
        assert await typing.next() is None
    watching.cancel()


PROGRAM = """
import asyncio, sys
from pathlib import Path
from troth.client.orders.conversation import say
from troth.client.orders.talking import Typing

async def main():
    async def watch():
        for number in range(1000):
            await asyncio.sleep(0.2)
            if number == 2:
                say("case      0xabc is decided")
    watching = asyncio.create_task(watch())
    typing = Typing(Path(sys.argv[1]))
    while (line := await typing.next()) is not None:
        print("GOT", line.decode(), flush=True)
    watching.cancel()

asyncio.run(main())
"""


@pytest.mark.slow
def test_at_a_terminal_lines_come_above_the_prompt_and_history_is_kept(tmp_path: Path) -> None:
    history = tmp_path / "typed"
    process, terminal = pty.fork()
    if process == 0:
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-c", PROGRAM, str(history)])
    # Ctrl-C on an empty line, and Ctrl-D at the end of all.
    steps = [("is decided", b"hello\r"), ("GOT hello.*\\x1b\\[\\?2004h.*>", b"\x03"), ("/exit ends.*>", b"\x04")]
    seen, give_up = "", 60.0
    began = time.monotonic()
    # Not select(), which takes no file descriptor above 1,023.
    readable = select.poll()
    readable.register(terminal, select.POLLIN)
    while time.monotonic() - began < give_up:
        if not readable.poll(200):
            continue
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            break
        if not piece:
            break
        seen += piece.decode("utf-8", "replace")
        if "\x1b[6n" in piece.decode("utf-8", "replace"):
            os.write(terminal, b"\x1b[1;1R")  # where the cursor is, as a terminal answers
        if steps and re.search(steps[0][0], seen, re.DOTALL):
            os.write(terminal, steps.pop(0)[1])
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0, seen
    assert steps == []
    assert "+hello" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_colours_are_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert coloured("checked · 1", io.StringIO()) == "checked · 1"
    assert coloured("REJECTED: x", Terminal()) == "\x1b[31mREJECTED: x\x1b[0m"
    assert coloured("checked · 1", Terminal()).startswith("\x1b[32m")
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured("REJECTED: x", Terminal()) == "REJECTED: x"
