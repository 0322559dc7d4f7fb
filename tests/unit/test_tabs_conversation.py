"""What a person and a script see of questions on tabs; and the way to a scheduler over TLS, pinned on chain."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.toy_market import PARAMETERS
from support.toy_tab_scheduler import ToyOrder
from support.toy_tab_stage import Stage, toy_stage
from unit.test_tabs_asking import ALWAYS, PROMPT

from troth.client.choices import SamplingChoices
from troth.client.configuration import ClientConfiguration
from troth.client.errors import AnswerNotAccepted, SchedulerUnreachable, WrongSchedulerKey
from troth.client.orders import session, terminal
from troth.client.orders.asking import ask
from troth.client.orders.calls import MarketCalls
from troth.client.orders.conversation import converse, print_json_answer
from troth.client.orders.journal import Phase
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.running import Running
from troth.client.orders.session import Connector
from troth.client.orders.talking import Conversation, Typing, talk
from troth.client.orders.updates import EndedUpdate, OrderOutcome, TextUpdate, Update
from troth.client.reaching import reaching
from troth.protocol.amounts import Asset
from troth.protocol.market.bodies import Admitted
from troth.protocol.market.signed import Opinion
from troth.protocol.market.state import Party
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.types import Hash32
from troth.transport.errors import CircuitFailed
from troth.transport.identity import create_identity
from troth.transport.server import TlsServer, serving

ASSET = Asset(NO_ADDRESS, "usdc", 6)
CONTRACT = "0x" + "ab" * 20


@asynccontextmanager
async def run(folder: Path, **options: Any) -> AsyncIterator[tuple[Stage, Running]]:
    async with toy_stage(folder, **options) as stage, OrderKeeper(stage.session) as keeper:
        yield stage, Running(stage.session, ASSET, keeper)


async def test_one_question_is_answered_on_standard_output_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with run(tmp_path) as (stage, running):
        await converse(running, ALWAYS, "", "hello")
        said = capsys.readouterr()
        assert said.out == "hello world\n"
        assert "drawn, proof checked" in said.err
        assert "checked    a majority of verifiers agrees" in said.err
        assert not stage.book().bounds


async def test_what_is_said_of_an_answer_stands_on_lines_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("troth.client.orders.conversation.say", print)  # as on a terminal, which shows both streams
    async with run(tmp_path) as (_, running):
        await converse(running, ALWAYS, "", "hello")
        lines = capsys.readouterr().out.splitlines()
        assert "hello world" in lines
        assert [one.split()[0] for one in lines[lines.index("hello world") + 1 :]] == ["answer", "drawn", "checked"]


async def test_a_script_gets_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with run(tmp_path) as (stage, running):
        await print_json_answer(running, ALWAYS, "be short", "hello")
        told = json.loads(capsys.readouterr().out)
        assert (told["answer"], told["outcome"]) == ("hello world", "checked")
        assert told["cost_units"] == str(stage.book().spent)


async def test_what_a_script_gets_steers_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model may be made to write what clears a screen, or turns the direction of a line."""
    evil = "caf\u00e9 \x9b2J\x1b[H\u202e\x85\ud800"

    async def said(*_given: object) -> AsyncGenerator[Update, None]:
        yield TextUpdate(evil, ())
        yield EndedUpdate(Hash32(bytes(32)), OrderOutcome.CHECKED, 1, 0, "")

    async with run(tmp_path) as (_, running):
        monkeypatch.setattr("troth.client.orders.conversation.ask", said)
        await print_json_answer(running, ALWAYS, "", "hello")
    told = capsys.readouterr().out
    assert told.strip().isascii()
    assert json.loads(told)["answer"] == evil


async def test_a_rejected_answer_ends_a_script_with_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with run(tmp_path) as (stage, running):
        stage.scheduler.node_noise, stage.scheduler.opinion = 1.0, Opinion.REJECT
        with pytest.raises(AnswerNotAccepted):
            await print_json_answer(running, ALWAYS, "", "hello")
        assert json.loads(capsys.readouterr().out)["outcome"] == "rejected"


async def test_prices_are_asked_for_again_over_rebuilt_circuits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wallet whose gateway has just begun sees no error because a relay failed: nothing was ordered yet."""
    monkeypatch.setattr(session, "REBUILT_PAUSE", 0.01)
    async with run(tmp_path) as (_, running):
        connect, failing = running.session.connect, [1, 1]

        async def broken(party: Party) -> MarketCalls:
            if failing:
                failing.pop()
                raise CircuitFailed("proxy", 3, "link broken")
            return await connect(party)

        monkeypatch.setattr(running.session, "connect", broken)
        assert (await running.session.ready()).class_id
        failing += [1, 1, 1]
        for tab_context in running.session.usable():
            tab_context.calls, tab_context.offered = None, 0.0
        with pytest.raises(CircuitFailed):
            await running.session.ready()
        assert not failing


async def test_an_error_does_not_end_a_conversation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with run(tmp_path) as (stage, running):
        await running.session.ready()
        failing = [1, 1, 1]

        def tamper(_one: ToyOrder, lines: list[Any]) -> list[Any]:
            if failing:
                failing.pop()
                return [lines[0], {"type": "failed", "code": "node_failed", "message": "a node is gone"}]
            return lines

        stage.scheduler.tamper = tamper
        await talk(Conversation(running, ALWAYS), Typing(None, io.BytesIO(b"hello\nhello\n/exit\nnever\n")))
        said = capsys.readouterr()
        assert "error: The scheduler gave the order up" in said.err
        assert said.out == "hello world\n"


# ------------------------------------------------------------------------------------------------------- over real TLS


@asynccontextmanager
async def over_tls(stage: Stage, folder: Path) -> AsyncIterator[None]:
    """The stage's scheduler behind its TLS key, as it is registered on chain."""
    identity = create_identity(folder)
    server = TlsServer(stage.scheduler.app(), identity, "127.0.0.1", 0)
    async with serving(server), reaching(stage.home, ClientConfiguration(CONTRACT)) as reach:
        operator = stage.scheduler.key.address
        party = stage.world.state.parties[operator]
        moved = replace(party, endpoint=f"https://127.0.0.1:{server.port}", tls_key_hash=Hash32(identity.spki_sha256))
        stage.world.state = replace(stage.world.state, parties=stage.world.state.parties.set(operator, moved))
        stage.session.connect = Connector(reach)
        yield


@pytest.mark.slow
async def test_the_whole_exchange_runs_over_the_pinned_connection(tmp_path: Path) -> None:
    async with run(tmp_path) as (stage, running), over_tls(stage, tmp_path):
        await converse(running, ALWAYS, "", "hello")
        assert [entry.phase for entry in stage.session.journal.all()] == [Phase.CHECKED]


async def test_nothing_is_sent_to_another_tls_key(tmp_path: Path) -> None:
    async with run(tmp_path) as (stage, running), over_tls(stage, tmp_path):
        operator = stage.scheduler.key.address
        party = replace(stage.world.state.parties[operator], tls_key_hash=Hash32(b"\1" * 32))
        stage.world.state = replace(stage.world.state, parties=stage.world.state.parties.set(operator, party))
        with pytest.raises(WrongSchedulerKey):
            await converse(running, ALWAYS, "", "hello")
        assert stage.scheduler.calls_of == []
        assert stage.session.journal.all() == []


async def test_whoever_interrupts_an_answer_is_told_what_becomes_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with toy_stage(tmp_path) as stage:

        @asynccontextmanager
        async def opened(*_: Any) -> AsyncIterator[SimpleNamespace]:
            yield SimpleNamespace(asset=ASSET, session=stage.session)

        async def interrupted(*_: Any) -> None:
            async with aclosing(ask(stage.session, PROMPT, ALWAYS)) as updates:
                async for update in updates:
                    if isinstance(update, TextUpdate):
                        raise asyncio.CancelledError

        monkeypatch.setattr(terminal, "running", opened)
        monkeypatch.setattr(terminal, "converse", interrupted)
        unused: Any = None
        for as_json in (False, True):
            monkeypatch.setattr(terminal, "print_json_answer", interrupted)
            given = (unused, unused, None, SamplingChoices(8), ("", ""), "", "", "a question")
            with pytest.raises(asyncio.CancelledError):
                await terminal.chat(*given, as_json=as_json)
        entries = stage.session.journal.all()
        said = [line for line in capsys.readouterr().err.splitlines() if line]
        assert len(said) == 2
        assert f"no more of order {entries[-1].name[:12]} is written, and what was written is owed" in said[0]
        assert stage.scheduler.calls_of.count("end") == 3, "the order of before is told once more: nothing happens"
        assert f"at most {ASSET.show(entries[-1].most)}" in said[0], "all of it is paid"
        assert ASSET.show(sum(one.most for one in entries)) in said[1], "both are"
        stage.session.journal.hold(entries[0].identifier)
        with pytest.raises(asyncio.CancelledError):
            await terminal.chat(*given, as_json=False)
        assert stage.scheduler.calls_of.count("end") == 5, "one of three is another process's, which reads it"
        admitted = entries[-1].read("admitted", Admitted)
        assert admitted is not None
        last = admitted.admission.message.block_number + PARAMETERS.lag // 2
        assert f"after block {last}" in said[0]
        assert "`troth client receipts`" in said[0]

        async def lost(*_given: object) -> None:
            raise SchedulerUnreachable("no way", "", "")

        monkeypatch.setattr(MarketCalls, "end", lost)
        with pytest.raises(asyncio.CancelledError):
            await terminal.chat(*given, as_json=False)
        assert "is written to its end, and is owed then" in capsys.readouterr().err
