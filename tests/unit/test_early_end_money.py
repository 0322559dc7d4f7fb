"""What early ends cost a node, and whom: nobody is turned away for them, and nobody has work for the price of less."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.order_market import ASK
from support.order_network import Network, Ordered, build
from support.waiting import eventually
from unit.test_early_ends import session_of
from unit.test_promised_numbers import ordered_of

from troth.node.earning.books import NotPaid
from troth.node.errors import NodeStorageError
from troth.node.orders.chaining import chained_to, upstream_to
from troth.node.orders.context import LendingLimits
from troth.node.orders.decoding import AHEAD
from troth.protocol.market import prices
from troth.protocol.market.messages import tab_id
from troth.protocol.market.rows import RowHashes
from troth.protocol.market.signed import Work
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_market import Conclude
from troth.transport import event_loop

LONG = 70


def books_of(network: Network, node: Address) -> Any:
    return network.nodes[node].context.stores.books


async def refusal_of(step: Callable[[], Awaitable[None]], most: int = 12) -> str:
    """What a node says as soon as it works no more for its scheduler."""
    for _ in range(most):
        try:
            await step()
        except NotPaid as refused:
            return str(refused)
    return ""


async def acknowledged(network: Network, ordered: Ordered) -> int:
    """Pay each node of an order what its result is worth."""
    worth = 0
    for segment, node in enumerate(ordered.nodes):
        leaf = books_of(network, node).leaf(ordered.order_id, segment, Work.INFERENCE)
        worth += leaf.worth
        await network.acknowledge(ordered, node, segment, Work.INFERENCE, leaf.worth)
    return worth


async def test_a_client_that_ends_all_its_answers_turns_no_node_away_from_its_scheduler(tmp_path: Path) -> None:
    """Else each short order, ended at once, would take a place of what may be forfeited, until nobody serves."""
    unpaid = 60
    network = build(tmp_path, limits=LendingLimits(unpaid=unpaid))
    ordered = network.order(may_end_early=True, max_tokens=LONG)
    node = ordered.nodes[0]
    for _ in range(12):
        await network.infer(ordered, until=8)
        # As far as the node goes by itself before the word is there.
        loop = session_of(network, ordered).decoding
        await eventually(lambda loop=loop: loop.end - loop._wanted > 6)
        await network.conclude(ordered)
        await acknowledged(network, ordered)
        ordered = next(
            one
            for one in iter(lambda: network.order(may_end_early=True, max_tokens=LONG), None)
            if one.nodes[0] == node
        )
    (tab,) = books_of(network, node).tabs()
    assert books_of(network, node).lost(tab) == 0


@pytest.mark.parametrize(("prompt", "paid"), [((10,), 1), ((10, 11, 12, 13), 3)])
async def test_a_node_is_no_further_ahead_of_a_text_that_may_end_than_is_paid(
    tmp_path: Path, prompt: tuple[int, ...], paid: int
) -> None:
    """What it wrote ahead of an early end is lost to it: never more than what its scheduler pays for that answer."""
    network = build(tmp_path)
    for may_end_early, most in ((True, paid), (False, AHEAD)):
        ordered = network.order(may_end_early=may_end_early, max_tokens=LONG, prompt=prompt)
        await network.infer(ordered, until=2)
        session = session_of(network, ordered)
        await eventually(lambda session=session, end=ordered.positions + most: session.rows.positions >= end)
        await asyncio.sleep(0.05)
        assert session.rows.positions - ordered.positions == most


async def test_a_text_that_may_end_is_written_whole_while_it_is_asked_for(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.infer(network.order(may_end_early=True, max_tokens=LONG))
    assert len(ordered.tokens) == LONG
    await network.conclude(ordered)


async def test_a_node_whose_disk_was_full_signs_the_early_end_when_it_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it hashed meanwhile it gave to nobody."""
    network = build(tmp_path)
    ordered = await network.infer(network.order(may_end_early=True, max_tokens=LONG), until=3)
    node, loop = network.nodes[ordered.nodes[0]], session_of(network, ordered).decoding
    await eventually(lambda: loop.end > ordered.positions + 2)
    with monkeypatch.context() as full:

        def refuse(*_values: object, **_fields: object) -> None:
            raise NodeStorageError("the disk is full", "", "")

        full.setattr(node.context.stores.words, "sign_once", refuse)
        with pytest.raises(NodeStorageError):
            await network.conclude(ordered)
    await network.conclude(ordered)
    assert [one.message.written for one in ordered.results] == [3]


async def test_who_asks_for_the_result_of_a_part_of_the_rows_that_it_was_given_is_served_no_more(
    tmp_path: Path,
) -> None:
    """A scheduler in league with the last node of a pipeline has whole texts computed for the price of one token."""
    network = build(tmp_path, ends=(1, 2), limits=LendingLimits(unpaid=20))
    ordered = await network.infer(network.order(max_tokens=6))
    first = ordered.nodes[0]
    tab = ordered.pays[first, 0, Work.INFERENCE].tab

    async def concluded_short(ordered: Ordered) -> None:
        await network.nodes[first].ask(Conclude(ordered.order_id, 0, len(ordered.request.prompt_tokens), 1))
        leaf = books_of(network, first).leaf(ordered.order_id, 0, Work.INFERENCE)
        assert leaf.written == 1
        await network.acknowledge(ordered, first, 0, Work.INFERENCE, leaf.worth)

    def lost() -> int:
        return int(books_of(network, first).forfeited(tab_id(tab)))

    await concluded_short(ordered)
    one = -(-5 * ASK.written // prices.PER)
    assert one - 1 <= lost() <= one, "five tokens' rows were given and not asked for"

    async def again() -> None:
        before = lost()
        await concluded_short(await network.infer(ordered_of(network, first)))
        assert lost() > before
        await network.nodes[first].restart()
        assert lost() > before, "also after a restart"

    assert "never asked for the result" in await refusal_of(again)
    books_of(network, first).forget_before(network.nodes[first].now + 1)
    assert lost() == 0, "as what is paid is: it fades with it"


async def test_what_was_given_beside_a_result_counts_once(tmp_path: Path) -> None:
    """Also where the tab has to be read from disk again meanwhile, as after paid work was dropped."""
    network = build(tmp_path, ends=(1, 2))
    ordered = await network.infer(network.order(max_tokens=6))
    first = ordered.nodes[0]
    books, tab = books_of(network, first), tab_id(ordered.pays[first, 0, Work.INFERENCE].tab)
    books._tabs.clear()
    await network.nodes[first].ask(Conclude(ordered.order_id, 0, len(ordered.request.prompt_tokens), 1))
    counted = books.forfeited(tab)
    books._tabs.clear()
    assert books.forfeited(tab) == counted > 0


@dataclass
class Hashing:
    """How many rows were hashed, and how many of them on the event loop."""

    rows: int = 0
    on_loop: int = 0


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> Hashing:
    """Any number of bytes is too much for the loop."""
    counted, plain = Hashing(), RowHashes.hashes

    def hashes(self: RowHashes, *given: Any) -> list[bytes]:
        found = plain(self, *given)
        counted.rows += len(found)
        counted.on_loop += len(found) * (threading.current_thread() is threading.main_thread())
        return found

    monkeypatch.setattr(event_loop, "LOOP_BYTES", -1)
    monkeypatch.setattr(RowHashes, "hashes", hashes)
    return counted


async def test_an_early_end_hashes_no_row_twice_and_none_on_the_loop(tmp_path: Path, hashing: Hashing) -> None:
    """5 seconds for 32,768 positions of 4,096 numbers, in which a node would hear nobody."""
    network = build(tmp_path)
    ordered = await network.infer(network.order(may_end_early=True, max_tokens=LONG), until=20)
    loop = session_of(network, ordered).decoding
    await eventually(lambda: loop.end > ordered.positions + 2)
    hashing.on_loop = 0
    await network.conclude(ordered)
    assert hashing == Hashing(ordered.positions, 0)


async def test_nor_does_a_result_over_a_part_of_what_was_given(tmp_path: Path, hashing: Hashing) -> None:
    network = build(tmp_path, ends=(1, 2))
    ordered = await network.infer(network.order())
    hashing.on_loop = 0
    before: dict[int, Hash32] = {}
    for segment in (0, 1):
        session = network.nodes[ordered.nodes[segment]].service._sessions[ordered.order_id, segment, "infer"]
        for positions in range(1, ordered.positions):
            own = await chained_to(session, positions)
            assert own.position == positions
            if segment:
                assert (await upstream_to(session, positions)).link == before[positions]
        before = {positions: (await chained_to(session, positions)).link for positions in range(1, ordered.positions)}
    assert not hashing.on_loop
