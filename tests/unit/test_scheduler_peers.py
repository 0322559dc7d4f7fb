"""A scheduler that stays connected to nodes says once that one is away, and once that it is back."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.tab_scene import TabScene, history_of

from troth.chain.keystore import Key
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, to_address
from troth.scheduler.nodes import peers as module
from troth.scheduler.nodes.peers import COUNTS_SECONDS, NodeContact, Peers
from troth.transport.errors import ChannelUnavailable
from troth.transport.identity import Operator

NODE, GONE = (to_address("0x" + digit * 40) for digit in "12")


class SwitchedChannel:
    """A channel that opens while ``there`` is true."""

    there = False
    connected = False

    def __init__(self, *_given: object, **_named: object) -> None:
        return

    async def open(self) -> None:
        if not self.there:
            raise ChannelUnavailable("connection refused")

    async def close(self) -> None:
        return


async def test_a_node_that_left_does_not_fill_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "Channel", SwitchedChannel)
    registered = {NODE: NodeContact("https://127.0.0.1:1", bytes(32))}

    def contact_of(node: Address) -> NodeContact | None:
        return registered.get(node)

    key = Key.generate()
    peers = Peers(Operator(key.secret, Domain(1, to_address("0x" + "ab" * 20))), contact_of)
    caplog.set_level(logging.INFO, module.__name__)
    for _ in range(200):
        await peers.warm([NODE, GONE], 1.0)
    assert len(caplog.messages) == 2, "one line for each node that is away"
    assert peers.failed_lately(NODE)
    SwitchedChannel.there = True
    for _ in range(3):
        await peers.warm([NODE], 1.0)
    assert [one for one in caplog.messages if "reachable again" in one] == [f"{NODE} is reachable again"]
    SwitchedChannel.there = False
    await peers.warm([NODE, GONE], 1.0)
    assert len(caplog.messages) == 5, "it left the list of nodes, and is back in it: that is news"
    await peers.close()


def test_of_two_that_were_drawn_the_one_with_less_to_do_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty orders at once went to whoever was the fastest before, which then answered none of them in time."""
    monkeypatch.setattr(module, "Channel", SwitchedChannel)
    operator = Operator(Key.generate().secret, Domain(1, GONE))
    peers = Peers(operator, lambda node: NodeContact(f"https://127.0.0.1:{int(node[-1])}", bytes(32)))
    for node, seconds in ((NODE, 0.1), (GONE, 0.15)):
        peers.channel(node)
        peers.note_latency(node, seconds)
    assert min(NODE, GONE, key=peers.preference) == NODE
    with peers.at_work([NODE]):
        assert min(NODE, GONE, key=peers.preference) == GONE
        with peers.at_work([GONE]):
            assert min(NODE, GONE, key=peers.preference) == NODE
    assert min(NODE, GONE, key=peers.preference) == NODE


def test_who_failed_lately_comes_behind_who_did_not_however_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Channel", SwitchedChannel)
    operator = Operator(Key.generate().secret, Domain(1, GONE))
    peers = Peers(operator, lambda node: NodeContact(f"https://127.0.0.1:{int(node[-1])}", bytes(32)))
    for node, seconds in ((NODE, 0.02), (GONE, 0.5)):
        peers.channel(node)
        peers.note_latency(node, seconds)
    assert min(NODE, GONE, key=peers.preference) == NODE
    peers.note_failure(NODE)
    assert min(NODE, GONE, key=peers.preference) == GONE


def test_a_node_that_was_never_tried_gets_a_share_and_not_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or one that answers that it has nothing yet, and never a token, would hold every order for which it is drawn."""
    monkeypatch.setattr(module, "Channel", SwitchedChannel)
    operator = Operator(Key.generate().secret, Domain(1, GONE))
    peers = Peers(operator, lambda node: NodeContact(f"https://127.0.0.1:{int(node[-1])}", bytes(32)))
    for node in (NODE, GONE):
        peers.channel(node)
    peers.note_latency(NODE, 0.02)
    with ExitStack() as serving:
        chosen = []
        for _ in range(30):
            chosen.append(min(NODE, GONE, key=peers.preference))
            serving.enter_context(peers.at_work(chosen[-1:]))
    assert chosen[0] == GONE
    assert chosen.count(NODE) == 10, "a third: it is half as fast as anybody can be"


def test_who_fails_again_and_again_is_avoided_for_longer_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Channel", SwitchedChannel)
    now = 0.0
    operator = Operator(Key.generate().secret, Domain(1, GONE))
    peers = Peers(operator, lambda _: NodeContact("https://127.0.0.1:1", bytes(32)), monotonic=lambda: now)
    peers.channel(NODE)

    def avoided() -> float:
        nonlocal now
        began = now
        for _ in range(16):
            peers.note_failure(NODE)  # all orders that it had, at once
        while peers.failed_lately(NODE):
            now += 1.0
        return now - began

    assert [avoided() for _ in range(8)] == [30, 60, 120, 240, 480, 960, 960, 960]
    peers.note_answer(NODE)
    assert avoided() == 30


def test_counts_of_draws_do_not_tell_which_node_serves_an_order_that_was_just_sent() -> None:
    now = 0.0
    operator, node = Operator(Key.generate().secret, Domain(1, GONE)), NODE
    peers = Peers(operator, lambda _: None, monotonic=lambda: now)
    assert peers.seen(node).chosen == 0
    peers.note_draw([node], [node])
    now = COUNTS_SECONDS - 1
    assert (peers.seen(node).drawn, peers.seen(node).chosen) == (0, 0)
    now = COUNTS_SECONDS
    assert (peers.seen(node).drawn, peers.seen(node).chosen) == (1, 1)


async def test_orders_say_who_failed_and_who_answered(tmp_path: Path) -> None:
    scene = TabScene(tmp_path)
    scene.start()
    for node in scene.nodes.values():
        node.faults.dies_at_position = 4
    asked = await scene.send(scene.asked())
    assert scene.peers.failed == {history_of(scene, asked).admitted.nodes[0]}
    scene.peers.failed = set(scene.nodes)
    for node in scene.nodes.values():
        node.faults.dies_at_position = None
    answered = await scene.send(scene.asked())
    assert set(scene.nodes) - scene.peers.failed == {history_of(scene, answered).admitted.nodes[0]}
    await scene.stop()
