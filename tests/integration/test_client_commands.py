"""`troth client` as a user runs it, against a real scheduler, toy nodes and a real contract."""

from __future__ import annotations

import asyncio
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from support.client_network import PASSWORD, CheatingNode, client_side, network, reachable, toy_answer
from support.scripted_journal import ScriptedJournal
from support.waiting import SECONDS, eventually

from troth.chain.keystore import DEMO_SCRYPT_N, create_account
from troth.client.home import Home
from troth.protocol.calls.views import escrow_of

pytestmark = [pytest.mark.chain, pytest.mark.slow]

QUESTION = "word7 word9 word11"


async def test_from_init_to_receipt(deployed: Any, tmp_path: Path) -> None:
    async with network(deployed, tmp_path) as (scene, _):
        key = deployed.anvil.keys[5]
        side = client_side(scene, tmp_path / "home", key, wallet=False)
        create_account(tmp_path / "key.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N, key=key)
        options = ("--rpc", scene.url, "--contract", scene.chain.contract, "--import-key", tmp_path / "key.json")
        made = await side.run("init", *options, "--json")
        assert made.code == 0, made.err
        assert made.json["address"] == key.address
        assert Home(tmp_path / "home").keystore.stat().st_mode & 0o077 == 0

        dry = await side.run("deposit", f"{3 * scene.fee}wei", "--json")
        assert (dry.code, dry.json["broadcast"]) == (0, False)
        assert await scene.chain.read(escrow_of(key.address)) == 0
        sent = await side.run("deposit", f"{3 * scene.fee}wei", "--broadcast", "--json")
        assert sent.json["transaction"].startswith("0x")
        assert (await side.run("balance", "--json")).json["escrow_wei"] == str(3 * scene.fee)
        assert (await side.run("estimate", "--json")).json == {
            "fee_wei": str(scene.fee),
            "escrow_wei": str(3 * scene.fee),
            "requests_covered": 3,
        }

        asked = await side.run("chat", QUESTION, "--max-tokens", 5, "--json")
        assert asked.code == 0, asked.err
        assert asked.json["outcome"] == "accepted"
        assert asked.json["cost_wei"] == str(scene.fee)
        assert asked.json["tokens"] == 5
        assert asked.json["answer"] == toy_answer(QUESTION, 5)
        assert await scene.chain.read(escrow_of(key.address)) == 2 * scene.fee

        task = asked.json["task_id"]
        (listed,) = (await side.run("receipts", "--json")).json
        assert (listed["task_id"], listed["state"], listed["paid_wei"]) == (task, "accepted", str(scene.fee))
        shown = await side.run("receipts", task[:12], "--answer", "--json")
        assert shown.json["answer"] == asked.json["answer"]
        assert shown.json["answer_matches_chain"] is True

        back = await side.run("withdraw", f"{2 * scene.fee}wei", "--broadcast", "--json")
        assert back.code == 0, back.err
        assert await scene.chain.read(escrow_of(key.address)) == 0


async def test_the_answer_is_on_standard_output_and_the_rest_beside_it(deployed: Any, tmp_path: Path) -> None:
    async with network(deployed, tmp_path) as (scene, _):
        side = client_side(scene, tmp_path / "home", scene.client)
        asked = await side.run("chat", "-", "--max-tokens", 4, stdin=QUESTION.encode())
        assert asked.code == 0, asked.err
        assert asked.out == toy_answer(QUESTION, 4) + "\n"
        for step in ("proofs checked", "opened", "committed", "settled", "verdict    accepted"):
            assert step in asked.err


async def test_a_rejected_answer_costs_nothing_and_has_its_own_exit_code(deployed: Any, tmp_path: Path) -> None:
    async with network(deployed, tmp_path, node=CheatingNode) as (scene, _):
        side = client_side(scene, tmp_path / "home", scene.client)
        before = await scene.chain.read(escrow_of(side.address))
        asked = await side.run("chat", QUESTION, "--max-tokens", 3, "--json")
        assert asked.code == 3, asked.err
        assert (asked.json["outcome"], asked.json["cost_wei"]) == ("rejected", "0")
        assert asked.error["kind"] == "AnswerNotAccepted"
        assert await scene.chain.read(escrow_of(side.address)) == before
        (receipt,) = (await side.run("receipts", "--json")).json
        assert (receipt["state"], receipt["paid_wei"]) == ("rejected", "0")


async def test_a_conversation_goes_on_after_a_bad_line(deployed: Any, tmp_path: Path) -> None:
    async with network(deployed, tmp_path) as (scene, _):
        side = client_side(scene, tmp_path / "home", scene.client)
        before = await scene.chain.read(escrow_of(side.address))
        lines = b"word7\n\nword8 \xff\xfe\nword9\n/exit\nword10\n"
        talked = await side.run("chat", "--max-tokens", 3, stdin=lines)
        assert talked.code == 0, talked.err
        assert talked.err.count("verdict    accepted") == 2
        assert "not valid UTF-8" in talked.err
        assert before - await scene.chain.read(escrow_of(side.address)) == 2 * scene.fee


async def test_a_killed_client_gets_its_answer_afterwards(deployed: Any, tmp_path: Path) -> None:
    killed = threading.Event()
    journal = partial(ScriptedJournal, script={"generated": lambda: killed.wait(SECONDS)})
    async with network(deployed, tmp_path, journal=journal) as (scene, scheduler):
        side = client_side(scene, tmp_path / "home", scene.client)
        process = await side.start("chat", QUESTION, "--max-tokens", 30)
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.read(1), SECONDS)
        process.kill()
        await process.wait()
        killed.set()
        await eventually(lambda: not scheduler.desk.journal.unfinished())
        (receipt,) = (await side.run("receipts", "--json")).json
        assert receipt["state"] == "accepted"
        assert receipt["answer_matches_chain"] is False
        fetched = await side.run("receipts", receipt["task_id"], "--answer", "--json")
        assert fetched.json["answer"] == toy_answer(QUESTION, 30)
        assert (await side.run("receipts", receipt["task_id"], "--json")).json["answer_matches_chain"] is True


async def test_an_interrupted_client_says_where_its_task_is(deployed: Any, tmp_path: Path) -> None:
    interrupted = threading.Event()
    # The tokens are on their way to the client, and the answer has no end before this step is written.
    journal = partial(ScriptedJournal, script={"generated": lambda: interrupted.wait(SECONDS)})
    async with network(deployed, tmp_path, journal=journal) as (scene, scheduler):
        side = client_side(scene, tmp_path / "home", scene.client)
        process = await side.start("chat", QUESTION, "--max-tokens", 60)
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.read(1), SECONDS)
        process.send_signal(signal.SIGINT)
        _, err = await asyncio.wait_for(process.communicate(), SECONDS)
        interrupted.set()
        assert process.returncode == 130
        assert b"the task goes on" in err
        assert b"Traceback" not in err
        await eventually(lambda: not scheduler.desk.journal.unfinished())
        assert (await side.run("receipts", "--json")).json[0]["state"] == "accepted"


async def test_commands_at_the_same_time_see_the_same_chain(deployed: Any, tmp_path: Path) -> None:
    async with network(deployed, tmp_path) as (scene, _):
        side = client_side(scene, tmp_path / "home", scene.client)
        shown = await asyncio.gather(*(side.run("balance", "--json") for _ in range(3)))
        escrow = str(await scene.chain.read(escrow_of(side.address)))
        assert [one.json["escrow_wei"] for one in shown] == [escrow] * 3


async def test_too_small_a_balance_names_the_command_that_tops_up(deployed: Any, tmp_path: Path) -> None:
    async with network(deployed, tmp_path) as (scene, scheduler):
        side = client_side(scene, tmp_path / "home", deployed.anvil.keys[6])
        await side.run("deposit", f"{scene.fee - 7}wei", "--broadcast")
        short = await side.run("chat", QUESTION, "--max-tokens", 2, "--json")
        assert short.code == 1
        assert short.error["kind"] == "InsufficientBalance"
        assert "7 wei" in short.error["value"]
        assert "troth client deposit 7wei --broadcast" in short.error["remedy"]
        assert scheduler.desk.journal.unfinished() == []
        await side.run("deposit", "7wei", "--broadcast")
        assert (await side.run("chat", QUESTION, "--max-tokens", 2, "--json")).json["outcome"] == "accepted"


REFUSED: list[tuple[str, tuple[object, ...], bytes]] = [
    ("PromptError", ("chat", "  "), b""),
    ("PromptError", ("chat", "-"), b"\xff\xfe\xfd"),
    ("PromptError", ("chat", "-"), b"a" * 300_000),
    ("PromptError", ("chat", QUESTION, "--max-tokens", 5000), b""),
    ("FeeTooHigh", ("chat", QUESTION, "--max-tokens", 2, "--max-cost", "1wei"), b""),
    ("ModelUnavailable", ("chat", QUESTION, "--execution-class", "0x" + "ab" * 32), b""),
    ("ConfigurationError", ("chat", QUESTION, "--scheduler", "0x" + "ab" * 20), b""),
    ("AmountError", ("deposit", "1.5wei"), b""),
    ("TransactionRefused", ("withdraw", "1000ether"), b""),
    ("ReceiptNotFound", ("receipts", "0xabcd"), b""),
    ("ChainUnavailable", ("balance", "--rpc", "http://127.0.0.1:1"), b""),
    ("WrongChain", ("balance", "--contract", "0x" + "11" * 20), b""),
]


async def test_refusals_have_three_parts_and_cost_nothing(deployed: Any, tmp_path: Path) -> None:
    async with network(deployed, tmp_path) as (scene, scheduler):
        side = client_side(scene, tmp_path / "home", scene.client)
        before = await scene.chain.read(escrow_of(side.address))
        for kind, arguments, stdin in REFUSED:
            refused = await side.run(*arguments, "--json", stdin=stdin)
            assert refused.code == 1, (arguments, refused.out, refused.err)
            assert refused.error["kind"] == kind, (arguments, refused.error)
            assert refused.error["what"]
            assert refused.error["remedy"]
            assert "Traceback" not in refused.err
        assert scheduler.desk.journal.unfinished() == []
        assert await scene.chain.read(escrow_of(side.address)) == before


async def test_another_tls_key_gets_no_order(deployed: Any, tmp_path: Path) -> None:
    async with network(deployed, tmp_path) as (scene, scheduler):
        side = client_side(scene, tmp_path / "home", scene.client)
        asked: list[str] = []
        impostor = FastAPI()

        @impostor.middleware("http")
        async def note(request: Request, _next: Any) -> Response:
            asked.append(request.url.path)
            return Response()

        async with reachable(scene, impostor, tmp_path / "impostor", tls_key_hash=b"\x01" * 32):
            refused = await side.run("chat", QUESTION, "--json")
        assert refused.code == 1
        assert "TLS key" in refused.error["what"]
        assert asked == []
        assert scheduler.desk.journal.unfinished() == []
        assert (await side.run("receipts", "--json")).json == []
