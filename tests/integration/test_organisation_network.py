"""A node with --auto takes over another owner's deployment, by its own owner's consent, and credits move to it."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Anvil
from fastapi import FastAPI
from typer.testing import CliRunner

pytest.importorskip("torch")

from support.operated import PASSWORD, Operated, init_words, operated_in
from support.organisation_stage import EPOCH, OrganisationStage
from support.reputation_stage import reputation_stage
from support.tabs_stage import TabsStage, tabs_stage
from support.tiny_llama import tiny_model

from troth.audit.command import app as audit_app
from troth.chain.deployment import organisations_creation, submit
from troth.chain.keystore import DEMO_SCRYPT_N, Key, create_account, load_account
from troth.node.models.descriptor import describe
from troth.node.organisation_command import app
from troth.protocol.organisations import OrganisationsPlace
from troth.protocol.reputation import ONE, paper_rules
from troth.protocol.types import Address, Hash32
from troth.testnet.forked import Forked
from troth.transport.identity import create_identity
from troth.transport.server import TlsServer, serving

pytestmark = [pytest.mark.chain, pytest.mark.slow]

DEADLINE = 180.0
OTHER_CLASS = "0x" + "ee" * 32


@dataclass
class Scene:
    """Alice's node has served an epoch; Bob has a machine without work."""

    stage: TabsStage
    credits: OrganisationStage
    bob: Operated
    alice: Key
    tmp_path: Path

    def words(self, *more: object) -> list[str]:
        """Options of a command that reads market and contract."""
        place = self.stage.market.place
        named = ("--factory", place.factory, "--bank", place.contracts.bank, "--rpc", self.stage.anvil.url)
        return [str(one) for one in (*more, *named, "--organisations", self.credits.place.contract, "--json")]

    async def org(self, *more: object, code: int = 0) -> Any:
        """What `troth org` says to Alice."""
        done = await asyncio.to_thread(CliRunner().invoke, app, self.words(*more))
        assert done.exit_code == code, (done.output, done.exception)
        return json.loads(done.stdout) if code == 0 else done.exception


@pytest.fixture
def processes() -> Iterator[list[Forked]]:
    started: list[Forked] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
async def scene(anvil: Anvil, tmp_path: Path) -> AsyncIterator[Scene]:
    identity, scheduler = create_identity(tmp_path / "tls"), FastAPI()
    # The scheduler serves the class: a newcomer is sent to all of the model's two layers.
    scheduler.get("/v1/placement/{class_id}/window")(lambda class_id: {"slice": [0, 2], "segments": [[0, 2]]})
    folder = tiny_model(tmp_path / "model")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(TlsServer(scheduler, identity, "127.0.0.1", 0)))
        there = (f"https://127.0.0.1:{server.port}", Hash32(identity.spki_sha256))
        model = describe(folder, 0)
        stage = await stack.enter_async_context(
            tabs_stage(anvil, nodes=1, model=model, tabs=False, endpoint=lambda _: there)
        )
        yield await staged(stage, anvil, tmp_path)


async def staged(stage: TabsStage, anvil: Anvil, tmp_path: Path) -> Scene:
    def fund(account: Address, amount: int) -> None:
        anvil.rpc("anvil_setBalance", account, hex(amount))

    rules, registry = paper_rules(EPOCH, 10**15), stage.market.contracts.registry
    reputation = await reputation_stage(anvil.url, anvil.keys[0], anvil.mine, rules, fund, members=1, registry=registry)
    created = await submit(anvil.url, organisations_creation(reputation.contract), anvil.keys[0])
    assert created.created is not None
    place = OrganisationsPlace(created.created, created.block)
    credits = OrganisationStage(anvil, stage.market, reputation, place, {"alice": stage.nodes[0]})
    alice = stage.owner_of(stage.nodes[0])
    create_account(tmp_path / "alice.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N, key=alice)
    anvil.fund(stage.nodes[0])
    await credits.next_epoch()
    await credits.list_nodes("alice")
    await credits.next_epoch()
    await credits.rate({"alice": ONE})
    await credits.next_epoch()
    await credits.post("alice")
    return Scene(stage, credits, bob_with(stage, place, tmp_path), alice, tmp_path)


def bob_with(stage: TabsStage, place: OrganisationsPlace, tmp_path: Path) -> Operated:
    """A node of another class that was never registered, whose owner hosts what Alice brings."""
    operated = operated_in(tmp_path)
    operated.signed(*init_words(stage, tmp_path, "--slice", "0:2", "--ask", "1,1,1", "--class", OTHER_CLASS))
    tiny_model(operated.home / "models" / "her-model")
    alice = stage.owner_of(stage.nodes[0]).address
    file = operated.home / "node.toml"
    table = f'contract = "{place.contract}"\nstart_block = {place.start_block}\nallow = ["{alice}"]\n'
    file.write_text(file.read_text() + f"\n[organisations]\n{table}")
    return operated


def owner_of(operated: Operated, anvil: Anvil, tmp_path: Path) -> Key:
    """Bob's account, and gas for his operator."""
    owner = create_account(tmp_path / "owner.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N)
    for key in (owner, load_account(operated.home / "keys" / "operator.json", PASSWORD)):
        anvil.fund(key)
    return owner


async def reached(scene: Scene, condition: Any, process: Forked) -> Any:
    """Wait for what the node does on chain."""
    async with asyncio.timeout(DEADLINE):
        while True:
            reading = await scene.credits.reading()
            if condition(reading):
                return reading
            assert process.poll() is None, scene.bob.log
            await asyncio.sleep(0.3)


async def test_a_node_takes_anothers_deployment_and_is_credited(
    scene: Scene, anvil: Anvil, processes: list[Forked]
) -> None:
    bob = owner_of(scene.bob, anvil, scene.tmp_path)
    keyfile = ("--keystore", scene.tmp_path / "alice.json", "--password-file", scene.bob.password)
    wish = ("deploy", "0x" + scene.stage.class_id.hex(), "--replicas", 1, "--days", 0, "--source", "alice/her-model")
    dry = await scene.org(*wish, *keyfile)
    assert (dry["sent"], dry["epochs"], dry["balance_gibibyte_days"]) == (False, 1, dry["cost_gibibyte_days"])
    too_much = await scene.org(*wish[:2], "--replicas", 2, "--days", 0, *keyfile, code=1)
    assert "not enough credits" in str(too_much)
    assert (await scene.org(*wish, *keyfile, "--broadcast", "--yes"))["sent"]
    options = ("--auto", "--owner-keystore", str(scene.tmp_path / "owner.json"), "--broadcast", "--no-verify-weights")
    processes.append(scene.bob.start(*options))
    reading = await reached(scene, lambda seen: seen.state.hostings, processes[-1])
    (node,) = reading.state.hostings
    assert reading.record.market.owner_of(node) == bob.address
    assert reading.record.market.parties[node].execution_class == scene.stage.class_id
    # Killed and started again, it goes on from what the chain says.
    processes[-1].send_signal(signal.SIGKILL)
    processes[-1].wait()
    for _ in range(2):
        await scene.credits.next_epoch()
    processes.append(scene.bob.start("--auto", "--no-verify-weights"))
    reading = await reached(scene, lambda seen: len(seen.state.movements) == 2, processes[-1])
    assert reading.state.balances[bob.address] == reading.state.total
    assert reading.state.balances[scene.alice.address] == reading.state.deployments[1].reserve == 0
    told = await scene.org("status")
    assert told["deployments"][0]["source"] == "alice/her-model"
    shown = await scene.org("credits", "--owner", bob.address)
    assert shown["organisations"][0]["credits"] == str(reading.state.total)
    place = scene.stage.market.place
    words = ["credits", scene.credits.place.contract, "--factory", place.factory, "--rpc", anvil.url, "--json"]
    done = await asyncio.to_thread(CliRunner().invoke, audit_app, words)
    assert done.exit_code == 0, done.output
