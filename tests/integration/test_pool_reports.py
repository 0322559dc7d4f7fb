"""Reports over real channels: who may send them, what they change, and what lies in them are worth."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.pool_stage import Desk, desk
from support.scheduler_stage import body_of, stage

from troth.overlay.errors import ChannelUnavailable, OverlayError, RemoteFailure
from troth.overlay.https import pinned_client
from troth.overlay.operator import Operator
from troth.protocol.hashing import keccak256
from troth.protocol.types import pack_ends
from troth.protocol.wire import Release, encode_frame
from troth.scheduler.pool.class_pool import CLOSEST_REPORTS

pytestmark = [pytest.mark.chain, pytest.mark.slow]


@pytest.fixture
async def running(deployed: Any, tmp_path: Path) -> AsyncIterator[Desk]:
    async with stage(deployed, tmp_path) as scene, desk(scene) as found:
        yield found


async def serve(running: Desk, max_tokens: int = 4) -> tuple[Any, list[dict[str, Any]]]:
    """One task; its lifecycle and its lines."""
    lifecycle = await running.scheduler.submit(await running.scene.order(max_tokens=max_tokens))
    return lifecycle, [line async for line in lifecycle.stream.lines()]


def inferencers(running: Desk, lifecycle: Any) -> list[str]:
    """Who generated the answer."""
    generated = next(
        record
        for record in running.scheduler.desk.journal.history(lifecycle.task.task_id)
        if type(record).__name__ == "Generated"
    )
    return [lifecycle.task.assignment.candidates(segment)[index] for segment, index in enumerate(generated.inferencers)]


async def test_the_fastest_of_the_candidates_by_reports_serves_and_room_is_given_back(running: Desk) -> None:
    nodes = running.scene.nodes
    speed = {node.address: number for number, node in enumerate(nodes, start=1)}
    for node in nodes:
        await running.tell(node, decode_nanoseconds=speed[node.address] * 10**9)
    lifecycle, lines = await serve(running)
    assert lines[-1]["outcome"] == "accepted"
    drawn = [lifecycle.task.assignment.candidates(segment) for segment in range(2)]
    assert inferencers(running, lifecycle) == [min(candidates, key=speed.__getitem__) for candidates in drawn]
    assert all(running.pool.router.running_on(node.address) == 0 for node in nodes)


async def test_a_candidate_without_room_for_the_request_is_not_chosen(running: Desk) -> None:
    # An order of 3 + 4 positions; of two candidates that are drawn, at least one is not this one.
    full = {running.scene.nodes[0].address}
    for node in running.scene.nodes:
        await running.tell(node, cache_tokens=6 if node.address in full else 7)
    lifecycle, lines = await serve(running)
    assert lines[-1]["outcome"] == "accepted"
    drawn = [set(lifecycle.task.assignment.candidates(segment)) for segment in range(2)]
    chosen = inferencers(running, lifecycle)
    if all(candidates - full for candidates in drawn):
        assert not full & set(chosen)


async def test_a_node_that_claims_to_be_fast_is_weighed_by_what_was_measured(running: Desk) -> None:
    liar = running.scene.nodes[0]
    liar.faults.drips = 0.15
    for node in running.scene.nodes:
        await running.tell(node, decode_nanoseconds=1 if node is liar else 5_000_000, running=0)
    while running.pool.measurements.seen(liar.address, time.monotonic()) is None:
        # It is drawn for most tasks, and then it is chosen: it says that it is the fastest by far.
        _, lines = await serve(running)
        assert lines[-1]["outcome"] == "accepted"
    await asyncio.sleep(CLOSEST_REPORTS)
    for node in running.scene.nodes:
        await running.tell(node, decode_nanoseconds=1 if node is liar else 5_000_000, running=10**6)
    believed = {name: host.layer_seconds for name, host in running.pool.live.hosts(time.monotonic()).items()}
    assert believed[liar.address] > 0.1
    for _ in range(3):
        lifecycle, _ = await serve(running)
        for segment, chosen in enumerate(inferencers(running, lifecycle)):
            others = set(lifecycle.task.assignment.candidates(segment)) - {liar.address}
            assert chosen != liar.address or not others


async def test_what_is_not_a_nodes_own_new_word_is_refused(running: Desk) -> None:
    node, other = running.scene.nodes[:2]
    await running.tell(node, 7)
    await asyncio.sleep(CLOSEST_REPORTS)
    for sequence in (7, 6):
        with pytest.raises(RemoteFailure, match="report_refused"):
            await running.tell(node, sequence, decode_nanoseconds=1)
    await running.tell(other, 8)
    with pytest.raises(RemoteFailure, match="too fast"):
        await running.tell(other, 9)
    with pytest.raises(RemoteFailure, match="class_not_served"):
        await running.tell(other, 10, execution_class=keccak256(b"another"))
    assert set(running.pool.reporting()) == {node.address, other.address}
    with pytest.raises(RemoteFailure, match="malformed_envelope"):
        await running.channels[node.address].request(Release(bytes(32)))
    with pytest.raises(RemoteFailure, match="no payload"):
        await running.channels[node.address].request(running.report(11), b"x")


async def test_strangers_and_forgers_do_not_get_in(running: Desk) -> None:
    stranger = Operator(keccak256(b"nobody"), running.scene.chain.domain)
    with pytest.raises(RemoteFailure, match="registered nodes"):
        await running.channel(stranger).open()

    class Forger(Operator):
        """Claims a registered address and signs with another key."""

    victim = running.scene.nodes[0].operator
    forger = Forger(stranger.secret, stranger.domain)
    object.__setattr__(forger, "address", victim.address)
    with pytest.raises(RemoteFailure, match="wrong_signer"):
        await running.channel(forger).open()
    assert running.pool.reporting() == ()


async def test_a_huge_report_ends_the_connection_and_nothing_else(running: Desk) -> None:
    node, other = running.scene.nodes[:2]
    channel = running.channel(node.operator)
    socket = await channel.open()
    with pytest.raises(OverlayError):
        await channel.request(running.report(1), bytes(1 << 20))
    await socket.wait_closed()
    assert (await running.tell(other)).hosting is None
    assert len(encode_frame(running.report(1))) < 1000
    with pytest.raises(ChannelUnavailable):
        await channel.request(running.report(2), bytes(1 << 20))
    await channel.close()


async def test_an_order_for_other_ends_is_refused_with_the_ends_of_now(running: Desk) -> None:
    body = body_of(await running.scene.order(ends=pack_ends((2,))))
    async with pinned_client(running.endpoint, running.identity.spki_sha256) as client:
        answer = await client.post("/v1/orders", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (httpx.codes.CONFLICT, "other_split")
        assert answer.json()["error"]["ends"] == [1, 2]


async def test_the_live_map_is_shown_to_everyone_and_newcomers_leave_no_trace(running: Desk) -> None:
    node = running.scene.nodes[0]
    await running.tell(node, decode_nanoseconds=3_000_000)
    async with pinned_client(running.endpoint, running.identity.spki_sha256) as client:
        shown = (await client.get("/v1/placement")).json()["0x" + running.scene.class_id.hex()]
        assert (shown["layers"], shown["ends"] or shown["planned_ends"]) == (2, [1, 2])
        (lane,) = shown["nodes"]
        assert (lane["operator"], lane["slice"], lane["layer_milliseconds"]) == (node.address, [0, 2], 3.0)
        path = f"/v1/placement/0x{running.scene.class_id.hex()}/window"
        # This scheduler does not place: it has no slice to give.
        assert (await client.get(path, params={"memory_bytes": 200})).json() == {"slice": None, "segments": []}
        for wrong in ("-1", "x", str(1 << 60)):
            answer = await client.get(path, params={"memory_bytes": wrong})
            assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY
        assert len(running.pool.reporting()) == 1
