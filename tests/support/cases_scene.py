"""Evidence of an order of ``market_scene``, and a folded chain on which it stands; no chain process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support.market_record import record
from support.market_scene import DOMAIN, TAB, Scene, hash_of

from troth.cases.evidence import VERSION, Evidence
from troth.protocol.market.life import Journey
from troth.protocol.market.signed import Opinion
from troth.protocol.market.state import State


def evidence_of(scene: Scene, *, opinion: Opinion = Opinion.ACCEPT, node: Any = None) -> Evidence:
    """Everything that was signed in the scene, with a stand-in for the prompt."""
    return of_journey(scene, scene.checked(node=node, opinion=opinion))


def without_prompt(evidence: Evidence) -> Evidence:
    """The same without what shows prompt and answer: for whoever only convicts or watches."""
    return replace(evidence, request=None, answer=None, salt=None, head_salt=None, rows=())


def of_journey(scene: Scene, journey: Journey) -> Evidence:
    assert journey.results
    assert journey.draw
    checks = journey.checks or ()
    return Evidence(
        version=VERSION,
        chain_id=DOMAIN.chain_id,
        bank=DOMAIN.contract,
        tab=TAB,
        order=journey.order,
        admissions=(journey.admission,),
        nodes=journey.nodes,
        infer_proof=journey.infer_proof,
        results=journey.results,
        draws=(journey.draw,),
        draw_proof=journey.draw_proof,
        secret=scene.secrets.draw,
        commitments=tuple(one for check in checks for one in check.commitments.values()),
        verdicts=tuple(one for check in checks for one in check.verdicts.values()),
        request=b"request",
        answer=b"words",
        salt=hash_of("salt"),
    )


def state_of(scene: Scene, *later: Any) -> State:
    """The folded chain of the scene, and what happened later."""
    return record(*later, nodes=scene.nodes, changes=scene.changes).history.state


def without(evidence: Evidence, *names: str) -> Evidence:
    """The evidence with some of it missing."""
    empty = Evidence(evidence.version, evidence.chain_id, evidence.bank)
    return replace(evidence, **{name: getattr(empty, name) for name in names})
