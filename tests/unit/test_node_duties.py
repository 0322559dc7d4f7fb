"""What a node on tabs does by itself: rejections handed on, traces kept and freed, tasks that go on, what it shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map
from support.market_logs import META
from support.order_market import BLOCK, SCHEDULER, with_tab
from support.order_network import Network, Ordered, build
from support.tabs_stage import PARAMETERS

from troth.cases.keeping import last_block
from troth.chain.errors import ChainUnavailable
from troth.chain.records import Fees
from troth.node.earning import redeeming, view
from troth.node.earning.policy import EarningPolicy
from troth.node.earning.redeeming import RedeemableVoucher
from troth.node.orders.duties import NodeDuties
from troth.node.orders.rejections import Rejection
from troth.node.orders.running import _at_new_blocks
from troth.protocol.market import messages
from troth.protocol.market.events import Claimed
from troth.protocol.market.proceedings import CaseKind, CasePhase, CaseState
from troth.protocol.market.signed import Work
from troth.protocol.market.state import CaseRecord, account_id, with_pot
from troth.protocol.market.types import PotKind, Tab, Voucher
from troth.protocol.market.views import class_of
from troth.protocol.types import ZERO_HASH


class Opener:
    def __init__(self) -> None:
        self.seen: list[Rejection] = []
        self.takes = False

    async def rejected(self, rejection: Rejection) -> bool:
        self.seen.append(rejection)
        return self.takes


async def rejected(tmp_path: Path) -> tuple[Network, Ordered, Any]:
    network = build(tmp_path)
    order = network.order()
    network.nodes[order.nodes[0]].engine.scale *= 0.9
    ordered = await network.serve(order)
    verifier = next(iter(network.drawn(ordered)[0].seats))
    await network.verify(ordered, 0, verifier)
    return network, ordered, network.nodes[verifier]


def duties_of(node: Any, opener: Any) -> NodeDuties:
    async def reached(block: int) -> None:
        assert block

    return NodeDuties(node.context, None, None, opener, reached)  # type: ignore[arg-type]


async def test_a_rejection_is_offered_until_it_is_taken_over_also_after_a_restart(tmp_path: Path) -> None:
    _, ordered, node = await rejected(tmp_path)
    opener = Opener()
    await duties_of(node, opener).hand_on()
    await node.restart()
    opener.takes = True
    await duties_of(node, opener).hand_on()
    await duties_of(node, opener).hand_on()
    assert len(opener.seen) == 2
    assert opener.seen[0] == opener.seen[1]
    assert opener.seen[0].tokens == tuple(ordered.tokens)


async def test_traces_stay_until_no_court_hears_of_them_and_while_a_case_goes_on(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.serve()
    node, ground = network.nodes[ordered.nodes[0]], network.ground
    duties = duties_of(node, Opener())
    last = last_block(ordered.order.message.reference_block, PARAMETERS)
    ground.block = last
    await duties.free()
    assert node.context.stores.traces.find(ordered.order_id, 0, 0) is not None
    meta = replace(META, block=last)
    event = Claimed(ZERO_HASH, ZERO_HASH, None, meta)  # type: ignore[arg-type]
    case = CaseRecord(ZERO_HASH, CaseState(CaseKind.DOUBT, CasePhase.DRAWN), None, (event,))
    before = ground.state
    doubt = messages.case_id(ordered.order_id, messages.DOUBTS)
    ground.state = replace(before, cases=before.cases.set(doubt, case))
    ground.block = last + 10_000
    await duties.free()
    assert node.context.stores.traces.find(ordered.order_id, 0, 0) is not None
    ground.state = before
    await duties.free()
    assert node.context.stores.traces.find(ordered.order_id, 0, 0) is None
    assert node.context.stores.words.find(ordered.order_id, 0, "result") is None
    # What was forgotten cannot be begun again: its order is too old.
    assert node.context.stores.books.leaf(ordered.order_id, 0, Work.INFERENCE) is not None


def voucher_of(amount: int, *, pressing: bool = False) -> RedeemableVoucher:
    tab = Tab(SCHEDULER, SCHEDULER, SCHEDULER)
    word = messages.Signed(Voucher(ZERO_HASH, amount, amount, 1, 1, 0), b"")
    return RedeemableVoucher(tab, word, amount, pressing)


@pytest.mark.parametrize(
    ("amounts", "chosen"), [((10,), 0), ((4_400_000,), 1), ((4_400_000, 900_000), 1), ((4_400_000, 1_500_000), 2)]
)
def test_vouchers_are_redeemed_where_gas_is_a_small_share(amounts: tuple[int, ...], chosen: int) -> None:
    """At one asset unit a gas, the first voucher takes 44,000 and each further one 14,000; a hundredth is the share."""
    found = tuple(voucher_of(amount) for amount in amounts)
    assert len(redeeming.worthwhile(found, 10**9, EarningPolicy(gas_share=0.01))) == chosen


def test_what_presses_is_redeemed_as_soon_as_it_brings_more_than_its_gas() -> None:
    policy = EarningPolicy(gas_share=0.01)
    assert redeeming.worthwhile((voucher_of(44_000, pressing=True),), 10**9, policy) == ()
    assert len(redeeming.worthwhile((voucher_of(44_001, pressing=True),), 10**9, policy)) == 1
    assert redeeming.gas_price(Fees(205, 5), PARAMETERS) == 105 * 10**9


def test_what_presses_does_not_wait_behind_what_is_worth_more() -> None:
    """A busy node always has something that is worth its gas; a tab that closes has an end."""
    policy, dear = EarningPolicy(gas_share=0.01), voucher_of(5_000_000)
    pressing, small = voucher_of(14_001, pressing=True), voucher_of(14_000, pressing=True)
    assert redeeming.worthwhile((dear, pressing, small), 10**9, policy) == (dear, pressing)
    both = voucher_of(6_000_000, pressing=True)
    assert redeeming.worthwhile((both, dear), 10**9, policy) == (both, dear)


async def test_earnings_say_what_came_and_why_nothing_does(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.serve()
    node = network.nodes[ordered.nodes[0]]
    books, ledger = node.context.stores.books, node.context.ledger()
    told = view.earnings(books, ledger, node.now + 60, EarningPolicy())
    price = str(network.price(ordered))
    assert (told["today"]["earned_units"], told["unpaid_units"], told["payable_units"]) == (price, price, "0")
    assert told["today"]["per_1000_tokens_units"] == str(int(price) * 1000 // 18)
    assert told["why"] == []
    later = view.earnings(books, ledger, node.now + 2 * view.DAY, EarningPolicy())
    assert (later["today"]["answers"], later["week"]["answers"]) == (0, 1)
    assert "drawn by seats" in later["why"][0]
    await network.acknowledge(ordered, node.address, 0, Work.INFERENCE, int(price))
    assert view.earnings(books, node.context.ledger(), node.now, EarningPolicy())["payable_units"] == price
    state = network.ground.state
    alone = replace(ledger, state=replace(state, parties=state.parties.delete(node.address)))
    assert "not registered" in view.why_no_work(books, alone, EarningPolicy())[0]
    nowhere, own = replace(state, entries=Map()), account_id(node.address)
    penalty = class_of(state, state.parties[node.address].execution_class)[0].penalty
    for stake, advice in ((penalty, "`troth node top-up`"), (penalty - 1, "register another operator key")):
        left = replace(ledger, state=with_pot(nowhere, PotKind.STAKE, own, stake))
        assert advice in view.why_no_work(books, left, EarningPolicy())[0]
    closing = with_tab(state, Tab(SCHEDULER, node.address, SCHEDULER), closes_at=BLOCK + 5)
    closed = replace(ledger, state=closing)
    assert "no scheduler has an open tab" in view.why_no_work(books, closed, EarningPolicy())[0]


async def test_a_scheduler_that_does_not_pay_is_named_as_why_no_more_work_comes(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.serve()
    node = network.nodes[ordered.nodes[0]]
    books, ledger = node.context.stores.books, node.context.ledger()
    price = network.price(ordered)
    class_id = ledger.state.parties[node.address].execution_class
    room = price + ledger.state.classes[class_id].fee_cap
    assert view.earnings(books, ledger, node.now + 60, EarningPolicy(unpaid=room))["why"] == []
    (line,) = view.earnings(books, ledger, node.now + 60, EarningPolicy(unpaid=room - 1))["why"]
    assert line.startswith(f"{SCHEDULER} has {price} units of work unpaid, and [earning] unpaid allows {room - 1}")
    later = view.earnings(books, ledger, node.now + 2 * view.DAY, EarningPolicy(unpaid=room - 1))
    assert later["why"] == [line]
    await network.acknowledge(ordered, node.address, 0, Work.INFERENCE, price)
    assert view.earnings(books, node.context.ledger(), node.now, EarningPolicy(unpaid=room - 1))["why"] == []


async def test_a_node_redeems_once_for_each_block_and_again_where_that_failed() -> None:
    follower: Any = SimpleNamespace(block=7)
    stepped, noted = list[int](), list[int]()

    async def step() -> None:
        stepped.append(follower.block)
        if len(stepped) == 1:
            raise ChainUnavailable(
                "The chain node cannot be reached", "http://127.0.0.1:9", "Check that the node runs."
            )

    async def write(work: Callable[[], None]) -> None:
        work()

    words = SimpleNamespace(note_block=noted.append)
    context: Any = SimpleNamespace(write=write, stores=SimpleNamespace(words=words))
    keeper: Any = SimpleNamespace(step=step)
    turn = _at_new_blocks(follower, context, keeper)
    with pytest.raises(ChainUnavailable):
        await turn()
    assert not noted
    for block in (7, 7, 8, 8):
        follower.block = block
        await turn()
    assert (stepped, noted) == ([7, 7, 8], [7, 8])
