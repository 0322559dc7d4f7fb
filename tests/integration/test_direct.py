"""Orders that enter at a node: answered by whom the entry found, verified and paid as ever, and no worse for lies."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from support.direct_stage import DirectNode, DirectStage, direct_stage
from support.scheduler_stage import body_of
from support.waiting import eventually

from troth.client.checking import check_output_hash
from troth.client.errors import ProofError
from troth.overlay.errors import RemoteFailure
from troth.overlay.forwarding.decision import Choice, Reason
from troth.protocol.identifiers import task_id
from troth.protocol.request import output_hash
from troth.protocol.settlement import Outcome
from troth.protocol.tensors import tokens_from_bytes
from troth.protocol.typed_data import recover
from troth.protocol.types import Hash32, Served
from troth.protocol.wire import Decode
from troth.protocol.wire_group import Heard, Listen, Take

pytestmark = [pytest.mark.chain, pytest.mark.slow]

Lines = list[dict[str, Any]]
STEPS = ["assigned", "opened", "served", "finished", "committed", "settled", "receipt"]


def kinds(lines: Lines) -> list[str]:
    return [line["type"] for line in lines if line["type"] != "token"]


def tokens(lines: Lines) -> list[int]:
    found = [line for line in lines if line["type"] == "token"]
    assert [line["position"] for line in found] == list(range(len(found)))
    return [line["id"] for line in found]


def only(lines: Lines, kind: str) -> dict[str, Any]:
    (found,) = [line for line in lines if line["type"] == kind]
    return found


def candidates(lines: Lines) -> list[str]:
    return list(only(lines, "assigned")["parties"][0][:2])


def signer(stage: DirectStage, lines: Lines, salt: Hash32) -> str:
    """Who signed that it gave this answer."""
    task = Hash32(bytes.fromhex(only(lines, "assigned")["task_id"][2:]))
    statement = Served(task, output_hash(salt, tokens(lines)))
    return recover(statement, stage.scene.chain.domain, bytes.fromhex(only(lines, "served")["signature"][2:]))


def ways(node: DirectNode) -> dict[str, float]:
    names = ("here", "forwarded", "scheduler")
    return {way: node.count("troth_node_entry_ways_total", way=way) for way in names}


async def test_whom_the_entry_finds_answers_and_is_paid(deployed: Any, tmp_path: Path) -> None:
    async with direct_stage(deployed, tmp_path) as stage:
        me = stage.entry.node.address
        others = [address for address in stage.nodes if address != me]
        for orders in ([me, *others], [*others, me]):
            stage.prefer(*orders)
            before, served_by = ways(stage.entry), ""
            for _ in range(40):
                submitted = await stage.scene.order(max_tokens=20, logprobs=2)
                lines = await stage.order(submitted)
                # The task's ending on chain may bring the "committed" line or not; all else is always there.
                assert kinds(lines) == STEPS
                assert only(lines, "settled")["outcome"] == "accepted"
                assert len(tokens(lines)) == 20
                assert all(len(line["top"]) == 2 for line in lines if line["type"] == "token")
                check_output_hash(only(lines, "finished")["output_hash"], submitted.salt, tokens(lines))
                served_by = signer(stage, lines, submitted.salt)
                assert served_by == next(address for address in orders if address in candidates(lines))
                assert only(lines, "served")["node"] == served_by
                if (served_by == me) == (orders[0] == me):
                    break
            assert (
                ways(stage.entry)["here" if orders[0] == me else "forwarded"]
                > before["here" if orders[0] == me else "forwarded"]
            )
        assert stage.entry.count("troth_node_entry_tokens_total", source="node") > 0
        unit = stage.scene.execution_class.unit
        credit = sum(stage.scheduler.desk.ledger.state.account(node).credit for node in stage.nodes)
        assert credit % (24 * unit) == 0
        assert credit > 0


async def test_a_chosen_node_that_dies_in_the_middle_is_replaced(deployed: Any, tmp_path: Path) -> None:
    async with direct_stage(deployed, tmp_path) as stage:
        stage.prefer(*(address for address in stage.nodes if address != stage.entry.node.address))
        whole = tokens(await stage.order(await stage.scene.order(max_tokens=150)))
        submitted = await stage.scene.order(max_tokens=150)
        lines: Lines = []
        async with stage.client.stream("POST", f"{stage.path}/orders", json=body_of(submitted)) as answer:
            async for line in answer.aiter_lines():
                lines.append(json.loads(line))
                if lines[-1]["type"] == "assigned":
                    chosen = next(one for one in stage.entry.group.forwarder.order if one in candidates(lines))
                    dying = stage.nodes[chosen].node
                    dying.refuses_from = (Decode, 40)
                if len(lines) == 6:
                    assert lines[-1]["type"] == "token"
                    await dying.server.stop()
        assert only(lines, "settled")["outcome"] == "accepted"
        assert tokens(lines) == whole
        assert only(lines, "receipt")["attempt"] >= 1
        assert "served" not in kinds(lines)


async def test_an_entry_that_changes_a_token_is_found_out(deployed: Any, tmp_path: Path) -> None:
    async with direct_stage(deployed, tmp_path) as stage:
        stage.prefer(*stage.nodes)
        submitted = await stage.scene.order(max_tokens=8)
        lines = await stage.order(submitted)
        said, hashed = tokens(lines), only(lines, "finished")["output_hash"]
        check_output_hash(hashed, submitted.salt, said)
        served = signer(stage, lines, submitted.salt)
        next(line for line in lines if line.get("position") == 3)["id"] ^= 1
        with pytest.raises(ProofError):
            check_output_hash(hashed, submitted.salt, tokens(lines))
        assert signer(stage, lines, submitted.salt) != served


async def test_a_busy_node_is_passed_over(deployed: Any, tmp_path: Path) -> None:
    async with direct_stage(deployed, tmp_path) as stage:
        others = [address for address in stage.nodes if address != stage.entry.node.address]
        stage.prefer(*others, stage.entry.node.address)
        busy = stage.entry.count("troth_node_entry_busy_total", reason="overloaded")
        while busy == stage.entry.count("troth_node_entry_busy_total", reason="overloaded"):
            stage.nodes[others[0]].group.running = 8
            submitted = await stage.scene.order(max_tokens=4)
            lines = await stage.order(submitted)
            assert only(lines, "settled")["outcome"] == "accepted"
            assert signer(stage, lines, submitted.salt) != others[0]


async def test_nobody_takes_it_and_the_scheduler_chooses(deployed: Any, tmp_path: Path) -> None:
    async with direct_stage(deployed, tmp_path, choice_seconds=1.0) as stage:
        for node in stage.nodes.values():
            node.group.running = 8
        stage.prefer(*(address for address in stage.nodes if address != stage.entry.node.address))
        lines = await stage.order(await stage.scene.order(max_tokens=4))
        assert only(lines, "settled")["outcome"] == "accepted"
        assert len(tokens(lines)) == 4
        assert "served" not in kinds(lines)
        assert ways(stage.entry)["scheduler"] == 1


async def test_an_entry_that_names_no_candidate_is_not_followed(deployed: Any, tmp_path: Path) -> None:
    async with direct_stage(deployed, tmp_path, choice_seconds=1.0) as stage:
        forwarder = stage.entry.group.forwarder
        wrong: list[str] = []

        def choose(path: object, count: int, drawn: Any, now: float) -> Choice:
            wrong[:] = [node for node in stage.nodes if node not in drawn]
            return Choice(wrong[-1], 0, Reason.LOAD)

        forwarder.choose = choose  # type: ignore[method-assign, assignment]
        lines = await stage.order(await stage.scene.order(max_tokens=4))
        assert wrong[-1] not in candidates(lines)
        assert only(lines, "settled")["outcome"] == "accepted"
        assert "served" not in kinds(lines)


async def test_who_answers_counts_the_task_once(deployed: Any, tmp_path: Path) -> None:
    async with direct_stage(deployed, tmp_path) as stage:
        taken: list[str] = []
        for address, node in stage.nodes.items():
            node.node._service.took = lambda address=address: taken.append(address)  # type: ignore[misc]
        stage.prefer(*(address for address in stage.nodes if address != stage.entry.node.address))
        submitted = await stage.scene.order(max_tokens=4)
        lines = await stage.order(submitted)
        assert taken == [signer(stage, lines, submitted.salt)]


async def test_messages_that_need_no_payload_have_none(deployed: Any, tmp_path: Path) -> None:
    """What a listener sends is held for as long as it waits."""
    async with direct_stage(deployed, tmp_path) as stage:
        one, other = list(stage.nodes.values())[:2]
        for message in (Take(bytes(32), bytes(32)), Listen(bytes(32), bytes(32), 0)):
            with pytest.raises(RemoteFailure, match="payload"):
                await one.group.channel(other.node.address).request(message, bytes(1000))


async def test_only_the_salt_opens_an_answer(deployed: Any, tmp_path: Path) -> None:
    async with direct_stage(deployed, tmp_path) as stage:
        stage.prefer(*(address for address in stage.nodes if address != stage.entry.node.address))
        submitted = await stage.scene.order(max_tokens=100)
        task = task_id(submitted.order, stage.scene.chain.domain)
        refused = 0
        async with stage.client.stream("POST", f"{stage.path}/orders", json=body_of(submitted)) as answer:
            lines: Lines = []
            async for line in answer.aiter_lines():
                lines.append(json.loads(line))
                if lines[-1]["type"] != "token" or refused:
                    continue
                chosen = next(one for one in stage.entry.group.forwarder.order if one in candidates(lines))
                curious = next(node for one, node in stage.nodes.items() if one != chosen)
                channel = curious.group.channel(chosen)
                for salt in (bytes(32), b"\xff" * 32):
                    with pytest.raises(RemoteFailure) as error:
                        await channel.request(Listen(task, salt, 0))
                    assert error.value.remote_code == "not_assigned"
                    refused += 1
                with pytest.raises(RemoteFailure, match="no such task"):
                    await channel.request(Listen(bytes(32), submitted.salt, 0))
                # Whoever has the request has the answer.
                heard = await channel.request(Listen(task, submitted.salt, 0))
                assert isinstance(heard.header, Heard)
                said = tokens_from_bytes(heard.payload, heard.header.count, 48)
        assert refused == 2
        assert list(said) == tokens(lines)[: len(said)]


async def test_no_token_leaves_before_the_fee_is_locked(deployed: Any, tmp_path: Path) -> None:
    async with direct_stage(deployed, tmp_path) as stage:
        stage.prefer(*stage.nodes)
        anvil = stage.scene.anvil
        submitted = await stage.scene.order(max_tokens=20)
        task = task_id(submitted.order, stage.scene.chain.domain)
        anvil.rpc("evm_setAutomine", False)
        asking = asyncio.create_task(stage.order(submitted))
        try:
            works = [node.node._service for node in stage.nodes.values()]
            await eventually(lambda: any(len(w.answer.tokens) > 9 for w in (s.answering(task) for s in works) if w))
            chosen = next(s for s in works if s.answering(task) is not None)
            listening = next(node for node in stage.nodes.values() if node.node._service is chosen)
            # Not even who has the salt.
            asked = (
                stage.entry
                if listening is not stage.entry
                else next(node for node in stage.nodes.values() if node is not listening)
            )
            early = asyncio.create_task(
                asked.group.channel(listening.node.address).request(Listen(task, submitted.salt, 0))
            )
            await asyncio.sleep(1.5)
            assert not early.done()
            assert stage.entry.count("troth_node_entry_tokens_total", source="node") == 0
        finally:
            anvil.rpc("evm_setAutomine", True)
            anvil.mine()
        assert (await early).header.count > 0
        assert only(await asking, "settled")["outcome"] == "accepted"


async def test_a_client_that_goes_away_changes_nothing(deployed: Any, tmp_path: Path) -> None:
    async with direct_stage(deployed, tmp_path) as stage:
        stage.prefer(*stage.nodes)
        submitted = await stage.scene.order(max_tokens=60)
        async with stage.client.stream("POST", f"{stage.path}/orders", json=body_of(submitted)) as answer:
            async for line in answer.aiter_lines():
                if json.loads(line)["type"] == "token":
                    break
        await eventually(lambda: stage.entry.count("troth_node_entry_under_way") == 0)
        await eventually(lambda: not stage.scheduler.desk.journal.unfinished())
        assert await stage.scene.outcome(task_id(submitted.order, stage.scene.chain.domain)) is Outcome.ACCEPTED
        salt = {"troth-salt": "0x" + submitted.salt.hex()}
        task = "0x" + task_id(submitted.order, stage.scene.chain.domain).hex()
        receipt = (await stage.client.get(f"{stage.path}/tasks/{task}", headers=salt)).json()
        assert len(receipt["tokens"]) == 60
        assert (await stage.client.get(f"{stage.path}/tasks/{task}")).json()["tokens"] is None


async def test_what_is_refused_and_how(deployed: Any, tmp_path: Path) -> None:
    async with direct_stage(deployed, tmp_path) as stage:
        stage.prefer(*stage.nodes)
        body = body_of(await stage.scene.order(max_tokens=2))
        client, path = stage.client, f"{stage.path}/orders"
        assert (await client.post(path, json=body)).status_code == 200
        await refuses(client.post(path, json=body), 409, "already_ordered")
        node = stage.entry.node.address
        await refuses(client.post(f"/schedulers/{node}/v1/orders", json=body), 404, "unknown_scheduler")
        await refuses(client.post("/schedulers/0x12/v1/orders", json=body), 400, "bad_request")
        await refuses(client.get(f"/schedulers/{node}/v1/info"), 404, "unknown_scheduler")
        await refuses(client.get(f"{stage.path}/tasks/0x12"), 400, "bad_request")
        await refuses(client.get(f"{stage.path}/tasks/0x{'00' * 32}"), 404, "unknown_task")
        await refuses(client.post(path, content=b"{"), 400, "bad_request")
        await refuses(client.post(path, content=b" " * (2 * 2**20 + 1)), 413, "bad_request")
        fresh = body_of(await stage.scene.order(max_fee=1))
        await refuses(client.post(path, json=fresh), 402, "fee_too_low")
        fresh["order"]["execution_class"] = "0x" + "01" * 32
        await refuses(client.post(path, json=fresh), 404, "unknown_class")
        assert stage.entry.count("troth_node_entry_under_way") == 0


async def refuses(asking: Any, status: int, code: str) -> None:
    answer = await asking
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code), error
    assert error["message"]
    assert error["remedy"]


async def test_the_rest_of_a_scheduler_s_interface(deployed: Any, tmp_path: Path) -> None:
    async with direct_stage(deployed, tmp_path) as stage:
        own = (await stage.client.get("/v1/info")).json()
        assert own["operator"] == stage.entry.node.address
        info = (await stage.client.get(f"{stage.path}/info")).json()
        assert info["operator"] == stage.scene.scheduler.address
        assert info["classes"][0]["id"] == own["class"]
        texts = (await stage.client.get(f"{stage.path}/models/{own['class']}/tokenizer")).json()
        assert texts["tokenizer"] == "{}"
        placement = await stage.client.get(f"{stage.path}/placement")
        assert placement.status_code == 404


async def test_nodes_that_found_each_other_by_the_chain(deployed: Any, tmp_path: Path) -> None:
    """No told choices: the group's own view decides, and every order is served by a candidate that it knows."""
    async with direct_stage(deployed, tmp_path, grouped=True) as stage:
        sharing = stage.entry.group._sharing
        await eventually(lambda: sum(row.alive for _, row in sharing.view.members.rows()) == len(stage.nodes))
        for _ in range(6):
            submitted = await stage.scene.order(max_tokens=12)
            lines = await stage.order(submitted)
            assert kinds(lines) == STEPS
            assert signer(stage, lines, submitted.salt) in candidates(lines)
        found = ways(stage.entry)
        assert found["scheduler"] == 0
        assert found["here"] + found["forwarded"] == 6
