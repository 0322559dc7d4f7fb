"""Which node has which port of a scheduler: by the chain, first come first served, and over restarts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from support.tab_scene import DOMAIN, SCHEDULER_KEY, TabScene

from troth.node.configuration import FILE, NodeInitOptions, load, render
from troth.node.errors import ConfigError
from troth.node.registration.configured_slice import write_endpoint
from troth.node.registration.reach import free_endpoints, lent_endpoint
from troth.protocol.market.state import account_id, without
from troth.protocol.market.types import PotKind, Role
from troth.protocol.types import Address, Hash32
from troth.scheduler.errors import ConfigurationInvalid
from troth.scheduler.nodes.peers import NodeContact
from troth.scheduler.nodes.tunnels import OFFERED, LentEndpoints
from troth.scheduler.sections import ListenSection, TunnelPorts, TunnelsSection, lent_ports
from troth.scheduler.tabs.database import SchedulerDatabase
from troth.transport.errors import TunnelRefused
from troth.transport.identity import Operator, create_identity
from troth.transport.server import TlsServer, serving

LENT = TunnelPorts("0.0.0.0", "s.example", range(20_000, 20_003))
OPERATOR = Operator(SCHEDULER_KEY, DOMAIN)


class Lending:
    """Endpoints lent over the state of a scene, which a test changes."""

    def __init__(self, folder: Path) -> None:
        self.scene = TabScene(folder)
        self.state = self.scene.ledger.state
        self.path = folder / "lent.sqlite"
        self.nodes = list(self.scene.nodes)
        self.open()

    def open(self) -> None:
        self.database = SchedulerDatabase(self.path)
        self.lent = LentEndpoints(LENT, lambda: self.state, self.database, OPERATOR)

    def registers(self, node: Address, endpoint: str) -> None:
        party = replace(self.state.parties[node], endpoint=endpoint)
        self.state = replace(self.state, parties=self.state.parties.set(node, party))

    def loses_stake(self, node: Address) -> None:
        self.state = replace(self.state, pots=without(self.state.pots, (PotKind.STAKE, account_id(node))))


@pytest.fixture
async def lending(tmp_path: Path) -> Any:
    made = Lending(tmp_path)
    yield made
    await made.database.close()


async def test_a_node_has_the_port_that_it_registered(lending: Lending) -> None:
    first, second, *_ = lending.nodes
    with pytest.raises(TunnelRefused, match="none that is lent"):
        await lending.lent.port_of(first)
    lending.registers(first, "https://s.example:20001")
    assert await lending.lent.port_of(first) == 20_001
    for wrong in (
        "https://s.example:20003",
        "https://t.example:20001",
        "https://s.example:020001",
        "https://s.example",
    ):
        lending.registers(second, wrong)
        with pytest.raises(TunnelRefused):
            await lending.lent.port_of(second)


async def test_who_attended_first_keeps_it_while_the_chain_says_so(lending: Lending) -> None:
    first, second, *_ = lending.nodes
    for node in (first, second):
        lending.registers(node, "https://s.example:20002")
    assert await lending.lent.port_of(first) == 20_002
    await lending.database.close()
    lending.open()
    with pytest.raises(TunnelRefused, match="Another node attends"):
        await lending.lent.port_of(second)
    lending.registers(first, "https://own.example:9443")
    assert await lending.lent.port_of(second) == 20_002
    lending.registers(first, "https://s.example:20002")
    with pytest.raises(TunnelRefused):
        await lending.lent.port_of(first)


async def test_without_stake_nobody_has_anything(lending: Lending) -> None:
    first, second, *_ = lending.nodes
    for node in (first, second):
        lending.registers(node, "https://s.example:20000")
    await lending.lent.port_of(first)
    assert len(lending.lent.told()["free"]) == 2
    lending.loses_stake(first)
    with pytest.raises(TunnelRefused):
        await lending.lent.port_of(first)
    assert await lending.lent.port_of(second) == 20_000
    lending.loses_stake(second)
    assert len(lending.lent.told()["free"]) == 3


async def test_what_is_free_is_told(lending: Lending) -> None:
    for number, node in enumerate(lending.nodes[:3]):
        app = FastAPI()
        app.include_router(lending.lent.routes())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="https://s.example") as client:
            told = (await client.get("/v1/tunnels")).json()
        assert (told["endpoints"], told["nodes"], len(told["free"])) == (3, 0, 3 - number)
        lending.registers(node, told["free"][0])
    assert lending.lent.told()["free"] == []
    assert OFFERED >= 3


def test_a_scheduler_reaches_its_own_tunnels_by_loopback(lending: Lending) -> None:
    pin = b"p" * 32
    near = lending.lent.near(NodeContact("https://s.example:20001", pin))
    assert near == NodeContact("https://127.0.0.1:20001", pin)
    far = NodeContact("https://n.example:20001", pin)
    assert lending.lent.near(far) == far


@pytest.mark.parametrize(("first", "ports", "listen"), [(65_000, 1_000, 8443), (8_000, 500, 8443), (65_535, 2, 8443)])
def test_ports_that_cannot_be_lent_are_refused(first: int, ports: int, listen: int) -> None:
    with pytest.raises(ConfigurationInvalid, match="cannot be lent"):
        lent_ports(TunnelsSection(first, ports), ListenSection("https://s.example:8443", port=listen))


def test_the_name_is_that_of_the_schedulers_endpoint() -> None:
    made = lent_ports(TunnelsSection(20_000, 2), ListenSection("https://[2001:db8::1]:8443", host="::"))
    assert (made.endpoint(20_001), made.host) == ("https://[2001:db8::1]:20001", "::")
    assert made.port_in("https://[2001:db8::1]:20001/") == 20_001


ANSWERS: dict[str, tuple[int, bytes, str]] = {
    "good": (200, b'{"endpoints": 2, "nodes": 0, "free": ["https://127.0.0.1:20001"]}', ""),
    "none left": (200, b'{"free": []}', "no endpoint left"),
    "elsewhere": (200, b'{"free": ["https://other.example:20001"]}', "no endpoint left"),
    "no address": (200, b'{"free": ["http://127.0.0.1:20001"]}', "answer is none"),
    "no lender": (404, b"{}", "lends no endpoints"),
    "huge": (200, b'{"free": ["' + b"x" * 100_000 + b'"]}', "too large"),
}


@pytest.fixture(params=list(ANSWERS))
async def offering(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A scheduler's party in a state, and what it answers."""
    from starlette.responses import Response

    status, body, error = ANSWERS[request.param]
    identity, app, scene = create_identity(tmp_path / "tls"), FastAPI(), TabScene(tmp_path)

    @app.get("/v1/tunnels")
    async def tunnels() -> Response:
        return Response(body, status)

    async with serving(TlsServer(app, identity, "127.0.0.1", 0)) as server:
        (party,) = [one for one in scene.ledger.state.parties.values() if one.role is Role.SCHEDULER]
        there = replace(party, endpoint=f"https://127.0.0.1:{server.port}", tls_key_hash=Hash32(identity.spki_sha256))
        parties = scene.ledger.state.parties.set(there.operator, there)
        yield replace(scene.ledger.state, parties=parties), there, error


async def test_a_scheduler_is_believed_within_bounds(offering: Any) -> None:
    state, scheduler, error = offering
    if not error:
        assert await lent_endpoint(state, scheduler.operator) == "https://127.0.0.1:20001"
        node = next(one for one in state.parties.values() if one.role is Role.NODE)
        with pytest.raises(ConfigError, match="no such scheduler"):
            await lent_endpoint(state, node.operator)
        return
    with pytest.raises(ConfigError, match=error):
        await free_endpoints(scheduler)


TEXT = NodeInitOptions(
    rpc="http://127.0.0.1:8545", factory="0x5FbDB2315678afecb367f032d93F642f64180aa3",
    execution_class="0x" + "ab" * 32, model="m", slice="0:15", segments=("0:15",), host="127.0.0.1", port=9443,
    endpoint="https://127.0.0.1:9443", device="cpu", threads=1, start_block=7,
)  # fmt: skip
LENDER = Address("0x5FbDB2315678afecb367f032d93F642f64180aa3")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / FILE).write_text("# mine\n" + render(TEXT))
    return tmp_path


def test_the_way_in_is_written_and_taken_back(folder: Path) -> None:
    before = load(folder)
    write_endpoint(folder, "https://s.example:20001", LENDER)
    assert load(folder) == replace(before, endpoint="https://s.example:20001", tunnel=LENDER)
    write_endpoint(folder, "https://t.example:20002", LENDER)
    assert load(folder) == replace(before, endpoint="https://t.example:20002", tunnel=LENDER)
    write_endpoint(folder, "https://n.example:9443", None)
    assert load(folder) == replace(before, endpoint="https://n.example:9443")
    assert (folder / FILE).read_text().startswith("# mine\n")


LENT_ENDPOINT = "https://s.example:20001"


def test_an_entry_behind_a_tunnel_is_at_the_lent_endpoint(folder: Path) -> None:
    (folder / FILE).write_text(render(replace(TEXT, tunnel=LENDER, endpoint=LENT_ENDPOINT, committee=LENDER)))
    entry = load(folder).overlay
    assert entry is not None
    assert (entry.shares, entry.address) == (True, ("s.example", 20_001))


@pytest.mark.parametrize("port", [{"overlay_address": "203.0.113.7:9444"}, {"overlay_port": 9444}])
def test_an_entry_behind_a_tunnel_has_no_port_of_its_own(folder: Path, port: dict[str, Any]) -> None:
    (folder / FILE).write_text(render(replace(TEXT, tunnel=LENDER, committee=LENDER, **port)))
    with pytest.raises(ConfigError, match="a node behind a tunnel has one port"):
        load(folder)


OWN_PORT = {"overlay_address": "203.0.113.7:9444", "overlay_port": 9444}


def test_an_entry_moves_with_its_node(folder: Path) -> None:
    """Into a tunnel it goes without its own port, and out of it with the node's."""
    text = render(replace(TEXT, committee=LENDER, **OWN_PORT)).replace(
        "[overlay]\n", "[overlay]\npublish_seconds = 60\n"
    )
    (folder / FILE).write_text(text)
    before = load(folder).overlay
    assert before is not None
    assert (before.shares, before.publish_seconds) == (False, 60.0)
    write_endpoint(folder, "https://n.example:9443", None)
    assert load(folder).overlay == before
    write_endpoint(folder, LENT_ENDPOINT, LENDER)
    lent = replace(before, host="", port=0, address=("s.example", 20_001))
    assert load(folder).overlay == lent
    write_endpoint(folder, "https://n.example:9443", None)
    assert load(folder).overlay == replace(lent, address=("n.example", 9443))
