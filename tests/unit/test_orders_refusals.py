"""Each check before work refuses what does not hold, with words, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.order_market import (
    BLOCK,
    CLIENT_KEY,
    CLIENT_TAB,
    DOMAIN,
    NOW,
    PROMPT,
    SCHEDULER,
    SCHEDULER_KEY,
    TAB_KEY,
    with_tab,
)
from support.order_network import Network, Ordered, build

from troth.node.errors import NodeBusy, PeerRefusal
from troth.node.orders.context import LendingLimits
from troth.node.orders.service import OrderService
from troth.protocol import typed_data, vrf
from troth.protocol.errors import ProtocolError
from troth.protocol.market import checks, messages, tabs
from troth.protocol.market.messages import sign
from troth.protocol.market.signed import Admission, Work
from troth.protocol.market.types import Ask, Tab
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.types import Hash32, address_from_bytes
from troth.protocol.wire_market import Advance, Conclude, Recommit, Redeemable
from troth.transport.errors import RemoteFailure

STRANGER = address_from_bytes(b"\xee" * 20)


async def begin(network: Network, ordered: Ordered, papers: Any, **fields: Any) -> Any:
    node = network.nodes[ordered.nodes[0]]
    fields = {"count": len(PROMPT), **fields}
    sender = fields.pop("sender", SCHEDULER)
    header, payload = network.first(ordered, 0, papers, tokens_to_bytes(PROMPT), **fields)
    return await node.ask(header, payload, sender)


def another_order(network: Network, ordered: Ordered) -> Any:
    return network.papers(ordered, 0, order=network.order().order)


def forged_order(network: Network, ordered: Ordered) -> Any:
    return network.papers(ordered, 0, order=sign(ordered.order.message, DOMAIN, CLIENT_KEY))


def order_by_contract(network: Network, ordered: Ordered) -> Any:
    """As a smart account signs: what it agrees to today, it may deny before anybody is paid."""
    return network.papers(ordered, 0, order=replace(ordered.order, signature=ordered.order.signature * 2))


def forged_admission(network: Network, ordered: Ordered) -> Any:
    return network.papers(ordered, 0, admission=sign(ordered.admission.message, DOMAIN, CLIENT_KEY))


def friend(network: Network, ordered: Ordered) -> Any:
    order = ordered.order.message
    (drawn,) = checks.candidates(order, ordered.infer_proof, network.view(order))
    nodes = (next(node for node in network.nodes if node not in drawn),)
    chosen = Admission(ordered.order_id, messages.nodes_hash(nodes), BLOCK)
    return network.papers(ordered, 0, nodes=nodes, admission=sign(chosen, DOMAIN, SCHEDULER_KEY))


def another_proof(network: Network, ordered: Ordered) -> Any:
    return network.papers(ordered, 0, infer_proof=vrf.prove(b"\x09" * 32, messages.infer_alpha(ordered.order_id)))


def another_salt(network: Network, ordered: Ordered) -> Any:
    return network.papers(ordered, 0, salt=Hash32(b"\x01" * 32))


def another_tab(network: Network, ordered: Ordered) -> Any:
    return network.papers(ordered, 0, tab=replace(CLIENT_TAB, key=STRANGER))


def changed_pay(change: Callable[[Any], Any], key: bytes = SCHEDULER_KEY) -> Callable[[Network, Ordered], Any]:
    def papers(network: Network, ordered: Ordered) -> Any:
        plain = network.papers(ordered, 0)
        promise = sign(change(plain.pay.promise.message), DOMAIN, key)
        return replace(plain, pay=replace(plain.pay, promise=promise))

    return papers


def pay_of_another_tab(network: Network, ordered: Ordered) -> Any:
    plain = network.papers(ordered, 0)
    return replace(plain, pay=replace(plain.pay, tab=Tab(SCHEDULER, STRANGER, SCHEDULER)))


def pay_of_another_scheduler(network: Network, ordered: Ordered) -> Any:
    """The scheduler signs its promise for a tab that another scheduler pays: no claim of it would ever stand."""
    plain = network.papers(ordered, 0)
    other = typed_data.address_of(CLIENT_KEY)
    tab = Tab(other, ordered.nodes[0], other)
    network.ground.state = with_tab(network.ground.state, tab)
    promise = sign(replace(plain.pay.promise.message, tab=messages.tab_id(tab)), DOMAIN, SCHEDULER_KEY)
    voucher = sign(replace(plain.pay.voucher.message, tab=messages.tab_id(tab)), DOMAIN, CLIENT_KEY)
    return replace(plain, pay=replace(plain.pay, tab=tab, promise=promise, voucher=voucher))


def forged_voucher(network: Network, ordered: Ordered) -> Any:
    plain = network.papers(ordered, 0)
    return replace(plain, pay=replace(plain.pay, voucher=sign(plain.pay.voucher.message, DOMAIN, CLIENT_KEY)))


def poor_voucher(network: Network, ordered: Ordered) -> Any:
    plain = network.papers(ordered, 0)
    said = replace(plain.pay.voucher.message, authorised=1)
    return replace(plain, pay=replace(plain.pay, voucher=sign(said, DOMAIN, SCHEDULER_KEY)))


WRONG_PAPERS = {
    "of another order": (another_order, "Another order was admitted"),
    "an order signed by the wallet": (forged_order, "did not sign this order"),
    "an order signed by a contract": (order_by_contract, "has to be an account"),
    "an admission that the scheduler did not sign": (forged_admission, "signed by"),
    "a friend was admitted": (friend, "was not drawn"),
    "a proof of another key": (another_proof, "does not hold"),
    "another salt": (another_salt, "not the request"),
    "another tab of the client": (another_tab, "another tab"),
    "a promise for another segment": (changed_pay(lambda one: replace(one, segment=1)), "other work"),
    "a promise of a check": (changed_pay(lambda one: replace(one, work=Work.CHECK)), "other work"),
    "a promise that pays too little": (changed_pay(lambda one: replace(one, price=1)), "pays less"),
    "a promise below the ask": (changed_pay(lambda one: replace(one, written_ask=1)), "pays less than this node asks"),
    "a promise above the order": (changed_pay(lambda one: replace(one, written_ask=10**12)), "asks more|pays less"),
    "a promise that somebody else signed": (changed_pay(lambda one: one, CLIENT_KEY), "signed by"),
    "a number that is not authorised": (changed_pay(lambda one: replace(one, sequence=9)), "does not authorise"),
    "a number beyond reason": (changed_pay(lambda one: replace(one, sequence=2**63)), "reason"),
    "a tab with another node": (pay_of_another_tab, "not on the tab of this scheduler"),
    "a tab that another scheduler pays": (pay_of_another_scheduler, "not on the tab of this scheduler"),
    "a voucher that somebody else signed": (forged_voucher, "did not sign"),
    "a voucher that authorises too little": (poor_voucher, "authorises"),
}


@pytest.mark.parametrize("name", WRONG_PAPERS)
async def test_papers_that_do_not_hold_are_refused_in_words(tmp_path: Path, name: str) -> None:
    network = build(tmp_path)
    ordered = network.order()
    make, words = WRONG_PAPERS[name]
    with pytest.raises((PeerRefusal, ProtocolError), match=words) as caught:
        await begin(network, ordered, make(network, ordered))
    assert caught.value.what  # type: ignore[attr-defined]
    assert caught.value.remedy  # type: ignore[attr-defined]
    node = network.nodes[ordered.nodes[0]]
    assert node.engine.calls == 0
    assert node.service.sessions == 0
    assert node.context.stores.books.leaf(ordered.order_id, 0, Work.INFERENCE) is None
    # What was refused is no reason to refuse what is right.
    reply, _ = await begin(network, ordered, network.papers(ordered, 0))
    assert reply.count == len(PROMPT)


async def test_an_order_that_ended_or_lies_too_far_back_is_refused(tmp_path: Path) -> None:
    network = build(tmp_path)
    late = network.order(deadline=NOW - 1)
    with pytest.raises(ProtocolError, match="after the order's deadline"):
        await begin(network, late, network.papers(late, 0))
    ordered = network.order()
    network.ground.block = BLOCK + 10_000
    with pytest.raises(ProtocolError, match="reference block"):
        await begin(network, ordered, network.papers(ordered, 0))
    network.ground.block = BLOCK - 100
    with pytest.raises(PeerRefusal, match="has not seen"):
        await begin(network, ordered, network.papers(ordered, 0))


@pytest.mark.parametrize("changes", [{"balance": 0}, {"closes_at": 5_000}])
async def test_a_client_tab_that_is_empty_or_closes_is_refused(tmp_path: Path, changes: dict[str, int]) -> None:
    network = build(tmp_path)
    ordered = network.order()
    papers = network.papers(ordered, 0)
    network.ground.state = with_tab(network.ground.state, CLIENT_TAB, **changes)
    with pytest.raises(PeerRefusal, match="does not cover"):
        await begin(network, ordered, papers)


@pytest.mark.parametrize(("changes", "words"), [({"balance": 0}, "covers"), ({"closes_at": 5_000}, "not open")])
async def test_a_tab_with_this_node_that_is_empty_or_closes_is_refused(
    tmp_path: Path, changes: dict[str, int], words: str
) -> None:
    network = build(tmp_path)
    ordered = network.order()
    papers = network.papers(ordered, 0)
    network.ground.state = with_tab(network.ground.state, papers.pay.tab, **changes)
    with pytest.raises(ProtocolError, match=words):
        await begin(network, ordered, papers)


async def test_unpaid_work_of_a_scheduler_has_a_limit_until_it_acknowledges(tmp_path: Path) -> None:
    network = build(tmp_path, limits=LendingLimits(unpaid=10), nodes=1, candidates=1)
    served = await network.serve()
    assert network.price(served) == 8
    ordered = network.order()
    with pytest.raises(PeerRefusal, match="is unpaid") as caught:
        await begin(network, ordered, network.papers(ordered, 0))
    assert "Acknowledge" in caught.value.remedy
    await network.acknowledge(served, served.nodes[0], 0, Work.INFERENCE, 8)
    reply, _ = await begin(network, ordered, network.papers(ordered, 0))
    assert reply.count == len(PROMPT)


async def test_a_request_that_is_too_long_or_out_of_the_vocabulary_is_refused(tmp_path: Path) -> None:
    network = build(tmp_path, limits=LendingLimits(positions=16))
    ordered = network.order()
    with pytest.raises(PeerRefusal, match="too long"):
        await begin(network, ordered, network.papers(ordered, 0))
    strange = network.order(max_tokens=2, prompt=(63, 64))
    with pytest.raises(PeerRefusal, match="vocabulary"):
        await begin(network, strange, network.papers(strange, 0))


async def test_only_the_order_s_scheduler_speaks_about_it(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.infer(network.order())
    node = network.nodes[ordered.nodes[0]]
    with pytest.raises(PeerRefusal, match="another scheduler"):
        await begin(network, network.order(), network.papers(network.order(), 0), sender=STRANGER)
    with pytest.raises(RemoteFailure, match="another scheduler"):
        await node.write_on(ordered.order_id, 12, sender=STRANGER)
    with pytest.raises(PeerRefusal, match="another scheduler"):
        await node.ask(Conclude(ordered.order_id, 0, 17, 0), sender=STRANGER)
    await network.conclude(ordered)
    with pytest.raises(PeerRefusal, match="another scheduler"):
        await node.ask(*network.conclude_message(ordered, 0), STRANGER)
    with pytest.raises(PeerRefusal, match="no tab of yours"):
        await node.ask(Redeemable(), network.voucher_of(node.address), STRANGER)


async def test_messages_out_of_order_are_refused_and_change_nothing(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = network.order()
    node = network.nodes[ordered.nodes[0]]
    unknown = Advance(ordered.order_id, 0, "infer", 0, 1)
    with pytest.raises(RemoteFailure, match="no such session"):
        await node.write_on(ordered.order_id, 0)
    for header in (unknown, Conclude(ordered.order_id, 0, 5, 0)):
        with pytest.raises(PeerRefusal, match=r"not shown here|no such session"):
            await node.ask(header, b"\0" * 4)
    with pytest.raises(PeerRefusal, match="no such session"):
        await node.ask(Recommit(ordered.order_id, 0, 5, 0))
    await begin(network, ordered, network.papers(ordered, 0))
    with pytest.raises(RemoteFailure, match="no token was chosen"):
        await node.write_on(ordered.order_id, 12)
    with pytest.raises(PeerRefusal, match="next position is 12"):
        await node.ask(Advance(ordered.order_id, 0, "infer", 14, 1), tokens_to_bytes([3]))
    with pytest.raises(PeerRefusal, match=r"at most those|Conclude at most"):
        await node.ask(Conclude(ordered.order_id, 0, 99, 0))
    with pytest.raises(PeerRefusal, match=r"not the tokens|text has not ended"):
        await node.ask(Conclude(ordered.order_id, 0, 12, 1), tokens_to_bytes([3]))


async def test_another_prompt_than_the_ordered_one_is_refused(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = network.order()
    header, payload = network.first(ordered, 0, network.papers(ordered, 0), tokens_to_bytes((1,) * 12), count=12)
    with pytest.raises(PeerRefusal, match="not the prompt"):
        await network.nodes[ordered.nodes[0]].ask(header, payload)


async def test_huge_and_broken_messages_are_refused_in_words(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = network.order()
    node = network.nodes[ordered.nodes[0]]
    header, payload = network.first(ordered, 0, network.papers(ordered, 0), tokens_to_bytes(PROMPT), count=12)
    with pytest.raises(PeerRefusal, match="shorter than its papers"):
        await node.ask(header, payload[: header.papers_size])
    with pytest.raises(ProtocolError, match="no inferencepapers"):
        await node.ask(msgspec.structs.replace(header, papers_size=header.papers_size - 1), payload)
    with pytest.raises(ProtocolError, match="payload"):
        await node.ask(header, payload + b"\0")
    with pytest.raises(ProtocolError):
        await node.ask(Redeemable(), b"[" * 4_000)
    with pytest.raises(ProtocolError, match="at most"):
        await node.ask(Redeemable(), b"0" * 100_000)


async def test_words_that_forget_are_refused_and_old_ones_change_nothing(tmp_path: Path) -> None:
    network = build(tmp_path, nodes=1, candidates=1)
    first, second = await network.serve(), await network.serve()
    node = first.nodes[0]
    before = network.voucher_of(node)
    await network.acknowledge(first, node, 0, Work.INFERENCE, 8)
    books = network.nodes[node].context.stores.books
    best = books.voucher(network.payers[node].tab)
    await network.nodes[node].ask(Redeemable(), before)
    assert books.voucher(network.payers[node].tab) == best
    network.payers[node] = replace(network.payers[node], spent=4)
    with pytest.raises(ProtocolError, match=r"pays less|backwards"):
        await network.acknowledge(second, node, 0, Work.INFERENCE, 0)
    assert books.voucher(network.payers[node].tab) == best


async def test_nothing_is_owed_for_work_without_a_result(tmp_path: Path) -> None:
    network = build(tmp_path, nodes=1, candidates=1)
    ordered = network.order()
    await begin(network, ordered, network.papers(ordered, 0), emit=True)
    node = network.nodes[ordered.nodes[0]]
    await network.acknowledge(ordered, node.address, 0, Work.INFERENCE, 0)
    assert node.service.sessions == 0
    assert node.context.stores.books.book(network.payers[node.address].tab, node.context.ledger()).exposure == 0
    with pytest.raises(RemoteFailure, match="no such session"):
        await node.write_on(ordered.order_id, 12)
    with pytest.raises(PeerRefusal, match="two chains"):
        await begin(network, ordered, network.papers(ordered, 0))


async def test_a_node_that_is_full_or_leaves_says_so(tmp_path: Path) -> None:
    network = build(tmp_path, limits=LendingLimits(works=0))
    ordered = network.order()
    with pytest.raises(NodeBusy, match="no session left"):
        await begin(network, ordered, network.papers(ordered, 0))
    node = network.nodes[ordered.nodes[0]]
    await node.service.leave()
    with pytest.raises(NodeBusy, match="being stopped"):
        await begin(network, ordered, network.papers(ordered, 0))


async def test_orders_that_come_at_once_take_no_more_sessions_than_there_are(tmp_path: Path) -> None:
    network = build(tmp_path, nodes=1, candidates=1, limits=LendingLimits(works=2))
    orders = [network.order() for _ in range(5)]
    asked = (begin(network, ordered, network.papers(ordered, 0), emit=True) for ordered in orders)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    (node,) = network.nodes.values()
    assert node.service.sessions == 2
    assert sum(isinstance(one, NodeBusy) for one in answers) == 3, answers


async def test_a_session_is_begun_by_one_message_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the first one fails while a second one waits for it and a third one comes."""
    network = build(tmp_path, nodes=1, candidates=1)
    ordered = network.order()
    (node,) = network.nodes.values()
    whole, running, most, failed = OrderService._begin, 0, 0, asyncio.Event()

    async def watched(service: OrderService, *message: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            if not failed.is_set():
                await asyncio.sleep(0.01)
                failed.set()
                raise NodeBusy("the first one fails", None, "Retry.")
            await asyncio.sleep(0.01)
            return await whole(service, *message)
        finally:
            running -= 1

    monkeypatch.setattr(OrderService, "_begin", watched)
    papers = network.papers(ordered, 0)

    async def later() -> Any:
        await failed.wait()
        await asyncio.sleep(0)
        return await begin(network, ordered, papers, emit=True)

    asked = (begin(network, ordered, papers, emit=True), begin(network, ordered, papers, emit=True), later())
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(answers[0], NodeBusy)
    assert (most, node.service.sessions) == (1, 1)


async def test_a_node_whose_ask_is_higher_is_not_worked_for_less(tmp_path: Path) -> None:
    """The order pays a share that covers the promise, but the node asked more at the order's block."""
    network = build(tmp_path)
    ordered = network.order()
    low = Ask(1, 1, 1)
    pay = network.pay(ordered, ordered.nodes[0], 0, Work.INFERENCE, 100, low)
    with pytest.raises(ProtocolError, match="less than this node asks"):
        await begin(network, ordered, network.papers(ordered, 0, pay=pay))


def test_the_keys_of_this_scene_are_different_people() -> None:
    assert len({typed_data.address_of(key) for key in (CLIENT_KEY, TAB_KEY, SCHEDULER_KEY)}) == 3
    assert tabs.WINDOW == 256
