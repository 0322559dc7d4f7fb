"""Deployments on which a token is proven wrong: nodes, somebody who accuses, and an answer to accuse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from support.dispute_stage import factory_and_prover
from support.tabs_stage import PARAMETERS, execution_class_of, following, tabs_stage
from support.wrong_token_scene import WrongTokenScene, describe, named, write_model

from troth.cases.convicting import Proof
from troth.cases.courtroom import LiveCourtroom
from troth.cases.evidence import Evidence
from troth.cases.journal import CaseJournal
from troth.cases.opening import Opener
from troth.chain.deployment import steps_creation
from troth.chain.market_follower import MarketFollower
from troth.node.court.accusing import AccusedText, accuse
from troth.protocol import vrf
from troth.protocol.market.types import PotKind


@dataclass
class Trial:
    """A deployment with nodes of a class that names its head, and somebody who accuses."""

    scene: WrongTokenScene
    follower: MarketFollower
    opener: Opener

    def text(self, evidence: Evidence) -> AccusedText:
        stage = self.scene.stage
        rows = evidence.rows[0].inside
        assert rows is not None
        return AccusedText(evidence, stage.execution_class, stage.model, vrf.public_key(stage.vrf_secret), rows)

    def accuse(self, evidence: Evidence) -> Proof:
        return accuse(self.text(evidence), self.scene.folder)

    def pot(self, kind: PotKind, account: Any) -> int:
        return self.follower.state.pot(kind, account)


@asynccontextmanager
async def token_trial(
    anvil: Any, path: Path, dtype: int = 0, disputes: bool = False, padding: int = 0, **changes: Any
) -> AsyncIterator[Trial]:
    """Files go to ``path``; ``padding``: rows of the head beyond the vocabulary; ``changes`` are of the class."""
    place: dict[str, Any] = {}
    if disputes:
        factory, prover = await factory_and_prover(anvil, steps_creation(anvil.keys[0].address))
        place = {"factory": factory, "parameters": replace(PARAMETERS, prover=prover)}
    folder = write_model(path / "model")
    model = describe(folder, dtype)
    model = replace(model, vocabulary=model.vocabulary - padding)
    definition = named(execution_class_of(model, dtype=dtype, mantissa_bits=(10, 7)[dtype], **changes))
    async with (
        tabs_stage(anvil, model=model, execution_class=definition, nodes=3, tabs=False, **place) as stage,
        following(stage) as follower,
    ):
        accuser = anvil.keys[6]
        courtroom = LiveCourtroom(stage.market, follower, accuser)
        opener = Opener(courtroom, CaseJournal(path / "journal.sqlite"))
        yield Trial(WrongTokenScene(stage, folder, follower.block - 1), follower, opener)
