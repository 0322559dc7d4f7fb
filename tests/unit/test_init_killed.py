"""Each `init` killed in the middle: what has its name is whole, and the same command goes on from there."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from troth.chain.keystore import address_in, create_account
from troth.client.command import app as client
from troth.client.errors import WalletError
from troth.committee import initialisation as committee
from troth.committee.configuration import Bonding
from troth.node.configuration import NodeInitOptions
from troth.node.registration import setup as node
from troth.overlay.relay import initialisation as relay
from troth.scheduler.commands import initialisation as scheduler

pytestmark = pytest.mark.slow

RPC, ENDPOINT, FACTORY = "http://127.0.0.1:8545", "https://127.0.0.1:9443", "0x" + "11" * 20
CLASS = "0x" + "22" * 32
Told = dict[str, object]


def node_init(home: Path, password: Path) -> Told:
    choices = NodeInitOptions(
        rpc=RPC,
        factory=FACTORY,
        execution_class=CLASS,
        model="tiny",
        slice="0:2",
        segments=("0:2",),
        host="127.0.0.1",
        port=9443,
        endpoint=ENDPOINT,
        device="cpu",
        threads=1,
        start_block=0,
    )
    return node.set_up(home, choices, None, password, new_owner=True)


def scheduler_init(home: Path, password: Path) -> Told:
    plain = scheduler.SchedulerInitOptions(
        RPC, CLASS, home.with_name("model"), "auto", "127.0.0.1", 9443, ENDPOINT, 0, None, None
    )
    wishes = scheduler.MarketWishes(plain, FACTORY, "", (3, 1, 6), 1000, 250)
    return scheduler.initialise_market(home, wishes, password)


def committee_init(home: Path, password: Path) -> Told:
    wishes = committee.MemberInitOptions(RPC, "", Bonding(), "127.0.0.1", 9443, ENDPOINT)
    return committee.initialise(home, wishes, password)


def relay_init(home: Path, _password: Path) -> Told:
    return relay.initialise(home, relay.RelayInitOptions("127.0.0.1", 9443, "127.0.0.1:9443", None, proxy=True))


def client_init(home: Path, password: Path, *more: str) -> Told:
    words = ["init", "--home", str(home), "--rpc", RPC, "--factory", FACTORY, "--password-file", str(password)]
    done = CliRunner().invoke(client, [*words, *more, "--json"])
    if done.exception is not None:
        raise done.exception
    return dict(json.loads(done.output))


def killed_after(files: int, init: Callable[[Path, Path], Told], home: Path, password: Path) -> None:
    """In a process of its own, which dies once so many files have their names and before their other ones are gone."""
    if child := os.fork():
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        return
    try:
        link, named = os.link, []

        def dying(writing: Path, path: Path) -> None:
            link(writing, path)
            named.append(path)
            if len(named) == files:
                os.kill(os.getpid(), signal.SIGKILL)

        os.link = dying  # type: ignore[assignment]
        init(home, password)
    finally:
        os._exit(1)


@pytest.mark.parametrize(
    ("init", "files"),
    [
        (node_init, 1),
        (node_init, 3),
        (scheduler_init, 1),
        (scheduler_init, 3),
        (committee_init, 1),
        (relay_init, 2),
        (client_init, 1),
    ],
)
def test_an_init_that_was_killed_can_be_given_again(
    tmp_path: Path, init: Callable[[Path, Path], Told], files: int
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "toy", "max_position_embeddings": 64}')
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    password, home = tmp_path / "password", tmp_path / "home"
    password.touch(mode=0o600)
    password.write_text("word\n")
    killed_after(files, init, home, password)
    kept = {one: one.read_bytes() for one in home.rglob("[!.]*") if one.is_file()}
    assert len(kept) == files
    assert any(one.name.startswith(".") for one in home.rglob(".*"))
    told = init(home, password)
    assert {one: one.read_bytes() for one in kept} == kept
    assert list(home.rglob(".*")) == []
    operator = home / "keys" / "operator.json"
    assert not operator.exists() or address_in(operator) == told["operator"]


def test_a_wallet_without_a_configuration_is_used_unless_another_one_is_to_be_imported(tmp_path: Path) -> None:
    password, home = tmp_path / "password", tmp_path / "home"
    password.touch(mode=0o600)
    password.write_text("word\n")
    killed_after(1, client_init, home, password)
    create_account(tmp_path / "other.json", "word")
    with pytest.raises(WalletError, match="There is another wallet already"):
        client_init(home, password, "--import-key", str(tmp_path / "other.json"))
    (wallet,) = home.rglob("[!.]*.json")
    assert client_init(home, password, "--import-key", str(wallet))["address"] == address_in(wallet)
    with pytest.raises(WalletError, match="There is a wallet already"):
        client_init(home, password)
