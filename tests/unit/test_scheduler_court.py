"""What a scheduler gives to the court: rejecting verifiers are told, reviewers are given evidence and rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.tab_scene import DOMAIN, TabScene, history_of

from troth.cases import evidence as files
from troth.client.errors import StreamError
from troth.client.https_calls import Calls
from troth.client.orders import fetching_rows
from troth.client.orders.calls import MarketCalls
from troth.protocol import typed_data
from troth.protocol.errors import WireError
from troth.protocol.imprints.naming import with_imprints
from troth.protocol.market import canonical, checks
from troth.protocol.market.heads import with_head
from troth.protocol.market.papers import Spoken
from troth.protocol.market.rows import HASH_BYTES, RowHashes
from troth.protocol.market.signed import Opinion
from troth.protocol.market.views import rules_in
from troth.protocol.request import tokens_to_words
from troth.protocol.tensors import Dtype, row_size
from troth.protocol.types import Hash32
from troth.protocol.wire_market import SPOKEN_LIMIT, Inform, Informed, Inquire
from troth.scheduler.court.holding import OrderHoldings
from troth.scheduler.court.informing import Inquiries
from troth.scheduler.orders import service
from troth.scheduler.orders.rows_kept import KeptRows


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[TabScene]:
    made = TabScene(tmp_path, ends=(1, 2))
    made.start()
    yield made
    await made.stop()


async def checked(scene: TabScene, opinion: Opinion) -> Any:
    for node in scene.nodes.values():
        node.faults.opinion = opinion
    asked = await scene.send(scene.asked())
    await scene.show(asked)
    return asked


async def test_verifiers_of_a_rejected_segment_are_told_everything(scene: TabScene) -> None:
    asked = await checked(scene, Opinion.REJECT)
    history = history_of(scene, asked)
    for segment in (0, 1):
        check = history.check_of(segment)
        for verifier in check.operators:
            told = scene.nodes[verifier].told[asked.order_id, segment]
            assert told.verdicts == tuple(history.verdicts[segment, one] for one in check.operators)
            assert told.commitments == tuple(history.commitments[segment, one] for one in check.operators)
            assert told.text is not None
            assert told.text.answer == tokens_to_words(asked.tokens)
            assert (told.text.request, told.text.salt) == (asked.submission.request, asked.submission.salt)


async def test_nobody_is_told_what_all_accept_and_a_deaf_verifier_keeps_nobody_waiting(scene: TabScene) -> None:
    await checked(scene, Opinion.ACCEPT)
    assert not any(node.told for node in scene.nodes.values())
    for node in scene.nodes.values():
        node.faults.refuses = {Inform}
    asked = await checked(scene, Opinion.REJECT)
    assert history_of(scene, asked).is_checked
    assert not any(node.told for node in scene.nodes.values())


async def test_a_verifier_asks_and_others_are_refused(scene: TabScene) -> None:
    asked = await checked(scene, Opinion.REJECT)
    inquiries, history = Inquiries(scene.context), history_of(scene, asked)
    verifier = history.check_of(1).operators[0]
    answer, data = await inquiries.handle(verifier, Inquire(asked.order_id, 1), memoryview(b""))
    assert isinstance(answer, Informed)
    assert canonical.decode(Spoken, data, SPOKEN_LIMIT) == scene.nodes[verifier].told[asked.order_id, 1]
    stranger = next(one for one in scene.nodes if one not in history.check_of(1).operators)
    for sender, header in ((stranger, Inquire(asked.order_id, 1)), (verifier, Inquire(bytes(32), 1))):
        with pytest.raises(WireError):
            await inquiries.handle(sender, header, memoryview(b""))
    assert not inquiries._is_node(scene.client_tab.payer)
    assert inquiries._is_node(verifier)


async def test_reviewers_are_given_evidence_and_rows_that_lead_to_the_results(scene: TabScene) -> None:
    asked = await checked(scene, Opinion.REJECT)
    holdings, history = OrderHoldings(scene.context), history_of(scene, asked)
    evidence = await holdings.evidence_of(asked.order_id)
    assert evidence is not None
    assert files.decode(files.encode(evidence)).order_id == asked.order_id
    assert (evidence.request, evidence.answer) == (asked.submission.request, tokens_to_words(asked.tokens))
    assert set(evidence.verdicts) == set(history.verdicts.values())
    sequence = (*asked.request.prompt_tokens, *asked.tokens[:-1])
    for segment in (0, 1):
        data = await holdings.rows_of(asked.order_id, segment)
        assert data is not None
        bound = list(sequence) if segment == 0 else None
        size = (len(data) - 32) // len(sequence)
        chain, _ = RowHashes(asked.order_id, segment).extend(data[32:], size, bound)
        named = history.results[segment].output_head
        assert checks.head(asked.order_id, Hash32(data[:32]), chain.link) == named
    assert await holdings.rows_of(asked.order_id, 2) is None
    assert await holdings.evidence_of(Hash32(bytes(32))) is None
    scene.context.rows.forget(asked.order_id)
    await scene.context.store.forget(history)
    assert await holdings.rows_of(asked.order_id, 0) is None


# ------------------------------------------------------------------------------------------------ rows for the client


async def rows_at(scene: TabScene, asked: Any, segment: int, start: int = 0, salt: bytes | None = None) -> Any:
    shown = asked.submission.salt if salt is None else salt
    path = f"/v1/orders/0x{asked.order_id.hex()}/rows/{segment}?start={start}"
    return await scene.http.get(path, headers={"troth-salt": "0x" + shown.hex()})


async def test_an_orders_client_is_given_its_rows_once_the_check_is_over(
    scene: TabScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = await scene.send(scene.asked())
    early = await rows_at(scene, asked, 1)
    assert (early.status_code, early.json()["error"]["code"]) == (409, "not_yet")
    await scene.show(asked)
    history = history_of(scene, asked)
    # As after a crash: a verifier that has not spoken may still be asked, and must not have been shown the rows.
    place, verdict = history.verdicts.popitem()
    assert (await rows_at(scene, asked, 1)).json()["error"]["code"] == "not_yet"
    history.verdicts[place] = verdict
    for salt, segment, start in ((bytes(32), 0, 0), (None, 2, 0), (None, 0, history.answered.rows)):
        assert (await rows_at(scene, asked, segment, start, salt)).status_code == 404
    assert (await rows_at(scene, asked, 0, -1)).status_code == 422
    whole = (await rows_at(scene, asked, 1)).json()
    assert whole["total"] == history.answered.rows
    assert whole["head_salt"] == "0x" + history.admitted.head_salt.hex()
    # Row by row where they are large.
    monkeypatch.setattr(service, "ROWS_PIECE", 1)
    pieces = [(await rows_at(scene, asked, 1, start)).json()["rows"][2:] for start in range(history.answered.rows)]
    assert "0x" + "".join(pieces) == whole["rows"]
    held = await OrderHoldings(scene.context).rows_of(asked.order_id, 1)
    assert held is not None
    assert held[32:].hex() == "".join(pieces)


async def test_of_hashes_a_client_believes_the_salt_that_leads_to_what_was_signed(tmp_path: Path) -> None:
    scene = TabScene(tmp_path, ends=(2,), exact=True, tiles=0)
    scene.start()
    asked = await scene.send(scene.asked())
    await scene.show(asked)
    history = history_of(scene, asked)
    entry: Any = SimpleNamespace(tokens=asked.tokens, name="0x00")
    served: Any = SimpleNamespace(given=history.results, submission=asked.submission, entry=entry)
    head_salt, data = await fetching_rows._fetched(
        MarketCalls(Calls(scene.http, "http://scheduler")), served, 0, HASH_BYTES
    )
    fetching_rows._require_signed(served, 0, head_salt, data, None)
    for salt, other in ((bytes(32), data), (head_salt, data[::-1])):
        with pytest.raises(StreamError, match="other rows"):
            fetching_rows._require_signed(served, 0, Hash32(salt), other, None)
    await scene.stop()


@pytest.mark.slow
async def test_a_client_believes_the_imprints_of_the_node_that_served_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = TabScene(tmp_path, name=with_imprints(with_head("toy", "lm_head.weight"), 77))
    scene.start()
    asked = await scene.send(scene.asked())
    await scene.show(asked)
    history = history_of(scene, asked)
    entry: Any = SimpleNamespace(tokens=asked.tokens, name="0x00")
    served: Any = SimpleNamespace(
        given=history.results, submission=asked.submission, entry=entry, order=history.order, admitted=history.admitted
    )

    async def connect(_: Any) -> MarketCalls:
        return MarketCalls(Calls(scene.http, "http://scheduler"))

    session: Any = SimpleNamespace(state=scene.context.ledger.state, connect=connect, domain=DOMAIN)
    monkeypatch.setattr(fetching_rows, "served_of", lambda _: served)
    signed = await fetching_rows.fetched_imprints(session, entry)
    assert signed is not None
    assert signed.message.result == typed_data.struct_hash(history.results[-1])
    stranger = next(one for one in scene.nodes if one not in history.admitted.nodes)
    other = SimpleNamespace(nodes=(stranger,))
    for wrong in (
        SimpleNamespace(**{**vars(served), "admitted": other}),
        SimpleNamespace(
            **{**vars(served), "given": (replace(history.results[-1], trace_commitment=Hash32(bytes(32))),)}
        ),
    ):
        monkeypatch.setattr(fetching_rows, "served_of", lambda _, one=wrong: one)
        with pytest.raises(StreamError):
            await fetching_rows.fetched_imprints(session, entry)
    await scene.stop()


async def test_a_client_believes_only_the_rows_that_were_signed(
    scene: TabScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = await scene.send(scene.asked())
    await scene.show(asked)
    history = history_of(scene, asked)
    rules = rules_in(scene.context.ledger.state, history.order.execution_class)
    width = row_size(rules.hidden_size, Dtype(rules.dtype))
    entry: Any = SimpleNamespace(tokens=asked.tokens, name="0x00")
    served: Any = SimpleNamespace(given=history.results, submission=asked.submission, entry=entry)
    calls = MarketCalls(Calls(scene.http, "http://scheduler"))
    monkeypatch.setattr(service, "ROWS_PIECE", 3 * width)
    for segment in (0, 1):
        head_salt, data = await fetching_rows._fetched(calls, served, segment, width)
        assert len(data) == history.answered.rows * width
        fetching_rows._require_signed(served, segment, head_salt, data, width)
        for salt, other in ((bytes(32), data), (head_salt, data[::-1])):
            with pytest.raises(StreamError, match="other rows"):
                fetching_rows._require_signed(served, segment, Hash32(salt), other, width)
    half: Any = SimpleNamespace(rows=lambda *_: bytes(width + 1), imprints=lambda _: b"")
    monkeypatch.setattr(KeptRows, "open", lambda *_: half)
    with pytest.raises(StreamError, match="other rows"):
        await fetching_rows._fetched(calls, served, 0, width)
