"""Pipelines of veiled classes: no node is told who computed the segment before it, and none takes rows of strangers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support import order_network
from support.order_network import Network, Ordered
from support.tab_scene import TabScene

from troth.node.errors import BadInput, NotAssigned
from troth.protocol import possession, rings, typed_data
from troth.protocol.errors import InvalidField, InvalidProof, InvalidRows
from troth.protocol.market import canonical
from troth.protocol.market.errors import InvalidAdmission
from troth.protocol.market.papers import PAPERS_LIMIT, InferencePapers
from troth.protocol.market.rows import RowHashes
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.types import Address
from troth.protocol.wire_fields import RowSignature, VeiledRow
from troth.protocol.wire_market import Advance, Introduce

VEILED = "toy float32/veiled"


# ------------------------------------------------------------------------------------------------------------ a node


class Relayed:
    """The first segment's answer, and the second node's question about it as an honest scheduler would send it."""

    def __init__(self, network: Network, ordered: Ordered, signature: RowSignature, rows: bytes) -> None:
        self.network, self.ordered, self.signature, self.rows = network, ordered, signature, rows
        self.row = RowHashes(ordered.order_id, 0).signed(signature)

    @property
    def drawn(self) -> tuple[Address, ...]:
        order, proof = self.ordered.order.message, self.ordered.infer_proof
        return order_network.checks.candidates(order, proof, self.network.view(order))[0]

    def ring(self, *names: Address) -> tuple[bytes, ...]:
        return rings.ring_of([rings.public_key(self.network.nodes[one].secret) for one in names])

    def veiled(self, ring: tuple[bytes, ...] = (), **changes: Any) -> VeiledRow:
        ring = ring or self.ring(*self.drawn)
        digest = typed_data.digest(self.row, order_network.DOMAIN)
        proof = possession.prove(self.signature.signature, digest, ring)
        plain = VeiledRow(
            self.signature.position, self.signature.row_hash, self.signature.previous, b"".join(ring), proof
        )
        return msgspec.structs.replace(plain, **changes)

    async def ask(self, veiled: VeiledRow | None, **changes: Any) -> Any:
        papers = hidden(self.network, self.ordered, 1)
        papers = replace(papers, **changes.pop("papers", {}))
        prompt = self.ordered.request.prompt_tokens
        data = tokens_to_bytes(prompt) + self.rows
        fields: dict[str, Any] = {"count": len(prompt), "emit": True, **changes}
        if veiled is not None:
            fields["veiled"] = veiled
        header, payload = self.network.first(self.ordered, 1, papers, data, **fields)
        return await self.network.nodes[self.ordered.nodes[1]].ask(header, payload)


def hidden(network: Network, ordered: Ordered, segment: int) -> InferencePapers:
    names = tuple(node if place == segment else NO_ADDRESS for place, node in enumerate(ordered.nodes))
    return network.papers(ordered, segment, nodes=names)


async def relayed(folder: Path, name: str = VEILED) -> Relayed:
    network = order_network.build(folder, ends=(1, 2), name=name)
    ordered = network.order()
    prompt = ordered.request.prompt_tokens
    papers = hidden(network, ordered, 0) if name == VEILED else network.papers(ordered, 0)
    header, payload = network.first(ordered, 0, papers, tokens_to_bytes(prompt), count=len(prompt))
    reply, rows = await network.nodes[ordered.nodes[0]].ask(header, payload)
    return Relayed(network, ordered, reply.row, bytes(rows))


async def test_a_node_computes_from_rows_of_one_of_those_that_were_drawn(tmp_path: Path) -> None:
    scene = await relayed(tmp_path)
    assert len(scene.drawn) >= rings.FEWEST
    reply, _ = await scene.ask(scene.veiled())
    assert reply.token is not None


async def test_a_node_refuses_rows_that_no_drawn_node_is_proven_to_have_signed(tmp_path: Path) -> None:
    scene = await relayed(tmp_path)
    stranger = next(one for one in scene.network.nodes if one not in scene.drawn)
    honest = scene.veiled()
    with pytest.raises(BadInput, match="without a proof"):
        await scene.ask(None)
    with pytest.raises(BadInput, match="without a proof"):
        await scene.ask(None, upstream=scene.signature)
    with pytest.raises(InvalidProof, match="not drawn"):
        await scene.ask(scene.veiled(scene.ring(*scene.drawn, stranger)))
    for changes in (
        {"proof": honest.proof[:-1] + bytes([honest.proof[-1] ^ 1])},
        {"proof": b""},
        {"proof": honest.proof[:-32]},
    ):
        with pytest.raises(InvalidProof):
            await scene.ask(scene.veiled(**changes))
    for ring in (b"", honest.ring[:33], honest.ring[33:] + honest.ring[:33], honest.ring[:-1]):
        with pytest.raises(InvalidField):
            await scene.ask(msgspec.structs.replace(honest, ring=ring))
    with pytest.raises(InvalidRows):
        await scene.ask(scene.veiled(row_hash=bytes(32)))
    # The order stands: nothing of this was kept.
    reply, _ = await scene.ask(honest)
    assert reply.token is not None


async def test_a_scheduler_cannot_forge_rows_of_a_hidden_node(tmp_path: Path) -> None:
    """It signs rows itself, and shows a proof over a ring that it is in, or the proof of the true rows."""
    scene = await relayed(tmp_path)
    honest = scene.veiled()
    scene.rows = bytes(len(scene.rows))
    bound = scene.ordered.request.prompt_tokens
    _, forged = RowHashes(scene.ordered.order_id, 0).extend(scene.rows, 4 * 32, bound)
    scene.signature = RowSignature(
        forged.position,
        forged.row_hash,
        forged.previous,
        typed_data.sign(forged, order_network.DOMAIN, order_network.SCHEDULER_KEY),
    )
    scene.row = forged
    own = rings.ring_of([rings.public_key(order_network.SCHEDULER_KEY), *scene.ring(*scene.drawn)])
    with pytest.raises(InvalidProof, match="not drawn"):
        await scene.ask(scene.veiled(own))
    words = {"row_hash": forged.row_hash, "previous": forged.previous}
    with pytest.raises(InvalidProof, match="does not close"):
        await scene.ask(msgspec.structs.replace(honest, **words))


async def test_papers_hide_nodes_in_veiled_classes_alone(tmp_path: Path) -> None:
    scene = await relayed(tmp_path, "toy float32")
    with pytest.raises(NotAssigned, match="name all nodes"):
        await scene.ask(scene.veiled())


async def test_a_node_that_was_not_drawn_takes_no_hidden_place(tmp_path: Path) -> None:
    scene = await relayed(tmp_path)
    other = scene.network.order()
    with pytest.raises(InvalidAdmission, match="Another order"):
        await scene.ask(scene.veiled(), papers={"admission": other.admission})
    order = scene.ordered.order.message
    drawn = order_network.checks.candidates(order, scene.ordered.infer_proof, scene.network.view(order))[1]
    stranger = next(one for one in scene.network.nodes if one not in drawn)
    with pytest.raises(InvalidAdmission, match="was not drawn"):
        order_network.checks.require_own_place(
            order, scene.ordered.admission, (1, stranger), scene.ordered.infer_proof, scene.network.view(order)
        )


async def test_a_node_tells_the_key_of_its_own_account(tmp_path: Path) -> None:
    network = order_network.build(tmp_path)
    for node in list(network.nodes.values())[:2]:
        _, key = await node.ask(Introduce(), b"")
        assert bytes(key) == rings.public_key(node.secret)


# ------------------------------------------------------------------------------------------------------- a scheduler


@pytest.mark.parametrize("changes", [{}, {"exact": True, "tiles": 0}], ids=["tolerant", "exact"])
async def test_a_whole_order_is_served_and_checked_by_nodes_that_do_not_know_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    scene = TabScene(tmp_path, ends=(1, 2), name=VEILED, **changes)
    scene.start()
    told: dict[Address, list[tuple[Advance, bytes]]] = {}
    for name, node in scene.nodes.items():
        handle = node.handle

        async def listened(header: Any, payload: memoryview, name: Any = name, handle: Any = handle) -> Any:
            if isinstance(header, Advance) and header.role == "infer":
                told.setdefault(name, []).append((header, bytes(payload)))
            return await handle(header, payload)

        monkeypatch.setattr(node, "handle", listened)
    asked = await scene.send(scene.asked())
    assert [line["type"] for line in asked.lines] == ["admitted", *["token"] * 6, "results", "draw"]
    assert (await scene.show(asked))[-1] == {"type": "end", "complete": True}
    admitted = asked.of("admitted")["nodes"]
    for name, messages in told.items():
        header, payload = messages[0]
        papers = canonical.decode(InferencePapers, payload[: header.papers_size], PAPERS_LIMIT)
        assert set(papers.nodes) == {name, NO_ADDRESS}
        for header, payload in messages:
            for other in {*admitted} - {name}:
                assert other.lower().encode() not in payload.lower()
            if header.segment:
                assert header.upstream is None
                assert isinstance(header.veiled, VeiledRow)
    await scene.stop()


async def test_where_nothing_would_hide_a_node_the_order_ends_before_anybody_is_told_a_name(tmp_path: Path) -> None:
    scene = TabScene(tmp_path, ends=(1, 2), name=VEILED)
    scene.start()
    for node in scene.nodes.values():
        node.faults.refuses.add(Introduce)
    asked = await scene.send(scene.asked())
    assert [line["type"] for line in asked.lines] == ["admitted", "failed"]
    assert asked.lines[-1]["code"] == "node_failed"
    assert all("Advance" not in node.seen for node in scene.nodes.values())
    await scene.stop()


async def test_a_node_that_tells_another_key_and_one_that_is_away_are_left_out(tmp_path: Path) -> None:
    scene = TabScene(tmp_path, ends=(1, 2), name=VEILED)
    scene.start()
    for number, node in enumerate(scene.nodes.values()):
        if number % 2:
            node.faults.away[Introduce] = 1
    for _ in range(4):
        asked = await scene.send(scene.asked())
        assert asked.lines[-1]["type"] in {"draw", "failed"}
    known = scene.context.keys
    assert known
    assert all(typed_data.address_of(scene.nodes[name].operator.secret) == name for name in known)
    await scene.stop()
