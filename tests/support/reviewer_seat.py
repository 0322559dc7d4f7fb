"""A reviewer with everything around it in memory: a scripted court, a fixed engine, and what holders would deliver."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
from support.cases_scene import of_journey
from support.market_case import CaseScene
from support.market_scene import COLUMNS, DOMAIN, KEYS, PROMPT, TAB, WRITTEN, hash_of
from support.scripted_court import WINDOWS, ScriptedCourt, ScriptedParties

from troth.cases import calls, hearing
from troth.cases.courtroom import ChainView
from troth.cases.gathering import Gathered, Gatherer
from troth.cases.inbox import CaseInbox
from troth.cases.judging import Recomputed
from troth.cases.materials import OrderText, Papers
from troth.cases.record import Record
from troth.cases.reviewing import Reviewer, Timing
from troth.protocol.market.signed import Opinion
from troth.protocol.request import Request
from troth.transport.identity import Operator

SCENE = CaseScene()
REVIEWER = SCENE.drawn.reviewers[0]
NODE_SALT = hash_of("node salt")


class Engine:
    """Recompute that gives the scene's true trace, or breaks."""

    def __init__(self) -> None:
        self.runs, self.broken = 0, False

    async def recompute(self, inputs: Any) -> Recomputed:
        self.runs += 1
        if self.broken:
            raise RuntimeError("the model does not fit")
        return Recomputed(true_states())


def true_states() -> np.ndarray:
    return np.random.default_rng(8).normal(size=(PROMPT + WRITTEN - 1, COLUMNS)).astype(np.float32)


def text() -> OrderText:
    request = Request(hash_of("class"), tuple(range(PROMPT)), WRITTEN, 0, 1, ())
    return OrderText(request, tuple(range(WRITTEN)), hash_of("seed"))


class FixedGatherer(Gatherer):
    """Hands over ``found``; everything is there unless a test says so."""

    def __init__(self, folder: Path) -> None:
        inbox = CaseInbox(folder, REVIEWER, 1 << 20)
        super().__init__(REVIEWER, inbox, None)  # type: ignore[arg-type]
        object.__setattr__(self, "found", whole())
        object.__setattr__(self, "asked", 0)

    async def gather(self, state: Any, rules: Any, vrf_key: Any) -> Gathered:
        object.__setattr__(self, "asked", self.asked + 1)
        return self.found  # type: ignore[attr-defined,no-any-return]


def whole() -> Gathered:
    held = of_journey(SCENE.scene, SCENE.journey)
    papers = Papers(held, SCENE.scene.order, (SCENE.result,), 0)
    return Gathered(papers, text(), None, None, (SCENE.node_reveal.root, NODE_SALT))


class Seat:
    """One reviewer with its folders, restartable."""

    def __init__(self, folder: Path, **timing: Any) -> None:
        self.folder, self.timing = folder, Timing(again=0.001, **timing)
        self.court = ScriptedCourt(SCENE, TAB.payer)
        self.parties = ScriptedParties(SCENE, self.court)
        self.engine = Engine()
        self.start()

    def start(self) -> None:
        self.gatherer = FixedGatherer(self.folder / "inbox")
        self.record = Record(self.folder / "record")
        own = self.court.as_account(REVIEWER)
        operator = Operator(KEYS[REVIEWER], DOMAIN)
        self.reviewer = Reviewer(
            own, operator, self.engine, self.gatherer, self.record, self.timing, report=lambda _: None
        )

    async def drawn(self) -> None:
        """Until the reviewers are drawn."""
        self.court.mine(WINDOWS.lookahead + 1)
        await self.court.send(calls.draw_case(self.court.contracts, self.court.case, b"", b""))

    async def commit(self) -> None:
        """Everybody's commitments, this reviewer's own among them."""
        state = self.court.case
        pledges = {one: await self.parties.pledge(one, self.court.case_id, 0) for one in state.reviewers}
        own = await self.pledge()
        assert own is not None
        pledges[REVIEWER] = own
        await self.court.send(calls.commit(self.court.contracts, state, pledges, set()))  # type: ignore[arg-type]

    async def pledge(self) -> Any:
        return await self.reviewer.pledge(self.seen(), self.court.case_id, self.court.case.round)

    def seen(self) -> ChainView:
        return ChainView(self.court.state, self.court.block)

    async def show(self) -> Any:
        return await self.reviewer.show(ChainView(self.court.state, self.court.block), self.court.case_id, 0)

    async def look(self) -> None:
        """One tick, and what it begins to compute is done."""
        await self.reviewer.tick(await self.court.seen())
        await asyncio.sleep(0)
        tasks = list(self.reviewer._preparing.values())
        await asyncio.wait_for(asyncio.gather(*tasks), 5)

    def opinion(self) -> Opinion:
        kept = self.record.find(hearing.hearing_of(self.court.case))
        assert kept
        return Opinion(kept.reveal.opinion)
