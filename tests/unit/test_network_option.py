"""--network on every command: what it fills in, what it never overrides, and what it refuses before a command acts."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from support.fake_chain import FakeChain, served
from support.network_files import FACTORY, NETWORK

from troth.chain.errors import ChainUnavailable
from troth.command.plugins import load, plugins
from troth.network.description import write_description
from troth.network.errors import NetworkFileInvalid, WrongNetwork
from troth.network.option import offer_network
from troth.network.services import ServicePlace
from troth.protocol.types import ZERO_HASH, address_from_bytes

OTHER = address_from_bytes(b"\x55" * 20)


@contextmanager
def running(chain: FakeChain) -> Iterator[str]:
    """The chain in a thread of its own: commands have their own loop."""
    loop, ready, urls = asyncio.new_event_loop(), threading.Event(), list[str]()
    stop = asyncio.Event()

    async def serve() -> None:
        async with served(chain) as url:
            urls.append(url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait(10)
    try:
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def chain(code: str = "0x60", number: int = 77) -> FakeChain:
    return FakeChain(chain_id=number, overridden={"eth_getCode": lambda parameters: code})


def toy_command(group: str) -> Any:
    """A command of a group with all options that a network fills in; it prints what it got."""
    app = typer.Typer()

    @app.command()
    def act(
        factory: Annotated[str, typer.Option("--factory", envvar="TROTH_FACTORY")],
        rpc: Annotated[str, typer.Option("--rpc", envvar="TROTH_RPC")] = "http://127.0.0.1:1",
        bank: Annotated[str, typer.Option("--bank")] = "",
        start_block: Annotated[int, typer.Option("--start-block")] = 0,
        committee: Annotated[str, typer.Option("--committee")] = "",
        bundle: Annotated[str, typer.Option("--bundle")] = "",
    ) -> None:
        del bundle
        typer.echo(json.dumps([factory, rpc, bank, start_block, committee]))

    found = typer.main.get_command(app)
    offer_network(group, found)
    return found


@pytest.fixture
def command() -> Any:
    return toy_command("toy")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_description(tmp_path / "network.json", replace(NETWORK, rpc=()))
    return tmp_path / "network.json"


def acted(command: Any, capsys: pytest.CaptureFixture[str], *arguments: object) -> list[Any]:
    command.main(args=[str(one) for one in arguments], standalone_mode=False)
    found: list[Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_network_fills_in_what_is_left_open(
    command: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert NETWORK.committee is not None
    filled = [FACTORY, NETWORK.contracts.bank, 1_234, NETWORK.committee.address]
    with running(chain()) as url:
        write_description(tmp_path / "other.json", replace(NETWORK, rpc=(url,)))
        found = acted(command, capsys, "--network", tmp_path / "other.json")
        assert found == [filled[0], url, *filled[1:]]
        found = acted(command, capsys, "--network", file, "--rpc", url, "--start-block", 1_500)
        assert found == [FACTORY, url, NETWORK.contracts.bank, 1_500, NETWORK.committee.address]
        monkeypatch.setenv("TROTH_NETWORK", str(tmp_path / "other.json"))
        assert acted(command, capsys)[0] == FACTORY
        monkeypatch.setenv("TROTH_FACTORY", FACTORY.lower())
        assert acted(command, capsys)[0] == FACTORY.lower()


def test_a_node_is_no_entry_of_the_overlay_unless_its_operator_says_so(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    node = toy_command("node")
    with running(chain()) as url:
        assert acted(node, capsys, "--network", file, "--rpc", url)[4] == ""
        assert NETWORK.committee is not None
        named = acted(node, capsys, "--network", file, "--rpc", url, "--committee", NETWORK.committee.address)
        assert named[4] == NETWORK.committee.address


def test_an_option_that_names_another_deployment_is_refused(
    command: Any, capsys: pytest.CaptureFixture[str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(chain()) as url:
        for option in ("--factory", "--bank", "--committee"):
            with pytest.raises(WrongNetwork, match=option):
                acted(command, capsys, "--network", file, "--rpc", url, option, OTHER)
        monkeypatch.setenv("TROTH_FACTORY", OTHER)
        with pytest.raises(WrongNetwork, match="TROTH_FACTORY"):
            acted(command, capsys, "--network", file, "--rpc", url)


def test_a_node_of_another_chain_is_refused_before_anything_is_done(
    command: Any, capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    with (
        running(chain(number=1)) as url,
        pytest.raises(WrongNetwork, match="chain 1, and the network mine on chain 77"),
    ):
        acted(command, capsys, "--network", file, "--rpc", url)
    with running(chain(code="0x")) as url, pytest.raises(WrongNetwork, match="started anew"):
        acted(command, capsys, "--network", file, "--rpc", url)
    with pytest.raises(ChainUnavailable):
        acted(command, capsys, "--network", file, "--rpc", "http://127.0.0.1:1")
    assert capsys.readouterr().out == ""


def test_a_bundle_needs_no_chain_node(command: Any, capsys: pytest.CaptureFixture[str], file: Path) -> None:
    assert acted(command, capsys, "--network", file, "--bundle", "kept.jsonl")[0] == FACTORY


def test_without_a_network_nothing_changes(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert acted(command, capsys, "--factory", OTHER) == [OTHER, "http://127.0.0.1:1", "", 0, ""]


def test_a_file_that_is_none_is_refused(command: Any, capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text("{}")
    with pytest.raises(NetworkFileInvalid):
        acted(command, capsys, "--network", file)


def commands_of(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", {})
    yield from ((path, command),) if not below else ()
    for name, one in below.items():
        yield from commands_of(one, f"{path} {name}")


@pytest.mark.slow  # it loads every package
def test_every_command_with_a_chain_node_takes_a_network() -> None:
    found = [one for name, point in plugins().items() for one in commands_of(load(point), name)]
    names = {path: {option.name for option in one.params} for path, one in found}
    with_rpc = {path for path, options in names.items() if "rpc" in options}
    assert len(with_rpc) > 20
    assert {path for path in with_rpc if "network" not in names[path]} == {
        "network create", "network describe", "network add", "network probe",
    }  # fmt: skip


@pytest.mark.slow  # it loads every package
def test_what_is_missing_and_a_network_would_name_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for path in (["explorer", "serve"], ["audit", "watch"], ["committee", "reputation", "show"]):
        command = load(plugins()[path[0]])
        with pytest.raises(SystemExit) as stopped:
            command.main([*path[1:]])
        assert stopped.value.code == 2
        said = " ".join(capsys.readouterr().err.replace("│", " ").split())
        assert "--network FILE|NAME names it, too" in said


@pytest.mark.slow  # it loads every package
def test_a_network_that_does_not_name_what_is_missing_is_told(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        load(plugins()["audit"]).main(["tickets", "--network", str(file)])
    assert stopped.value.code == 2
    assert f"The network {NETWORK.name} names none" in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_what_stands_beside_a_market_is_filled_in_and_not_exchanged(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    app = typer.Typer()

    @app.command()
    def act(
        tickets: Annotated[str, typer.Argument()],
        rpc: Annotated[str, typer.Option("--rpc")] = "",
        reputation: Annotated[str, typer.Option("--reputation")] = "",
        organisations: Annotated[str, typer.Option("--organisations")] = "",
    ) -> None:
        del rpc
        typer.echo(json.dumps([tickets, reputation, organisations]))

    found = typer.main.get_command(app)
    offer_network("toy", found)
    names = ("tickets", "reputation", "organisations")
    places = {
        name: ServicePlace(address_from_bytes(bytes((at,)) * 20), ZERO_HASH, None) for at, name in enumerate(names)
    }
    with running(chain()) as url:
        file = tmp_path / "served.json"
        write_description(file, replace(NETWORK, services=places, rpc=(url,)))
        assert acted(found, capsys, "--network", file) == [places[name].address for name in names]
        with pytest.raises(WrongNetwork, match="--reputation"):
            acted(found, capsys, "--network", file, "--reputation", OTHER)
