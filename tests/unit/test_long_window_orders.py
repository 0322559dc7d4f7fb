"""A bfloat16 answer that long windows alone refuse: its verifiers say no, bring no case, and no stake is at risk.

Real nodes with their records and signatures, over a toy engine whose rounding has a chosen size.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bringing import Asked, bringer_of, inform, offered
from support.order_network import MODEL, Network, Ordered, build
from support.toy_engine import ToyEngine

from troth.node.engine.interface import Computed, SessionKey
from troth.protocol.doubts import under_rules
from troth.protocol.findings import Kind
from troth.protocol.market import canonical
from troth.protocol.market.leaves import ShownTraces, shows_work
from troth.protocol.market.messages import Signed
from troth.protocol.market.notes import value_of
from troth.protocol.market.papers import CourtText, Spoken
from troth.protocol.market.signed import Opinion, Verdict, Work
from troth.protocol.market.state import account_id
from troth.protocol.market.types import PotKind
from troth.protocol.market.views import rules_in
from troth.protocol.request import canonical_bytes, tokens_to_words
from troth.protocol.tensors import Dtype, widen
from troth.protocol.types import ZERO_HASH, Segment
from troth.protocol.wire_market import TRACES_LIMIT

NOISE, WRITTEN = 0.02, 96
SLOW, LOST, GROSS = 1.45, 1.68, 6.0
"""Times a run's own rounding: what a mean over 64 rows shows, the same beyond the second cut by all that verify, and
what any 32 rows show."""


class Rounding(ToyEngine):
    """A toy engine in bfloat16: every run of it rounds otherwise, by so many times NOISE."""

    def __init__(self, seed: int, size: float, scale: float = 1.0) -> None:
        super().__init__(scale=scale)
        self.dtype, self._size, self._draw = 1, size, np.random.default_rng(seed)

    def _rounded(self, rows: np.ndarray) -> np.ndarray:
        noisy = rows + self._size * NOISE * self._draw.normal(size=rows.shape)
        return (noisy.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)

    async def forward(self, key: SessionKey, segment: Segment, start: int, inputs: Any) -> Computed:
        return Computed(self._rounded((await super().forward(key, segment, start, inputs)).rows), 0.001)

    async def otherwise(self, segment: Segment, inputs: Any) -> np.ndarray:
        return self._rounded(await self.reference(segment, inputs))

    async def logits(self, rows: Any) -> Computed:
        return await super().logits(rows if rows.dtype == np.float32 else widen(rows, Dtype.BFLOAT16))


class Shaken(Rounding):
    """One that can change last bits of what enters: its rows are as far from float32 as any run's."""

    async def shaken(self, segment: Segment, inputs: Any, *, strongly: bool = False, alike: bool = False) -> np.ndarray:
        return self._rounded(await self.reference(segment, inputs))


async def checked(
    tmp_path: Path, size: float, engine: type[Rounding] = Rounding
) -> tuple[Network, Ordered, list[Signed[Verdict]], Spoken]:
    """An order whose node rounds so many times as much as others do, checked by all that were drawn."""
    tiles = {"mantissa_bits": 5, "steps": 1, "theta": 2_500}
    changes = tiles | {
        "dtype": 1,
        "state_cut": 1_720_000,
        "margin_cut": 2_000_000,
        "second_cut": 2_000_000,
        "calibration": under_rules(ZERO_HASH),
    }
    network = build(tmp_path, model=replace(MODEL, dtype=1), **changes)
    order = network.order(max_tokens=WRITTEN)
    for seed, (address, node) in enumerate(network.nodes.items()):
        node.make = partial(engine, seed, size if address == order.nodes[0] else 1.0)
    ordered = await network.serve(order)
    words = [await network.verify(ordered, 0, one) for one in network.drawn(ordered)[0].seats]
    text = CourtText(canonical_bytes(ordered.request), ordered.salt, tokens_to_words(ordered.tokens))
    verdicts = [verdict for _, verdict in words]
    return network, ordered, verdicts, Spoken(tuple(one for one, _ in words), tuple(verdicts), text)


def stakes(network: Network) -> list[int]:
    return [network.ground.state.pots[PotKind.STAKE, account_id(node)] for node in network.nodes]


@pytest.mark.slow
async def test_what_long_windows_alone_refuse_is_refused_and_brought_to_no_court(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network, ordered, verdicts, spoken = await checked(tmp_path, SLOW)
    before = stakes(network)
    assert {one.message.opinion for one in verdicts} == {Opinion.REJECT}
    said = {verifier: one.message for verifier, one in zip(network.drawn(ordered)[0].seats, verdicts, strict=True)}
    for verifier in network.drawn(ordered)[0].seats:
        bringer = bringer_of(network, verifier, tmp_path, Asked())
        stores = network.nodes[verifier].context.stores
        await inform(network, ordered, verifier, spoken)
        assert await offered(bringer) == [], "nothing waits for a court"
        assert bringer.office.journal.cases() == ()
        assert stores.rejections.of(ordered.order_id) == ()
        leaf = stores.books.leaf(ordered.order_id, 0, Work.CHECK)
        assert leaf is not None
        assert leaf.value(network.ground.state, verifier) == leaf.price > 0, "a no is paid as a yes is"
        answer, again = await network.nodes[verifier].ask(*network.judge_message(ordered, 0))
        assert again[len(again) - answer.traces :] == leaf.traces
        rules = rules_in(network.ground.state, network.nodes[verifier].class_id)
        traces = canonical.decode(ShownTraces, leaf.traces, TRACES_LIMIT)
        assert shows_work(said[verifier], ordered.results[0].message, traces, verifier, rules)
        evidence = stores.margins.evidence(ordered.nodes[0], network.nodes[verifier].class_id, Kind.STATES)
        assert evidence.tasks == 1
        (noted,) = stores.notes.of(ordered.nodes[0])
        assert value_of(noted.note.message, Kind.STATES) == 1, "who is refused so again and again is suspected"
    assert caplog.text.count("no case is brought") == len(verdicts)
    assert stakes(network) == before


@pytest.mark.slow
async def test_the_same_order_is_accepted_from_who_rounds_as_others_do(tmp_path: Path) -> None:
    network, ordered, verdicts, _ = await checked(tmp_path, 1.0)
    assert {one.message.opinion for one in verdicts} == {Opinion.ACCEPT}
    for verifier in network.drawn(ordered)[0].seats:
        assert await offered(bringer_of(network, verifier, tmp_path, Asked())) == []


@pytest.mark.slow
async def test_what_long_windows_show_beside_shaken_runs_is_brought(tmp_path: Path) -> None:
    """No window of 32 rows shows it; nothing that a prompt does to rounding explains it."""
    network, ordered, verdicts, spoken = await checked(tmp_path, LOST, Shaken)
    assert {one.message.opinion for one in verdicts} == {Opinion.REJECT}
    for verifier in network.drawn(ordered)[0].seats:
        bringer, node = bringer_of(network, verifier, tmp_path / verifier, Asked()), network.nodes[verifier]
        await inform(network, ordered, verifier, spoken)
        assert await offered(bringer) == [True]
        assert len(bringer.office.journal.cases()) == 1
        evidence = node.context.stores.margins.evidence(ordered.nodes[0], node.class_id, Kind.STATES)
        assert evidence.tasks == 1, "it counts over many tasks as well"


@pytest.mark.slow
async def test_what_any_thirty_two_rows_show_is_brought(tmp_path: Path) -> None:
    network, ordered, verdicts, spoken = await checked(tmp_path, GROSS)
    assert {one.message.opinion for one in verdicts} == {Opinion.REJECT}
    for verifier in network.drawn(ordered)[0].seats:
        bringer = bringer_of(network, verifier, tmp_path / verifier, Asked())
        await inform(network, ordered, verifier, spoken)
        assert await offered(bringer) == [True]
        leaf = network.nodes[verifier].context.stores.books.leaf(ordered.order_id, 0, Work.CHECK)
        assert leaf is not None
        assert (leaf.value(network.ground.state, verifier), leaf.traces) == (0, b""), "it waits for the court"
        assert len(bringer.office.journal.cases()) == 1
