"""The client's HTTPS side of a scheduler, over TLS with the pin, and the process that an operator runs."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.scheduler_stage import ENDS, Stage, body_of, stage
from support.waiting import eventually

from troth.chain.keystore import DEMO_SCRYPT_N, create_account, create_vrf_secret
from troth.overlay.https import pinned_client
from troth.overlay.identity import create_identity, load_identity
from troth.overlay.server import TlsServer, serving
from troth.protocol.identifiers import task_id
from troth.protocol.settlement import Outcome
from troth.scheduler.api import scheduler_app
from troth.scheduler.assembly import assembled
from troth.scheduler.service import Scheduler

TROTH = str(Path(sys.executable).parent / "troth")
pytestmark = [pytest.mark.chain, pytest.mark.slow]


@asynccontextmanager
async def served(scene: Stage) -> AsyncIterator[tuple[httpx.AsyncClient, Scheduler]]:
    identity = create_identity(scene.folder / "tls")
    async with assembled(scene.configuration(), scene.keys) as scheduler:
        server = TlsServer(scheduler_app(scheduler), identity, "127.0.0.1", 0)
        async with serving(server), pinned_client(f"https://127.0.0.1:{server.port}", identity.spki_sha256) as client:
            yield client, scheduler


async def test_a_whole_order_over_https(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path) as scene, served(scene) as (client, _):
        info = (await client.get("/v1/info")).json()
        assert info["operator"] == scene.scheduler.address
        assert info["classes"][0]["ends"] == list(ENDS)
        assert info["classes"][0]["fee"] == str(scene.fee)
        texts = (await client.get(f"/v1/models/{info['classes'][0]['id']}/tokenizer")).json()
        assert texts["tokenizer"] == "{}"
        submitted = await scene.order(max_tokens=4)
        async with client.stream("POST", "/v1/orders", json=body_of(submitted)) as answer:
            assert answer.status_code == 200
            lines = [json.loads(line) async for line in answer.aiter_lines()]
        assert [line["type"] for line in lines] == [
            "assigned",
            "opened",
            *["token"] * 4,
            "finished",
            "committed",
            "settled",
            "receipt",
        ]
        final = lines[-1]
        assert final["outcome"] == "accepted"
        assert final["tokens"] == [line["id"] for line in lines if line["type"] == "token"]
        assert final["timing"]["tokens"] == 4
        assert final["timing"]["overhead_per_token"] > 0
        path = f"/v1/tasks/{final['task_id']}"
        salt = {"troth-salt": "0x" + submitted.salt.hex()}
        assert (await client.get(path, headers=salt)).json()["tokens"] == final["tokens"]
        assert (await client.get(path)).json()["tokens"] is None
        assert (await client.get(path, headers={"troth-salt": "0x" + "00" * 32})).json()["tokens"] is None


async def test_a_client_that_goes_away_changes_nothing(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path) as scene, served(scene) as (client, scheduler):
        submitted = await scene.order(max_tokens=40)
        async with client.stream("POST", "/v1/orders", json=body_of(submitted)) as answer:
            async for line in answer.aiter_lines():
                if json.loads(line)["type"] == "token":
                    break
        task = task_id(submitted.order, scene.chain.domain)
        await eventually(lambda: not scheduler.desk.journal.unfinished())
        assert await scene.outcome(task) is Outcome.ACCEPTED
        salt = {"troth-salt": "0x" + submitted.salt.hex()}
        assert len((await client.get(f"/v1/tasks/0x{task.hex()}", headers=salt)).json()["tokens"]) == 40


REFUSALS: list[tuple[str, int, dict[str, Any]]] = [
    ("unknown_class", 404, {"execution_class": b"\x01" * 32}),
    ("expired", 400, {"deadline": int(time.time()) - 90}),
    ("wrong_reference_block", 400, {"reference_block": 10**6}),
    ("bad_signature", 400, {"scheduler": "0x5FbDB2315678afecb367f032d93F642f64180aa3"}),
    ("fee_too_low", 402, {"max_fee": 1}),
    ("prompt_too_long", 413, {"max_tokens": 10_000}),
    ("token_out_of_vocabulary", 400, {"prompt": (1, 64)}),
    ("bad_request", 400, {"request_hash": b"\x02" * 32}),
]


@pytest.mark.parametrize(("code", "status", "changes"), REFUSALS)
async def test_a_refusal_says_what_to_do(
    deployed: Any, tmp_path: Path, code: str, status: int, changes: dict[str, Any]
) -> None:
    async with stage(deployed, tmp_path, nodes=5) as scene, served(scene) as (client, scheduler):
        answer = await client.post("/v1/orders", json=body_of(await scene.order(**changes)))
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (status, code), error
        assert error["message"]
        assert scheduler.desk.journal.unfinished() == []


async def test_refusals_that_depend_on_the_chain(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path, nodes=4) as scene, served(scene) as (client, _):
        small = (await client.post("/v1/orders", json=body_of(await scene.order()))).json()["error"]
        assert small["code"] == "group_too_small"
        assert "had 4 nodes" in small["message"]
        assert "needs 5" in small["message"]
        poor = replace(scene, client=deployed.anvil.keys[7])
        short = await client.post("/v1/orders", json=body_of(await poor.order()))
        assert short.status_code == 402
        assert short.json()["error"]["code"] == "insufficient_escrow"
        assert short.json()["error"]["shortfall"] == str(scene.fee)
        assert f"troth client deposit {scene.fee}wei --broadcast" in short.json()["error"]["remedy"]


async def test_the_same_order_twice(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path) as scene, served(scene) as (client, _):
        body = body_of(await scene.order(max_tokens=2))
        assert (await client.post("/v1/orders", json=body)).status_code == 200
        again = await client.post("/v1/orders", json=body)
        assert again.status_code == 409
        assert again.json()["error"]["code"] == "already_ordered"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"order": 1}',
        b"\xff" * 100,
        b'{"order": {}, "signature": "0x", "request": {}, "salt": "0x"}',
    ],
)
async def test_garbage_is_a_bad_request(deployed: Any, tmp_path: Path, body: bytes) -> None:
    async with stage(deployed, tmp_path, nodes=1) as scene, served(scene) as (client, _):
        answer = await client.post("/v1/orders", content=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
        empty = body_of(await scene.order())
        empty["request"]["prompt_tokens"] = []
        assert (await client.post("/v1/orders", json=empty)).json()["error"]["code"] == "empty_prompt"
        assert (await client.get("/v1/tasks/0x" + "00" * 32)).status_code == 404


async def test_a_huge_order_is_refused(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path, nodes=1) as scene, served(scene) as (client, scheduler):
        body = body_of(await scene.order())
        body["request"]["prompt_tokens"] = [1] * 2**21
        answer = await client.post("/v1/orders", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
        assert "at most" in answer.json()["error"]["message"]
        assert scheduler.desk.journal.unfinished() == []


async def test_health_tells_the_truth(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path, nodes=1) as scene, served(scene) as (client, scheduler):
        assert (await client.get("/livez")).status_code == 200
        assert (await client.get("/readyz")).json() == {"ready": True, "reasons": []}
        scheduler.draining = True
        answer = await client.get("/readyz")
        assert answer.status_code == 503
        assert "draining" in answer.json()["reasons"][0]
        assert (await client.post("/v1/orders", json=body_of(await scene.order()))).status_code == 503
        assert "troth_scheduler_running_tasks" in (await client.get("/metrics")).text


async def run(*arguments: str) -> dict[str, Any]:
    """A `troth scheduler` command's JSON."""
    process = await asyncio.create_subprocess_exec(
        TROTH,
        "scheduler",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return dict(json.loads(out))


async def test_from_init_to_exit_on_the_command_line(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path, nodes=5) as scene:
        password = tmp_path / "password"
        password.write_text("correct horse\n")
        password.chmod(0o600)
        keys = deployed.anvil.keys
        operator = create_account(tmp_path / "op.json", "correct horse", scrypt_n=DEMO_SCRYPT_N, key=keys[8])
        create_account(tmp_path / "owner.json", "correct horse", scrypt_n=DEMO_SCRYPT_N, key=keys[9])
        create_vrf_secret(tmp_path / "vrf.json", "correct horse", scrypt_n=DEMO_SCRYPT_N)
        home = ["--home", str(tmp_path / "home")]
        secret = ["--password-file", str(password)]
        scene.configuration()  # writes the model folder
        made = await run(
            "init", *home, *secret, "--json", "--rpc", scene.url, "--contract", scene.chain.contract,
            "--class", "0x" + scene.class_id.hex(), "--model", str(scene.folder / "model"), "--ends", "1,2",
            "--operator-keystore", str(tmp_path / "op.json"), "--vrf-keystore", str(tmp_path / "vrf.json"),
            "--port", "0",
        )  # fmt: skip
        assert made["operator"] == operator.address
        registering = ["register", *home, *secret, "--owner-keystore", str(tmp_path / "owner.json"), "--json"]
        assert (await run(*registering))["sent"] is False
        assert (await run(*registering, "--broadcast"))["transaction"].startswith("0x")
        status = await run("status", *home, "--json")
        assert (status["role"], status["problems"]) == ("scheduler", [])
        await _starts_and_stops(tmp_path, home, secret)
        assert (await run("exit", *home, *secret, "--broadcast", "--json"))["function"] == "deregister"
        deployed.anvil.mine(deployed.parameters.unbonding_period + 1)
        assert (await run("withdraw", *home, *secret, "--broadcast", "--json"))["function"] == "withdraw"


async def _starts_and_stops(folder: Path, home: list[str], secret: list[str]) -> None:
    begun = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        TROTH, "scheduler", "start", *home, *secret,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    port = 0
    while not port:
        line = await asyncio.wait_for(process.stderr.readline(), 120)
        assert line, "the scheduler ended"
        message = json.loads(line)["message"]
        port = int(message.rsplit(" ", 1)[1]) if message.startswith("serving") else 0
    print(f"started after {time.monotonic() - begun:.1f} s")
    pin = load_identity(folder / "home" / "tls").spki_sha256
    async with pinned_client(f"https://127.0.0.1:{port}", pin) as client:
        assert (await client.get("/readyz")).json()["ready"] is True
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 120) == 0
