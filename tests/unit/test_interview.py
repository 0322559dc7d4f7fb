"""What `init` commands ask: only what was not given, only at a terminal, and again after a wrong answer."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from troth.client.command import app as client
from troth.client.configuration import load
from troth.client.home import Home
from troth.committee.command import app as committee
from troth.committee.configuration import load as load_member
from troth.node.command import app as node
from troth.protocol.amounts import COIN
from troth.protocol.errors import InvalidField
from troth.scheduler.command import app as scheduler
from troth.scheduler.configuration import load_market
from troth.transport import interview as module
from troth.transport.interview import Alternative, Interview, contract, listening_host

FACTORY = "0x" + "ab" * 20
CLASS = "0x" + "11" * 32


@pytest.fixture
def password(tmp_path: Path) -> str:
    path = tmp_path / "password"
    path.touch(mode=0o600)
    path.write_text("secret")
    return str(path)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "at_terminal", lambda: True)


def asking(work: object, typed: str) -> str:
    """What a command of one function prints to standard error, and what it returns."""
    app = typer.Typer()
    app.command()(work)  # type: ignore[type-var]
    done = CliRunner().invoke(app, [], input=typed)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_wrong_answer_is_told_and_asked_again() -> None:
    def work() -> None:
        typer.echo("got " + Interview(asking=True).text("", "--factory", "Factory", check=contract))
        typer.echo("got " + Interview(asking=True).text("", "--stake", "Stake", default="0.1ether", check=COIN.parse))

    shown = asking(work, f"0x12\n{FACTORY}\nmuch\n\n")
    assert f"got {FACTORY}" in shown
    assert "got 0.1ether" in shown
    assert "40" in shown, "what an address is"
    assert "This is not an amount" in shown


def test_a_choice_is_a_number_and_the_only_one_is_not_asked() -> None:
    def work() -> None:
        two = [Alternative("a", "the first"), Alternative("b", "the second")]
        typer.echo("got " + Interview(asking=True).choose("", "--class", "Which", two))
        typer.echo("got " + Interview(asking=True).choose("", "--class", "Which", two[:1]))
        typer.echo("got " + Interview(asking=True).choose("given", "--class", "Which", two))

    shown = asking(work, "0\n3\nx\n2\n")
    assert [line for line in shown.splitlines() if line.startswith("got")] == ["got b", "got a", "got given"]
    assert shown.count("There is no number") == 3


def test_nobody_is_asked_without_a_terminal() -> None:
    for ask in (
        lambda: Interview().text("", "--rpc", "Where"),
        lambda: Interview().choose("", "--class", "Which", []),
    ):
        with pytest.raises(typer.BadParameter, match="Missing option"):
            ask()
    assert Interview().confirm(None, "--new-owner", "Make it?") is False
    assert Interview().text("x", "--rpc", "Where") == "x"


@pytest.mark.parametrize(
    ("endpoint", "host"),
    [
        ("https://127.0.0.1:1", "127.0.0.1"),
        ("https://127.0.0.2:1", "127.0.0.2"),
        ("https://localhost:1", "127.0.0.1"),
        ("https://[::1]:1", "::1"),
        ("https://[2001:db8::7]:1", "::"),
        ("https://203.0.113.5:1", "0.0.0.0"),
        ("https://a.example:1", "0.0.0.0"),
        ("", "127.0.0.1"),
    ],
)
def test_where_to_listen_follows_from_the_endpoint(endpoint: str, host: str) -> None:
    assert listening_host(endpoint) == host


@pytest.mark.parametrize(
    "endpoint", ["http://node.example:9443", "node.example:9443", "https://", "ftp://x", "https://x:99999"]
)
def test_what_is_no_https_address_is_no_endpoint(endpoint: str) -> None:
    with pytest.raises(InvalidField, match="no endpoint"):
        listening_host(endpoint)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "what", "value"),
    [
        (("--class", "0x12"), "no id", "0x12"),
        (("--endpoint", "http://x"), "no endpoint", "http://x"),
        (("--slice", "0:31"), "the model has 2 layers", "0:31"),
    ],
)
def test_a_node_s_wrong_options_are_named_before_anything_is_written(
    tmp_path: Path, password: str, options: tuple[str, str], what: str, value: str
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(
        '{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8, "vocab_size": 9}'
    )
    for name in ("tokenizer.json", "model.safetensors"):
        (model / name).write_text("{}")
    given = {"--class": CLASS, "--slice": "0:2", "--model": str(model), "--factory": FACTORY} | dict([options])
    words = ["init", "--home", str(tmp_path / "n"), "--password-file", password]
    done = CliRunner().invoke(node, [*words, *(word for pair in given.items() for word in pair)])
    assert what in getattr(done.exception, "what", "")
    assert getattr(done.exception, "value", "") == value
    assert not (tmp_path / "n").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("terminal")
def test_a_client_is_asked(tmp_path: Path, password: str) -> None:
    words = ["init", "--home", str(tmp_path), "--password-file", password]
    done = CliRunner().invoke(client, words, input=f"{FACTORY}\nhttp://chain:8545\nnone\n")
    assert done.exit_code == 0, done.output
    found = load(Home(tmp_path).configuration)
    assert (found.market.factory, found.rpc, found.committee) == (FACTORY, "http://chain:8545", "")


@pytest.mark.slow
@pytest.mark.usefixtures("terminal")
def test_a_committee_member_is_asked(tmp_path: Path, password: str) -> None:
    words = ["init", "--home", str(tmp_path / "m"), "--password-file", password]
    done = CliRunner().invoke(committee, words, input="http://chain:8545\nhttps://m.example:8543\n")
    assert done.exit_code == 0, done.output
    member = load_member(tmp_path / "m")
    assert (member.rpc, member.endpoint, member.host) == ("http://chain:8545", "https://m.example:8543", "0.0.0.0")


@pytest.mark.slow
@pytest.mark.usefixtures("terminal")
def test_a_scheduler_is_asked_and_amounts_have_units(
    tmp_path: Path, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asset_at(*_place: object) -> object:
        return COIN

    monkeypatch.setattr("troth.scheduler.commands.initialisation.asset_at", asset_at)
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "toy", "max_position_embeddings": 64}')
    (model / "tokenizer.json").write_text("{}")
    answers = [
        *("http://chain:8545", FACTORY, CLASS, str(model), "15,30", "https://s.example:8443"),
        *("much", "0.3gwei,0.03gwei,0.6gwei", "0.5wei", "0.01ether"),
    ]
    words = ["init", "--home", str(tmp_path / "s"), "--password-file", password]
    done = CliRunner().invoke(scheduler, words, input="\n".join(answers) + "\n")
    assert done.exit_code == 0, (done.output, done.exception)
    found = load_market(tmp_path / "s")
    (prices,) = found.prices.values()
    assert (prices.prompt, prices.cached, prices.written) == (3 * 10**11, 3 * 10**10, 6 * 10**11)
    assert found.deposits.deposit == 10**16
