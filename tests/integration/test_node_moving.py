"""A node changes its slice while it works: what is under way ends well, former orders are served, then layers go."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.node_network import (  # noqa: E402
    HEAD,
    PROMPT,
    SEGMENTS,
    Network,
    build,
    infer,
    tiny_model,
    verify,
)
from support.registry_events import moved, registered  # noqa: E402

from troth.chain.errors import ChainRejected  # noqa: E402
from troth.chain.follower import EventFollower  # noqa: E402
from troth.chain.keystore import Key  # noqa: E402
from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.errors import Busy, ModelError, NotAssigned, OutOfOrder  # noqa: E402
from troth.node.followed_view import FollowedView  # noqa: E402
from troth.node.margin_pool import MarginPool  # noqa: E402
from troth.node.metrics import Metrics  # noqa: E402
from troth.node.models.classes import default_class  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.node.moving import Holding, Moving, holding  # noqa: E402
from troth.node.service.bench import Bench  # noqa: E402
from troth.node.service.node_service import NodeService  # noqa: E402
from troth.node.signing_record import SigningRecord  # noqa: E402
from troth.node.traces import TraceStore  # noqa: E402
from troth.overlay.operator import Operator  # noqa: E402
from troth.protocol import calls  # noqa: E402
from troth.protocol.calls import views  # noqa: E402
from troth.protocol.contract_types import NodeRegistration  # noqa: E402
from troth.protocol.identifiers import class_id, group_id, model_id  # noqa: E402
from troth.protocol.state import State  # noqa: E402
from troth.protocol.tensors import tokens_to_bytes  # noqa: E402
from troth.protocol.typed_data import sign  # noqa: E402
from troth.protocol.types import Consent, Hash32, ModelDescriptor, Segment  # noqa: E402
from troth.protocol.wire import Commit, Forward, Release  # noqa: E402

LOWER, UPPER = SEGMENTS
WHOLE, LAST = Segment(0, 4), Segment(3, 4)
NONCE = 2
"""Of an order whose first inferencer has no part in the second segment."""
WINDOWS = 2 * 20
"""Two commit windows of the fake view."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@dataclass
class Mover:
    """The inferencer of the lower half, which hosts no more than that."""

    network: Network
    address: Any
    moving: Moving

    @property
    def engine(self) -> Any:
        return self.network.benches[self.address].engine

    @property
    def service(self) -> NodeService:
        return self.network.services[self.address]

    async def moves(self, hosted: Segment, block: int) -> None:
        view = self.network.view
        view.registry = moved(view.registry, self.address, hosted, block=block)
        await self.at(block)

    async def at(self, block: int) -> None:
        self.network.view.head = block
        await self.moving.step()

    def held(self) -> list[int]:
        return sorted(self.engine._layers.held)


async def lower_half(folder: ModelFolder, tmp_path: Path) -> Mover:
    network = build(folder, tmp_path, nonce=NONCE)
    address = network.parties[0][0]
    assert address not in network.parties[1]
    bench = network.benches[address]
    network.view.registry = registered(State(), address, class_id(network.view.execution), LOWER, block=5)
    moving = Moving(bench, network.services[address], None, None)
    await moving.step()
    assert (bench.engine.slice, sorted(bench.engine._layers.held)) == (LOWER, [0, 1])
    return Mover(network, address, moving)


async def test_a_task_under_way_ends_as_if_nothing_had_happened(folder: ModelFolder, tmp_path: Path) -> None:
    """The node moves after the first token; it computes, commits, and others accept what it did."""
    untouched = await infer(build(folder, tmp_path / "still", nonce=NONCE))
    mover = await lower_half(folder, tmp_path)
    network = mover.network
    handle, seen = mover.service.handle, []

    async def moves_in_the_middle(sender: Any, header: Any, payload: memoryview) -> Any:
        if isinstance(header, Forward) and header.start == len(PROMPT):
            seen.append(header.start)
            await mover.moves(UPPER, HEAD + 1)
            assert (mover.engine.slice, mover.held()) == (UPPER, [0, 1, 2, 3])
        return await handle(sender, header, payload)

    mover.service.handle = moves_in_the_middle  # type: ignore[method-assign]
    result = await infer(network)
    assert seen == [len(PROMPT)]
    assert (result.tokens, result.rows) == (untouched.tokens, untouched.rows)
    await mover.at(HEAD + 150)
    _, compared = await verify(network, result, 0, network.parties[0][2])
    assert network.benches[network.parties[0][2]].traces.find(network.task, 0, 0).verdict == 1
    assert compared.commitment
    await mover.at(HEAD + 201)
    assert mover.held() == [0, 1, 2, 3], "its session is still open"
    await network.ask(mover.address, Release(network.task))
    await mover.at(HEAD + 202)
    assert mover.held() == [2, 3]


async def test_orders_that_saw_the_former_slice_are_served(folder: ModelFolder, tmp_path: Path) -> None:
    mover = await lower_half(folder, tmp_path)
    await mover.moves(UPPER, HEAD + 1)
    await mover.at(HEAD + 150)
    header, payload = mover.network.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT))
    reply, _ = await mover.network.ask(mover.address, header, payload)
    assert reply.count == len(PROMPT)


async def test_layers_go_when_no_order_can_ask_for_them_any_more(folder: ModelFolder, tmp_path: Path) -> None:
    mover = await lower_half(folder, tmp_path)
    await mover.moves(UPPER, HEAD + 1)
    await mover.at(HEAD + 200)
    assert mover.held() == [0, 1, 2, 3]
    await mover.at(HEAD + 201)
    assert mover.held() == [2, 3]
    header, payload = mover.network.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT))
    with pytest.raises(NotAssigned, match="too old"):
        await mover.network.ask(mover.address, header, payload)


async def test_a_session_cannot_hold_former_layers_for_ever(folder: ModelFolder, tmp_path: Path) -> None:
    """Attack: a scheduler never releases, and keeps asking, so that the node cannot free what it left."""
    mover = await lower_half(folder, tmp_path)
    network = mover.network
    header, payload = network.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT))
    await network.ask(mover.address, header, payload)
    await mover.moves(UPPER, HEAD + 1)
    last = HEAD + 200 + WINDOWS
    await mover.at(last)
    again = Forward(network.task, 0, 0, 0, 1, "tokens", False)
    await network.ask(mover.address, again, tokens_to_bytes(PROMPT[:1]))
    assert (mover.held(), mover.service.sessions) == ([0, 1, 2, 3], 1)
    await mover.at(last + 1)
    assert (mover.held(), mover.service.sessions, mover.engine.cache_bytes) == ([2, 3], 0, 0)
    with pytest.raises(OutOfOrder):
        await network.ask(mover.address, again, tokens_to_bytes(PROMPT[:1]))


async def test_sessions_in_layers_that_stay_are_never_dropped(folder: ModelFolder, tmp_path: Path) -> None:
    mover = await lower_half(folder, tmp_path)
    network = mover.network
    header, payload = network.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT))
    await network.ask(mover.address, header, payload)
    await mover.moves(WHOLE, HEAD + 1)
    await mover.at(HEAD + 10_000)
    assert (mover.held(), mover.service.sessions) == ([0, 1, 2, 3], 1)
    reply, _ = await network.ask(mover.address, Commit(network.task, 0, 0, len(PROMPT)))
    assert reply.root


async def test_work_for_layers_that_are_not_there_yet_is_for_another_node(folder: ModelFolder, tmp_path: Path) -> None:
    """The chain says that it hosts them; the disk has not delivered. Nothing is signed, and a later try succeeds."""
    mover = await lower_half(folder, tmp_path)
    network, view = mover.network, mover.network.view
    view.registry = moved(view.registry, mover.address, UPPER, block=HEAD - 5)
    view.head = HEAD
    result = await infer(build(folder, tmp_path / "other", nonce=NONCE))
    assert mover.moving.lacking == "layers 2:4 are loading"
    header, payload = network.first_message(0, tokens_to_bytes(PROMPT), len(PROMPT))
    await mover.engine.rehost(LAST)
    with pytest.raises(Busy, match="not loaded here yet"):
        await network.ask(mover.address, header, payload)
    assert mover.service.sessions == 0
    await mover.moving.step()
    assert mover.moving.lacking == ""
    reply, rows = await network.ask(mover.address, header, payload)
    assert reply.count == len(PROMPT)
    assert rows == result.rows[0][0]


async def test_a_reorganisation_that_takes_the_change_back(folder: ModelFolder, tmp_path: Path) -> None:
    mover = await lower_half(folder, tmp_path)
    before = mover.network.view.registry
    await mover.moves(UPPER, HEAD + 1)
    assert mover.engine.slice == UPPER
    mover.network.view.registry = before
    await mover.at(HEAD + 1)
    assert (mover.engine.slice, mover.held()) == (LOWER, [0, 1])


async def test_a_restart_holds_what_the_running_node_held(folder: ModelFolder, tmp_path: Path) -> None:
    mover = await lower_half(folder, tmp_path)
    await mover.moves(LAST, HEAD + 1)
    bench = mover.network.benches[mover.address]
    assert holding(bench, frozenset()) == Holding(LAST, (LOWER,))
    await bench.engine.rehost(LAST)
    fresh = Moving(bench, NodeService(bench, Metrics()), None, None)
    await fresh.step()
    assert mover.held() == [0, 1, 3]


async def test_a_failed_load_is_told_and_tried_again(
    folder: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mover = await lower_half(folder, tmp_path)
    view = mover.network.view
    view.registry = moved(view.registry, mover.address, UPPER, block=HEAD + 1)
    view.head = HEAD + 1
    rehost, tries = mover.engine.rehost, []

    async def fails_once(*arguments: Any) -> None:
        tries.append(arguments)
        if len(tries) == 1:
            raise ModelError("the disk is gone", None, "Mount it.")
        await rehost(*arguments)
        done.set()

    done = asyncio.Event()
    monkeypatch.setattr(mover.engine, "rehost", fails_once)
    moving = Moving(mover.network.benches[mover.address], mover.service, None, None, interval=0.01)
    running = asyncio.create_task(moving.run())
    try:
        async with asyncio.timeout(60):
            await done.wait()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert mover.engine.slice == UPPER


@dataclass
class OnChain:
    """A node on a real chain: registered for the lower half, with an engine and no scheduler."""

    bench: Bench
    moving: Moving
    state: Any
    group: Any

    def members(self, segment: Segment, block: int) -> list[Any]:
        record = self.state().groups.get(self.group(segment))
        return record.members_at(block) if record else []


@pytest.mark.chain
async def test_a_move_on_chain(deployed: Any, folder: ModelFolder, tmp_path: Path) -> None:
    """By the operator's key alone: loads, sends, follows. A refused one leaves everything as it was."""
    chain, owner, operator = deployed.chain, deployed.anvil.keys[1], Key.from_secret(b"\x55" * 32)
    deployed.anvil.fund(operator)
    model = ModelDescriptor("llama/tiny", 4, 32, 48, 0, Hash32(b"w" * 32))
    rules = default_class(model_id(model), 0, "tiny", 10)
    await chain.execute(calls.register_model(model), owner)
    await chain.execute(calls.register_class(rules), owner)
    registration = NodeRegistration(
        operator.address, owner.address, class_id(rules), 0, 2, (LOWER,), "https://node.example", Hash32(b"t" * 32)
    )
    consent = sign(Consent(owner.address, operator.address), chain.domain, operator.secret)
    await chain.execute(calls.register_node(registration, consent, rules.minimum_stake), owner)
    deployed.anvil.mine(3)
    async with EventFollower(chain, None, poll_interval=0.02) as follower:
        view = FollowedView(chain, follower, deployed.parameters)
        bench = Bench(
            TorchEngine(folder, LOWER, 0), view, Operator(operator.secret, chain.domain), class_id(rules),
            SigningRecord(tmp_path / "signed.sqlite"), TraceStore(tmp_path / "traces"),
            MarginPool(tmp_path / "margins.sqlite"),
        )  # fmt: skip
        moving = Moving(bench, NodeService(bench, Metrics()), chain, operator)
        try:
            await _moves(
                OnChain(bench, moving, lambda: follower.state, lambda one: group_id(class_id(rules), one)), chain
            )
        finally:
            await bench.close()


async def _moves(node: OnChain, chain: Any) -> None:
    engine, me = node.bench.engine, node.bench.operator.address
    with pytest.raises(ChainRejected, match="InvalidSlice"):
        await node.moving.move(Segment(2, 5), (Segment(2, 5),))
    assert (engine.slice, engine._layers.held.keys()) == (LOWER, {0, 1})
    await node.moving.move(UPPER, (UPPER, LAST))
    assert engine.slice == UPPER
    assert engine._layers.held.keys() == {0, 1, 2, 3}, "orders may still have the former slice drawn"
    hosted = await chain.read(views.slice_of(me))
    assert (hosted.first, hosted.end) == (2, 4)
    block = hosted.kept_until - 200
    assert [node.members(segment, block - 1) for segment in (LOWER, UPPER)] == [[me], []]
    assert [node.members(segment, block + 1) for segment in (LOWER, UPPER, LAST)] == [[None], [me], [me]]
    with pytest.raises(ChainRejected, match="SliceChangedLately"):
        await node.moving.move(LOWER, (LOWER,))
    assert (engine.slice, engine._layers.held.keys()) == (UPPER, {0, 1, 2, 3})
