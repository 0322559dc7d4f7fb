"""Whole models of exact classes: hashes of rows travel, roots are kept, and whoever needs rows computes its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.order_network import DOMAIN, MODEL, PROMPT, Network, Node, Ordered, build
from support.toy_engine import ToyEngine

from troth.cases.errors import NothingToDo
from troth.cases.evidence import Evidence
from troth.node.court.holding import NodeHoldings, evidence_of
from troth.node.court.proving import accused_text, rows_again
from troth.node.engine.interface import SessionKey
from troth.node.errors import BadInput, ModelError, NodeStorageError
from troth.node.orders.session import CHECKS, INFERS, JUDGED
from troth.protocol.errors import InvalidRows, InvalidSignature
from troth.protocol.hashing import keccak256
from troth.protocol.market import checks, messages
from troth.protocol.market.life import Acknowledged, Rejected, live
from troth.protocol.market.messages import sign
from troth.protocol.market.papers import Spoken, trace_salt
from troth.protocol.market.rows import HASH_BYTES, RowHashes, travel_as_hashes, verify_hashes
from troth.protocol.market.signed import Opinion
from troth.protocol.request import canonical_bytes, output_hash, tokens_to_words
from troth.protocol.tensors import Dtype, rows_to_bytes, tokens_to_bytes
from troth.protocol.trace import TileLayout
from troth.protocol.types import Hash32, Segment
from troth.protocol.wire_fields import RowSignature
from troth.protocol.wire_market import Conclude

ROW = 4 * MODEL.hidden_size


def exact(tmp_path: Path, **changes: Any) -> Network:
    return build(tmp_path, exact=True, tiles=0, **changes)


async def rows_of(network: Network, ordered: Ordered) -> np.ndarray:
    """What an honest machine computes of an answer, in one prefill."""
    inputs = np.array(ordered.sequence, np.int64)
    return (await ToyEngine().forward(SessionKey(b"again", 0, 0), Segment(0, 2), 0, inputs)).rows


def node_of(network: Network, ordered: Ordered) -> Node:
    return network.nodes[ordered.nodes[0]]


@pytest.mark.parametrize(("is_exact", "segments", "found"), [(True, 1, True), (True, 2, False), (False, 1, False)])
def test_rows_travel_where_somebody_reads_them(is_exact: bool, segments: int, found: bool) -> None:
    assert travel_as_hashes(exact=is_exact, segments=segments) is found


@pytest.mark.parametrize("alone", [True, False])
async def test_what_is_signed_is_what_was_signed_with_rows(tmp_path: Path, alone: bool) -> None:
    network = exact(tmp_path)
    ordered = network.order(max_tokens=70)
    await network.infer(ordered, alone=alone)
    network.draw(await network.conclude(ordered))
    rows, order = await rows_of(network, ordered), ordered.order_id
    chain, last = RowHashes(order, 0).extend(rows_to_bytes(rows, Dtype.FLOAT32), ROW, ordered.sequence)
    assert len(ordered.rows[0]) == ordered.positions * HASH_BYTES
    (signed,) = ordered.ends
    assert signed is not None
    assert (signed.row_hash, signed.previous, signed.position) == (last.row_hash, last.previous, last.position)
    root = Hash32(TileLayout(order, network.execution_class.model, len(rows), 32, Dtype.FLOAT32).commit(rows).root)
    salt = trace_salt(order, 0, ordered.nodes[0], ordered.head_salt)
    result = ordered.results[0].message
    assert result.trace_commitment == messages.trace_commitment(root, salt)
    assert result.output_head == checks.head(order, ordered.head_salt, chain.link)


async def test_nothing_of_a_row_is_kept_and_the_node_still_opens_after_a_kill(tmp_path: Path) -> None:
    network = exact(tmp_path)
    ordered = await network.serve()
    node = node_of(network, ordered)
    await node.restart()
    verdicts = await network.check(ordered, 0)
    ending = live(network.journey(ordered, (verdicts,)), network.view(ordered.order.message))
    assert isinstance(ending, Acknowledged)
    assert ending.checked
    assert node.engine.calls == 0
    for address, attempt in ((node.address, INFERS), *((one, CHECKS) for one in verdicts.verdicts)):
        kept = network.nodes[address]
        trace = kept.context.stores.traces.find(ordered.order_id, 0, attempt)
        assert trace is not None
        assert (trace.positions, trace.bytes, kept.context.stores.traces.kept) == (ordered.positions, 0, 0)
        assert list(kept.folder.glob("traces/*.trace")) == []
        with pytest.raises(NodeStorageError, match="only the root"):
            kept.context.stores.traces.rows(trace)
    holdings = NodeHoldings(node.context)
    known = await holdings.root_of(ordered.order_id, 0)
    assert known is not None
    assert messages.trace_commitment(*known) == ordered.results[0].message.trace_commitment
    assert await holdings.trace_of(ordered.order_id, 0) is None
    assert await holdings.rows_of(ordered.order_id, 0) is None
    assert node.engine.calls == 0


async def test_a_repeated_question_is_answered_with_the_same_hashes(tmp_path: Path) -> None:
    network = exact(tmp_path)
    ordered = network.order(max_tokens=9)
    node, prompt = node_of(network, ordered), tokens_to_bytes(PROMPT)
    message = network.first(ordered, 0, network.papers(ordered, 0), prompt, count=len(PROMPT), emit=True)
    first, again = await node.ask(*message), await node.ask(*message)
    assert first[1] == again[1]
    assert first[0].row == again[0].row
    part = await node.write_on(ordered.order_id, len(PROMPT), 8)
    repeated = await node.write_on(ordered.order_id, len(PROMPT), 8)
    assert part.row_bytes == HASH_BYTES
    assert bytes(repeated.rows[: len(part.rows)]) == bytes(part.rows)
    chain, signer = RowHashes(ordered.order_id, 0), node.address
    chain = verify_hashes(chain, first[1], first[0].row, signer=signer, domain=DOMAIN)
    assert verify_hashes(chain, part.rows, part.row, signer=signer, domain=DOMAIN).position == part.row.position + 1


# ------------------------------------------------------------------------------------------------------------- checking


@pytest.mark.parametrize("step", [1, 2])
async def test_a_verifier_that_is_killed_computes_its_rows_again(tmp_path: Path, step: int) -> None:
    network = exact(tmp_path)
    ordered = await network.serve()
    verifier = next(iter(network.drawn(ordered)[0].seats))
    node = network.nodes[verifier]
    asked = (network.check_message(ordered, 0, verifier), network.recommit_message(ordered, 0))
    said = [(await node.ask(*message))[1] for message in asked[:step]]
    await node.restart()
    again = [(await node.ask(*message))[1] for message in asked]
    assert again[:step] == said
    parts = (await network.check(ordered, 0),)
    assert {one.message.opinion for one in parts[0].verdicts.values()} == {Opinion.ACCEPT}
    assert isinstance(live(network.journey(ordered, parts), network.view(ordered.order.message)), Acknowledged)


async def test_who_computes_otherwise_after_a_restart_says_nothing(tmp_path: Path) -> None:
    network = exact(tmp_path)
    ordered = await network.serve()
    verifier = next(iter(network.drawn(ordered)[0].seats))
    node = network.nodes[verifier]
    for message in (network.check_message(ordered, 0, verifier), network.recommit_message(ordered, 0)):
        await node.ask(*message)
    await node.restart()
    node.engine.scale *= np.float32(1 + 2.0**-20)
    for message in (network.check_message(ordered, 0, verifier), network.recommit_message(ordered, 0)):
        await node.ask(*message)
    with pytest.raises(ModelError, match="committed to"):
        await node.ask(*network.judge_message(ordered, 0))
    assert node.context.stores.rejections.of(ordered.order_id) == ()


async def opinions(network: Network, ordered: Ordered) -> set[int]:
    check = await network.check(ordered, 0)
    return {one.message.opinion for one in check.verdicts.values()}


async def test_the_last_bit_of_one_row_is_rejected(tmp_path: Path) -> None:
    network = exact(tmp_path)
    ordered = network.order(max_tokens=9)
    engine, honest = node_of(network, ordered).engine, node_of(network, ordered).engine.forward

    async def bent(key: Any, segment: Any, start: int, inputs: Any) -> Any:
        computed = await honest(key, segment, start, inputs)
        if start == len(PROMPT) + 3:
            computed.rows.view(np.uint32)[0, 5] ^= 1
        return computed

    engine.forward = bent  # type: ignore[method-assign]
    await network.serve(ordered)
    check = await network.check(ordered, 0)
    assert {one.message.opinion for one in check.verdicts.values()} == {Opinion.REJECT}
    assert live(network.journey(ordered, (check,)), network.view(ordered.order.message)) == Rejected((0,))
    for verifier in check.verdicts:
        # There are no rows to prove a token by: the court compares roots.
        assert network.nodes[verifier].context.stores.traces.find(ordered.order_id, 0, JUDGED) is None
        assert network.nodes[verifier].context.stores.rejections.of(ordered.order_id)


async def test_a_false_chain_or_a_false_commitment_alone_is_no_acceptance(tmp_path: Path) -> None:
    """The court would acquit a node whose root is right, and could make nothing of a chain: nobody is slashed."""
    network = exact(tmp_path)
    ordered = await network.serve()
    true = ordered.results[0].message
    secret = node_of(network, ordered).secret
    words = [ordered.rows[0][at : at + HASH_BYTES] for at in range(0, len(ordered.rows[0]), HASH_BYTES)]
    words[3] = keccak256(b"something else")
    chain, last = RowHashes(ordered.order_id, 0).extend_hashed(words)
    head = checks.head(ordered.order_id, ordered.head_salt, chain.link)
    false_chain = replace(true, output_head=head)
    false_root = replace(true, trace_commitment=Hash32(keccak256(b"another trace")))
    row = RowSignature(last.position, last.row_hash, last.previous, sign(last, DOMAIN, secret).signature)
    for number, (result, rows, end) in enumerate(
        ((false_chain, b"".join(words), row), (false_root, ordered.rows[0], ordered.ends[0]))
    ):
        told = replace(ordered, results=[sign(result, DOMAIN, secret)], rows=[rows], ends=[end], pays={})
        other = exact(tmp_path / str(number))
        other.ground.state = network.ground.state
        network.draw(told)
        verifier = next(iter(other.drawn(told)[0].seats))
        _, verdict = await other.verify(told, 0, verifier)
        assert verdict.message.opinion == Opinion.CANNOT_TELL


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda rows: rows[:-1], InvalidRows),
        (lambda rows: rows[:-HASH_BYTES], BadInput),
        (lambda rows: rows + bytes(HASH_BYTES), BadInput),
        (lambda rows: b"", InvalidRows),
        (lambda rows: bytes(HASH_BYTES) + rows[HASH_BYTES:], InvalidRows),
        (lambda rows: rows[:-HASH_BYTES] + bytes(HASH_BYTES), InvalidRows),
        (lambda rows: rows[HASH_BYTES : 2 * HASH_BYTES] + rows[:HASH_BYTES] + rows[2 * HASH_BYTES :], InvalidRows),
    ],
)
async def test_hashes_that_were_not_signed_are_the_messengers_fault(tmp_path: Path, change: Any, error: Any) -> None:
    network = exact(tmp_path)
    ordered = await network.serve()
    verifier = next(iter(network.drawn(ordered)[0].seats))
    node = network.nodes[verifier]
    for message in (network.check_message(ordered, 0, verifier), network.recommit_message(ordered, 0)):
        await node.ask(*message)
    header, payload = network.judge_message(ordered, 0)
    with pytest.raises(error):
        await node.ask(header, change(payload))
    assert header.row is not None
    with pytest.raises(InvalidSignature):
        await node.ask(replace_row(header, signature=bytes(65)), payload)
    # Nothing was said: the true ones are judged.
    assert (await network.verify(ordered, 0, verifier))[1].message.opinion == Opinion.ACCEPT


def replace_row(header: Any, **changes: Any) -> Any:
    from msgspec.structs import replace as changed

    row = {"position": header.row.position, "row_hash": header.row.row_hash, "previous": header.row.previous}
    return changed(header, row=RowSignature(**{**row, **changes}))


async def test_rows_that_are_no_numbers_are_not_signed(tmp_path: Path) -> None:
    network = exact(tmp_path)
    ordered = network.order()
    node = node_of(network, ordered)
    honest = node.engine.forward

    async def broken(*given: Any) -> Any:
        computed = await honest(*given)
        computed.rows[-1, 0] = np.nan
        return computed

    node.engine.forward = broken  # type: ignore[method-assign]
    message = network.first(
        ordered, 0, network.papers(ordered, 0), tokens_to_bytes(PROMPT), count=len(PROMPT), emit=True
    )
    with pytest.raises(Exception, match="number"):
        await node.ask(*message)
    with pytest.raises(Exception, match="computed"):
        await node.ask(Conclude(ordered.order_id, 0, len(PROMPT), 1), tokens_to_bytes([1]))


# --------------------------------------------------------------------------------------------------------------- proofs


def text_in(ordered: Ordered, evidence: Evidence) -> Evidence:
    request, answer = canonical_bytes(ordered.request), tokens_to_words(ordered.tokens)
    return replace(evidence, request=request, answer=answer, salt=ordered.salt)


async def rejected(tmp_path: Path, *, swapped: bool) -> tuple[Network, Ordered, Evidence, Node]:
    """An answer with one other token, over honest rows of this very text, or over rows of another model."""
    network = exact(tmp_path)
    ordered = network.order()
    node = node_of(network, ordered)
    if not swapped:
        node.engine.scale *= np.float32(0.9)
    else:
        plain = node.engine.logits

        async def other(rows: Any) -> Any:
            found = await plain(rows)
            return found._replace(rows=-found.rows)

        node.engine.logits = other  # type: ignore[method-assign]
    await network.serve(ordered)
    check = await network.check(ordered, 0)
    assert {one.message.opinion for one in check.verdicts.values()} == {Opinion.REJECT}
    verifier = network.nodes[next(iter(check.verdicts))]
    (rejection,) = verifier.context.stores.rejections.of(ordered.order_id)
    spoken = Spoken((rejection.commitment,), (rejection.verdict,))
    return network, ordered, evidence_of(rejection, spoken, DOMAIN), verifier


async def test_rows_of_a_wrong_token_are_computed_again_for_its_proof(tmp_path: Path) -> None:
    network, ordered, evidence, verifier = await rejected(tmp_path, swapped=True)
    rows = await rows_again(verifier.engine, evidence, network.ground.state)
    assert rows == rows_to_bytes(await rows_of(network, ordered), Dtype.FLOAT32)
    chain, _ = RowHashes(ordered.order_id, 0).extend(rows, ROW, ordered.sequence)
    head = checks.head(ordered.order_id, ordered.head_salt, chain.link)
    assert head == ordered.results[0].message.output_head
    assert accused_text(evidence, network.ground.state, rows).rows == rows


async def test_what_no_rows_can_be_computed_for_proves_nothing(tmp_path: Path) -> None:
    network, ordered, evidence, verifier = await rejected(tmp_path, swapped=False)
    state, engine = network.ground.state, verifier.engine
    with pytest.raises(NothingToDo, match="other rows"):
        await rows_again(engine, evidence, state)
    for lacking in ("request", "answer", "head_salt"):
        with pytest.raises(NothingToDo, match="lacks"):
            await rows_again(engine, replace(evidence, **{lacking: None}), state)
    with pytest.raises(NothingToDo, match="no tokens"):
        await rows_again(engine, replace(evidence, answer=b"\xff" * 8), state)
    assert output_hash(ordered.salt, ordered.tokens) == ordered.results[0].message.output_hash
    tolerant = build(tmp_path / "tolerant")
    other = await tolerant.serve()
    from troth.cases.evidence import VERSION

    seen = Evidence(
        version=VERSION,
        chain_id=DOMAIN.chain_id,
        bank=DOMAIN.contract,
        tab=evidence.tab,
        order=other.order,
        results=tuple(other.results),
    )
    with pytest.raises(NothingToDo, match="not at hand"):
        await rows_again(engine, text_in(other, seen), tolerant.ground.state)
