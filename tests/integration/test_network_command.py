"""`troth network` and `troth model register` on real chains: created, verified, and doubted."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Anvil, key_number, wait_for_answer
from support.imprint_scene import test_key
from support.network_creation import TRANSACTIONS, account, sent_by, troth
from support.tiny_llama import VOCABULARY, tiny_model
from typer.testing import CliRunner

from troth.chain.deployment import (
    committee_creation,
    organisations_creation,
    reputation_creation,
    submit,
    tickets_creation,
)
from troth.committee import tickets_command
from troth.network.command import app
from troth.network.creating import create
from troth.network.description import read_description, write_description
from troth.network.journal import journal_of
from troth.network.planning import CreationWish, plan_creation
from troth.network.services import ServicePlace
from troth.network.verifying import Verification, verify
from troth.node import model_command
from troth.node.models.folder import ModelFolder
from troth.protocol.amounts import readable
from troth.protocol.calls import Call
from troth.protocol.committee import read_member
from troth.protocol.hashing import keccak256
from troth.protocol.market.calls import build_factory
from troth.protocol.market.shipped import DEMO, broken_windows
from troth.protocol.reputation import paper_rules
from troth.protocol.tickets.messages import TicketRules
from troth.protocol.types import Hash32, address_from_bytes
from troth.testnet.ports import free_port

pytestmark = [pytest.mark.chain, pytest.mark.slow]

HISTORY_STAND_IN = "0x5f35405f5260205ff3"
"""BLOCKHASH of the word that is asked: what EIP-2935's contract says, for 256 blocks."""


@pytest.fixture
def payer(anvil: Anvil, tmp_path: Path) -> tuple[object, ...]:
    anvil.mine(3)
    return ("--rpc", anvil.url, *account(tmp_path, anvil.keys[0]))


def test_a_network_is_created_verified_shown_and_given_a_class(
    anvil: Anvil, payer: tuple[object, ...], tmp_path: Path
) -> None:
    file = tmp_path / "network.json"
    member = f"{anvil.keys[1].address},0x{'12' * 32},https://127.0.0.1:8543"
    wish = ("--parameters", "demo", "--name", "mine", "--output", file, "--member", member)
    tried = troth(app, "create", *wish, *payer)
    assert (tried["sent"], tried["problems"]) == (False, [])
    assert not file.exists()
    assert "no money at stake" in tried["warning"]
    made = troth(app, "create", *wish, *payer, "--broadcast")
    assert made["gas"] <= tried["estimated_gas"] <= 1.1 * made["gas"]
    assert not journal_of(file).exists()

    network = read_description(file)
    assert (network.rpc, network.committee and network.committee.address) == ((anvil.url,), made["committee"])
    verified = troth(app, "verify", file)
    assert [one["number"] for one in verified["findings"] if one["ok"]] == [
        *(f"N{number}" for number in range(1, 9)),
        "N12",
    ]
    shown = troth(app, "show", file)
    assert (shown["contracts"]["bank"], shown["explained"]["scheduler_stake"]["value"]) == (made["bank"], "0.1 ether")
    again = CliRunner().invoke(app, ["create", *map(str, (*wish, *payer)), "--broadcast"])
    assert "a file already" in str(again.exception)

    described = tmp_path / "described.json"
    place = ("--factory", made["factory"], "--committee", made["committee"], "--rpc", anvil.url)
    troth(app, "describe", *place, "--name", "mine", "--output", described)
    found = read_description(described)
    assert replace(found, start_block=network.start_block, block_seconds=network.block_seconds) == network

    folder = with_words(tiny_model(tmp_path / "tiny"))
    register = ("register", folder, "--factory", made["factory"], *payer)
    dry = troth(model_command.app, *register)
    added = troth(model_command.app, *register, "--broadcast")
    assert [one["sent"] for one in (*dry["transactions"], *added["transactions"])] == [False, False, True, True]
    assert (added["asset"], readable(added)["class"]["seat"][-6:]) == ("ether", " ether"), "amounts are shown in units"
    assert int(added["class"]["penalty_units"]) >= 2 * int(added["class"]["fee_cap_units"])
    repeated = troth(model_command.app, *register, "--broadcast")
    assert [one["note"] for one in repeated["transactions"]] == ["registered already"] * 2


def with_words(folder: ModelFolder) -> Path:
    """The folder with a tokenizer of as many words as the model knows: others are not registered."""
    vocabulary = {str(number): number for number in range(VOCABULARY)}
    (folder.path / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordLevel", "vocab": vocabulary}}))
    return folder.path


def test_a_network_with_imprints_is_created_verified_and_doubted(
    anvil: Anvil, payer: tuple[object, ...], tmp_path: Path
) -> None:
    file, key = tmp_path / "network.json", test_key(128)
    wish = ("--parameters", "demo", "--name", "mine", "--output", file, "--imprints", key.folder)
    refused = CliRunner().invoke(app, ["create", *map(str, (*wish, "--disputes", *payer))])
    assert "one prover" in str(refused.exception)
    twice = CliRunner().invoke(app, ["create", *map(str, (*wish, "--imprints", key.folder, *payer))])
    assert "two keys for rows of one width" in str(twice.exception)
    made = troth(app, "create", *wish, *payer, "--broadcast")
    assert made["gas"] <= made["estimated_gas"] <= 1.1 * made["gas"]
    network = read_description(file)
    place = network.imprints
    assert place is not None
    assert (place.address, list(place.keys)) == (network.parameters.prover, [128])
    assert made["imprints"] == troth(app, "show", file)["imprints"] == place.address
    prover = troth(app, "verify", file)["findings"][-1]
    assert (prover["number"], prover["ok"]) == ("N12", True)
    assert "128 columns" in prover["found"]

    described = tmp_path / "described.json"
    troth(app, "describe", "--factory", made["factory"], "--rpc", anvil.url, "--name", "mine", "--output", described)
    assert read_description(described).imprints == place

    # Who registers a class whose imprints nobody can use is told so.
    for hidden, useless in ((256, True), (128, False)):
        folder = with_words(tiny_model(tmp_path / f"tiny-{hidden}", hidden_size=hidden))
        told = troth(model_command.app, "register", folder, "--imprints", "--factory", made["factory"], *payer)
        assert ("takes imprints of such rows" in told["warning"]) is useless

    # Another key than the contract has, none at all, a creation that made something else, and no word of it.
    factory = network.created_by
    for lie, words in (
        (replace(place, keys={128: Hash32(b"\x07" * 32)}), "another key for rows of 128"),
        (replace(place, keys={**place.keys, 576: place.keys[128]}), "another key for rows of 576"),
        (replace(place, keys={}), "other code, or for another deployment"),
        (replace(place, created_by=factory), "created something else"),
        (None, "does not say what"),
    ):
        write_description(file, replace(network, imprints=lie))
        doubted = troth(app, "verify", file, code=1)["findings"][-1]
        assert (doubted["ok"], words in doubted["found"]) == (False, True), doubted


SERVICES = (
    *("--ticket-price", "0.001ether", "--ticket-price", "0.01ether", "--ticket-epoch", 300),
    *("--member-bond", "1ether", "--rating-epoch", 90, "--organisations"),
)


def test_what_stands_beside_a_market_is_created_described_and_verified(
    anvil: Anvil, payer: tuple[object, ...], tmp_path: Path
) -> None:
    file, member = tmp_path / "network.json", f"{anvil.keys[1].address},0x{'12' * 32},https://127.0.0.1:8543"
    wish = ("--parameters", "demo", "--name", "mine", "--output", file)
    assert "need a committee" in str(
        CliRunner().invoke(app, ["create", *map(str, (*wish, *SERVICES, *payer))]).exception
    )
    made = troth(app, "create", *wish, "--member", member, *SERVICES, *payer, "--broadcast")
    assert made["gas"] <= made["estimated_gas"] <= 1.1 * made["gas"]
    network = read_description(file)
    assert list(network.services) == list(made["services"]) == ["tickets", "reputation", "organisations"]
    verified = troth(app, "verify", file)
    assert [one["number"] for one in verified["findings"] if one["ok"]] == [f"N{number}" for number in range(1, 13)]
    assert troth(app, "show", file)["services"] == made["services"]
    kept = troth(tickets_command.app, "show", "--rpc", anvil.url, "--tickets", made["services"]["tickets"])
    assert (kept["committee"], kept["bank"], kept["epoch_blocks"]) == (made["committee"], made["bank"], 300)

    described = tmp_path / "described.json"
    beside = [text for name, place in made["services"].items() for text in (f"--{name}", place)]
    place = ("--factory", made["factory"], "--committee", made["committee"], "--rpc", anvil.url, *beside)
    troth(app, "describe", *place, "--name", "mine", "--output", described)
    found = read_description(described)
    assert replace(found, start_block=network.start_block, block_seconds=network.block_seconds) == network


async def test_services_that_were_made_for_somebody_else_do_not_verify(
    anvil: Anvil, payer: tuple[object, ...], tmp_path: Path
) -> None:
    """True code, and another's committee, Bank or Reputation; other code; and a file that says another transaction."""
    file, key = tmp_path / "network.json", anvil.keys[0]
    member = f"{anvil.keys[1].address},0x{'12' * 32},https://127.0.0.1:8543"
    wish = ("--parameters", "demo", "--output", file, "--member", member)
    await asyncio.to_thread(troth, app, "create", *wish, *SERVICES, *payer, "--broadcast")
    network = read_description(file)
    assert network.committee is not None
    committee, bank = network.committee.address, network.contracts.bank
    other = (await submit(anvil.url, committee_creation([read_member(member)]), key)).created
    assert other is not None
    rules, ratings = TicketRules(300, (10**15,)), paper_rules(90, 10**18)

    async def with_service(name: str, creation: Call) -> Verification:
        made = await submit(anvil.url, creation, key)
        assert made.created is not None
        code = bytes.fromhex(str(anvil.rpc("eth_getCode", made.created, "latest"))[2:])
        place = ServicePlace(made.created, Hash32(keccak256(code)), made.transaction)
        return await verify(replace(network, services={**network.services, name: place}), anvil.url)

    wrong = {
        "N9": ("tickets", tickets_creation(other, bank, rules)),
        "N10": ("reputation", reputation_creation(other, network.contracts.registry, ratings)),
        "N11": ("organisations", organisations_creation(network.services["reputation"].address)),
    }
    for number, (name, creation) in wrong.items():
        verified = await with_service(name, creation)
        failed = [one.number for one in verified.findings if not one.ok]
        # Another Reputation is not the one that Organisations stand on, either; another Organisations is as good.
        assert failed == {"N9": ["N9"], "N10": ["N10", "N11"], "N11": []}[number]
    right = await with_service("tickets", tickets_creation(committee, bank, rules))
    assert right.exit_code == 0
    verified = await with_service("tickets", reputation_creation(committee, network.contracts.registry, ratings))
    assert next(one.found for one in verified.findings if not one.ok).startswith("other code")
    tickets = network.services["tickets"]
    for changed, ok in (
        (replace(tickets, created_by=network.services["reputation"].created_by), False),
        (replace(tickets, created_by=None), None),
        (replace(tickets, created_by=Hash32(bytes(32))), None),
        (replace(tickets, code=Hash32(bytes(32))), False),
    ):
        verified = await verify(replace(network, services={**network.services, "tickets": changed}), anvil.url)
        assert [one.ok for one in verified.findings if one.number == "N9"] == [ok]


def test_a_successor_is_made_by_the_factory_that_stands(
    anvil: Anvil, payer: tuple[object, ...], tmp_path: Path
) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    made = troth(app, "create", "--parameters", "demo", "--output", first, *payer, "--broadcast")
    (tmp_path / "successor.toml").write_text("unbonding = 60000\n")
    wish = ("--parameters", tmp_path / "successor.toml", "--factory", made["factory"], "--output", second)
    before = sent_by(anvil, anvil.keys[0])
    after = troth(app, "create", *wish, *payer, "--broadcast")
    assert sent_by(anvil, anvil.keys[0]) == before + TRANSACTIONS - 1
    assert (after["factory"], after["bank"] == made["bank"]) == (made["factory"], False)
    assert [troth(app, "verify", file)["ok"] for file in (first, second)] == [True, True]
    place = ("--factory", made["factory"], "--rpc", anvil.url, "--output", tmp_path / "found.json")
    assert "2 deployments" in str(CliRunner().invoke(app, ["describe", *map(str, place)]).exception)
    troth(app, "describe", *place, "--bank", after["bank"])
    assert read_description(tmp_path / "found.json").contracts == read_description(second).contracts


async def test_what_stands_otherwise_than_the_file_says_is_found(anvil: Anvil, tmp_path: Path) -> None:
    payer, wish = key_number(904), CreationWish("mine", DEMO, tmp_path / "network.json", suggested=(anvil.url,))
    anvil.fund(payer)
    anvil.mine(3)
    plan = await plan_creation(anvil.url, wish, payer.address)
    network = (await create(anvil.url, wish, plan, payer, lambda line: None)).network

    async def failed(changed: Any, code: int) -> list[str]:
        found = await verify(changed, anvil.url)
        assert found.exit_code == code
        return [one.number for one in found.findings if one.ok is not True]

    assert await failed(network, 0) == []
    assert await failed(replace(network, chain_id=1), 1) == ["N1"]
    away = await verify(network, f"http://127.0.0.1:{free_port()}")
    assert ([one.number for one in away.findings], away.exit_code) == (["N1"], 3)
    newest = int(anvil.rpc("eth_blockNumber"), 16)
    assert await failed(replace(network, start_block=newest + 1), 1) == ["N2"]
    assert await failed(replace(network, created_by=None), 3) == ["N3"]
    assert await failed(replace(network, created_by=Hash32(bytes(32))), 3) == ["N3"]
    own = Hash32(bytes.fromhex(anvil.rpc("eth_getBlockByNumber", hex(newest), False)["transactions"][0][2:]))
    assert await failed(replace(network, created_by=own), 1) == ["N3"]
    assert await failed(replace(network, code=network.code | {"court": Hash32(keccak256(b""))}), 1) == ["N6"]
    code = anvil.rpc("eth_getCode", network.contracts.bank, "latest")
    for other, numbers in (("0x", ["N5", "N6"]), (code[:-2] + "00", ["N5", "N6"]), (code, [])):
        anvil.rpc("anvil_setCode", network.contracts.bank, other)
        assert await failed(network, 1 if numbers else 0) == numbers
    factory = anvil.rpc("eth_getCode", network.factory, "latest")
    anvil.rpc("anvil_setCode", network.factory, "0x60806040")
    assert await failed(network, 1) == ["N4", "N6"]
    anvil.rpc("anvil_setCode", network.factory, factory)

    nowhere = replace(network, factory=address_from_bytes(b"\x42" * 20))
    assert {"N2", "N3", "N4"} <= set(await failed(nowhere, 1))
    write_description(wish.output.with_name("other.json"), replace(network, code=network.code | {"bank": own}))
    told = await asyncio.to_thread(troth, app, "verify", wish.output.with_name("other.json"), code=1)
    assert told["ok"] is False


@pytest.mark.parametrize("seed", range(4))
async def test_the_chain_refuses_whatever_broken_windows_are_not_named(deployed: Any, seed: int) -> None:
    """Sets around main's bounds: what the contract refuses, the dry run has named."""
    market, refused = deployed.market, 0
    headers = await market.header(), await market.header((await market.chain.block_number()) - 1)
    for name in [one for one in DEMO.__slots__ if isinstance(getattr(DEMO, one), int)]:
        value = (0, 3, 1 << 31, getattr(DEMO, name) // 2)[seed]
        changed = replace(DEMO, **{name: value})
        call = build_factory(market.place.factory, "begin", changed, headers[0].raw, headers[1].raw)
        simulated = await market.simulate(call, deployed.deployer.address)
        if simulated.rejection is not None and simulated.rejection.name == "InvalidParameters":
            refused += 1
            assert broken_windows(changed), (name, value)
    assert refused


def test_what_cannot_be_is_refused_with_words(anvil: Anvil, payer: tuple[object, ...], tmp_path: Path) -> None:
    def error(*arguments: object) -> str:
        found = CliRunner().invoke(app, [str(one) for one in arguments])
        assert found.exit_code != 0
        return str(found.exception)

    wrong = tmp_path / "wrong.toml"
    for text, words in (
        ("lagg = 3", "lagg"),
        ('lag = "3"', "lag"),
        ("lag = ", "cannot be used"),
        ("unbonding = 9", "break a rule"),
    ):
        wrong.write_text(text)
        assert words in error("create", "--parameters", wrong, *payer)
    assert "No network was created at this factory" in error(
        "describe", "--factory", "0x" + "11" * 20, "--rpc", anvil.url
    )
    assert "No contract lives there" in error("create", "--factory", "0x" + "11" * 20, *payer)
    history = "0x0000F90827F1C53a10cb7A02335B175320002935"
    assert "Another contract lives there" in error("create", "--factory", history, *payer)
    assert "Another contract lives there" in error("create", "--committee", history, *payer)
    assert "cannot be reached" in error("probe", "--rpc", f"http://127.0.0.1:{free_port()}")
    assert "no name" in error("create", "--name", "My Network", *payer)
    assert "no address of a chain node" in error("create", "--suggest-rpc", "ftp://x", *payer)
    assert "No account pays" in error("create", "--rpc", anvil.url, "--broadcast")
    poor = tmp_path / "poor"
    poor.mkdir()
    options = ("--rpc", anvil.url, *account(poor, key_number(905)), "--output", poor / "network.json")
    assert troth(app, "create", *options, code=1)["problems"][0].startswith("the account needs")
    assert "too little for gas" in error("create", *options, "--broadcast")
    assert not (poor / "network.json").exists()


@pytest.fixture
def hardhat() -> Iterator[Anvil]:
    """Hardhat's own node; it speaks to tests as anvil does."""
    command = [str(ROOT / "node_modules" / ".bin" / "hardhat"), "node", "--hostname", "127.0.0.1"]
    if not Path(command[0]).exists():
        pytest.skip("Hardhat is not installed; run npm ci")
    import httpx

    port = free_port()
    environment = os.environ | {"PATH": f"{ROOT / 'node_modules' / '.bin'}:{os.environ['PATH']}"}
    process = subprocess.Popen(
        [*command, "--port", str(port)], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, start_new_session=True
    )
    with httpx.Client(verify=False, trust_env=False, timeout=60) as client:
        node = Anvil(process, port, (), client)
        try:
            wait_for_answer(node)
            yield node
        finally:
            node.stop()


def test_hardhats_own_node_lacks_block_hashes_and_works_with_a_stand_in(hardhat: Anvil, tmp_path: Path) -> None:
    payer = key_number(906)
    hardhat.rpc("hardhat_setBalance", payer.address, hex(10**18))
    for _ in range(3):
        hardhat.rpc("evm_mine")
    words = ("create", "--rpc", hardhat.url, *account(tmp_path, payer), "--parameters", "demo")
    words = (*words, "--output", tmp_path / "network.json")
    tried = troth(app, *words, code=1)
    (problem,) = tried["problems"]
    assert re.search("the chain lacks block hashes: .*EIP2935 is not supported in Hardhat", problem)
    page = (ROOT / "docs" / "how-to" / "networks.md").read_text("utf-8")
    assert HISTORY_STAND_IN in page
    hardhat.rpc("hardhat_setCode", "0x0000F90827F1C53a10cb7A02335B175320002935", HISTORY_STAND_IN)
    troth(app, *words, "--broadcast")
    assert troth(app, "verify", tmp_path / "network.json")["ok"] is True
