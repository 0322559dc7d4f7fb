"""A whole way: an OpenAI client, the gateway, relays, the scheduler's overlay entry. Every party a process or a socket.

A committee of one signs the directory; twelve relays are `troth relay start` processes on addresses of their own.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.client_network import PASSWORD, ClientSide, client_side, reachable, speaking, toy_answer, write_model
from support.gateway_stage import MESSAGES, MODEL, QUESTION, Gateway, events, serving_gateway
from support.scheduler_stage import CONTEXT, ENDS, Stage, stage
from support.waiting import SECONDS

from troth.chain.keystore import DEMO_SCRYPT_N, create_account
from troth.client.configuration import Configuration, save
from troth.client.home import Home
from troth.demo.overlay import LocalOverlay
from troth.demo.party import Party
from troth.demo.plan import Plan
from troth.demo.ports import free_port
from troth.demo.processes import ProcessGroup
from troth.overlay.identity import create_identity
from troth.overlay.sessions.entry import EntryKeys, OverlayEntry, overlay_entry
from troth.protocol.types import to_address
from troth.scheduler.api import scheduler_app
from troth.scheduler.assembly import assembled
from troth.scheduler.served import Served

pytestmark = [
    pytest.mark.chain,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="relays need loopback addresses of their own: Linux"),
]
RELAYS = 15


@dataclass
class Whole:
    """A network whose scheduler is reached through the overlay."""

    scene: Stage
    overlay: LocalOverlay
    side: ClientSide
    seen: list[tuple[str, Any]] = field(default_factory=list)
    """Path, and who the scheduler thought was asking, of every request that it got."""


@asynccontextmanager
async def whole_network(deployed: Any, folder: Path) -> AsyncIterator[Whole]:
    texts = write_model(folder / "speaking")
    processes = ProcessGroup(folder / "logs")
    try:
        async with stage(deployed, folder, cast=speaking(texts)) as scene:
            side = client_side(scene, folder / "home", scene.client)
            create_account(folder / "payer.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N, key=deployed.anvil.keys[1])
            overlay = LocalOverlay(
                *(folder, Plan(members=1, relays=RELAYS), processes, side.password_file),
                *(scene.url, scene.chain.contract, folder / "payer.json"),
            )
            await asyncio.to_thread(overlay.set_up)
            # In this thread: they end with the one that starts them.
            overlay.start()
            port = free_port()
            entry = OverlayEntry("127.0.0.1", port, ("127.0.0.1", port), to_address(overlay.committee), 30.0)
            configuration = scene.configuration(
                served=(Served(scene.class_id, ENDS, texts, CONTEXT),), overlay=entry, concurrent=8
            )
            network = Whole(scene, overlay, side)
            identity = create_identity(folder / "entry")
            keys = EntryKeys("scheduler", scene.keys.operator.secret, identity, folder / "seal.pem")
            async with assembled(configuration, scene.keys) as scheduler:
                app = scheduler_app(scheduler)

                async def watched(scope: Any, receive: Any, send: Any) -> None:
                    network.seen.append((scope["path"], scope["client"]))
                    await app(scope, receive, send)

                async with (
                    reachable(scene, watched, folder / "tls"),  # type: ignore[arg-type]
                    overlay_entry(
                        entry,
                        configuration.rpc,
                        keys,
                        watched,  # type: ignore[arg-type]
                        scheduler.metrics.registry,
                    ),
                ):
                    await asyncio.to_thread(overlay.wait_until_listed, 1)
                    save(
                        Home(side.home).configuration,
                        Configuration(scene.chain.contract, scene.url, committee=overlay.committee),
                    )
                    yield network
    finally:
        await asyncio.to_thread(processes.stop_all)


async def paths(gateway: Gateway) -> list[list[str]]:
    found = (await gateway.get("/v1/paths")).json()
    assert found["overlay"] is True
    return [[relay["address"] for relay in one["relays"]] for one in found["circuits"] if one["in_use"]]


async def test_the_whole_way(deployed, tmp_path):
    async with whole_network(deployed, tmp_path) as network:
        async with serving_gateway(network.side, "--relay-port", free_port()) as gateway:
            await over_four_disjoint_paths(gateway)
            await two_paths_die_and_the_answer_comes(network, gateway)
            # The scheduler served all of it and never knew whom.
            assert {path for path, _ in network.seen} >= {"/v1/info", "/v1/orders"}
            assert {client for _, client in network.seen} == {None}
            await the_gateway_s_own_relay_goes_with_it(network, gateway)
        await without_relays_nothing_is_sent_openly(network)


async def over_four_disjoint_paths(gateway: Gateway) -> None:
    answer = (await gateway.chat(max_tokens=5)).json()
    assert answer["choices"][0]["message"]["content"] == toy_answer(QUESTION, 5)
    assert (await gateway.receipt(answer["id"]))["outcome"] == "accepted"
    used = await paths(gateway)
    assert len(used) == 4
    assert len({address for path in used for address in path}) == 12


async def two_paths_die_and_the_answer_comes(network: Whole, gateway: Gateway) -> None:
    used = await paths(gateway)
    for address in (used[0][1], used[1][2]):
        kill(network.overlay.relay_at(*address.rsplit(":", 1)))
    async with gateway.client as client:
        body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 5, "stream": True}
        streamed = events((await client.post("/v1/chat/completions", json=body)).text)
    said = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in streamed[:-1])
    assert (said, streamed[-1]) == (toy_answer(QUESTION, 5), "[DONE]")


async def the_gateway_s_own_relay_goes_with_it(network: Whole, gateway: Gateway) -> None:
    """It carries others, in a process of its own."""
    (own,) = [child for child in psutil.Process(gateway.process.pid).children() if "relay" in child.cmdline()]
    assert str(Home(network.side.home).relay) in own.cmdline()
    await gateway.stop()
    await asyncio.to_thread(psutil.wait_procs, [own], timeout=SECONDS)
    assert not own.is_running()


async def without_relays_nothing_is_sent_openly(network: Whole) -> None:
    for relay in network.overlay.relays:
        kill(relay)
    network.seen.clear()
    said = await network.side.run("chat", QUESTION, "--max-tokens", 4, "--json")
    assert said.code == 1
    assert "circuits" in said.error["what"]
    assert network.seen == []
    # Only who says so is seen.
    openly = await network.side.run("chat", QUESTION, "--max-tokens", 4, "--overlay", "off", "--json")
    assert openly.json["outcome"] == "accepted"
    assert all(client is not None for _, client in network.seen)


def kill(relay: Party) -> None:
    assert relay.child is not None
    relay.child.process.send_signal(signal.SIGKILL)
