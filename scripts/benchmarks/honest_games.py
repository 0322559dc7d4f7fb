"""Whole honest disputes on a chain: a node that computed honestly, against an accuser who tries everything.

Each text is one dispute over a row of it, on real contracts. The node plays by itself, as nodes do. The accuser knows
the true trace and points anywhere, at other places in each dispute, down to a word; on its way it says that the row is
wrong, and at the end that each number of the word is, that each part of a long sum is, and that the parts make another
number. Every call that would convict must be refused, and the dispute must end by the accuser's silence, its bond being
the node's. SmolLM2's weights lie in float32 and in bfloat16 in turns; classes whose rows are bfloat16 are not disputed.
What is measured is kept, a line for each dispute, so that the benchmark goes on where it was stopped.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from conftest import anvil_process
from numpy.typing import NDArray
from support.dispute_party import order_text
from support.dispute_stage import DisputeStage, Played, dispute_stage
from support.dispute_trials import StagedDisputes, ending
from support.layer_disputes import SALT, LayerScene, SignedRows

from benchmarks.figures import Figure
from benchmarks.honest_disputes import KINDS, Texts
from benchmarks.weights import HOME, packed_weights, weights
from troth.cases.courtroom import CallRefused
from troth.chain.deployment import numbers_creation, steps_creation, submit
from troth.node.court.canonical_traces import CanonicalTraces
from troth.node.court.disputing import Disputant
from troth.node.court.opened_weights import OpenedWeights
from troth.node.court.segment_text import SegmentText
from troth.node.engine.interface import SessionKey
from troth.node.engine.torch_engine import TorchEngine
from troth.node.models.folder import ModelFolder
from troth.protocol.calls import Call
from troth.protocol.disputes import calls, life
from troth.protocol.disputes.calls import DisputeLost
from troth.protocol.disputes.game import DisputeTurn, Matter, NamedNode, choice_of, place_of
from troth.protocol.disputes.layout import WORD_NUMBERS
from troth.protocol.disputes.proofs import part_proof, row_proof, step_proof
from troth.protocol.disputes.segment_trace import DoubledTrace, SegmentTrace
from troth.protocol.market.types import PotKind
from troth.protocol.tensors import Dtype
from troth.protocol.types import Segment

KEPT = HOME / "honest-games.jsonl"
POSITIONS = 8
STORED = ("float32", "bfloat16")
BATCH = 10
"""Disputes on one chain: both sides read all of its events at each look."""
PATIENCE = 900.0
"""Seconds for one turn of the node."""
PARTS = 4
"""Of a long sum, that are said to be wrong."""
TRUE = "NothingWrong"
"""What the contract says where all is as it must be."""
Trace = SegmentTrace | DoubledTrace
Numbers = NDArray[np.float32]


def measure_games(games: int, kept: Path = KEPT) -> list[Figure]:
    """Play disputes until so many are kept."""
    while (done := len(_lines(kept))) < games:
        asyncio.run(_play(range(done, min(games, done - done % BATCH + BATCH)), kept))
    return _told(_lines(kept)[:games])


def _lines(kept: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in kept.read_text().splitlines()] if kept.is_file() else []


async def _play(numbers: range, kept: Path) -> None:
    stored = STORED[numbers.start // BATCH % len(STORED)]
    folder = weights() if stored == "float32" else packed_weights()
    with tempfile.TemporaryDirectory() as made:
        async with _table(folder, Path(made)) as table:
            for number in numbers:
                told = {"stored": stored, "kind": KINDS[number % len(KINDS)], **await table.play(number)}
                with kept.open("a") as file:
                    file.write(json.dumps(told) + "\n")


@dataclass
class _Table:
    """A chain on which disputes are played."""

    stage: DisputeStage
    opened: OpenedWeights
    engine: TorchEngine
    texts: Texts
    home: Path

    async def play(self, number: int) -> dict[str, Any]:
        """One dispute from its opening to its end."""
        began, tokens = time.monotonic(), self.texts.tokens(number, POSITIONS)
        key = SessionKey(number.to_bytes(32, "big"), 0, 0)
        rows = (await self.engine.forward(key, self.engine.slice, 0, tokens)).rows.astype(np.float32)
        await self.engine.forget(key)
        source, head = np.random.default_rng([23, number]), SignedRows(rows, tokens).head
        # Of a repeated token rounding moves the first row the furthest.
        position = 1 if KINDS[number % len(KINDS)] == "repeated" else int(source.integers(len(tokens)))
        played = await self.stage.open(self.stage.accusation(head, position, len(rows)))
        text = order_text(played.matter.order, SALT, tokens, rows)
        game = _Game(self.stage, self.opened, played, text, source, self.home / str(number))
        stake = self.stage.pot(PotKind.STAKE, self.stage.node.address)
        await game.play()
        end = await ending(game.node, played)
        unharmed = self.stage.pot(PotKind.STAKE, self.stage.node.address) == stake
        return {
            "positions": len(tokens),
            "position": position,
            "turns": len(game.gas),
            "nudge": game.last.state.nudge,
            "refused": dict(game.refused),
            "lost": int(game.convicted > 0 or not isinstance(end, DisputeLost) or not unharmed),
            "gas": sum(gas for _, gas in (*played.gas, *game.gas)),
            "seconds": round(time.monotonic() - began, 1),
        }


@dataclass
class _Game:
    """An honest node and an accuser who convicts nobody."""

    stage: DisputeStage
    opened: OpenedWeights
    played: Played
    text: SegmentText
    source: np.random.Generator
    home: Path
    gas: list[tuple[str, int]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    convicted: int = 0

    def __post_init__(self) -> None:
        async def text_of(matter: Matter) -> SegmentText | None:
            return self.text if matter.order == self.text.order else None

        traces = CanonicalTraces(self.home, lambda: self.opened)
        node = StagedDisputes(self.stage, self.stage.node, self.gas)
        self.accuser = StagedDisputes(self.stage, self.stage.accuser, self.gas)
        self.node = Disputant(node, lambda: self.opened, traces, text_of)
        self.last = self.played.life

    async def play(self) -> None:
        """To its end."""
        await self._answered()
        while True:
            await self._accuse_row()
            if life.at_word(self.last):
                break
            await self._point()
            await self._answered()
        await self._accuse_word()
        self.stage.stage.anvil.mine(self.stage.turn + 1)
        await self._answered()

    async def _answered(self) -> None:
        """The node's turn, and what the chain tells then."""
        before = time.monotonic()
        while not await self.node.look():
            if time.monotonic() - before > PATIENCE:
                raise AssertionError(f"the node took no turn: {self.node.standing}")
            await asyncio.sleep(0.05)
        self.last = (await self.accuser.lives())[self.played.id]

    @property
    def _trace(self) -> Trace:
        """What the honest node committed to."""
        matter, nudge = self.last.matter, self.last.state.nudge
        place = matter.order, matter.segment, matter.position
        found = [self.node.traces.find(place, one) for one in ((0, nudge) if nudge else (0,))]
        plain = found[0]
        assert plain is not None
        if len(found) == 1:
            return plain
        assert found[1] is not None
        return DoubledTrace(plain, found[1])

    async def _point(self) -> None:
        """Anywhere but at what only pads a tree."""
        one, layout = self.last, self._trace.layout
        below, nodes = one.state.left - one.state.shown, one.looks[-1].nodes
        while True:
            choice = choice_of(nodes, int(self.source.integers(len(nodes))))
            if one.state.in_tensor or place_of(one.state, choice) << below < layout.count:
                break
        await self.accuser.send(life.choosing(one, choice))

    # ------------------------------------------------------------------------------------------------- accusations

    async def _accuse_row(self) -> None:
        one, trace = self.last, self._trace
        element = int(self.source.integers(self.text.hidden))
        shown = self.text.shown(one.matter.position)
        proof = row_proof(trace.layout, one.seen(trace), element, shown, one.state.moved)
        await self._try(calls.wrong_row(one.id, one.state, one.matter, one.shape, proof))

    async def _accuse_word(self) -> None:
        """Each number of a word; and the parts of the first one that is a long sum."""
        one, trace = self.last, self._trace
        nodes = one.looks[-1].nodes
        choice = choice_of(nodes, int(self.source.integers(len(nodes))))
        word, long = place_of(one.state, choice), None
        for number in range(WORD_NUMBERS):
            place = trace.layout.place(one.state.tensor, word, number)
            if place is not None and trace.parts(place):
                long = number if long is None else long
                continue
            # The first segment read what its own rows bind: `entered` of a position is the signed row of it.
            proof = step_proof(trace.layout, one.seen(trace), place, number, self.opened.open, self.text.entered)
            await self._try(calls.wrong_step(one.id, one.state, one.matter, one.shape, choice, proof))
        if long is not None:
            await self._accuse_parts(choice, long)

    async def _accuse_parts(self, choice: NamedNode, number: int) -> None:
        await self.accuser.send(calls.ask_sum(self.last.id, self.last.state, choice, number))
        await self._answered()
        one, trace = self.last, self._trace
        assert one.state.turn == DisputeTurn.ACCUSER
        await self._try(calls.wrong_sum(one.id, one.state, one.matter, one.shape, one.parts))
        place = trace.layout.place(one.state.tensor, one.state.place, number)
        assert place is not None
        count = len(trace.parts(place))
        for index in self.source.permutation(count)[:PARTS].tolist():
            proof = part_proof(trace.layout, one.seen(trace), place, number, index, self.opened.open)
            call = calls.wrong_part(one.id, one.state, one.matter, one.shape, one.parts, index, proof)
            await self._try(call)

    async def _try(self, call: Call) -> None:
        try:
            await self.accuser.send(call)
        except CallRefused as error:
            self.refused[f"{call.function} {error.name}"] += 1
        else:
            self.convicted += 1


@asynccontextmanager
async def _table(folder: ModelFolder, home: Path) -> AsyncIterator[_Table]:
    opened = OpenedWeights(folder)
    scene = LayerScene(folder, opened, np.zeros(1, np.int64))
    engine = TorchEngine(folder, Segment(0, folder.layers), int(Dtype.FLOAT32), threads=1)
    try:
        with anvil_process() as anvil:
            numbers = (await submit(anvil.url, numbers_creation(), anvil.keys[0])).created
            assert numbers is not None
            encoded = opened.shape.encoded
            async with dispute_stage(anvil, steps_creation(numbers), encoded, scene.model) as stage:
                yield _Table(stage, opened, engine, Texts.of(folder), home)
    finally:
        await engine.close()


# ------------------------------------------------------------------------------------------------------------ figures


def _told(games: list[dict[str, Any]]) -> list[Figure]:
    count, lost = len(games), sum(one["lost"] for one in games)
    refused: Counter[str] = Counter()
    for one in games:
        refused.update(one["refused"])
    true = sum(number for words, number in refused.items() if words.endswith(f" {TRUE}"))
    stored = ", ".join(f"{sum(one['stored'] == name for one in games)} with weights in {name}" for name in STORED)
    return [
        Figure("honest disputes lost on a chain", lost, "disputes", reach=0,
               note=f"{count} whole disputes: {stored}; at 95 %: fewer than {3 / max(count, 1):.1%}"),
        Figure("false convictions that were refused as nothing wrong", true, "calls",
               note=", ".join(f"{words}: {number}" for words, number in sorted(refused.items()))),
        Figure("calls that were refused otherwise", sum(refused.values()) - true, "calls", reach=0),
        Figure("disputes in which the node defended itself by a nudge", sum(one["nudge"] > 0 for one in games),
               "disputes"),
        Figure("gas of a whole honest dispute, at most", max((one["gas"] for one in games), default=0), "gas"),
    ]  # fmt: skip
