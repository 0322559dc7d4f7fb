"""A scheduler of a market from ``init`` to being ready: configuration, registration, assembly, what it says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.light_keys import lighten
from support.tab_scene import descriptor, texts
from support.tabs_stage import TabsStage, execution_class_of, tabs_stage
from typer.testing import CliRunner

from troth.chain.errors import NothingFree, WrongPassword
from troth.chain.keystore import DEMO_SCRYPT_N, create_account, load_account, load_vrf_secret
from troth.protocol.amounts import AmountError
from troth.protocol.market.parts import Part
from troth.scheduler.assembly import SchedulerKeys, assembled_market
from troth.scheduler.command import app
from troth.scheduler.commands.doctor import examine
from troth.scheduler.commands.initialisation import SchedulerInitOptions, init_market
from troth.scheduler.commands.money import (
    claim_of_market,
    earnings_of_market,
    exit_of_market,
    finish_of_market,
    redeem_of_market,
    top_up_of_market,
    withdraw_of_market,
)
from troth.scheduler.commands.registering import Owner, register_in_market
from troth.scheduler.commands.status import _unconnected, prices_of_market, status_of_market, tabs_of_market
from troth.scheduler.configuration import load_market
from troth.scheduler.duties import DutyPace
from troth.scheduler.errors import ConfigurationInvalid
from troth.transport.identity import load_identity
from troth.transport.server import TlsServer, serving

pytestmark = [pytest.mark.chain, pytest.mark.slow]
MONEY = ((1_000_000_000, 100_000_000, 2_000_000_000), 1_000_000_000_000, 0)


def password_file(folder: Path) -> Path:
    file = folder / "password"
    file.write_text("correct horse battery staple\n")
    file.chmod(0o600)
    return file


def wishes(stage: TabsStage, folder: Path, **changes: Any) -> SchedulerInitOptions:
    texts(folder / "model")
    plain: dict[str, Any] = {
        "rpc": stage.anvil.url,
        "class_id": "0x" + stage.class_id.hex(),
        "model": folder / "model",
        "ends": "2",
        "host": "127.0.0.1",
        "port": 0,
        "endpoint": "https://127.0.0.1:1",
        "start_block": 0,
        "operator_keystore": None,
        "vrf_keystore": None,
    }
    return SchedulerInitOptions(**plain | changes)


async def test_from_init_to_a_scheduler_that_is_ready(anvil: Any, tmp_path: Path) -> None:
    model = descriptor()
    async with tabs_stage(anvil, model=model, execution_class=execution_class_of(model), nodes=3) as stage:
        home, secret = tmp_path / "home", password_file(tmp_path)
        place = (stage.market.place.factory, stage.market.contracts.bank)
        made = init_market(home, wishes(stage, tmp_path), place, MONEY, secret)
        with pytest.raises(ConfigurationInvalid):
            init_market(home, wishes(stage, tmp_path), place, MONEY, secret)
        lighten(home / "keys", secret)
        owner = create_account(tmp_path / "owner.json", "correct horse battery staple", scrypt_n=DEMO_SCRYPT_N)
        anvil.fund(owner)
        asked = Owner(tmp_path / "owner.json", secret, None, "")
        await wrong_passwords_are_told_at_once(home, asked)
        found = await status_of_market(home)
        assert (found["role"], found["problems"][0][:14]) == ("none", "not registered")
        assert await failing(home) == {"role", "stake", "endpoint", "gas", "process"}
        fixes = {one.check: one.fix for one in await examine(home)}
        assert fixes["stake"] == fixes["role"], "registering puts up the stake; who is not registered tops nothing up"
        dry = await register_in_market(home, asked, secret, broadcast=False)
        assert not dry["sent"]
        sent = await register_in_market(home, asked, secret, broadcast=True)
        assert sent["function"] == "registerScheduler"
        configuration = load_market(home)
        operator = load_account(configuration.operator_keystore, "correct horse battery staple")
        assert operator.address == made["operator"]
        anvil.fund(operator)
        anvil.mine(2)
        assert await failing(home) == {"process"}
        wrong_files(home)
        assert await failing(home) >= {"keys", "endpoint", "class"}
        right_files(home)
        await serves(configuration, operator, stage)
        found = await status_of_market(home)
        assert (found["role"], found["problems"]) == ("scheduler", [])
        assert [one["balance_units"] for one in (await tabs_of_market(home))["nodes"]] == ["1000000000000"] * 3
        assert prices_of_market(home)["prices"][0]["prompt_units_per_billion"] == "1000000000"
        await adds(home, secret, stage)
        await leaves(home, secret, stage, anvil)


async def wrong_passwords_are_told_at_once(home: Path, asked: Owner) -> None:
    """Before the deployment is followed, which is why nothing of it is on disk afterwards."""
    wrong = home.parent / "wrong password"
    wrong.write_text("incorrect horse")
    wrong.chmod(0o600)
    with pytest.raises(WrongPassword, match=r"vrf\.json"):
        await register_in_market(home, asked, wrong, broadcast=False)
    with pytest.raises(WrongPassword, match=r"owner\.json"):
        await register_in_market(home, replace(asked, password_file=wrong), asked.password_file, broadcast=True)
    assert not (home / "market-events-command.sqlite").exists()


async def failing(home: Path) -> set[str]:
    """The names of the doctor's checks that fail; each has a fix."""
    found = [one for one in await examine(home) if not one.ok]
    assert all(one.fix for one in found)
    return {one.check for one in found}


def wrong_files(home: Path) -> None:
    """A VRF key that is gone, an endpoint and a class that nobody registered."""
    (home / "keys" / "vrf.json").rename(home / "keys" / "vrf.away")
    text = (home / "scheduler.toml").read_text()
    (home / "scheduler.kept").write_text(text)
    served = load_market(home).served[0].class_id.hex()
    text = text.replace("https://127.0.0.1:1", "https://127.0.0.1:2").replace(served, "22" * 32)
    (home / "scheduler.toml").write_text(text)


def right_files(home: Path) -> None:
    """As before ``wrong_files``."""
    (home / "keys" / "vrf.away").rename(home / "keys" / "vrf.json")
    (home / "scheduler.kept").rename(home / "scheduler.toml")


async def adds(home: Path, secret: Path, stage: TabsStage) -> None:
    """Stake and tabs with nodes are topped up; there is nothing to redeem or claim yet."""
    stake = int((await status_of_market(home))["stake_units"])
    dry = await top_up_of_market(home, "5units", (None, secret), "", broadcast=False)
    assert (dry["function"], dry["sent"]) == ("topUp", False)
    await top_up_of_market(home, "5units", (None, secret), "", broadcast=True)
    assert int((await status_of_market(home))["stake_units"]) == stake + 5
    node = stage.nodes[0].address
    await top_up_of_market(home, "7wei", (None, secret), node, broadcast=True)
    held = {one["node"]: one["balance_units"] for one in (await tabs_of_market(home))["nodes"]}
    assert held[node] == "1000000000007"
    with pytest.raises(ConfigurationInvalid, match="No one open tab"):
        await top_up_of_market(home, "7wei", (None, secret), "0x00000000000000", broadcast=False)
    assert (await redeem_of_market(home, secret, broadcast=True))["tabs"] == 0
    assert (await claim_of_market(home, secret, broadcast=True))["tabs"] == 0
    earned = await earnings_of_market(home)
    assert (earned["today"]["answers"], earned["unpaid_units"], earned["owed_to_nodes_units"]) == (0, "0", "0")


async def leaves(home: Path, secret: Path, stage: TabsStage, anvil: Any) -> None:
    """Money comes back from tabs, and then the stake, each in its time."""
    with pytest.raises(ConfigurationInvalid, match="takes orders"):
        await finish_of_market(home, secret, broadcast=True)
    gone = stage.nodes[0]
    await stage.send(stage.owner_of(gone), Part.REGISTRY, "deregister", gone.address)
    closed = await finish_of_market(home, secret, broadcast=True)
    assert [one["function"] for one in closed["calls"]] == ["close"]
    (waiting,) = (await finish_of_market(home, secret, broadcast=True))["waiting"]
    assert gone.address in waiting
    dry = await exit_of_market(home, secret, broadcast=False)
    assert not dry["sent"]
    left = await exit_of_market(home, secret, broadcast=True)
    found = await status_of_market(home)
    assert left["stake_free_after_block"] == found["exit_block"] >= dry["stake_free_after_block"]
    assert found["problems"] == [f"leaving: withdraw after block {found['exit_block']}"]
    closed = await finish_of_market(home, secret, broadcast=True)
    assert [one["function"] for one in closed["calls"]] == ["close"] * (len(stage.nodes) - 1)
    waiting = (await finish_of_market(home, secret, broadcast=True))["waiting"]
    assert ["free from block" in one for one in waiting] == [True] * len(stage.nodes)
    with pytest.raises(NothingFree, match=f"bound until block {found['exit_block']}"):
        await withdraw_of_market(home, secret, broadcast=False)
    anvil.mine(found["exit_block"] - (await status_of_market(home))["block"] + 1000)
    back = await finish_of_market(home, secret, broadcast=True)
    assert [one["function"] for one in back["calls"]] == ["finishClosing"] * len(stage.nodes)
    shown = await withdraw_of_market(home, secret, broadcast=False)
    before = await stage.market.chain.balance(shown["payout"])
    out = await withdraw_of_market(home, secret, broadcast=True)
    assert [one["function"] for one in out["calls"]] == ["withdrawStake", "withdraw"]
    assert out["amount_units"] == shown["amount_units"] == found["stake_units"]
    # To the unit: the operator pays the gas, and the payout address is another one.
    assert await stage.market.chain.balance(shown["payout"]) == before + int(out["amount_units"])
    after = await status_of_market(home)
    assert (after["stake_units"], after["credit_units"]) == ("0", "0")


async def serves(configuration: Any, operator: Any, stage: TabsStage) -> None:
    """It comes up, opens tabs with all nodes by itself, and answers its clients."""
    vrf_secret = load_vrf_secret(configuration.vrf_keystore, "correct horse battery staple")
    pace = DutyPace(urgent=0.05, money=0.05, slow=0.05)
    async with assembled_market(configuration, SchedulerKeys(operator, vrf_secret), pace) as scheduler:
        state = await _until_tabs(scheduler, len(stage.nodes))
        assert sum(one.tab.payer == operator.address for one in state.tabs.values()) == len(stage.nodes)
        assert scheduler.reasons() == []
        transport = httpx.ASGITransport(app=scheduler.app())
        async with httpx.AsyncClient(transport=transport, base_url="https://scheduler") as http:
            info = (await http.get("/v1/info")).json()
            assert (info["operator"], info["bank"]) == (operator.address, stage.market.contracts.bank)
            assert info["classes"][0]["ends"] == [2]
            listed = (await http.get("/v1/prices")).json()["data"][0]
            assert listed["troth"]["written_price"] == "2000000000"
            assert float(listed["pricing"]["completion"]) >= 2e-18
            assert (await http.get("/readyz")).status_code == 200
            assert "troth_scheduler_stake" in (await http.get("/metrics")).text
            files = await http.get(f"/v1/models/0x{stage.class_id.hex()}/tokenizer")
            assert json.loads(files.json()["config"])["model_type"] == "toy"
        await says_that_nobody_is_connected(configuration.folder, scheduler)


async def says_that_nobody_is_connected(home: Path, scheduler: Any) -> None:
    """The stage's nodes are registered, and no process answers for them."""
    file, identity = home / "scheduler.toml", load_identity(home / "tls")
    before = file.read_text()
    async with serving(TlsServer(scheduler.app(), identity, "127.0.0.1", 0)) as server:
        file.write_text(before.replace("port = 0", f"port = {server.port}"))
        found = await status_of_market(home)
    file.write_text(before)
    assert len(found["nodes"]) == 3
    (problem,) = found["problems"]
    assert problem.startswith("no node is connected, of 3 that serve its classes: no order can be served (0x")


async def _until_tabs(scheduler: Any, count: int) -> Any:
    me = scheduler.orders.context.operator.address
    follower = scheduler.ledger._follower
    return await follower.wait_until(
        lambda state: sum(one.tab.payer == me for one in state.tabs.values()) == count, timeout=30
    )


def test_one_node_that_is_connected_is_enough() -> None:
    away = {"operator": "0x1", "connected": False, "why": ["it cannot be reached: refused"]}
    assert "it cannot be reached: refused" in _unconnected([away])[0]
    assert _unconnected([away, {"operator": "0x2", "connected": True}]) == []
    assert "no node is registered" in _unconnected([])[0]
    assert _unconnected(None) == [], "it does not run here"


def test_tunnels_are_switched_on_by_init(tmp_path: Path) -> None:
    texts(tmp_path / "model")
    model = str(tmp_path / "model")
    plain = ["init", "--rpc", "http://x", "--class", "0x" + "11" * 32, "--model", model, "--ends", "2"]
    told = [*plain, "--factory", "0x" + "11" * 20, "--home", str(tmp_path / "home"), "--prices", "1,2,3"]
    told += ["--endpoint", "https://s.example:8443", "--deposit", "5units"]
    told += ["--password-file", str(password_file(tmp_path))]
    for wrong, word in (("20000", "FIRST:COUNT"), ("a:b", "FIRST:COUNT"), ("8440:8", "cannot be lent")):
        refused = CliRunner().invoke(app, [*told, "--tunnels", wrong])
        assert isinstance(refused.exception, ConfigurationInvalid)
        assert word in str(refused.exception)
    assert CliRunner().invoke(app, [*told, "--tunnels", "20000:64"]).exit_code == 0
    lent = load_market(tmp_path / "home").tunnels
    assert lent is not None
    assert (lent.ports, lent.name) == (range(20000, 20064), "s.example")


def test_the_command_line_says_what_is_missing(tmp_path: Path) -> None:
    plain = ["init", "--rpc", "http://x", "--class", "0x" + "11" * 32, "--model", str(tmp_path), "--ends", "2"]
    market = [*plain, "--factory", "0x" + "11" * 20, "--home", str(tmp_path / "home")]
    assert CliRunner().invoke(app, market).exit_code == 2, "prices, deposit and endpoint have no defaults"
    told = [*market, "--endpoint", "https://s.example", "--deposit", "5units", "--prices", "1,2"]
    refused = CliRunner().invoke(app, told)
    assert isinstance(refused.exception, AmountError)
    assert "three prices" in str(refused.exception)
    assert {"run", "tabs", "prices", "status"} <= {
        command.name or command.callback.__name__ for command in app.registered_commands
    }  # type: ignore[union-attr]


async def test_the_doctor_without_a_chain_still_looks_at_files(tmp_path: Path) -> None:
    assert [(one.check, one.ok) for one in await examine(tmp_path)] == [("config", False)]
