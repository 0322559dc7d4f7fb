"""Killed at any step, a node answers again with the same bytes or refuses; it never signs a second thing."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from support.order_market import PROMPT, SCHEDULER
from support.order_network import Network, Ordered, build

from troth.node.earning.leaf import Stage
from troth.node.errors import AlreadySigned, NodeStorageError, PeerRefusal
from troth.protocol.errors import ProtocolError
from troth.protocol.market import canonical
from troth.protocol.market.life import Acknowledged, live
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import TraceCommitment, Work
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.wire_market import Advance, Dismiss
from troth.transport.errors import RemoteFailure


async def begun(network: Network, ordered: Ordered) -> Any:
    header, payload = network.first(
        ordered, 0, network.papers(ordered, 0), tokens_to_bytes(PROMPT), count=len(PROMPT), emit=True
    )
    return await network.nodes[ordered.nodes[0]].ask(header, payload)


async def test_an_inference_that_broke_off_is_never_begun_again(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = network.order()
    await begun(network, ordered)
    node = network.nodes[ordered.nodes[0]]
    await node.restart()
    for attempt in (begun(network, ordered), node.ask(Advance(ordered.order_id, 0, "infer", 12, 1), b"\0" * 4)):
        with pytest.raises(AlreadySigned, match="two chains"):
            await attempt
    with pytest.raises(RemoteFailure, match="no such session"):
        await node.write_on(ordered.order_id, 12, 4)
    leaf = node.context.stores.books.leaf(ordered.order_id, 0, Work.INFERENCE)
    assert leaf is not None
    assert leaf.stage is Stage.ENDED


async def test_a_result_is_given_again_with_the_same_bytes(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.infer(network.order())
    node, message = network.nodes[ordered.nodes[0]], network.conclude_message(ordered, 0)
    _, word = await node.ask(*message)
    assert (await node.ask(*message))[1] == word
    await node.restart()
    assert (await node.ask(*message))[1] == word
    with pytest.raises(AlreadySigned, match="two chains"):
        await begun(network, ordered)
    await node.ask(Dismiss(ordered.order_id))
    assert (await node.ask(*message))[1] == word
    leaf = node.context.stores.books.leaf(ordered.order_id, 0, Work.INFERENCE)
    assert leaf is not None
    assert leaf.stage is Stage.DONE


@pytest.mark.slow
@pytest.mark.parametrize("step", range(5))
async def test_a_check_goes_on_after_a_kill_at_any_step(tmp_path: Path, step: int) -> None:
    """The scheduler repeats all messages, as after a lost connection; the protocol accepts what comes of it."""
    network = build(tmp_path, ends=(1, 2))
    ordered = await network.serve()
    verifier = next(iter(network.drawn(ordered)[1].seats))
    node = network.nodes[verifier]
    messages = (
        network.check_message(ordered, 1, verifier),
        network.recommit_message(ordered, 1),
        network.judge_message(ordered, 1),
    )
    said: list[bytes] = []
    for message in messages[:step]:
        said.append((await node.ask(*message))[1])
    await node.restart()
    again = [(await node.ask(*message))[1] for message in messages]
    assert again[1 : len(said)] == said[1:]
    repeated = [(await node.ask(*message))[1] for message in messages[1:]]
    assert repeated == again[1:]
    if step == 3:
        # The verdict came before the kill: nothing was computed again for it.
        assert node.engine.calls == 0
    parts = tuple([await network.check(ordered, segment) for segment in (0, 1)])
    assert canonical.encode(parts[1].verdicts[verifier]) == again[2]
    ending = live(network.journey(ordered, parts), network.view(ordered.order.message))
    assert isinstance(ending, Acknowledged)
    assert ending.checked


async def test_a_verifier_that_computes_otherwise_after_a_kill_keeps_to_what_it_committed_to(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.serve()
    verifier = next(iter(network.drawn(ordered)[0].seats))
    node = network.nodes[verifier]
    await node.ask(*network.check_message(ordered, 0, verifier))
    _, before = await node.ask(*network.recommit_message(ordered, 0))
    node.scale = 0.5
    await node.restart()
    commitment, verdict = await network.verify(ordered, 0, verifier)
    assert canonical.encode(commitment) == before
    assert verdict.message.commitment == commitment.message.commitment


async def test_openings_are_the_same_after_a_restart_and_without_a_session(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.serve()
    part = await network.check(ordered, 0)
    shown = list(part.commitments.values())
    for operator, infers in ((ordered.nodes[0], True), (next(iter(part.commitments)), False)):
        node, message = network.nodes[operator], network.unveil_message(ordered, 0, shown, infers=infers)
        _, sealed = await node.ask(*message)
        await node.restart()
        assert (await node.ask(*message))[1] == sealed


async def test_an_inferencer_that_was_killed_after_its_result_opens(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.serve()
    await network.nodes[ordered.nodes[0]].restart()
    part = await network.check(ordered, 0)
    assert part.node is not None
    ending = live(network.journey(ordered, (part,)), network.view(ordered.order.message))
    assert isinstance(ending, Acknowledged)


async def test_repeated_messages_within_a_session_get_the_same_rows(tmp_path: Path) -> None:
    network = build(tmp_path, ends=(1, 2))
    ordered = network.order()
    node = network.nodes[ordered.nodes[0]]
    header, payload = network.first(ordered, 0, network.papers(ordered, 0), tokens_to_bytes(PROMPT), count=12)
    first = await node.ask(header, payload)
    again = await node.ask(header, payload)
    assert (again[0].row, again[1]) == (first[0].row, first[1])
    assert node.engine.calls == 1
    with pytest.raises(PeerRefusal, match="not the prompt"):
        await node.ask(header, payload[:-4] + b"\1\0\0\0")


async def test_an_answer_that_decodes_alone_is_given_again(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.infer(network.order())
    node = network.nodes[ordered.nodes[0]]
    part = await node.write_on(ordered.order_id, 12)
    assert part.row == ordered.ends[0]
    assert part.rows == ordered.rows[0][12 * 4 * 32 :]
    with pytest.raises(RemoteFailure, match="text has ended"):
        await node.write_on(ordered.order_id, 12 + len(part.tokens))


async def test_an_engine_that_fails_ends_nothing_that_was_signed(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = network.order()
    await begun(network, ordered)
    node = network.nodes[ordered.nodes[0]]
    node.engine.fails = RuntimeError("out of memory")
    with pytest.raises(RemoteFailure, match="failed inside the node"):
        await node.write_on(ordered.order_id, 12, 4)
    node.engine.fails = None
    assert (await node.write_on(ordered.order_id, 12, 4)).start == 12


async def test_a_pipeline_that_broke_off_pays_the_segment_that_computed(tmp_path: Path) -> None:
    """A later segment died: the earlier one concludes what it has, and its number is worth that."""
    network = build(tmp_path, ends=(1, 2))
    ordered = network.order()
    node = network.nodes[ordered.nodes[0]]
    header, payload = network.first(ordered, 0, network.papers(ordered, 0), tokens_to_bytes(PROMPT), count=12)
    await node.ask(header, payload)
    for position, token in ((12, 5), (13, 9)):
        await node.ask(Advance(ordered.order_id, 0, "infer", position, 1), tokens_to_bytes([token]))
    ordered.tokens = [5, 9]
    await node.ask(*network.conclude_message(ordered, 0))
    leaf = node.context.stores.books.leaf(ordered.order_id, 0, Work.INFERENCE)
    assert leaf is not None
    assert (leaf.prompt, leaf.written, leaf.stage) == (12, 2, Stage.DONE)
    assert 0 < leaf.worth < leaf.price


async def test_a_full_disk_lets_nothing_leave(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.infer(network.order())
    node = network.nodes[ordered.nodes[0]]
    database = node.context.stores.database
    write = database.write

    def full(statement: str, *values: Any) -> int:
        raise sqlite3.OperationalError("database or disk is full")

    database.write = full  # type: ignore[method-assign]
    with pytest.raises(NodeStorageError, match="cannot be written"):
        await node.ask(*network.conclude_message(ordered, 0))
    assert node.context.stores.words.find(ordered.order_id, 0, "result") is None
    database.write = write  # type: ignore[method-assign]
    await network.conclude(ordered)


async def test_idle_sessions_give_way_and_are_worth_nothing(tmp_path: Path) -> None:
    network = build(tmp_path, nodes=1, candidates=1)
    ordered = network.order()
    await begun(network, ordered)
    node = network.nodes[ordered.nodes[0]]
    node.now += 10_000
    later = network.order(deadline=int(node.now) + 60)
    await begun(network, later)
    assert node.service.sessions == 1
    leaf = node.context.stores.books.leaf(ordered.order_id, 0, Work.INFERENCE)
    assert leaf is not None
    assert leaf.stage is Stage.ENDED


async def test_what_a_verifier_is_handed_is_compared_with_what_was_signed(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.serve()
    verifier = next(iter(network.drawn(ordered)[0].seats))
    node = network.nodes[verifier]
    with pytest.raises(PeerRefusal, match="no such session"):
        await node.ask(*network.judge_message(ordered, 0))
    await node.ask(*network.check_message(ordered, 0, verifier))
    with pytest.raises(PeerRefusal, match="only a verifier that has committed"):
        await node.ask(*network.judge_message(ordered, 0))
    header, payload = network.recommit_message(ordered, 0)
    with pytest.raises(PeerRefusal, match="not the answer"):
        await node.ask(header, tokens_to_bytes([1] * 6))
    _, word = await node.ask(header, payload)
    assert canonical.decode(Signed[TraceCommitment], word, 1 << 16).message.order == ordered.order_id
    judge, rows = network.judge_message(ordered, 0)
    damaged = bytearray(rows)
    damaged[-2] ^= 1
    with pytest.raises(ProtocolError, match="not those that were signed"):
        await node.ask(judge, bytes(damaged))
    commitment, verdict = await network.verify(ordered, 0, verifier)
    assert verdict.message.commitment == commitment.message.commitment


async def test_who_was_not_drawn_or_is_not_paid_checks_nothing(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.serve()
    seats = network.drawn(ordered)[0].seats
    stranger = next(node for node in network.nodes if node not in seats and node != ordered.nodes[0])
    verifier = next(iter(seats))
    papers = network.check_papers(ordered, 0, verifier)
    header, payload = network.first(ordered, 0, papers, tokens_to_bytes(ordered.sequence), count=ordered.positions)
    with pytest.raises(PeerRefusal, match="was not drawn to check"):
        await network.nodes[stranger].ask(header, payload)
    unpaid = network.check_papers(ordered, 0, None)
    header, payload = network.first(ordered, 0, unpaid, tokens_to_bytes(ordered.sequence), count=ordered.positions)
    with pytest.raises(ProtocolError, match="promise nothing"):
        await network.nodes[verifier].ask(header, payload)
    wrong = network.check_papers(ordered, 0, verifier, secret=ordered.secrets.tiles)
    header, payload = network.first(ordered, 0, wrong, tokens_to_bytes(ordered.sequence), count=ordered.positions)
    with pytest.raises(ProtocolError, match="not the first secret"):
        await network.nodes[verifier].ask(header, payload)


async def test_nobody_opens_before_most_seats_have_committed_or_for_another_secret(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.serve()
    seats = network.drawn(ordered)[0].seats
    shown = [(await network.verify(ordered, 0, verifier))[0] for verifier in seats]
    node = network.nodes[ordered.nodes[0]]
    with pytest.raises(PeerRefusal, match=r"missing|have not committed"):
        await node.ask(*network.unveil_message(ordered, 0, [], infers=True))
    if len(shown) > 1:
        with pytest.raises(PeerRefusal, match="order of their seats"):
            await node.ask(*network.unveil_message(ordered, 0, shown[::-1], infers=True))
    ordered.secrets, kept = type(ordered.secrets)(ordered.secrets.draw, ordered.secrets.draw), ordered.secrets
    with pytest.raises(ProtocolError, match="not the second secret"):
        await node.ask(*network.unveil_message(ordered, 0, shown, infers=True))
    ordered.secrets = kept
    await node.ask(*network.unveil_message(ordered, 0, shown, infers=True))
    with pytest.raises(PeerRefusal, match=r"another order or scheduler|another scheduler"):
        await node.ask(*network.unveil_message(ordered, 0, shown, infers=True), "0x" + "ee" * 20)  # type: ignore[arg-type]
    assert node.address != SCHEDULER
