"""Numbers of a scheduler's log entries: the contract takes each only after the one before it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.market_logs import META
from support.tab_scene import CLIENT_TAB, TabScene, history_of
from support.tabs_stage import PARAMETERS

from troth.chain.errors import ChainRejected
from troth.protocol.contract_errors import ContractError
from troth.protocol.market import events as on
from troth.protocol.market import log_data
from troth.protocol.market.calls import argument, read_call
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import LogCounts
from troth.protocol.types import Hash32
from troth.scheduler.log.entries import REORGANISED_BLOCKS


class Contract:
    """Log.sol for one scheduler: it refuses a number that is not the next one."""

    def __init__(self, scene: TabScene) -> None:
        self.scene = scene
        self.numbers: list[int] = []
        self.data: list[bytes] = []

    def post(self, call: Any) -> list[Any]:
        last, before = self.scene.ledger.state.head_of(CLIENT_TAB.payee)
        read = read_call(Part.LOG, call.call.data)
        number, counts = read.value("number"), argument(read, "counts", LogCounts)
        if number != last + 1:
            raise ChainRejected("post", ContractError("WrongNumber", {"given": number, "next": last + 1}, "Wait."))
        root, hashed = argument(read, "root", Hash32), argument(read, "dataHash", Hash32)
        chain = log_data.next_chain(before, number, root, counts, hashed)
        self.numbers.append(number)
        self.data.append(hashed)
        return [on.EntryLogged(CLIENT_TAB.payee, number, root, counts, hashed, chain, META)]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[TabScene]:
    made = TabScene(tmp_path)
    made.start(orders=1)
    yield made
    await made.stop()


@pytest.fixture
def contract(scene: TabScene) -> Contract:
    made = Contract(scene)
    scene.ledger.react = made.post
    return made


async def test_an_entry_that_never_came_to_the_disk_leaves_no_gap(scene: TabScene, contract: Contract) -> None:
    first = await scene.send(scene.asked())
    for _ in range(2):
        scene.book.assign(history_of(scene, first))  # the disk refuses what belongs to it: nothing of it is committed
    await scene.send(scene.asked())
    scene.ledger.block += PARAMETERS.lag + 1
    scene.now += 4_000
    await scene.book.post_due()
    assert contract.numbers == [1, 2, 3, 4]
    assert scene.book.newest() == [4, 3, 2, 1]
    assert [len(log_data.decode_data(scene.book.data(number) or b"")) for number in (1, 2, 3, 4)] == [1, 0, 0, 1]


async def test_an_entry_that_a_reorganisation_took_is_posted_again(scene: TabScene, contract: Contract) -> None:
    before = scene.ledger.state
    await scene.send(scene.asked())
    scene.ledger.block += PARAMETERS.lag + 1
    scene.now += 4_000
    await scene.book.post_due()
    scene.ledger.state = before
    # The chain node may include the same transaction by itself: that is waited for.
    await scene.book.post_due()
    assert contract.numbers == [1]
    scene.ledger.block += REORGANISED_BLOCKS
    await scene.book.post_due()
    assert contract.numbers == [1, 1]
    assert len(set(contract.data)) == 1
    await scene.book.post_due()
    assert contract.numbers == [1, 1]


@pytest.mark.parametrize("number", [-1, 0, 7, 2**63, 10**30])
async def test_an_entry_that_there_cannot_be_is_not_found(scene: TabScene, number: int) -> None:
    answer = await scene.http.get(f"/v1/log/{number}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_entry")
