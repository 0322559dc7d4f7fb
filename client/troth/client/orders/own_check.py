"""`--check self`: an answer computed again with the client's own copy of the model, by one prefill.

The text is judged in any case: every token has to follow from the own rows and the order's public noise, as verifiers
judge it. Where the lottery drew the answer, the traces that its nodes opened are compared with the own ones, by the
rule of the court. Rows of an answer that was not drawn are shown to nobody but the court.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from troth.cases.judging import Inputs, Recomputed, fitted
from troth.cases.materials import OrderText
from troth.client.errors import AnswerUnavailable, OwnModelUnusable
from troth.client.home import Home
from troth.client.orders.checking import parts_of
from troth.client.orders.evidence import ServedOrder, served_of
from troth.client.orders.journal import OrderRecord, Phase
from troth.client.orders.seams import OwnModel
from troth.client.orders.session import FAILURES, PayerSession
from troth.client.orders.terms import CheckedOffer
from troth.node.errors import NodeError
from troth.protocol import vrf
from troth.protocol.credit import Surprises
from troth.protocol.market import checks
from troth.protocol.market.checks import Opened, OrderView
from troth.protocol.market.errors import InvalidCheck
from troth.protocol.market.signed import Opinion, Result
from troth.protocol.market.types import NO_HASH, ExecutionClass
from troth.protocol.market.views import class_of
from troth.protocol.request import from_canonical_bytes
from troth.protocol.tensors import Dtype
from troth.protocol.tokens import TokenReport, noise_seed
from troth.protocol.trace import TileLayout
from troth.protocol.types import Hash32, ModelDescriptor

MODE = "self"
ENGINE = "troth.node.judging.own_model"
"""What computes. It needs torch, which this package does without: it is loaded when a user wants such a check."""
EVIDENCE = "own_check"
_ENDED = {Phase.UNDRAWN, Phase.CHECKED, Phase.REJECTED, Phase.UNCLEAR, Phase.REFUSED_CHECK}
_SETUP = "Name the folder of the registered model with --model, or set model in [market] of client.toml."


@dataclass(frozen=True, slots=True)
class OwnVerdict:
    """What the own model says of an answer, and why; ``opinion`` CANNOT_TELL: it could not be computed."""

    opinion: Opinion
    words: str


def own_verdict_of(entry: OrderRecord) -> OwnVerdict | None:
    """The verdict that is written down under an order; None where there is none yet."""
    return entry.read(EVIDENCE, OwnVerdict)


def spoken(opinion: Opinion) -> str:
    """A word for an opinion: "accept", "reject" or "cannot tell"."""
    return opinion.name.lower().replace("_", " ")


def no_model() -> OwnModelUnusable:
    """Why an answer cannot be checked by oneself where no model is named."""
    return OwnModelUnusable("An answer is checked by oneself with the model, and none is named", MODE, _SETUP)


async def require_own_model(session: PayerSession, offer: CheckedOffer) -> None:
    """Raise OwnModelUnusable, with what to do, before anything is ordered that could not be checked."""
    if session.own_model is None:
        raise no_model()
    await session.own_model.require(offer.model, offer.execution_class)


async def check_by_self(session: PayerSession, entry: OrderRecord) -> OwnVerdict | None:
    """Compute an order's answer again and write the verdict down; None where that is not wanted, or not time yet.

    A verdict that is there is given again. What cannot be computed is a verdict, too, which the user is told: it says
    nothing about the answer.
    """
    known = own_verdict_of(entry)
    if known is not None or entry.mode != MODE or entry.phase not in _ENDED or session.own_model is None:
        return known
    served = served_of(entry)
    if served is None:
        return None
    try:
        found = await _verdict(session, session.own_model, served)
    except FAILURES as error:
        found = OwnVerdict(Opinion.CANNOT_TELL, str(getattr(error, "what", type(error).__name__)))
    session.journal.step(entry.identifier, own_check=found)
    return found


async def _verdict(session: PayerSession, model: OwnModel, served: ServedOrder) -> OwnVerdict:
    definition, descriptor = class_of(session.state, served.order.execution_class)
    await model.require(descriptor, definition)
    view = session.view(served.order, served.submission.tab)
    runs = await _computed(model, served, view)
    text = runs[-1].text
    if text is None:
        raise AnswerUnavailable("The own run has another length than the answer", len(runs[-1].states), "Ask again.")
    if not text.accepted and not text.told:
        return OwnVerdict(Opinion.CANNOT_TELL, "two runs of the own model differ as much as the text differs from them")
    if not text.accepted:
        why = _why(text)
        count = len(served.entry.tokens)
        return OwnVerdict(
            Opinion.REJECT, f"the text is not the model's: {why}; {text.matches} of {count} tokens are its choice"
        )
    opened = await asyncio.to_thread(_opened, session, served, runs, definition, view)
    wrong = [str(segment) for segment, same in opened.items() if not same]
    if wrong:
        return OwnVerdict(Opinion.REJECT, f"the opened trace of segment {', '.join(wrong)} is not the model's")
    shown = f", and so is what {len(opened)} nodes opened of their traces" if opened else ""
    return OwnVerdict(Opinion.ACCEPT, f"the text is the model's{shown}")


def _why(text: TokenReport) -> str:
    """What is wrong with a text that is refused."""
    if not text.allowed:
        return "it holds a token that the request's grammar forbids"
    return f"score {text.score:.3g}, at most {text.cut:.3g}" if text.end_ok else "it ends where it should not"


async def _computed(model: OwnModel, served: ServedOrder, view: OrderView) -> list[Recomputed]:
    """The own run of every segment, each from the rows of the one before."""
    request = from_canonical_bytes(served.submission.request)
    seed = noise_seed(served.entry.identifier, Hash32(vrf.proof_to_hash(served.admitted.infer_proof)))
    text = OrderText(request, served.entry.tokens, seed)
    spans, runs, before = view.segments(served.order), [], None
    for number, span in enumerate(spans):
        last = number == len(spans) - 1
        own = await model.recompute(
            Inputs(served.entry.identifier, served.order.execution_class, span, text, before, last)
        )
        runs.append(own)
        before = _bytes_of(own.states)
    return runs


def _bytes_of(states: Any) -> bytes:
    return np.ascontiguousarray(states).astype(states.dtype.newbyteorder("<"), copy=False).tobytes()


# ---------------------------------------------------------------------------------------------------- what was opened


def _opened(
    session: PayerSession,
    served: ServedOrder,
    runs: Sequence[Recomputed],
    definition: ExecutionClass,
    view: OrderView,
) -> dict[int, bool]:
    """By segment whether the trace that its node opened is the own one; segments of which nothing was opened are
    left out, and so is an opening that is not of the signed trace: what verifiers said of it is no check either."""
    words, openings, second = served.words, served.openings, served.entry.evidence.get("second")
    if words is None or openings is None or second is None:
        return {}
    key = session.keyring.key(served.submission.tab.key)
    found = {}
    for part, result, own in zip(
        parts_of(served, words, openings, key, session.domain), served.given, runs, strict=True
    ):
        if part.node is not None:
            committed = [one.message.commitment for one in part.commitments.values()]
            tiles = () if view.rules.exact else checks.check_tiles(Hash32(second), committed, result, view.rules)
            try:
                checks.require_node_opening(part.node, result, tiles, view.rules)
            except InvalidCheck:
                continue
            mine = _own_opening(own, result, tiles, definition.model, view)
            found[result.segment] = checks.agree(mine, part.node, view.rules)
    return found


def _own_opening(own: Recomputed, result: Result, tiles: Sequence[int], model: Hash32, view: OrderView) -> Opened:
    rules = view.rules
    states = fitted(own.states, checks.rows_of(result, rules))
    trace = TileLayout(result.order, model, len(states), rules.hidden_size, Dtype(rules.dtype)).commit(states)
    return Opened(Hash32(trace.root), NO_HASH, trace.open(tiles))


# ------------------------------------------------------------------------------------------------------- the own model


class _Named:
    """An OwnModel by the name of its folder, loaded when it is first needed."""

    def __init__(self, home: Home, name: str) -> None:
        self._name = name
        self._home = home
        self._engine: Any = None

    async def require(self, descriptor: ModelDescriptor, definition: ExecutionClass) -> None:
        try:
            if self._engine is None:
                engine = await asyncio.to_thread(importlib.import_module, ENGINE)
                self._engine = engine.FolderModel(self._home.root, self._name)
            await self._engine.require(descriptor, definition)
        except ImportError as error:
            what = f"Computing an answer again needs {error.name}, which is not installed"
            remedy = "Install Troth again with its extra: pip install 'WHEEL[torch]'."
            raise OwnModelUnusable(what, self._name, remedy) from error
        except (NodeError, OSError, RuntimeError, ValueError) as error:
            raise self._unusable(error) from error

    async def recompute(self, inputs: Inputs) -> Recomputed:
        try:
            computed: Recomputed = await self._engine.recompute(inputs)
        except (NodeError, OSError, RuntimeError, ValueError) as error:
            raise self._unusable(error) from error
        return computed

    async def surprises(self, inputs: Inputs) -> Surprises:
        try:
            found: Surprises = await self._engine.surprises(inputs)
        except (NodeError, OSError, RuntimeError, ValueError) as error:
            raise self._unusable(error) from error
        return found

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()

    def _unusable(self, error: Exception) -> OwnModelUnusable:
        what = str(getattr(error, "what", "") or error)[:300]
        remedy = getattr(error, "remedy", "") or _SETUP
        return OwnModelUnusable(f"The own model cannot be used: {what}", self._name, remedy)


@asynccontextmanager
async def own_model(home: Home, name: str) -> AsyncIterator[OwnModel | None]:
    """The model in a folder, or in one of `troth model`'s below the home folder; None where none is named."""
    if not name:
        yield None
        return
    named = _Named(home, name)
    try:
        yield named
    finally:
        await named.close()
