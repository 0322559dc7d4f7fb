"""`troth audit` on a real chain: honest and cheating tasks, bundles, and calls that came through another contract."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Anvil
from support import audit_stage
from support.audit_stage import Played
from support.waiting import SECONDS

from troth.command.main import main
from troth.protocol import calls
from troth.protocol.contract_types import NO_PROOF

pytestmark = [pytest.mark.chain, pytest.mark.slow]


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        return json.loads(self.output)


class Troth:
    """The command line, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], url: str, contract: str) -> None:
        self._capsys = capsys
        self.place = ("--rpc", url, "--contract", contract)

    def __call__(self, *arguments: str) -> Outcome:
        with pytest.raises(SystemExit) as ended:
            main(["audit", *arguments])
        captured = self._capsys.readouterr()
        return Outcome(int(ended.value.code or 0), captured.out, captured.err)

    def task(self, task: bytes, *more: str) -> Outcome:
        return self("task", "0x" + task.hex(), *self.place, *more)


@pytest.fixture(scope="module")
def played(anvil: Anvil) -> Played:
    return asyncio.run(audit_stage.play(anvil.url))


@pytest.fixture
def troth(capsys: pytest.CaptureFixture[str], anvil: Anvil, played: Played) -> Troth:
    return Troth(capsys, anvil.url, played.contract)


@pytest.mark.parametrize("name", ["cooperative", "merged", "exact", "aborted"])
def test_an_honest_task_is_clean(troth: Troth, played: Played, name: str) -> None:
    outcome = troth.task(played.tasks[name])
    assert outcome.code == 0, outcome.output
    assert "verdict clean" in outcome.output
    assert "not checked" in outcome.output


@pytest.mark.parametrize(
    ("name", "role"),
    [("rejected", "inferencer"), ("silent", "verifier"), ("expired", "scheduler"), ("own calls", "node")],
)
def test_a_cheated_task_names_the_culprit(troth: Troth, played: Played, name: str, role: str) -> None:
    outcome = troth.task(played.tasks[name], "--json")
    assert outcome.code == 1
    (finding,) = outcome.json["findings"]
    assert (finding["party"], finding["role"], finding["kind"]) == (played.culprits[name], role, "party")
    assert int(finding["amount_wei"]) > 0
    assert all(check["number"] in {"V10", "V11"} for check in outcome.json["checks"] if check["violations"])


@pytest.mark.parametrize(
    ("name", "roles"),
    [
        ("overturned", {"verifier"}),
        ("refunded", {"inferencer", "verifier"}),
        ("dispute lost", {"verifier", "reviewer", "disputer"}),
        ("escalated", {"verifier"}),
        ("unreviewed", {"inferencer", "scheduler"}),
    ],
)
def test_a_disputed_task_is_audited_with_its_review(troth: Troth, played: Played, name: str, roles: set[str]) -> None:
    outcome = troth.task(played.tasks[name], "--json")
    assert outcome.code == 1
    assert {finding["role"] for finding in outcome.json["findings"]} == roles
    assert {finding["check"] for finding in outcome.json["findings"]} == {"V11"}
    assert {finding["task"] for finding in outcome.json["findings"]} == {"0x" + played.tasks[name].hex()}
    counted = {check["number"]: check["ok"] for check in outcome.json["checks"]}
    assert counted["V12"] == 1
    assert counted["V13"] == (0 if name == "unreviewed" else 1)


def test_a_review_that_nobody_moves_on_is_inconclusive(troth: Troth, played: Played) -> None:
    outcome = troth.task(played.tasks["waiting"], "--json")
    assert (outcome.code, outcome.json["verdict"]) == (4, "inconclusive")


def test_the_command_of_a_finding_shows_it_again(troth: Troth, played: Played) -> None:
    (finding,) = troth.task(played.tasks["rejected"], "--json").json["findings"]
    command = finding["reproduce"].split()
    assert command[:2] == ["troth", "audit"]
    again = troth(*command[2:], "--json")
    assert again.code == 1
    assert [found["message"] for found in again.json["findings"]] == [finding["message"]]
    assert [check["number"] for check in again.json["checks"]] == ["V11"]


def test_a_task_that_nobody_moves_on_is_inconclusive(troth: Troth, played: Played) -> None:
    outcome = troth.task(played.tasks["overdue"], "--json")
    assert (outcome.code, outcome.json["verdict"]) == (4, "inconclusive")


def test_the_whole_chain_and_a_part_of_it(troth: Troth, played: Played) -> None:
    whole = troth("chain", *troth.place, "--json")
    assert whole.code == 1
    assert whole.json["tasks"] == ["0x" + task.hex() for task in played.tasks.values()]
    assert {finding["party"] for finding in whole.json["findings"]} >= set(played.culprits.values())
    last = whole.json["last_block"]
    none = troth("chain", *troth.place, "--from-block", str(last), "--json")
    assert (none.code, none.json["tasks"]) == (0, [])
    early = troth("chain", *troth.place, "--to-block", "1", "--json")
    assert (early.code, early.json["tasks"]) == (0, [])


def test_a_bundle_says_the_same_without_a_node(troth: Troth, played: Played, tmp_path: Path) -> None:
    first, second = tmp_path / "first.gz", tmp_path / "second.gz"
    exported = troth("export", str(first), *troth.place, "--json")
    assert exported.code == 0
    last = str(exported.json["last_block"])
    assert troth("export", str(second), *troth.place, "--to-block", last).code == 0
    assert first.read_bytes() == second.read_bytes()
    offline = troth("verify", str(first), "--json")
    online = troth("chain", *troth.place, "--to-block", last, "--json")
    assert offline.code == online.code == 1
    assert offline.json["checks"] == online.json["checks"]
    assert offline.json["content"] == exported.json["content"]
    assert offline.json["blocks"][-1] == {"number": int(last), "hash": exported.json["last_block_hash"]}
    honest = troth("verify", str(first), "--task", "0x" + played.tasks["cooperative"].hex())
    assert honest.code == 0, honest.output
    assert exported.json["last_block_hash"] in honest.output


def test_a_tampered_bundle_is_refused(troth: Troth, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.gz"
    assert troth("export", str(bundle), *troth.place).code == 0
    content = gzip.decompress(bundle.read_bytes())
    bundle.write_bytes(gzip.compress(content.replace(b'"timestamp":1', b'"timestamp":2', 1)))
    refused = troth("verify", str(bundle))
    assert refused.code == 3
    assert "to do:" in refused.errors


def test_wrong_usage_and_unreachable_nodes(troth: Troth, played: Played, tmp_path: Path) -> None:
    task = "0x" + played.tasks["cooperative"].hex()
    assert troth("task", "0x12", *troth.place).code == 2
    assert troth("task", task, "--contract", "0x12").code == 2
    assert troth("task", task, *troth.place, "--check", "V99").code == 2
    assert troth("verify", str(tmp_path / "missing")).code == 2
    assert troth("chain", *troth.place, "--from-block", "9", "--to-block", "8").code == 2
    assert troth("chain", *troth.place, "--from-block", str(2**40)).code == 3
    assert troth("task", task, "--rpc", "http://127.0.0.1:1", "--contract", played.contract).code == 3
    assert troth("task", task, *troth.place[:2], "--contract", "0x" + "11" * 20).code == 3
    assert troth("task", "0x" + "11" * 32, *troth.place).code == 3
    assert troth("task", task, *troth.place, "--to-block", str(2**40)).code == 3


def test_a_settlement_through_another_contract_is_inconclusive(
    anvil: Anvil, played: Played, capsys: pytest.CaptureFixture[str]
) -> None:
    contract, task = asyncio.run(_settled_through_another(anvil))
    outcome = Troth(capsys, anvil.url, contract).task(task, "--json")
    assert outcome.code == 4
    assert {finding["check"] for finding in outcome.json["findings"]} == {"V7", "V8", "V9"}
    assert all("another contract" in finding["message"] for finding in outcome.json["findings"])


async def _settled_through_another(anvil: Anvil) -> tuple[str, bytes]:
    world = await audit_stage.lifecycle.build(anvil.url, exact=False)
    async with world.chain:
        request = await audit_stage.lifecycle.place(world, 1)
        await audit_stage._committed(request)
        proof, seed = await request.sample_proof()
        await request.send("sample", calls.sample(request.task_id, audit_stage._task(request), proof), world.scheduler)
        openings = request.openings(seed, masked=True)
        call = calls.settle(request.task_id, audit_stage._task(request), NO_PROOF, openings)
        forwarder = _forwarder(anvil, world.chain.contract)
        _send(anvil, to=forwarder, data="0x" + call.data.hex(), gas=hex(5_000_000))
        return world.chain.contract, request.task_id


def _forwarder(anvil: Anvil, target: str) -> str:
    """A contract that passes its calldata on to ``target`` and reverts if that does."""
    runtime = "363d3d37" + "3d3d363d3d" + "73" + target[2:].lower() + "5af1" + "602657" + "5f5ffd" + "5b00"
    created: str = _send(anvil, data="0x" + "602880600" + "95f395ff3" + runtime)["contractAddress"]
    return created


def _send(anvil: Anvil, **fields: str) -> Any:
    (account,) = anvil.rpc("eth_accounts")
    transaction = anvil.rpc("eth_sendTransaction", {"from": account, **fields})
    give_up = time.monotonic() + SECONDS
    while (receipt := anvil.rpc("eth_getTransactionReceipt", transaction)) is None:
        # Mined at once, but not always before the next question.
        assert time.monotonic() < give_up, f"{transaction} was not mined"
        time.sleep(0.01)
    assert receipt["status"] == "0x1", receipt
    return receipt
