"""Tabs over the overlay, on one network: answers and checks over circuits, a gateway whose paths die, direct mode.

The tests are in this order: the last two take the node's entry and then all relays away.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psutil
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from support.client_network import toy_answer
from support.gateway_stage import QUESTION, Gateway, serving_gateway
from support.overlay_network import Whole, scheduler_entry, whole_network
from support.waiting import SECONDS, eventually

from troth.chain.keystore import Key
from troth.client.configuration import load
from troth.client.home import Home
from troth.client.reaching import reaching
from troth.node.direct.assembly import Direct
from troth.node.errors import ConfigError
from troth.overlay.directory.listing import Listing
from troth.overlay.paths.pool import CircuitPool
from troth.overlay.sessions.entry import OverlayEntry
from troth.overlay.sessions.sessions import SessionRotation
from troth.overlay.sessions.transport import OverlayTransport
from troth.protocol.market.parts import Part
from troth.protocol.market.signed import Opinion
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.typed_data import Domain
from troth.protocol.types import Segment
from troth.testnet import cli
from troth.testnet.overlay import PERIOD
from troth.testnet.parties import PartyProcess
from troth.testnet.ports import free_port
from troth.transport.identity import Operator

pytestmark = [
    pytest.mark.chain,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(sys.platform != "linux", reason="relays need loopback addresses of their own: Linux"),
]
ALWAYS = ("--check", "always")
IMPATIENT = "from troth.overlay.sessions import session; session.CIRCUIT_SECONDS = 4.0"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def whole(anvil: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Whole]:
    async with whole_network(anvil, tmp_path_factory.mktemp("overlay")) as made:
        yield made


async def test_orders_and_checks_go_over_circuits(whole: Whole, tmp_path: Path) -> None:
    stage, scene = whole.stage, whole.network.scene
    assert await whole.destinations() == {("scheduler", stage.scheduler.address), ("node", whole.node.address)}
    home = Home((await whole.client(tmp_path / "client")).home)
    async with reaching(home, load(home.configuration)) as reach:
        party = whole.network.follower.state.parties[stage.scheduler.address]
        over = (await reach.to(party))._client
        plain, scene.http = scene.http, over
        await answered_and_checked(whole)
        assert await ready_through_a_node(whole, reach.pool, reach.directory) == {"ready": True, "reasons": []}
        scene.http = plain
    assert {path for path, _ in whole.seen} >= {"/v1/orders"}
    assert {client for _, client in whole.seen} == {None}


async def answered_and_checked(whole: Whole) -> None:
    scene = whole.network.scene
    asked = await scene.send(scene.asked())
    assert [line["type"] for line in asked.lines][-1] == "draw", asked.lines
    assert len(asked.tokens) > 0
    lines = await scene.show(asked)
    assert lines[-1] == {"type": "end", "complete": True}, lines
    history = whole.network.scheduler.orders.context.store.get(asked.order_id)
    assert {one.message.opinion for one in history.verdicts.values()} == {Opinion.ACCEPT}
    assert len(await scene.tiles(asked)) == 1


async def ready_through_a_node(whole: Whole, pool: CircuitPool, directory: Any) -> Any:
    """What a node's entry answers: to clients it shows neither metrics nor the channel of schedulers."""

    def destination() -> Any:
        return next(one for one in directory.current().destinations if one.operator == whole.node.address)

    sessions = SessionRotation(pool, destination)
    await sessions.current()
    async with httpx.AsyncClient(base_url="https://node", transport=OverlayTransport(sessions), timeout=60) as client:
        assert (await client.get("/metrics")).status_code == 404
        found = (await client.get("/readyz")).json()
    await sessions.close()
    return found


async def test_an_answer_and_its_check_come_over_circuits_by_way_of_a_node(whole: Whole, tmp_path: Path) -> None:
    """Direct mode as its user turns it on: the scheduler is asked about itself, and for no line of the order."""
    side = await whole.client(tmp_path / "client")
    direct = whole.entry._direct
    assert direct is not None
    assert direct.parts is not None
    counters = direct.parts.entry.tools.counters
    async with asyncio.timeout(300):
        while True:
            whole.seen.clear()
            checks = counters.checks._value.get()
            asked = await side.run("ask", QUESTION, "--max-tokens", 5, *ALWAYS, "--direct", "--json")
            assert asked.code == 0, asked.err
            assert asked.json["answer"] == toy_answer(QUESTION, 5)
            assert (asked.json["outcome"], asked.json["tokens"]) == ("checked", 5)
            if not [path for path, _ in whole.seen if path.startswith("/v1/orders")]:
                break
            # On a busy machine the entry was silent for five seconds: the same order went on at its scheduler.
    assert counters.checks._value.get() == checks + 1
    # It was the scheduler's own draw all the same, and each node's own word.
    history = whole.network.scheduler.orders.context.store.get(order_of(asked.json))
    assert {one.message.opinion for one in history.verdicts.values()} == {Opinion.ACCEPT}


def order_of(told: dict[str, Any]) -> Any:
    return bytes.fromhex(told["order"][2:])


async def test_two_paths_die_and_a_gateway_s_answer_comes_over_the_others(whole: Whole, tmp_path: Path) -> None:
    side = await whole.client(tmp_path / "client")
    whole.seen.clear()
    async with serving_gateway(side, "--relay-port", free_port()) as gateway:
        await over_four_disjoint_paths(gateway)
        used = await paths(gateway)
        dead = {used[0][1], used[1][2]}
        for address in dead:
            kill(whole.overlay.relay_at(*address.rsplit(":", 1)))
        answer = (await gateway.chat(max_tokens=5, temperature=0)).json()
        assert answer["choices"][0]["message"]["content"] == toy_answer(QUESTION, 5)
        # What was noticed of it is shown, too.
        await lives_without(gateway, dead)
        async with gateway.client as client:
            made = (await client.post("/v1/embeddings", json={"model": "toy", "input": QUESTION})).json()
        assert sum(one * one for one in made["data"][0]["embedding"]) == pytest.approx(1, abs=1e-5)
        assert {path for path, _ in whole.seen} >= {"/v1/prices", "/v1/orders"}
        assert [path for path, _ in whole.seen if path.endswith("/last-row")]
        assert {client for _, client in whole.seen} == {None}
        await the_gateway_s_own_relay_goes_with_it(gateway)


async def over_four_disjoint_paths(gateway: Gateway) -> None:
    answer = (await gateway.chat(max_tokens=5, temperature=0)).json()
    assert answer["choices"][0]["message"]["content"] == toy_answer(QUESTION, 5)
    used = await paths(gateway)
    assert len(used) == 4
    assert len({address for path in used for address in path}) == 12


async def paths(gateway: Gateway) -> list[list[str]]:
    """The addresses of the relays of each path in use, as the gateway shows them."""
    found = (await gateway.get("/v1/paths")).json()
    assert found["overlay"] is True
    assert {relay["hop"] for one in found["circuits"] for relay in one["relays"]} == {"guard", "middle", "proxy"}
    return [[relay["address"] for relay in one["relays"]] for one in found["circuits"] if one["in_use"]]


async def lives_without(gateway: Gateway, dead: set[str]) -> None:
    """Wait until the paths that are shown are without these relays, and not all gone with them."""
    async with asyncio.timeout(SECONDS):
        while True:
            shown = await paths(gateway)
            if len(shown) >= 2 and not dead & {address for path in shown for address in path}:
                return
            await asyncio.sleep(0.2)


async def the_gateway_s_own_relay_goes_with_it(gateway: Gateway) -> None:
    """It carries others, in a process of its own."""
    (own,) = [child for child in psutil.Process(gateway.process.pid).children() if "relay" in child.cmdline()]
    assert str(Home(gateway.side.home).relay) in own.cmdline()
    await gateway.stop()
    await eventually(lambda: not own.is_running() or own.status() == psutil.STATUS_ZOMBIE)


async def test_who_is_not_bonded_is_not_listed(whole: Whole, tmp_path: Path) -> None:
    """A stranger, a node that calls itself a scheduler, and a node that leaves."""
    stage, stranger = whole.stage, Key.generate()
    async with AsyncExitStack() as stack:
        refused = [("node", stranger), ("scheduler", stranger), ("scheduler", stage.nodes[1])]
        for number, (kind, key) in enumerate(refused):
            await stack.enter_async_context(scheduler_entry(whole, tmp_path / f"refused{number}", kind, key))
        await stage.send(stage.owner_of(whole.node), Part.REGISTRY, "deregister", whole.node.address)
        await until(whole, lambda listing: len(listing.destinations) == 1)
        since = (await whole.listed()).valid_after
        # Two more lists, so that all had their time to be entered.
        listing = await until(whole, lambda listing: listing.valid_after >= since + 2 * PERIOD)
        assert [one.operator for one in listing.destinations] == [stage.scheduler.address]


async def until(whole: Whole, condition: Callable[[Listing], bool]) -> Listing:
    """The first list that fulfils the condition."""
    deadline = asyncio.get_running_loop().time() + SECONDS
    while True:
        listing = await whole.listed()
        if condition(listing):
            return listing
        assert asyncio.get_running_loop().time() < deadline, listing.destinations
        await asyncio.sleep(PERIOD / 4)


async def test_without_relays_nothing_is_sent_openly(whole: Whole, tmp_path: Path) -> None:
    side = await whole.client(tmp_path / "client")
    for relay in whole.overlay.relays:
        kill(relay)
    whole.seen.clear()
    before = whole.network.scheduler.orders.context.client_tabs.book(side.tab)
    # The shipped command, with less patience than the half minute that it has for circuits.
    asked = cli.command(*side.command("chat", QUESTION, "--max-tokens", 4, "--json")[1:])
    refused = await side.ended([asked[0], asked[1], f"{IMPATIENT}; {asked[2]}", *asked[3:]])
    assert refused.code == 1
    # Whether the list still names those relays by then, or names nobody.
    assert refused.error["kind"] == "OverlayFailed", refused.error
    assert any(why in refused.error["what"] for why in ("circuits were there", "disjoint paths")), refused.error
    assert refused.error["remedy"]
    assert whole.seen == []
    assert whole.network.scheduler.orders.context.client_tabs.book(side.tab) == before
    assert side.book.sequence == 0
    # Only who says so is seen.
    openly = await side.run("chat", QUESTION, "--max-tokens", 4, *ALWAYS, "--overlay", "off", "--json")
    assert openly.code == 0, openly.err
    assert (openly.json["outcome"], whole.seen) == ("checked", [])


def kill(relay: PartyProcess) -> None:
    assert relay.child is not None
    relay.child.process.send_signal(signal.SIGKILL)


async def test_an_entry_of_a_part_of_the_model_is_refused() -> None:
    nothing: Any = None
    part: Any = SimpleNamespace(engine=SimpleNamespace(slice=Segment(0, 1), layers=2))
    entry: Any = SimpleNamespace(overlay=OverlayEntry("127.0.0.1", 0, ("127.0.0.1", 0), nothing, 2.0), tunnel=None)
    direct = Direct(entry, Operator(b"\x01" * 32, Domain(31337, NO_ADDRESS)), CollectorRegistry(), list, nothing)
    with pytest.raises(ConfigError, match="whole model"):
        await direct.run(part, nothing)
