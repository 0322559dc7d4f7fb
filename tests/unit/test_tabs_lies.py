"""Every lie of a scheduler: what the client says, what it keeps, and that nothing is paid for it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from support.toy_market import DOMAIN, NODE_KEYS
from support.toy_tab_lines import line_of
from support.toy_tab_scheduler import ToyOrder, ToyScheduler
from support.toy_tab_stage import Stage, toy_stage
from support.waiting import eventually
from unit.test_tabs_asking import ALWAYS, PROMPT, asked, ended, text_of

from troth.client.orders import checking
from troth.client.orders.asking import ask
from troth.client.orders.failing import OrderContradicted, OrderFailed, OrderStalled
from troth.client.orders.journal import OrderRecord, Phase
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.receipts import proof_of, shown
from troth.client.orders.updates import OrderOutcome
from troth.client.tabs.errors import NoTab
from troth.protocol import vrf
from troth.protocol.amounts import Asset
from troth.protocol.market import messages
from troth.protocol.market.bodies import Admitted, Checking, Lottery, Results, Verdicts
from troth.protocol.market.messages import Signed, sign
from troth.protocol.market.proceedings import CaseState
from troth.protocol.market.signed import Admission, Draw, Opinion
from troth.protocol.market.state import CaseRecord
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.types import Hash32


def replaced(lines: list[Any], kind: str, value: Any) -> list[Any]:
    return [line_of(kind, value) if line["type"] == kind else line for line in lines]


def other_nodes(toy: ToyScheduler) -> Any:
    def tamper(one: ToyOrder, lines: list[Any]) -> list[Any]:
        named = (one.not_drawn,) * len(one.nodes)
        admission = sign(Admission(one.identifier, messages.nodes_hash(named), 1_000), DOMAIN, toy.key.secret)
        return replaced(lines, "admitted", Admitted(admission, named, one.infer_proof))

    return tamper


def other_proof(toy: ToyScheduler) -> Any:
    def tamper(one: ToyOrder, lines: list[Any]) -> list[Any]:
        proof = vrf.prove(b"\x66" * 32, messages.infer_alpha(one.identifier))
        return replaced(lines, "admitted", Admitted(one.admission, one.nodes, proof))

    return tamper


def resigned(one: ToyOrder, **changes: Any) -> tuple[Signed[Any], ...]:
    """Results with other words, under their nodes' own keys."""
    return tuple(
        sign(replace(result.message, **changes), DOMAIN, NODE_KEYS[node])
        for result, node in zip(one.results, one.nodes, strict=True)
    )


def other_counts(toy: ToyScheduler) -> Any:
    def tamper(one: ToyOrder, lines: list[Any]) -> list[Any]:
        results = resigned(one, written=len(one.tokens) + 5)
        draw, proof = toy.drawn(one.identifier, [result.message for result in results])
        changed = replaced(lines, "results", Results("end", results))
        return replaced(changed, "draw", Lottery(draw, proof))

    return tamper


def other_answer(toy: ToyScheduler) -> Any:
    def tamper(one: ToyOrder, lines: list[Any]) -> list[Any]:
        return [{**line, "id": line["id"] ^ 1} if line.get("position") == 3 else line for line in lines]

    return tamper


def other_request(toy: ToyScheduler) -> Any:
    def tamper(one: ToyOrder, lines: list[Any]) -> list[Any]:
        return replaced(lines, "results", Results("end", resigned(one, input_head=Hash32(b"\1" * 32))))

    return tamper


def forged_results(toy: ToyScheduler) -> Any:
    def tamper(one: ToyOrder, lines: list[Any]) -> list[Any]:
        forged = tuple(sign(result.message, DOMAIN, b"\x77" * 32) for result in one.results)
        return replaced(lines, "results", Results("end", forged))

    return tamper


def draw_with(toy: ToyScheduler, **changes: Any) -> Any:
    def tamper(one: ToyOrder, lines: list[Any]) -> list[Any]:
        draw = sign(replace(one.draw.message, **changes), DOMAIN, toy.key.secret)
        return replaced(lines, "draw", Lottery(draw, one.draw_proof))

    return tamper


def over_other_results(toy: ToyScheduler) -> Any:
    def tamper(one: ToyOrder, lines: list[Any]) -> list[Any]:
        named = messages.results_hash([replace(result, cached=9) for result in one.given])
        made = Draw(one.identifier, named, one.draw.message.beta, one.draw.message.block_number)
        return replaced(lines, "draw", Lottery(sign(made, DOMAIN, toy.key.secret), one.draw_proof))

    return tamper


LIES = {
    "other nodes": (other_nodes, "was not drawn"),
    "another proof": (other_proof, "does not hold"),
    "tokens before the admission": (lambda _: lambda _one, lines: [lines[1], *lines], "before it proved"),
    "two admissions": (lambda _: lambda _one, lines: [lines[0], *lines], "twice"),
    "results of more positions": (other_counts, "were asked and"),
    "another answer than signed": (other_answer, "signed another answer"),
    "another request read": (other_request, "read another request"),
    "results under another key": (forged_results, "was signed by"),
    "a token after the end": (
        lambda _: lambda _one, lines: [*lines[:-2], {**lines[-3], "position": lines[-3]["position"] + 1}, *lines[-2:]],
        "goes on after its end",
    ),
    "a draw before the results": (lambda _: lambda _one, lines: [lines[0], lines[1], lines[-1]], "before the results"),
    "a stale block": (lambda toy: draw_with(toy, block_number=990), "not within 3"),
    "a block that nobody has seen": (lambda toy: draw_with(toy, block_number=1_900), "not within 3"),
    "another beta": (lambda toy: draw_with(toy, beta=Hash32(b"\2" * 32)), "not the output"),
    "a draw over other results": (over_other_results, "over other results"),
}


@pytest.mark.parametrize("name", sorted(LIES))
async def test_a_lie_is_named_kept_and_not_paid(name: str, tmp_path: Path) -> None:
    lie, says = LIES[name]
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.tamper = lie(stage.scheduler)
        with pytest.raises(OrderContradicted, match=says):
            await asked(stage)
        entry = only(stage)
        assert entry.phase is Phase.CONTRADICTED
        assert says in str(entry.failure)
        assert "type" in json.loads(entry.evidence["lie"])
        assert "secret" not in entry.evidence
        await OrderKeeper(stage.session).once()
        assert (entry.paid, stage.book().spent) == (None, 0)
        assert stage.scheduler.orders[entry.identifier].secret is None
        with pytest.raises(NoTab, match="No tab"):
            await asked(stage)


def only(stage: Stage) -> OrderRecord:
    (entry,) = stage.session.journal.all()
    return entry


STREAMS = {
    "a token twice": (lambda lines: [*lines[:3], lines[2], *lines[3:]], "came twice"),
    "a token left out": (lambda lines: [*lines[:2], *lines[3:]], "is missing"),
    "junk": (lambda lines: [*lines[:3], b"\x00{{{\n"], "not JSON"),
    "an endless stream": (lambda lines: [*lines[:3], *({"type": "noise"} for _ in range(200))], "does not end"),
    "a stream that breaks off": (lambda lines: lines[:4], "ended too early"),
    "half a line": (lambda lines: [*lines[:3], b'{"type": "tok'], "inside a line"),
    "results withheld": (lambda lines: [*lines[:-2], None], "said nothing"),
    "the draw withheld": (lambda lines: [*lines[:-1], None], "said nothing"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(STREAMS))
async def test_a_stream_that_fails_is_told_with_what_can_be_summoned(name: str, tmp_path: Path) -> None:
    change, says = STREAMS[name]
    async with toy_stage(tmp_path) as stage:
        stage.session.table = structs.replace(stage.session.table, stall=1)
        stage.scheduler.tamper = lambda _one, lines: change(lines)
        with pytest.raises(OrderStalled, match=says) as caught:
            await asked(stage)
        assert "troth client summon" in caught.value.remedy
        for entry in stage.session.journal.all():
            assert entry.paid is None
            assert entry.phase in {Phase.ADMITTED, Phase.ANSWERED}
        assert stage.book().spent == 0


async def test_an_order_that_its_scheduler_gives_up_costs_nothing_and_is_made_again(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        gave_up = []

        def once(_one: ToyOrder, lines: list[Any]) -> list[Any]:
            if gave_up:
                return lines
            gave_up.append(1)
            failed = {"type": "failed", "code": "node_failed", "message": "a node failed", "remedy": "again"}
            return [*lines[:5], failed]

        stage.scheduler.tamper = once
        updates = await asked(stage)
        assert "".join(getattr(update, "text", "") for update in updates) == "hello world"
        later, first = stage.session.journal.all()
        assert (first.phase, first.paid) == (Phase.FAILED, 0)
        assert later.phase is Phase.CHECKED
        assert later.submission is not None
        assert ended(updates).fee == stage.book().spent


async def test_a_refusal_before_admission_costs_nothing(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.refusing = {"code": "busy", "message": "all is busy", "remedy": "later", "status": 503}
        with pytest.raises(OrderFailed, match="all is busy"):
            await asked(stage)
        assert all((entry.phase, entry.paid) == (Phase.FAILED, 0) for entry in stage.session.journal.all())
        stage.scheduler.refusing = None
        assert ended(await asked(stage)).outcome is OrderOutcome.CHECKED
        assert not stage.book().bounds


async def test_a_shortfall_at_the_scheduler_is_told_with_the_command(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.refusing = {
            "code": "tab_short",
            "message": "the tab is short",
            "shortfall": "77",
            "status": 402,
        }
        with pytest.raises(OrderFailed) as caught:
            await asked(stage)
        assert caught.value.shortfall == 77
        assert "top-up" in caught.value.remedy
        assert len(stage.session.journal.all()) == 1


# -------------------------------------------------------------------------------------------------------------- checks


def check_lines(kind: str, value: Any) -> Any:
    return lambda one, lines: replaced(lines, kind, value(one))


async def test_other_verifiers_than_drawn_are_refused(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        friends = tuple(NODE_KEYS)[:3]
        stage.scheduler.tamper_check = check_lines("checking", lambda _one: Checking((friends,)))
        with pytest.raises(OrderContradicted, match="other verifiers"):
            await asked(stage)
        assert (only(stage).phase, only(stage).paid) == (Phase.CONTRADICTED, None)
        assert "second" not in only(stage).evidence


async def test_verdicts_before_commitments_are_refused(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.tamper_check = lambda _one, lines: [lines[0], lines[2], lines[1], lines[3]]
        with pytest.raises(OrderContradicted, match="before the verifiers had committed"):
            await asked(stage)
        assert "second" not in only(stage).evidence


async def test_a_secret_that_hits_cannot_be_called_undrawn(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.tamper_check = lambda _one, _lines: [{"type": "undrawn"}]
        with pytest.raises(OrderContradicted, match="and it hits"):
            await asked(stage)


@pytest.mark.parametrize("kept", [0, 1, 2])
async def test_a_check_that_does_not_come_whole_can_be_summoned_and_is_not_paid(kept: int, tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        whole: list[Any] = []

        def cut(_one: ToyOrder, lines: list[Any]) -> list[Any]:
            whole[:] = lines
            return lines[:kept]

        stage.scheduler.tamper_check = cut
        told = ended(await asked(stage))
        assert told.outcome is OrderOutcome.REFUSED_CHECK
        assert "troth client summon" in told.advice
        assert "until block 1025" in told.advice
        drawn = len(set(whole[0]["segments"][0]))
        assert f"The check ended without a verdict of {drawn} of {drawn} verifiers (0x" in told.advice
        stage.world.block += 100
        await OrderKeeper(stage.session).once()
        assert (only(stage).paid, stage.book().spent) == (None, 0)
        undated = shown(replace(only(stage), due=None), stage.world.state)
        assert undated.lines(Asset(NO_ADDRESS, "usdc", 6))[0].endswith(" not due")


async def test_a_check_that_was_late_is_taken_up_by_the_keeper(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        late = stage.scheduler
        late.tamper_check = lambda _one, lines: lines[:1]
        assert ended(await asked(stage)).outcome is OrderOutcome.REFUSED_CHECK
        late.tamper_check = lambda _one, lines: lines
        late.orders[only(stage).identifier].check = []
        await OrderKeeper(stage.session).once()
        assert only(stage).phase is Phase.CHECKED
        assert only(stage).paid == only(stage).fee


async def test_verdicts_of_others_and_over_other_results_are_left_out(tmp_path: Path) -> None:
    def forged(one: ToyOrder, lines: list[Any]) -> list[Any]:
        assert one.secret is not None
        (seats,) = toy.seats(one, one.secret)
        _, verdicts = toy.said(one, 0, seats)
        foreign = [sign(word.message, DOMAIN, b"\x55" * 32) for word in verdicts]
        others = [
            sign(replace(word.message, result=Hash32(b"\x0f" * 32)), DOMAIN, NODE_KEYS[node])
            for word, node in zip(verdicts, seats.seats, strict=True)
        ]
        return replaced(lines, "verdicts", Verdicts(0, (*foreign, *others)))

    async with toy_stage(tmp_path) as stage:
        toy = stage.scheduler
        toy.tamper_check = forged
        told = ended(await asked(stage))
        assert told.outcome is OrderOutcome.REFUSED_CHECK
        assert "away, or kept back by the scheduler" in told.advice
        assert "second" not in only(stage).evidence


async def test_verifiers_that_always_say_yes_count_for_nothing(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.noise = 1.0
        told = ended(await asked(stage))
        assert told.outcome is OrderOutcome.UNCLEAR
        stage.world.block += 10
        await OrderKeeper(stage.session).once()
        assert only(stage).paid is None


@pytest.mark.parametrize("who", ["node", "opened", "all"])
async def test_openings_that_are_not_shown_prove_nothing(
    who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "OPENING_PAUSES", (0.0, 0.05, 0.05))

    def missing(_one: ToyOrder, body: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [] if who == "all" else [{**part, who: "0x" if who == "node" else {}} for part in body]

    async with toy_stage(tmp_path) as stage:
        stage.scheduler.tamper_tiles = missing
        outcome = ended(await asked(stage)).outcome
        # Without the node's opening, verifiers that show their own are believed; without theirs nobody is.
        assert outcome is (OrderOutcome.CHECKED if who == "node" else OrderOutcome.UNCLEAR)


async def test_openings_of_another_order_do_not_open(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await asked(stage)
        before = stage.scheduler.tiles(stage.scheduler.orders[only(stage).identifier], second_of(stage, only(stage)))
        stage.scheduler.tamper_tiles = lambda _one, _body: before
        assert ended(await asked(stage)).outcome is OrderOutcome.UNCLEAR


def second_of(stage: Stage, entry: OrderRecord) -> Hash32:
    return Hash32(entry.evidence["second"])


async def test_a_rejection_goes_to_the_court_and_is_not_paid(tmp_path: Path) -> None:
    heard: list[Any] = []

    class Opener:
        async def open(self, evidence: Any) -> str:
            heard.append(evidence)
            return "opened a case"

    async with toy_stage(tmp_path) as stage:
        stage.scheduler.node_noise, stage.scheduler.opinion = 1.0, Opinion.REJECT
        stage.session.opener = Opener()
        told = ended(await asked(stage))
        assert told.outcome is OrderOutcome.REJECTED
        assert "opened a case" in told.advice
        (evidence,) = heard
        assert evidence.segments == (0,)
        assert evidence.kind.name == "REJECTION"
        assert evidence.tokens == tuple(stage.scheduler.answer)
        assert len(evidence.file.shown) == len(evidence.file.verdicts) + 1
        stage.world.block += 1_000
        opened = CaseState(order=only(stage).identifier, segment=0, node=evidence.file.nodes[0])
        name = messages.case_id(only(stage).identifier, 0)
        state = stage.world.state
        stage.world.state = replace(state, cases=state.cases.set(name, CaseRecord(name, opened, None, ())))
        await OrderKeeper(stage.session).once()
        assert (only(stage).paid, len(heard)) == (None, 1)
        stage.world.state = replace(state, voided=state.voided.set((only(stage).identifier, 0), name))
        await OrderKeeper(stage.session).once()
        assert (only(stage).paid, stage.book().spent) == (0, 0)
        assert proof_of(only(stage), stage.world.state, DOMAIN).checks


async def test_a_rejection_that_nobody_brings_to_the_court_is_paid_once_the_lag_is_over(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.node_noise, stage.scheduler.opinion = 1.0, Opinion.REJECT
        told = ended(await asked(stage))
        stage.world.block = told.due - 1
        await OrderKeeper(stage.session).once()
        assert only(stage).paid is None
        stage.world.block = told.due
        await OrderKeeper(stage.session).once()
        assert only(stage).paid == told.fee


async def test_without_an_opener_a_rejection_says_how(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.node_noise, stage.scheduler.opinion = 1.0, Opinion.REJECT
        assert "troth client case" in ended(await asked(stage)).advice


async def test_repeated_commitments_are_refused(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.tamper_check = lambda _one, lines: [lines[0], lines[1], lines[1], *lines[2:]]
        with pytest.raises(OrderContradicted, match="twice"):
            await asked(stage)


async def test_a_reader_that_leaves_keeps_what_has_come(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.tamper = lambda _one, lines: [*lines[:6], None]
        told: list[Any] = []

        async def read() -> None:
            async for update in ask(stage.session, PROMPT, ALWAYS):
                told.append(update)

        task = asyncio.create_task(read())
        await eventually(lambda: text_of(told) == "hello")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert only(stage).tokens == tuple(stage.scheduler.answer[:5])
