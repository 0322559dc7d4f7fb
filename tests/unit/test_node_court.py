"""A node's court: what it holds and recomputes, what it is told by its scheduler, and what it brings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.bringing import Asked, bringer_of, inform, offered
from support.order_market import DOMAIN, SCHEDULER
from support.order_network import MODEL, Network, Ordered, build

from troth.cases.judging import Inputs
from troth.cases.materials import OrderText
from troth.cases.opening import WantedCase
from troth.node.court.holding import NodeHoldings
from troth.node.court.recomputing import EngineRecompute
from troth.node.errors import BadInput, NotAssigned, OutOfOrder, ProofTooDear
from troth.node.orders.duties import drop_traces
from troth.node.orders.session import JUDGED
from troth.node.orders.words import BegunSegment
from troth.protocol.market import canonical, messages
from troth.protocol.market.messages import Signed, sign
from troth.protocol.market.papers import CourtText, Spoken
from troth.protocol.market.signed import Opinion
from troth.protocol.pooling import MarginSums
from troth.protocol.request import canonical_bytes, tokens_to_words
from troth.protocol.tokens import noise_seed
from troth.protocol.types import Address, Hash32, Segment
from troth.protocol.vrf import proof_to_hash
from troth.protocol.wire_market import Inform, Noted


async def rejected(tmp_path: Path, ends: tuple[int, ...] = (2,)) -> tuple[Network, Ordered, Spoken]:
    """An order whose first node cheats, checked by all that were drawn."""
    network = build(tmp_path, ends=ends)
    order = network.order()
    network.nodes[order.nodes[0]].engine.scale *= 0.9
    ordered = await network.serve(order)
    words = [await network.verify(ordered, 0, one) for one in network.drawn(ordered)[0].seats]
    text = CourtText(canonical_bytes(ordered.request), ordered.salt, tokens_to_words(ordered.tokens))
    spoken = Spoken(tuple(one for one, _ in words), tuple(one for _, one in words), text)
    assert {one.message.opinion for one in spoken.verdicts} == {Opinion.REJECT}
    return network, ordered, spoken


def verifiers(network: Network, ordered: Ordered) -> tuple[Address, ...]:
    return tuple(network.drawn(ordered)[0].seats)


# ---------------------------------------------------------------------------------------------------------- bringing


@pytest.mark.parametrize("ends", [(2,), (1, 2)])
async def test_a_rejection_is_brought_whole_once_all_verdicts_are_told(tmp_path: Path, ends: tuple[int, ...]) -> None:
    network, ordered, spoken = await rejected(tmp_path, ends)
    verifier = verifiers(network, ordered)[0]
    bringer = bringer_of(network, verifier, tmp_path, Asked())
    assert await offered(bringer) == [False]
    answer, _ = await inform(network, ordered, verifier, spoken)
    assert isinstance(answer, Noted)
    assert await offered(bringer) == [True]
    followed = bringer.office.journal.case(messages.case_id(ordered.order_id, 0))
    assert followed is not None
    assert followed.evidence is not None
    wanted = WantedCase.decode(followed.wanted)
    assert (wanted.segment, wanted.most_bond) == (0, 1 << 90)
    found = await bringer.office.opener.assess(followed.evidence)
    assert not next(one for one in found.cases if one.segment == 0).lacks
    assert set(followed.evidence.verdicts) == set(spoken.verdicts)
    assert followed.evidence.head_salt == ordered.head_salt
    assert followed.evidence == await NodeHoldings(bringer.context).evidence_of(ordered.order_id)


async def test_who_was_not_told_asks_its_scheduler_and_else_the_client_must_act(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network, ordered, spoken = await rejected(tmp_path)
    scheduler = Asked()
    bringer = bringer_of(network, verifiers(network, ordered)[0], tmp_path, scheduler)
    assert await offered(bringer) == [False]
    assert scheduler.asked == 0
    assert await offered(bringer) == [False]
    assert await offered(bringer) == [False]
    assert scheduler.asked == 2
    assert caplog.text.count("client must act") == 1
    scheduler.data = canonical.encode(spoken)
    assert await offered(bringer) == [True]


async def test_most_bond_is_kept_and_zero_brings_nothing(tmp_path: Path) -> None:
    network, ordered, spoken = await rejected(tmp_path)
    verifier = verifiers(network, ordered)[0]
    await inform(network, ordered, verifier, spoken)
    poor = bringer_of(network, verifier, tmp_path, Asked(), most_bond=1)
    assert await offered(poor) == [False]
    assert await offered(replace(poor, most_bond=0)) == [True]
    assert poor.office.journal.cases() == ()


@pytest.mark.slow
async def test_without_a_bond_a_verifier_still_proves_and_waits_where_gas_is_dear(tmp_path: Path) -> None:
    network, ordered, _ = await rejected(tmp_path)
    tried: list[bytes] = []

    async def prove(rejection: Any, evidence: Any) -> bool:
        assert evidence.order_id == rejection.order
        tried.append(rejection.order)
        if len(tried) == 1:
            raise ProofTooDear("gas is dear", 2, "Wait.")
        return True

    # It needs neither a bond nor what the other verifiers say.
    prover: Any = SimpleNamespace(prove=prove)
    alone = bringer_of(network, verifiers(network, ordered)[0], tmp_path, Asked(), most_bond=0)
    alone = replace(alone, prover=prover)
    assert await offered(alone) == [False]
    assert await offered(alone) == [True]
    assert tried == [ordered.order_id] * 2


async def test_a_minority_that_rejects_brings_no_case_and_proves_what_it_can(tmp_path: Path) -> None:
    network, ordered, spoken = await rejected(tmp_path)
    drawn = verifiers(network, ordered)
    others = [
        Signed(said := replace(one.message, opinion=Opinion.ACCEPT), network.nodes[node].operator.sign(said))
        for node, one in zip(drawn, spoken.verdicts, strict=True)
    ]
    await inform(network, ordered, drawn[0], replace(spoken, verdicts=tuple(others)))
    bringer = bringer_of(network, drawn[0], tmp_path, Asked())
    shown: list[Any] = []

    async def prove(rejection: Any, evidence: Any) -> bool:
        shown.append((rejection.order, evidence.salt, len(evidence.verdicts)))
        return True

    bringer.prover = SimpleNamespace(prove=prove)  # type: ignore[assignment]
    assert await offered(bringer) == [True]
    assert bringer.office.journal.cases() == ()
    assert [one[0] for one in shown] == [ordered.order_id]
    # It kept the rows that it rejected, for as long as it keeps its own.
    traces = bringer.context.stores.traces
    assert traces.find(ordered.order_id, 0, JUDGED) is not None
    drop_traces(traces, BegunSegment(ordered.order_id, 0, "check", SCHEDULER, 0))
    assert traces.find(ordered.order_id, 0, JUDGED) is None


async def test_what_only_many_texts_together_show_is_rejected_and_never_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def pooled(_context: Any, _session: Any, judgement: Any) -> Any:
        return replace(judgement, pool=MarginSums(1 << 14, claimed=1e6, own=0.0))

    monkeypatch.setattr("troth.node.orders.checking._pooled", pooled)
    network = build(tmp_path)
    ordered = await network.serve()
    verifier = verifiers(network, ordered)[0]
    _, verdict = await network.verify(ordered, 0, verifier)
    assert verdict.message.opinion == Opinion.REJECT
    assert network.nodes[verifier].context.stores.rejections.waiting() == ()
    assert "no case is brought" in caplog.text


# ---------------------------------------------------------------------------------------------------------- being told


async def test_what_is_told_is_checked(tmp_path: Path) -> None:
    network, ordered, spoken = await rejected(tmp_path)
    verifier, order = verifiers(network, ordered)[0], ordered.order_id
    stranger = next(one for one in network.nodes if one not in verifiers(network, ordered))
    with pytest.raises(OutOfOrder):
        await inform(network, ordered, stranger, spoken)
    with pytest.raises(NotAssigned):
        await inform(network, ordered, verifier, spoken, sender=stranger)
    assert spoken.text is not None
    with pytest.raises(BadInput):
        await inform(network, ordered, verifier, replace(spoken, text=replace(spoken.text, answer=bytes(4))))
    # The same numbers, but the last word lacks its leading zeros: a court would refuse it as no answer.
    short = spoken.text.answer[:-4] + spoken.text.answer[-4:].lstrip(b"\0")
    assert len(short) < len(spoken.text.answer)
    with pytest.raises(BadInput, match="whole words"):
        await inform(network, ordered, verifier, replace(spoken, text=replace(spoken.text, answer=short)))
    data = canonical.encode(spoken)
    with pytest.raises(BadInput):
        await network.nodes[verifier].ask(Inform(order, 0, len(data) + 1), data)
    forged = sign(spoken.verdicts[0].message, DOMAIN, network.nodes[stranger].secret)
    other = replace(spoken.verdicts[0].message, result=order)
    elsewhere = Signed(other, network.nodes[verifier].operator.sign(other))
    await inform(network, ordered, verifier, Spoken((), (forged, elsewhere)))
    told = network.nodes[verifier].context.stores.rejections.told(order, 0)
    assert told == Spoken((), ())
    await inform(network, ordered, verifier, spoken)
    await inform(network, ordered, verifier, Spoken((), (forged,)))
    await network.nodes[verifier].restart()
    assert network.nodes[verifier].context.stores.rejections.told(order, 0) == spoken


# --------------------------------------------------------------------------------------------- holding and recomputing


@pytest.mark.parametrize("ends", [(2,), (1, 2)])
async def test_traces_and_rows_are_those_that_the_result_names(tmp_path: Path, ends: tuple[int, ...]) -> None:
    network = build(tmp_path, ends=ends)
    ordered = await network.serve()
    for segment, node in enumerate(ordered.nodes):
        holdings = NodeHoldings(network.nodes[node].context)
        found = await holdings.trace_of(ordered.order_id, segment)
        assert found is not None
        commitment = messages.trace_commitment(Hash32(found[0].root), found[1])
        assert commitment == ordered.results[segment].message.trace_commitment
        assert await holdings.rows_of(ordered.order_id, segment) == ordered.head_salt + ordered.rows[segment]
    assert await holdings.rows_of(ordered.order_id, 7) is None
    assert await holdings.trace_of(ordered.order_id, 7) is None
    assert await holdings.evidence_of(ordered.order_id) is None


def inputs_of(network: Network, ordered: Ordered, segment: int, ends: Sequence[int]) -> Inputs:
    seed = noise_seed(ordered.order_id, Hash32(proof_to_hash(ordered.infer_proof)))
    return Inputs(
        ordered.order_id,
        ordered.order.message.execution_class,
        Segment(ends[segment - 1] if segment else 0, ends[segment]),
        OrderText(ordered.request, tuple(ordered.tokens), seed),
        ordered.rows[segment - 1] if segment else None,
        segment == len(ends) - 1,
    )


@pytest.mark.parametrize("ends", [(2,), (1, 2)])
async def test_a_review_recomputes_what_an_honest_node_gave(tmp_path: Path, ends: tuple[int, ...]) -> None:
    network = build(tmp_path, ends=ends)
    ordered = await network.serve()
    node = network.nodes[next(one for one in network.nodes if one not in ordered.nodes)]
    for segment in range(len(ends)):
        own = await EngineRecompute(node.context).recompute(inputs_of(network, ordered, segment, ends))
        claimed = np.frombuffer(ordered.rows[segment], np.float32).reshape(-1, MODEL.hidden_size)
        assert np.allclose(own.states, claimed, rtol=1e-5)
        assert own.again is not None
        assert own.high is None
        assert (own.text is not None) == (segment == len(ends) - 1)
        assert own.text is None or own.text.accepted
    assert node.engine.cache_bytes == 0
    node.engine.slice = Segment(0, 1)
    with pytest.raises(OutOfOrder):
        await EngineRecompute(node.context).recompute(replace(inputs_of(network, ordered, 0, ends), span=Segment(0, 2)))


async def test_a_text_that_a_cheaper_model_wrote_is_not_accepted(tmp_path: Path) -> None:
    network = build(tmp_path)
    order = network.order()
    network.nodes[order.nodes[0]].engine.scale *= -1.0
    ordered = await network.serve(order)
    node = network.nodes[next(one for one in network.nodes if one not in ordered.nodes)]
    own = await EngineRecompute(node.context).recompute(inputs_of(network, ordered, 0, (2,)))
    assert own.text is not None
    assert not own.text.accepted
