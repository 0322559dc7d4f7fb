"""An epoch of reputation as members carry it out with `troth committee reputation`, on a real market's nodes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Anvil
from support.tabs_stage import TabsStage, tabs_stage
from typer.testing import CliRunner

from troth.chain.keystore import Key, create_account, create_vrf_secret
from troth.chain.reputation import word_of_the_committee
from troth.committee.command import app
from troth.committee.errors import EpochRefused, SignedOther
from troth.committee.rating.epochs import EpochJournal
from troth.node.inspection.status import own_reputation
from troth.protocol.reputation import ReputationPlace
from troth.protocol.types import ZERO_HASH, Address, Hash32

pytestmark = pytest.mark.chain

MEMBERS, EPOCH, BOND = 4, 60, "0.5ether"
PASSWORD = "secret"


@dataclass
class Committee:
    """Homes of members, their owners' keystores, and the contract."""

    folder: Path
    market: TabsStage
    anvil: Anvil
    reputation: str = ""
    start: int = 0

    @property
    def password(self) -> Path:
        return self.folder / "password"

    def home(self, number: int) -> Path:
        return self.folder / f"member{number}"

    def owner(self, number: int) -> Path:
        return self.folder / f"owner{number}.json"

    async def run(self, *arguments: object) -> Any:
        """What a command prints as JSON; raises what it raised."""
        return await self.told(*arguments, "--json")

    async def told(self, *arguments: object) -> Any:
        texts = [str(argument) for argument in arguments]
        environment = {"TROTH_PASSWORD_FILE": str(self.password), "TROTH_RPC": self.anvil.url}
        if self.reputation:
            environment["TROTH_REPUTATION"] = self.reputation
        done = await asyncio.to_thread(CliRunner().invoke, app, texts, env=environment)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    async def member(self, number: int, *arguments: object) -> Any:
        return await self.run("reputation", *arguments, "--home", self.home(number))

    def to_epoch(self, epoch: int) -> None:
        here = int(self.anvil.rpc("eth_blockNumber"), 16)
        self.anvil.mine(self.start + epoch * EPOCH - here)


@pytest.fixture
async def committee(anvil: Anvil, tmp_path: Path) -> AsyncIterator[Committee]:
    """Four members that are enrolled, in epoch 1."""
    async with tabs_stage(anvil) as market:
        made = Committee(tmp_path, market, anvil)
        made.password.touch(mode=0o600)
        made.password.write_text(PASSWORD)
        members = []
        for number in range(MEMBERS):
            # Quick to open: what scrypt costs is not what is tested here.
            create_account(made.home(number) / "keys" / "operator.json", PASSWORD, scrypt_n=2)
            create_vrf_secret(made.home(number) / "keys" / "vrf.json", PASSWORD, scrypt_n=2)
            anvil.fund(create_account(made.owner(number), PASSWORD, scrypt_n=2))
            endpoint = ("--endpoint", "https://192.0.2.1:8543")
            members.append((await made.run("init", "--home", made.home(number), *endpoint))["member"])
        named = [word for member in members for word in ("--member", member)]
        paid = ("--keystore", made.owner(0), "--broadcast")
        contract = (await made.run("deploy", *named, *paid))["committee"]
        place = ("--committee", contract, "--factory", market.market.place.factory)
        place += ("--bank", market.market.contracts.bank, "--epoch-blocks", EPOCH, "--bond", BOND)
        deployed = await made.run("reputation", "deploy", *place, *paid)
        made.reputation, made.start = deployed["reputation"], deployed["block"]
        for number in range(MEMBERS):
            await made.member(number, "enroll", "--keystore", made.owner(number), "--broadcast")
        made.to_epoch(1)
        yield made


async def lead(committee: Committee, proof: str = "") -> tuple[int, str]:
    """The number of the leader's home, and the proof that draws it."""
    told = [await committee.member(number, "lead") for number in range(MEMBERS)]
    mine = [one for one in told if "proof" in one]
    leader = mine[0]["leader"] if mine else told[0]["leader_without_proof"]
    return operators(committee).index(leader), mine[0]["proof"] if mine else proof


def operators(committee: Committee) -> list[str]:
    from troth.chain.keystore import address_in

    return [str(address_in(committee.home(number) / "keys" / "operator.json")) for number in range(MEMBERS)]


async def agreed(committee: Committee, file: Path, *parts: object) -> None:
    """The leader proposes, two others sign."""
    leader, proof = await lead(committee)
    if proof:
        parts = (*parts, "--proof", proof)
    await committee.run("reputation", "propose", file, *parts)
    for number in {leader, *[one for one in range(MEMBERS) if one != leader][:2]}:
        told = await committee.member(number, "sign", file)
        assert told["drawn_by"] == ("the last leader's VRF" if proof else "the seed")


async def settle(committee: Committee, file: Path) -> Any:
    return await committee.run("reputation", "settle", file, "--keystore", committee.owner(0), "--broadcast")


async def test_members_carry_epochs_out(committee: Committee) -> None:
    nodes = [node.address for node in committee.market.nodes[:3]]
    prompts = committee.folder / "prompts.txt"
    prompts.write_text("What does a lighthouse keeper do by day?\nWoher kommt der Name Oktober?\n")
    fixed, file = committee.folder / "list.json", committee.folder / "epoch.json"
    named = [word for node in nodes for word in ("--node", node)]
    await committee.run("reputation", "list", fixed, *named, "--prompts", prompts)
    assert (committee.folder / "list.json.opening").stat().st_mode & 0o777 == 0o600
    assert "lighthouse" not in fixed.read_text()
    await agreed(committee, file, "--next", fixed)
    assert (await settle(committee, file))["signatures"] == "3 of 3 that are needed"
    committee.to_epoch(2)
    credits = committee.folder / "credits.json"
    credits.write_text(json.dumps({nodes[0]: 0.947, nodes[1]: 0.25}))
    await agreed(committee, file, "--list", fixed, "--credits", credits, "--next", fixed)
    for number in range(2):
        await committee.member(number, "report", file, "--silent", nodes[2])
    # Somebody settles first and leaves the reports out: who has them brings them with the same command.
    without = committee.folder / "without.json"
    without.write_text(json.dumps(json.loads(file.read_text()) | {"silences": {}}))
    assert (await settle(committee, without))["reports"] == 0
    assert len((await committee.run("reputation", "show"))["nodes"]) == 2
    told = await settle(committee, file)
    assert (told["scored"], told["reports"]) == (2, 2)
    seen = await committee.run("reputation", "show")
    scores = {node["node"]: node["score"] for node in seen["nodes"]}
    assert scores == {nodes[0]: 0.7282, nodes[1]: 0.31, nodes[2]: 0.16}
    assert [node.get("below_the_bar", False) for node in seen["nodes"]] == [False, True, True]
    assert seen["nodes"][2]["credit"] == "silent"
    place = ReputationPlace(Address(committee.reputation), committee.start)
    asked: Any = SimpleNamespace(rpc=committee.anvil.url, reputation=place, chain_id=None)
    told = [await own_reputation(asked, Address(node)) for node in nodes]
    assert [one["takes_work"] for one in told] == [True, False, False]
    assert "in epoch 2 it was silent" in told[2]["why"]
    async with word_of_the_committee(asked.rpc, place, committee.folder) as word:
        assert [word(Address(node)) for node in nodes] == [0.7282, 0.0, 0.0]
    assert seen["nodes"][0]["owner"] == committee.market.owner_of(committee.market.nodes[0]).address


async def test_a_member_signs_one_update_and_never_another(committee: Committee) -> None:
    first, second = committee.folder / "first.json", committee.folder / "second.json"
    leader, _ = await lead(committee)
    await committee.run("reputation", "propose", first)
    fixed = committee.folder / "list.json"
    await committee.run("reputation", "list", fixed, "--node", committee.market.nodes[0].address)
    await committee.run("reputation", "propose", second, "--next", fixed)
    await committee.member(leader, "sign", first)
    await committee.member(leader, "sign", first)
    with pytest.raises(SignedOther, match="would cost its bond"):
        await committee.member(leader, "sign", second)
    assert json.loads(second.read_text())["signatures"] == {}
    # Without its journal, as after a restored backup, it signs, and anybody takes its bond.
    (committee.home(leader) / "reputation.sqlite").unlink()
    await committee.member(leader, "sign", second)
    operator, reporter = operators(committee)[leader], committee.owner((leader + 1) % MEMBERS)
    paid = ("--keystore", reporter, "--broadcast")
    await committee.run("reputation", "expel", operator, first, second, *paid)
    assert (await committee.run("reputation", "show"))["expelled"] == [operator]


async def test_wrong_files_are_refused_before_they_are_signed(committee: Committee) -> None:
    file = committee.folder / "epoch.json"
    leader, _ = await lead(committee)
    await committee.run("reputation", "propose", file)
    good = json.loads(file.read_text())
    stranger = committee.market.nodes[0].address
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"leader": operators(committee)[(leader + 1) % MEMBERS]}, "leads this epoch"),
        ({"epoch": 7}, "It is epoch 1"),
        ({"seed": "0x" + "07" * 32}, "It is epoch 1"),
        ({"contract": stranger}, "another contract"),
        ({"examined": {"nodes": [stranger]}}, "fixed no list"),
        ({"credits": {stranger: 10**9}}, "not examined"),
        ({"credits": {stranger: 10**9 + 1}}, "cannot be read"),
        ({"unknown": 1}, "cannot be read"),
    ]
    for changes, what in wrong:
        file.write_text(json.dumps(good | changes))
        with pytest.raises(EpochRefused, match=what):
            await committee.member(leader, "sign", file)
    file.write_text(json.dumps(good))
    with pytest.raises(EpochRefused, match="3 members must sign"):
        await settle(committee, file)
    forged = {operators(committee)[0]: "0x" + "11" * 65}
    file.write_text(json.dumps(good | {"signatures": forged}))
    with pytest.raises(EpochRefused, match="did not sign this"):
        await settle(committee, file)


async def test_a_member_leaves_and_takes_its_bond(committee: Committee) -> None:
    operator, paid = operators(committee)[3], ("--keystore", committee.owner(3), "--broadcast")
    dry = await committee.run("reputation", "leave", operator, "--keystore", committee.owner(3))
    assert dry["sent"] is False
    await committee.run("reputation", "leave", operator, *paid)
    shown = (await committee.run("reputation", "show"))["members"]
    assert [one for one in shown if operator in one and "leaves before epoch 2" in one]
    committee.to_epoch(4)
    await committee.run("reputation", "withdraw", operator, *paid)
    assert len((await committee.run("reputation", "show"))["members"]) == MEMBERS - 1


def test_a_journal_remembers_what_was_signed_for_each_seed(tmp_path: Path) -> None:
    path, contract = tmp_path / "journal.sqlite", Key.generate().address
    seeds = [Hash32(bytes([number]) * 32) for number in range(3)]
    journal = EpochJournal(path)
    journal.claim(contract, 4, seeds[0], seeds[1])
    # A reorganisation gave the epoch another seed: what was signed before counts nowhere.
    journal.claim(contract, 4, seeds[1], seeds[2])
    journal.close()
    again = EpochJournal(path)
    again.claim(contract, 4, seeds[0], seeds[1])
    with pytest.raises(SignedOther):
        again.claim(contract, 4, seeds[0], ZERO_HASH if seeds[1] != ZERO_HASH else seeds[2])
    again.close()
