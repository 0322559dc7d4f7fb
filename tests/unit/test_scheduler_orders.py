"""Orders on tabs through the scheduler's HTTP side, with toy nodes: what it sends passes ``life.live``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.tab_scene import CLIENT_TAB, REPLY_SECRET, TabScene

from troth.overlay.sealing import unseal
from troth.protocol.market import canonical, life, prices, tabs, views
from troth.protocol.market.bodies import (
    Admitted,
    Committed,
    Lottery,
    Results,
    Verdicts,
    opening_context,
    read_part,
)
from troth.protocol.market.checks import Answer, Opened
from troth.protocol.market.life import Acknowledged, Check, Journey
from troth.protocol.request import output_hash
from troth.protocol.types import Address, address_to_bytes


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[TabScene]:
    made = TabScene(tmp_path)
    made.start()
    yield made
    await made.stop()


def journey_of(scene: TabScene, asked: Any) -> Journey:
    """What the client has of an order, up to its draw."""
    admitted = read_part(Admitted, asked.of("admitted"))
    results = read_part(Results, asked.of("results"))
    draw = read_part(Lottery, asked.of("draw"))
    story = scene.desk.store.get(asked.order_id)
    assert story is not None
    book = tabs.PayeeBook(tabs.first_voucher(asked.order.tab))
    return Journey(
        order=asked.submission.order,
        voucher=asked.submission.voucher,
        book=book,
        admission=admitted.admission,
        nodes=admitted.nodes,
        infer_proof=admitted.infer_proof,
        promises=story.admitted.promises,
        results=results.results,
        answer=Answer(
            len(asked.request.prompt_tokens),
            len(asked.tokens),
            output_hash(asked.submission.salt, asked.tokens),
        ),
        draw=draw.draw,
        draw_proof=draw.proof,
        seen_at=scene.ledger.block,
        secret=asked.secrets.draw,
    )


def view_of(scene: TabScene, asked: Any) -> Any:
    return views.view_of(
        scene.ledger.state, asked.order, CLIENT_TAB, chain_id=31337, block=scene.ledger.block, time=scene.now
    )


def checks_of(scene: TabScene, asked: Any, lines: list[dict[str, Any]], segments: list[dict[str, Any]]) -> Any:
    """The checks of a journey, from the lines and the sealed openings."""
    story = scene.desk.store.get(asked.order_id)
    assert story is not None
    made = []
    for segment, sealed in enumerate(segments):
        committed = next(one for one in lines if one["type"] == "committed" and one["segment"] == segment)
        said = next(one for one in lines if one["type"] == "verdicts" and one["segment"] == segment)
        check = story.check_of(segment)
        assert check is not None
        operators = check.operators
        node = story.admitted.nodes[segment]

        def opened(party: Address, raw: str, place: int = segment) -> Opened:
            context = opening_context(asked.order_id, place, address_to_bytes(party))
            return canonical.decode(Opened, unseal(bytes.fromhex(raw[2:]), REPLY_SECRET, context), 1 << 20)

        made.append(
            Check(
                promises=dict(zip(operators, check.promises, strict=True)),
                commitments=dict(zip(operators, read_part(Committed, committed).commitments, strict=True)),
                verdicts=dict(zip(operators, read_part(Verdicts, said).verdicts, strict=True)),
                node=opened(node, sealed["node"]),
                opened={Address(name): opened(Address(name), raw) for name, raw in sealed["opened"].items()},
            )
        )
    return tuple(made)


@pytest.mark.parametrize("ends", [(2,), (1, 2)])
async def test_an_honest_order_passes_the_protocol_of_the_whole_life(tmp_path: Path, ends: tuple[int, ...]) -> None:
    scene = TabScene(tmp_path, ends=ends)
    scene.start()
    asked = await scene.send(scene.asked())
    assert [line["type"] for line in asked.lines] == ["admitted", *["token"] * 6, "results", "draw"]
    journey, view = journey_of(scene, asked), view_of(scene, asked)
    rules = view.rules
    fee = prices.fee(asked.order, rules, len(ends), journey.results[-1].message)  # type: ignore[index]
    drawn_at = journey.draw.message.block_number  # type: ignore[union-attr]
    assert life.live(replace(journey, secret=None), view) == Acknowledged(fee, drawn_at + view.lag, checked=False)

    lines = await scene.show(asked)
    assert next(line["type"] for line in lines) == "checking"
    assert lines[-1] == {"type": "end", "complete": True}
    segments = await scene.tiles(asked)
    checked = replace(journey, second_secret=asked.secrets.tiles, checks=checks_of(scene, asked, lines, segments))
    assert life.live(checked, view) == Acknowledged(fee, drawn_at, checked=True)
    # Asked again, everybody hears the same.
    assert sorted(map(str, await scene.show(asked))) == sorted(map(str, lines))
    assert await scene.tiles(asked) == segments
    await scene.stop()


async def test_an_order_that_is_not_drawn_is_told_so(tmp_path: Path) -> None:
    scene = TabScene(tmp_path)
    scene.start()
    least = scene.definition.least_check_rate
    kinds = set()
    for _ in range(12):
        asked = await scene.send(scene.asked(check_rate=least))
        lines = await scene.show(asked)
        kinds.add(lines[0]["type"])
        ending = life.live(journey_of(scene, asked), view_of(scene, asked)) if lines[0]["type"] == "undrawn" else None
        assert ending is None or isinstance(ending, Acknowledged)
    assert "undrawn" in kinds
    await scene.stop()
