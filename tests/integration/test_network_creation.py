"""A network's creation is killed anywhere and carried on: nothing is lost, and nothing is made twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Anvil, key_number
from support.network_creation import TRANSACTIONS, account, sent_by, troth

from troth.chain.keystore import Key
from troth.chain.records import TransactionReceipt
from troth.chain.transactions import Transactions
from troth.network.command import app
from troth.network.creating import create
from troth.network.description import read_description
from troth.network.errors import CreationRefused
from troth.network.journal import CreationJournal, journal_of
from troth.network.planning import CreationWish, plan_creation
from troth.protocol.bindings import MARKET_PARTS
from troth.protocol.calls import Call
from troth.protocol.market.shipped import DEMO
from troth.protocol.types import Hash32

pytestmark = [pytest.mark.chain, pytest.mark.slow]


class Killed(BaseException):
    """The process is gone."""


class Interrupted(CreationJournal):
    """A journal whose process dies at a step: before the transaction is sent, or when it is mined.

    Whatever the process had under way beside that step ends with it.
    """

    step, sent, dead = "", False, False

    def keep(self, step: str, raw: bytes) -> None:
        if not self.dead:
            super().keep(step, raw)
        self._die(step == self.step and not self.sent)

    def mined(self, step: str, receipt: TransactionReceipt) -> None:
        self._die(step == self.step and self.sent)
        super().mined(step, receipt)

    def _die(self, now: bool) -> None:
        self.dead = self.dead or now
        if self.dead:
            raise Killed


async def test_a_kill_at_any_step_loses_nothing_and_nothing_is_made_twice(
    anvil: Anvil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payer, wish = key_number(901), CreationWish("mine", DEMO, tmp_path / "network.json")
    anvil.fund(payer)
    anvil.mine(3)
    monkeypatch.setattr("troth.network.creating.CreationJournal", Interrupted)

    async def killed_at(step: str, *, sent: bool) -> None:
        Interrupted.step, Interrupted.sent = step, sent
        plan = await plan_creation(anvil.url, wish, payer.address)
        with pytest.raises(Killed):
            await create(anvil.url, wish, plan, payer, lambda line: None)
        assert not wish.output.exists()

    plan = await plan_creation(anvil.url, wish, payer.address)
    names = [planned.name for planned in plan.steps]
    for name in names[:-2]:
        await killed_at(name, sent=False)
        if name not in MARKET_PARTS:
            # Parts are under way all at once: when one of them is mined the others are sent.
            await killed_at(name, sent=True)
        if name == "court":
            # What was signed offers too little now.
            anvil.rpc("anvil_setNextBlockBaseFeePerGas", hex(100 * 10**9))
    Interrupted.step = ""
    anvil.rpc("anvil_setBalance", payer.address, hex(10**9))
    with pytest.raises(CreationRefused, match="ran out of money"):
        await create(anvil.url, wish, plan, payer, lambda line: None)
    anvil.fund(payer)
    await killed_at(names[-2], sent=True)
    Interrupted.step = ""
    lines: list[str] = []
    made = await create(anvil.url, wish, plan, payer, lines.append)
    assert len(lines) == TRANSACTIONS
    assert sent_by(anvil, payer) == TRANSACTIONS
    assert (made.verification.exit_code, read_description(wish.output)) == (0, made.network)
    assert not journal_of(wish.output).exists()


async def test_the_parts_of_a_market_are_under_way_at_once(
    anvil: Anvil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a chain of twelve seconds a block, a part after the other took minutes.

    A block comes here once nothing more is being sent, however long this machine takes for that.
    """
    payer, wish = key_number(907), CreationWish("mine", DEMO, tmp_path / "network.json")
    anvil.fund(payer)
    anvil.mine(3)
    plan = await plan_creation(anvil.url, wish, payer.address)
    waited: list[int] = []
    sending, whole = 0, Transactions.send

    async def counted(*arguments: Any, **options: Any) -> Hash32:
        nonlocal sending
        sending += 1
        try:
            return await whole(*arguments, **options)
        finally:
            sending -= 1

    monkeypatch.setattr(Transactions, "send", counted)

    async def blocks() -> None:
        while True:
            await asyncio.sleep(0.05)
            if not sending and (found := pending(anvil, payer)):
                waited.append(found)
                anvil.mine(1)

    anvil.rpc("evm_setAutomine", False)
    mining = asyncio.create_task(blocks())
    try:
        await create(anvil.url, wish, plan, payer, lambda line: None)
    finally:
        mining.cancel()
        anvil.rpc("evm_setAutomine", True)
    assert sum(waited) >= TRANSACTIONS
    assert max(waited) == len(MARKET_PARTS)
    assert len(waited) < TRANSACTIONS


async def test_a_part_whose_number_another_transaction_took_is_sent_again(
    anvil: Anvil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that is moving a transaction into a block may give its number out again, and forgets one of the two."""
    payer, wish = key_number(909), CreationWish("mine", DEMO, tmp_path / "network.json")
    anvil.fund(payer)
    anvil.mine(3)
    plan = await plan_creation(anvil.url, wish, payer.address)
    taken: list[Hash32] = []
    whole = Transactions.send

    async def outrun(self: Transactions, call: Call, *arguments: Any, **options: Any) -> Hash32:
        if taken or call.function != "creation of the court":
            return await whole(self, call, *arguments, **options)
        anvil.rpc("evm_setAutomine", False)
        taken.append(await whole(self, call, *arguments, **options))
        number = anvil.rpc("eth_getTransactionByHash", "0x" + taken[0].hex())["nonce"]
        anvil.rpc("anvil_dropTransaction", "0x" + taken[0].hex())
        anvil.rpc("anvil_impersonateAccount", payer.address)
        anvil.rpc("eth_sendTransaction", {"from": payer.address, "to": payer.address, "nonce": number})
        anvil.rpc("anvil_stopImpersonatingAccount", payer.address)
        anvil.mine(1)
        anvil.rpc("evm_setAutomine", True)
        return taken[0]

    monkeypatch.setattr(Transactions, "send", outrun)
    made = await create(anvil.url, wish, plan, payer, lambda line: None)
    assert len(taken) == 1
    assert sent_by(anvil, payer) == TRANSACTIONS + 1
    assert made.verification.exit_code == 0


async def test_a_creation_is_carried_on_only_as_it_began(anvil: Anvil, tmp_path: Path) -> None:
    payer, wish = key_number(902), CreationWish("mine", DEMO, tmp_path / "network.json")
    anvil.fund(payer)
    anvil.mine(3)
    plan = await plan_creation(anvil.url, wish, payer.address)
    journal = CreationJournal(journal_of(wish.output))
    journal.require_wish({"name": "another", "chain": 1, "genesis block": "0x12"})
    with pytest.raises(CreationRefused, match="cannot be used: database is locked"):
        await create(anvil.url, wish, plan, payer, lambda line: None)
    journal.close()
    with pytest.raises(
        CreationRefused, match="chain, committee, disputes, factory, genesis block, imprints, members, name"
    ):
        await create(anvil.url, wish, plan, payer, lambda line: None)
    journal_of(wish.output).write_bytes(b"no database at all, but text that is long enough to be none")
    with pytest.raises(CreationRefused, match="not a database"):
        await create(anvil.url, wish, plan, payer, lambda line: None)
    assert sent_by(anvil, payer) == 0


def test_a_process_that_is_killed_with_transactions_in_the_pool_is_carried_on(anvil: Anvil, tmp_path: Path) -> None:
    payer, file = key_number(903), tmp_path / "network.json"
    anvil.fund(payer)
    anvil.mine(3)
    words = ["create", "--rpc", anvil.url, *account(tmp_path, payer), "--parameters", "demo", "--output", file]
    command = [sys.executable, "-c", "from troth.network.command import app; app()", *map(str, words), "--broadcast"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("1 of"):
            anvil.rpc("evm_setAutomine", False)
            break
    until_pending(anvil, payer, 1)
    anvil.mine(1)
    # The parameters stand, and parts are sent one after the other.
    until_pending(anvil, payer, 2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stderr.close()
    assert pending(anvil, payer) >= 2
    anvil.rpc("evm_setAutomine", True)
    made = troth(app, *words, "--broadcast")
    assert sent_by(anvil, payer) == TRANSACTIONS
    assert read_description(file).factory == made["factory"]


def until_pending(node: Anvil, key: Key, most: int) -> None:
    give_up = time.monotonic() + 30
    while pending(node, key) < most and time.monotonic() < give_up:
        time.sleep(0.01)


def pending(node: Anvil, key: Key) -> int:
    return int(node.rpc("eth_getTransactionCount", key.address, "pending"), 16) - sent_by(node, key)
