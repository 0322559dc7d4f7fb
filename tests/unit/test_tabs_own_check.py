"""`--check self`: the client's own model says what it finds, before an order, after it, and after a kill."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.byte_language import LANGUAGE
from support.toy_market import COLUMNS
from support.toy_tab_stage import Stage, toy_stage

from troth.cases.judging import Inputs, Recomputed
from troth.client.choices import SamplingChoices
from troth.client.errors import OwnModelUnusable
from troth.client.gateway.failures import refusal_of
from troth.client.home import Home
from troth.client.orders import building, own_check
from troth.client.orders.asking import ask
from troth.client.orders.conversation import Turn, describe, require_accepted
from troth.client.orders.journal import Phase
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.own_check import own_model, own_verdict_of
from troth.client.orders.receipts import shown
from troth.client.orders.updates import EndedUpdate, OrderOutcome, RecomputedUpdate
from troth.client.orders.wishes import CheckWish, Wish
from troth.protocol.amounts import Asset
from troth.protocol.market import lottery
from troth.protocol.market.prices import MILLION
from troth.protocol.market.proceedings import CaseKind
from troth.protocol.market.signed import Opinion
from troth.protocol.market.types import ExecutionClass
from troth.protocol.tokens import TokenReport
from troth.protocol.types import ModelDescriptor

PROMPT = LANGUAGE.prompt_tokens([{"role": "user", "content": "hello"}])
SELF = Wish(SamplingChoices(64), CheckWish("self", 1))
TRUE_TEXT = TokenReport(0.0, 0.02, 0.0, 11, True, True)
FALSE_TEXT = TokenReport(3.5, 0.02, 1.0, 4, True, False)


@pytest.fixture
def always_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such orders are made at the class's smallest rate, and a test does not wait for luck."""
    monkeypatch.setattr(building, "check_rate_of", lambda _offer, _wish: MILLION)


@pytest.fixture
def never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in twenty would be."""
    monkeypatch.setattr(lottery, "is_drawn", lambda *_arguments: False)


@dataclass
class ToyModel:
    """The toy network's model, or another one: ``noise`` of its states, ``text`` what it says of every text."""

    text: TokenReport = TRUE_TEXT
    noise: float = 0.0
    failure: Exception | None = None
    runs: int = 0
    required: int = 0

    async def require(self, descriptor: ModelDescriptor, definition: ExecutionClass) -> None:
        self.required += 1
        if self.failure is not None:
            raise self.failure

    async def recompute(self, inputs: Inputs) -> Recomputed:
        self.runs += 1
        rows = len(inputs.text.inputs)
        assert (inputs.before is None) == (inputs.span.first == 0)
        true = np.random.default_rng(8).normal(size=(rows, COLUMNS))
        other = np.random.default_rng(9).normal(size=true.shape)
        states = (true * (1 + self.noise * other)).astype(np.float32)
        return Recomputed(states, text=self.text if inputs.last else None)


@dataclass
class Court:
    """Where doubts go."""

    kinds: list[CaseKind]

    async def open(self, evidence: Any) -> str:
        self.kinds.append(evidence.kind)
        return "a case was opened"


async def asked(stage: Stage, model: ToyModel | None, wish: Wish = SELF) -> list[Any]:
    stage.session.own_model = model
    return [update async for update in ask(stage.session, PROMPT, wish)]


def told(updates: list[Any]) -> RecomputedUpdate:
    (found,) = (update for update in updates if isinstance(update, RecomputedUpdate))
    assert isinstance(updates[-1], EndedUpdate)
    return found


def turn_of(updates: list[Any]) -> Turn:
    turn = Turn()
    for update in updates:
        turn.note(update)
    return turn


@pytest.mark.parametrize("ends", [(2,), (1, 2)])
@pytest.mark.usefixtures("never_drawn")
async def test_a_true_answer_is_told_to_be_true_and_the_receipt_says_so(tmp_path: Path, ends: tuple[int, ...]) -> None:
    async with toy_stage(tmp_path, ends=ends) as stage:
        model = ToyModel()
        updates = await asked(stage, model)
        assert told(updates).opinion is Opinion.ACCEPT
        assert model.runs == len(ends)
        require_accepted(turn_of(updates))
        (entry,) = stage.session.journal.all()
        receipt = shown(entry, stage.session.state)
        assert receipt.to_json()["own_check"] == {"opinion": "accept", "words": "the text is the model's"}
        assert "  own model  accept: the text is the model's" in receipt.lines(Asset("0x" + "0" * 40))


@pytest.mark.parametrize("ends", [(2,), (1, 2)])
@pytest.mark.usefixtures("always_drawn")
async def test_what_nodes_open_in_a_check_is_compared_with_the_own_rows(tmp_path: Path, ends: tuple[int, ...]) -> None:
    async with toy_stage(tmp_path, ends=ends) as stage:
        found = told(await asked(stage, ToyModel()))
        assert found.words == f"the text is the model's, and so is what {len(ends)} nodes opened of their traces"
        updates = await asked(stage, ToyModel(noise=0.5))
        assert told(updates).opinion is Opinion.REJECT
        wrong = ", ".join(str(number) for number in range(len(ends)))
        assert told(updates).words == f"the opened trace of segment {wrong} is not the model's"
        assert turn_of(updates).outcome is OrderOutcome.CHECKED
        with pytest.raises(Exception, match="Your own model gives another answer"):
            require_accepted(turn_of(updates))


async def test_a_false_text_is_doubted_in_court_like_any_other(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        updates = await asked(stage, ToyModel(FALSE_TEXT))
        found, ended = told(updates), updates[-1]
        assert found.opinion is Opinion.REJECT
        assert "score 3.5, at most 0.02; 4 of 12 tokens" in found.words
        assert "troth client case" in ended.advice
        assert "do not rely on this answer" in describe(found, Asset("0x" + "0" * 40))
        (entry,) = stage.session.journal.all()
        assert "brings it to the court" in shown(entry, stage.session.state).case
        court = Court([])
        stage.session.opener = court
        await OrderKeeper(stage.session).once()
        assert court.kinds == [CaseKind.DOUBT if ended.outcome is OrderOutcome.UNDRAWN else CaseKind.ACCEPTANCE]
        await OrderKeeper(stage.session).once()
        assert len(court.kinds) == 1


async def test_a_text_that_only_noise_speaks_against_brings_nobody_to_court(tmp_path: Path) -> None:
    """The bond would be lost: reviewers cannot tell either."""
    async with toy_stage(tmp_path) as stage:
        court = Court([])
        stage.session.opener = court
        updates = await asked(stage, ToyModel(replace(FALSE_TEXT, told=False)))
        assert told(updates).opinion is Opinion.CANNOT_TELL
        assert court.kinds == []


async def test_a_token_that_the_grammar_forbids_is_named(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        found = told(await asked(stage, ToyModel(replace(FALSE_TEXT, allowed=False))))
        assert "a token that the request's grammar forbids" in found.words


@pytest.mark.usefixtures("always_drawn")
async def test_an_answer_that_verifiers_passed_is_brought_to_court_as_a_false_acceptance(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        court = Court([])
        stage.session.opener = court
        updates = await asked(stage, ToyModel(FALSE_TEXT))
        assert updates[-1].outcome is OrderOutcome.CHECKED
        assert updates[-1].advice == "a case was opened"
        assert court.kinds == [CaseKind.ACCEPTANCE]


async def test_without_a_model_nothing_is_ordered(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        with pytest.raises(OwnModelUnusable, match="Name the folder of the registered model with --model"):
            await asked(stage, None)
        with pytest.raises(OwnModelUnusable, match="another model"):
            await asked(stage, ToyModel(failure=OwnModelUnusable("another model", "x", "Import it.")))
        assert stage.session.journal.all() == []
        refusal = refusal_of(OwnModelUnusable("none is named", "self", "Set model."))
        assert (refusal.status, refusal.param) == (400, "troth.check")


async def test_a_run_that_fails_says_nothing_about_the_answer(tmp_path: Path) -> None:
    class Failing(ToyModel):
        async def recompute(self, inputs: Inputs) -> Recomputed:
            raise OwnModelUnusable("no memory is left", "x", "Free some.")

    async with toy_stage(tmp_path) as stage:
        updates = await asked(stage, Failing())
        assert (told(updates).opinion, told(updates).words) == (Opinion.CANNOT_TELL, "no memory is left")
        assert "OWN MODEL CANNOT TELL: no memory is left" in describe(told(updates), Asset("0x" + "0" * 40))
        require_accepted(turn_of(updates))


async def test_an_answer_whose_process_was_killed_is_computed_again_by_the_next_one(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        model = ToyModel(FALSE_TEXT)
        stage.session.own_model = model
        updates = ask(stage.session, PROMPT, SELF)
        async for update in updates:
            if isinstance(update, RecomputedUpdate):
                break
        await updates.aclose()
        (entry,) = stage.session.journal.all()
        # As if the kill had come before the verdict was written down.
        stage.store.execute("DELETE FROM evidence WHERE name = 'own_check'")
        court, runs = Court([]), model.runs
        stage.session.opener = court
        same = OrderKeeper(stage.session)
        same._resumer.since = entry.created
        await same.once()
        assert model.runs == runs
        later = OrderKeeper(stage.session)
        later._resumer.since = entry.created + 1
        await later.once()
        assert model.runs == runs + 1
        found = own_verdict_of(stage.session.journal.entry(entry.identifier))
        assert found is not None
        assert found.opinion is Opinion.REJECT
        assert len(court.kinds) == 1


async def test_other_orders_are_not_computed_again(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        model = ToyModel()
        updates = await asked(stage, model, replace(SELF, check=CheckWish("lot", MILLION)))
        assert not any(isinstance(update, RecomputedUpdate) for update in updates)
        assert (model.runs, model.required) == (0, 0)
        (entry,) = stage.session.journal.all()
        assert entry.phase is Phase.CHECKED


async def test_a_missing_package_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_check, "ENGINE", "troth_no_such_package.engine")
    async with own_model(Home(tmp_path), "somewhere") as model, toy_stage(tmp_path / "stage") as stage:
        assert model is not None
        stage.session.own_model = model
        await stage.session.ready()
        with pytest.raises(OwnModelUnusable, match="troth_no_such_package") as caught:
            [update async for update in ask(stage.session, PROMPT, SELF)]
        assert "pip install" in caught.value.remedy
