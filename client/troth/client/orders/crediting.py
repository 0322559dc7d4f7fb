"""What the answers of each node were worth, from the client's own journal and its own copy of the model.

Members of a committee ask as any client does, and hand the credits on with `troth committee reputation propose`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.cases.judging import Inputs
from troth.cases.materials import OrderText
from troth.client.configuration import ClientConfiguration
from troth.client.errors import AnswerUnavailable
from troth.client.home import Home
from troth.client.orders.evidence import served_of
from troth.client.orders.journal import OrderJournal, OrderRecord
from troth.client.orders.own_check import no_model, own_model
from troth.client.orders.seams import OwnModel
from troth.client.orders.session import following
from troth.client.tabs.store import opened
from troth.protocol import vrf
from troth.protocol.credit import NO_EVIDENCE, Credit, CreditEvidence, CreditRule, Surprises, credit_of, exact_credit
from troth.protocol.market.state import State
from troth.protocol.market.views import class_of
from troth.protocol.reputation import ONE
from troth.protocol.request import Request, from_canonical_bytes
from troth.protocol.tokens import noise_seed
from troth.protocol.types import Address, Hash32, Segment


@dataclass(frozen=True, slots=True)
class CreditWish:
    """Which answers count: those of the last ``since`` seconds, of nodes with ``least`` of them; and by which rule."""

    since: float
    least: int
    rule: CreditRule


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What a node with the whole model answered to an order, whoever asked; ``infer_proof`` drew it."""

    order: Hash32
    execution_class: Hash32
    node: Address
    request: Request
    tokens: tuple[int, ...]
    infer_proof: bytes


async def credits_of(
    model: OwnModel,
    state: State,
    answers: Iterable[NodeAnswer],
    *,
    least: int,
    rule: CreditRule,
    before: Mapping[Address, CreditEvidence] | None = None,
) -> dict[Address, Credit]:
    """Credits of the nodes with ``least`` answers, with the evidence ``before`` these; raises OwnModelUnusable.

    Only whole models' answers count that were sampled from the plain distribution: without top_p below 1, top_k, min_p,
    penalties, biases or grammar, and at a temperature above 0 unless the class is exact.
    """
    texts: dict[Address, list[Surprises]] = {}
    right: dict[Address, list[bool]] = {}
    counts: dict[Address, int] = {}
    for answer in answers:
        node, request = answer.node, answer.request
        definition, descriptor = class_of(state, answer.execution_class)
        if not _is_plain(request) or (not definition.exact and not request.temperature_millionths):
            continue
        await model.require(descriptor, definition)
        inputs = _inputs(answer, Segment(0, descriptor.layers))
        counts[node] = counts.get(node, 0) + len(answer.tokens)
        if definition.exact:
            text = (await model.recompute(inputs)).text
            right.setdefault(node, []).append(text is not None and text.matches == len(answer.tokens))
        else:
            texts.setdefault(node, []).append(await model.surprises(inputs))
    known = before or {}
    found = {
        node: credit_of(written, rule, known.get(node, NO_EVIDENCE))
        for node, written in texts.items()
        if len(written) >= least
    }
    exact = {node: exact_credit(seen, counts[node]) for node, seen in right.items() if len(seen) >= least}
    return found | exact


async def print_credits(
    home: Home, configuration: ClientConfiguration, name: str, wish: CreditWish, output: Path | None, *, as_json: bool
) -> None:
    """Print the credits, and write them as `troth committee reputation propose --credits` reads them."""
    if not name:
        raise no_model()
    async with following(home, configuration) as (_, follower), own_model(home, name) as model:
        assert model is not None
        with opened(home.tabs) as store:
            answers = ripe(OrderJournal(store).all(), wish.since)
            found = await credits_of(model, follower.state, answers, least=wish.least, rule=wish.rule)
    if not found:
        what = "No node has enough answers that can be scored"
        raise AnswerUnavailable(what, wish.least, "Ask whole models, with a temperature above 0 and all tokens left.")
    if output is not None:
        _write(output, found)
    ordered = sorted(found.items(), key=lambda one: (-one[1].value, one[0]))
    if as_json:
        print(json.dumps([_told(node, credit) for node, credit in ordered]))
        return
    for node, credit in ordered:
        doubt = ", too sure or too unsure of itself" if credit.doubted else ""
        made_of = f"{credit.texts} answers, {credit.tokens} tokens, z {credit.z:+.1f}{doubt}"
        print(f"{node}  {credit.value / ONE:.3f}  {made_of}")


def _write(path: Path, found: dict[Address, Credit]) -> None:
    path.write_text(json.dumps({node: credit.value / ONE for node, credit in found.items()}) + "\n", "utf-8")


def _told(node: Address, credit: Credit) -> dict[str, Any]:
    return {
        "node": node,
        "credit": credit.value / ONE,
        "answers": credit.texts,
        "tokens": credit.tokens,
        "mean": credit.mean,
        "z": credit.z,
        "doubted": credit.doubted,
    }


def ripe(entries: Iterable[OrderRecord], since: float) -> Iterable[NodeAnswer]:
    """The whole answers in a journal of the last ``since`` seconds, of nodes that host the whole model."""
    oldest = time.time() - since
    for entry in entries:
        served = served_of(entry) if entry.created >= oldest and entry.tokens else None
        if served is not None and len(served.admitted.nodes) == 1:
            request, order, admitted = from_canonical_bytes(served.submission.request), served.order, served.admitted
            node, proof = admitted.nodes[0], admitted.infer_proof
            yield NodeAnswer(entry.identifier, order.execution_class, node, request, entry.tokens, proof)


def _is_plain(request: Request) -> bool:
    return request.keeps_all and not request.transforms.any


def _inputs(answer: NodeAnswer, whole: Segment) -> Inputs:
    seed = noise_seed(answer.order, Hash32(vrf.proof_to_hash(answer.infer_proof)))
    text = OrderText(answer.request, answer.tokens, seed)
    return Inputs(answer.order, answer.execution_class, whole, text, None, True)
