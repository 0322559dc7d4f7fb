"""A relay's parts without sockets: backlog, budgets, sweeper, configuration, key file."""

from __future__ import annotations

import logging
import socket
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.relay_network import destination_entry
from typer.testing import CliRunner

from troth.command.examples import EXAMPLES
from troth.overlay.cells.format import EndReason
from troth.overlay.cells.messages import CellMessage
from troth.overlay.circuits.descriptors import PinnedAddress, RelayDescriptor
from troth.overlay.directory.codec import is_literal
from troth.overlay.relay.backlog import Backlog
from troth.overlay.relay.circuit import Leg, RelayCircuit
from troth.overlay.relay.command import app
from troth.overlay.relay.configuration import load, load_directory, relay_entry
from troth.overlay.relay.deliveries import Deliveries
from troth.overlay.relay.doctor import examine
from troth.overlay.relay.initialisation import RelayInitOptions, committee_of, initialise, own_descriptor, own_entry
from troth.overlay.relay.keys import create_handshake_key, load_handshake_key, load_operator_key
from troth.overlay.relay.limits import RelayLimits, SeenShares, TokenBucket
from troth.overlay.relay.running import overdue
from troth.transport.errors import RelayMisconfigured


class FullLink:
    """A link that takes `room` cells, then is full."""

    def __init__(self, room: int = 0) -> None:
        self.room = room
        self.sent: list[bytes] = []

    @property
    def full(self) -> bool:
        return self.room <= len(self.sent)

    def send(self, cell: bytes) -> None:
        self.sent.append(cell)

    def flush(self) -> None:
        pass


def a_leg(link: Any, number: int) -> Leg:
    return Leg(RelayCircuit(None, 0.0, 0.0), link, number.to_bytes(8, "big"))


class Evictions:
    """Notes who had to go, and drops their cells as a relay does."""

    def __init__(self, total: int, per_leg: int) -> None:
        self.gone: list[Leg] = []
        self.backlog = Backlog(total, per_leg, self.evict)

    def evict(self, leg: Leg) -> None:
        self.gone.append(leg)
        self.backlog.drop(leg)


def test_the_circuit_of_the_oldest_cell_gives_way_first() -> None:
    world = Evictions(total=3000, per_leg=10_000)
    first, second, third = (a_leg(FullLink(), number) for number in range(3))
    for leg in (first, second, first, third):
        world.backlog.push(leg, bytes(1000))
    assert world.gone == [first]
    assert world.backlog.bytes == 2000
    for _ in range(2):
        world.backlog.push(third, bytes(1000))
    assert world.gone == [first, second]


def test_one_circuit_cannot_fill_the_memory() -> None:
    world = Evictions(total=10**9, per_leg=2500)
    greedy, modest = a_leg(FullLink(), 1), a_leg(FullLink(), 2)
    world.backlog.push(modest, bytes(1000))
    for _ in range(3):
        world.backlog.push(greedy, bytes(1000))
    assert world.gone == [greedy]
    assert world.backlog.bytes == 1000


def test_waiting_cells_leave_in_turn_and_in_order() -> None:
    world = Evictions(10**6, 10**6)
    link = FullLink()
    one, two = a_leg(link, 1), a_leg(link, 2)
    for leg, cell in ((one, b"a1"), (one, b"a2"), (one, b"a3"), (two, b"b1"), (two, b"b2")):
        world.backlog.push(leg, cell)
    link.room = 3
    world.backlog.release(link)  # type: ignore[arg-type]
    assert link.sent == [b"a1", b"b1", b"a2"]
    link.room = 100
    world.backlog.release(link)  # type: ignore[arg-type]
    assert link.sent[3:] == [b"b2", b"a3"]
    assert world.backlog.bytes == 0


def test_dropping_a_leg_twice_changes_nothing() -> None:
    world = Evictions(10**6, 10**6)
    leg = a_leg(FullLink(), 1)
    world.backlog.push(leg, b"cell")
    world.backlog.drop(leg)
    world.backlog.drop(leg)
    assert world.backlog.bytes == 0


def test_a_bucket_refills_at_its_rate_and_holds_its_burst() -> None:
    bucket = TokenBucket(rate=2, burst=3, now=0)
    assert [bucket.take(0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(1) for _ in range(3)] == [True, True, False]
    assert [bucket.take(1000) for _ in range(4)] == [True, True, True, False]


def test_shares_are_remembered_in_bounded_memory() -> None:
    seen = SeenShares(2)
    assert [seen.first_time(share) for share in (b"a", b"a", b"b", b"c", b"a")] == [True, False, True, True, True]


@pytest.mark.parametrize(
    ("changes", "now", "expected"),
    [
        ({"proven": False}, 11.0, EndReason.IDLE),
        ({"proven": False}, 9.0, None),
        ({"proven": True}, 11.0, None),
        ({"proven": True}, 901.0, EndReason.IDLE),
        ({"proven": True, "last_used": 14_400.0}, 14_401.0, EndReason.QUOTA),
        ({"proven": True, "unfinished_since": 5.0}, 36.0, EndReason.IDLE),
        ({"proven": True, "unfinished_since": 5.0}, 34.0, None),
    ],
)
def test_what_lasts_too_long_ends(changes: dict[str, Any], now: float, expected: EndReason | None) -> None:
    circuit = RelayCircuit(None, 0.0, changes.get("last_used", 0.0))
    circuit.proven = changes["proven"]
    if "unfinished_since" in changes:
        reassembly = SimpleNamespace(oldest=lambda: changes["unfinished_since"])
        circuit.proxy = SimpleNamespace(reassembly=reassembly)  # type: ignore[assignment]
    assert overdue(circuit, RelayLimits(), now) is expected


@pytest.mark.parametrize(
    ("options", "host"),
    [
        ((), "127.0.0.1"),
        (("--address", "127.0.0.1:9001"), "127.0.0.1"),
        (("--address", "203.0.113.9:9001"), "0.0.0.0"),
        (("--address", "relay.example.org:9001"), "0.0.0.0"),
        (("--address", "[2001:db8::1]:9001"), "::"),
        (("--address", "[::1]:9001"), "::1"),
        (("--address", "127.0.0.2:9001"), "127.0.0.2"),
        (("--address", "203.0.113.9:9001", "--host", "127.0.0.1"), "127.0.0.1"),
    ],
)
def test_init_listens_where_others_reach_the_relay(tmp_path: Path, options: tuple[str, ...], host: str) -> None:
    """On loopback alone nobody would, and its doctor finds all in order."""
    done = CliRunner().invoke(app, ["init", "--home", str(tmp_path), *options])
    assert (done.exit_code, load(tmp_path).host) == (0, host), done.output
    assert load(tmp_path).address[1] == 9001


def test_the_help_shows_an_address_that_a_committee_lists() -> None:
    (example,) = EXAMPLES["relay init"]
    address = example.split("--address ")[1].split()[0]
    assert is_literal(address.rpartition(":")[0])


def test_init_writes_what_start_reads_and_nothing_twice(tmp_path: Path) -> None:
    wishes = RelayInitOptions("127.0.0.1", 9001, "relay.example:9001", 9100, False)
    told = initialise(tmp_path, wishes)
    configuration = load(tmp_path)
    assert (configuration.address, configuration.metrics_port, configuration.proxy) == (
        ("relay.example", 9001),
        9100,
        False,
    )
    assert told["handshake_key"] == "0x" + own_descriptor(tmp_path).handshake_key.hex()
    with pytest.raises(RelayMisconfigured, match="already"):
        initialise(tmp_path, wishes)
    assert configuration.handshake_key.stat().st_mode & 0o777 == 0o600


def test_an_address_that_is_none_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(RelayMisconfigured, match="name:port"):
        initialise(tmp_path, RelayInitOptions("127.0.0.1", 9001, "nowhere", None, True))
    initialise(tmp_path, RelayInitOptions("127.0.0.1", 9001, "[::1]:9001", None, True))
    assert load(tmp_path).address == ("::1", 9001)


@pytest.mark.parametrize(
    "text",
    [
        "version = 2\n[listen]\naddress = 'a:1'",
        "version = 1",
        "version = 1\n[listen]\naddress = 'a:1'\n[limits]\ncircuit = 3",
        "version = 1\n[listen]\naddress = 'a:1'\n[limits]\ncircuits = 0",
        "not toml",
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "relay.toml").write_text(text)
    with pytest.raises(RelayMisconfigured, match=r"relay\.toml"):
        load(tmp_path)


def test_limits_come_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "relay.toml").write_text("version = 1\n[listen]\naddress = 'a:1'\n[limits]\ncircuits = 3\n")
    assert load(tmp_path).limits.circuits == 3
    assert load(tmp_path).limits.links == RelayLimits().links


async def test_the_log_names_no_destination_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    away = PinnedAddress("127.0.0.1", port, bytes(32))
    failed: list[EndReason] = []
    sender: Any = SimpleNamespace(failed=lambda _number, reason: failed.append(reason))
    with caplog.at_level(logging.INFO):
        message = CellMessage(1, b"", destination=away.name)
        await Deliveries(RelayLimits(), lambda: None).begin(away, message, sender)
    assert failed == [EndReason.UNREACHABLE]
    assert caplog.messages
    assert not [told for told in caplog.messages if "127.0.0.1" in told or str(port) in told]


@pytest.mark.parametrize("name", [field.name for field in fields(RelayLimits)])
def test_every_bound_of_a_relay_can_be_set(tmp_path: Path, name: str) -> None:
    (tmp_path / "relay.toml").write_text(f"version = 1\n[listen]\naddress = 'a:1'\n[limits]\n{name} = 7\n")
    assert getattr(load(tmp_path).limits, name) == 7


def test_a_directory_comes_back(tmp_path: Path) -> None:
    initialise(tmp_path / "one", RelayInitOptions("127.0.0.1", 9001, "127.0.0.1:9001", None, True))
    place = PinnedAddress("d.example", 8443, b"d" * 32)
    (tmp_path / "directory.toml").write_text(own_entry(tmp_path / "one") + destination_entry(place))
    directory = load_directory(tmp_path / "directory.toml")
    relay = own_descriptor(tmp_path / "one")
    assert directory.relays == {relay.name: relay}
    assert directory.destinations == {place.name: place}
    assert load_directory(tmp_path / "none.toml").relays == {}


def test_a_directory_with_an_impossible_entry_is_refused(tmp_path: Path) -> None:
    entry = relay_entry(RelayDescriptor(PinnedAddress("h", 1, b"n" * 32), b"k" * 32)).replace("port = 1", "port = 0")
    (tmp_path / "directory.toml").write_text(entry)
    with pytest.raises(RelayMisconfigured, match=r"directory\.toml"):
        load_directory(tmp_path / "directory.toml")


def test_a_handshake_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "handshake.pem"
    key = create_handshake_key(path)
    assert load_handshake_key(path).private_bytes_raw() == key.private_bytes_raw()
    with pytest.raises(RelayMisconfigured, match="already"):
        create_handshake_key(path)
    path.chmod(0o644)
    with pytest.raises(RelayMisconfigured, match="readable by others"):
        load_handshake_key(path)


def test_doctor_says_what_is_missing(tmp_path: Path) -> None:
    assert [(one.check, one.ok) for one in examine(tmp_path)] == [("config", False)]
    initialise(tmp_path, RelayInitOptions("127.0.0.1", 0, "127.0.0.1:9001", None, True))
    found = {one.check: one for one in examine(tmp_path)}
    assert found["tls"].ok
    assert found["handshake"].ok
    assert found["port"].ok
    assert not found["directory"].ok
    assert "relay entry" in found["directory"].fix


def test_an_operator_key_is_made_once_and_shared_by_copying(tmp_path: Path) -> None:
    one = initialise(tmp_path / "one", RelayInitOptions("127.0.0.1", 9001, "127.0.0.1:9001", None, True))
    path = load(tmp_path / "one").operator_key
    assert path.stat().st_mode & 0o777 == 0o600
    copied = tmp_path / "two" / "keys" / "operator.pem"
    copied.parent.mkdir(parents=True)
    copied.write_bytes(path.read_bytes())
    copied.chmod(0o600)
    two = initialise(tmp_path / "two", RelayInitOptions("127.0.0.1", 9002, "127.0.0.1:9002", None, True))
    three = initialise(tmp_path / "three", RelayInitOptions("127.0.0.1", 9003, "127.0.0.1:9003", None, True))
    assert one["operator"] == two["operator"] == own_descriptor(tmp_path / "two").operator != three["operator"]
    copied.chmod(0o640)
    with pytest.raises(RelayMisconfigured, match="readable by others"):
        load_operator_key(copied)


def test_a_relay_with_a_committee_needs_a_chain_node_and_an_ip_address(tmp_path: Path) -> None:
    contract = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
    with pytest.raises(RelayMisconfigured, match="--rpc"):
        committee_of(contract, "", "", 0)
    with pytest.raises(RelayMisconfigured, match="--committee"):
        committee_of("", "http://localhost", "", 0)
    with pytest.raises(RelayMisconfigured, match="no address"):
        committee_of("0x12", "http://localhost", "", 0)
    listed = committee_of(contract, "http://localhost:8545", "eu-west", 5000)
    with pytest.raises(RelayMisconfigured, match="IP address"):
        initialise(tmp_path, RelayInitOptions("127.0.0.1", 9001, "relay.example:9001", None, True, listed))
    initialise(tmp_path, RelayInitOptions("127.0.0.1", 9001, "203.0.113.9:9001", None, True, listed))
    assert load(tmp_path).committee == listed
