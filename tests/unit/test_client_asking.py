"""One question against a scheduler that may say anything: what is shown, what is refused, what the receipt keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.client_stage import (
    END,
    TRANSACTION,
    VOCABULARY,
    ClientStage,
    assigned_line,
    client_stage,
    honest_lines,
    record,
    signed_order,
    tokens_of,
)

from troth.chain.errors import ChainUnavailable, FollowTimeout
from troth.client import asking
from troth.client.asking import Assigned, Chosen, Finished, Posted, Text, Verdict
from troth.client.choices import Choices
from troth.client.errors import ProofError, SchedulerRefused, SchedulerUnreachable, StreamError
from troth.protocol.settlement import Outcome

ANSWER = "grüß dich"
TOKENS = tokens_of(ANSWER)


def honest(folder: Path, outcome: Outcome | None = Outcome.ACCEPTED) -> ClientStage:
    signed = signed_order()
    return client_stage(folder, honest_lines(signed, TOKENS), signed, record(signed, TOKENS, outcome))


async def test_an_honest_stream_becomes_text_and_the_chains_verdict(tmp_path: Path) -> None:
    stage = honest(tmp_path)
    updates = await stage.ask()
    assert isinstance(updates[0], Assigned)
    assert "".join(update.text for update in updates if isinstance(update, Text)) == ANSWER
    assert [update for update in updates if isinstance(update, Finished)] == [Finished("end", len(TOKENS))]
    assert [update.step for update in updates if isinstance(update, Posted)] == ["opened", "committed", "settled"]
    assert updates[-1] == Verdict("accepted", stage.signed.fee)
    kept = stage.receipts.all()[0]
    assert (kept.outcome, kept.paid, kept.failure, kept.tokens) == ("accepted", stage.signed.fee, None, tuple(TOKENS))
    assert set(kept.transactions) == {"opened", "committed", "settled"}
    assert stage.api.closed


async def test_the_verdict_and_the_cost_are_the_chains_not_the_schedulers(tmp_path: Path) -> None:
    stage = honest(tmp_path, Outcome.REJECTED)  # the line says "accepted"
    assert (await stage.ask())[-1] == Verdict("rejected", 0)


async def test_a_part_of_the_fee_that_came_back_is_not_paid(tmp_path: Path) -> None:
    stage = honest(tmp_path)
    stage.follower.put(stage.signed, record(stage.signed, TOKENS, Outcome.ACCEPTED, released=5))
    assert (await stage.ask())[-1] == Verdict("accepted", stage.signed.fee - 5)


Change = Callable[[list[dict[str, Any]]], None]


def edit(kind: str, **fields: Any) -> Change:
    def change(lines: list[dict[str, Any]]) -> None:
        next(line for line in lines if line["type"] == kind).update(fields)

    return change


def double(kind: str) -> Change:
    def change(lines: list[dict[str, Any]]) -> None:
        place = next(number for number, line in enumerate(lines) if line["type"] == kind)
        lines.insert(place, lines[place])

    return change


def drop(kind: str) -> Change:
    def change(lines: list[dict[str, Any]]) -> None:
        lines.remove(next(line for line in lines if line["type"] == kind))

    return change


def late_token(lines: list[dict[str, Any]]) -> None:
    place = next(number for number, line in enumerate(lines) if line["type"] == "committed")
    lines.insert(place, {"type": "token", "id": 1, "position": len(TOKENS)})


def other_last_token(lines: list[dict[str, Any]]) -> None:
    [line for line in lines if line["type"] == "token"][-2]["id"] = 1


DISHONEST: dict[str, tuple[Change, type[Exception], str]] = {
    "tokens before the proof": (drop("assigned"), ProofError, "before it proved"),
    "two assignments": (double("assigned"), ProofError, "twice"),
    "a token twice": (double("token"), StreamError, "came twice"),
    "a token missing": (drop("token"), StreamError, "is missing"),
    "a token outside the vocabulary": (edit("token", id=VOCABULARY), StreamError, "whole number"),
    "a negative token": (edit("token", id=-1), StreamError, "whole number"),
    "a token that is true": (edit("token", id=True), StreamError, "whole number"),
    "a fraction": (edit("token", id=1.0), StreamError, "whole number"),
    "a token after the end": (late_token, StreamError, "after the last one"),
    "no end": (drop("finished"), StreamError, "did not send the end"),
    "two ends": (double("finished"), StreamError, "ends twice"),
    "length, though it stopped": (edit("finished", reason="length"), ProofError, "does not end where"),
    "an invented reason": (edit("finished", reason="\x1b[2J"), ProofError, "does not end where"),
    "the hash of another answer": (edit("finished", output_hash=TRANSACTION), ProofError, "output hash"),
    "another answer than it hashed": (other_last_token, ProofError, "output hash"),
    "a transaction that is none": (edit("opened", tx="<b>"), StreamError, "32 bytes"),
    "gas that is no number": (edit("committed", gas="much"), StreamError, "whole number"),
    "negative gas": (edit("settled", gas=-5), StreamError, "whole number"),
}


@pytest.mark.parametrize(("change", "kind", "says"), DISHONEST.values(), ids=DISHONEST)
async def test_what_an_honest_scheduler_does_not_send(
    change: Change, kind: type[Exception], says: str, tmp_path: Path
) -> None:
    stage = honest(tmp_path)
    change(stage.api.lines)
    with pytest.raises(kind, match=says):
        await stage.ask()
    assert not any(isinstance(update, Verdict) for update in stage.updates)
    assert stage.receipts.all()[0].failure is not None
    assert stage.api.closed


async def test_more_tokens_than_ordered_are_refused(tmp_path: Path) -> None:
    signed = signed_order(choices=Choices(2))
    stage = client_stage(tmp_path, honest_lines(signed, [1, 2, 3]), signed, record(signed, [1, 2, 3]))
    with pytest.raises(StreamError, match="after the last one"):
        await stage.ask()


async def test_a_stream_of_other_lines_ends(tmp_path: Path) -> None:
    signed = signed_order(choices=Choices(2))
    stage = client_stage(tmp_path, [{"type": "hello"}] * 1000, signed, None)
    with pytest.raises(StreamError, match="does not end"):
        await stage.ask()


LIKELY = ((0, -0.5), (1, -1.5))
TOLD = {"logprob": -2.5, "top": [list(pair) for pair in LIKELY]}


def told(folder: Path, *, logprobs: int = 2, **fields: Any) -> ClientStage:
    """An honest stream whose tokens come with log probabilities, but the first with `fields`."""
    signed = signed_order(choices=Choices(64, logprobs=logprobs))
    stage = client_stage(folder, honest_lines(signed, TOKENS), signed, record(signed, TOKENS, Outcome.ACCEPTED))
    lines = [line for line in stage.api.lines if line["type"] == "token"]
    for number, line in enumerate(lines):
        line.update(TOLD | (fields if not number else {}))
    return stage


async def test_log_probabilities_come_with_the_text_that_their_tokens_complete(tmp_path: Path) -> None:
    texts = [update for update in await told(tmp_path).ask() if isinstance(update, Text)]
    assert "".join(text.text for text in texts) == ANSWER
    assert [one for text in texts for one in text.chosen] == [Chosen(token, -2.5, LIKELY) for token in TOKENS]
    assert {text.text: len(text.chosen) for text in texts}["ü"] == 2, "two bytes, two tokens, one piece"
    assert texts[-1] == Text("", (Chosen(END, -2.5, LIKELY),)), "the end has no text and is told all the same"


async def test_who_does_not_order_log_probabilities_gets_tokens_alone(tmp_path: Path) -> None:
    stage = told(tmp_path, logprobs=-1, logprob="junk that is not looked at")
    assert "logprobs" not in stage.signed.to_json()
    texts = [update for update in await stage.ask() if isinstance(update, Text)]
    assert all(text.text for text in texts)
    assert [one for text in texts for one in text.chosen] == [Chosen(token) for token in TOKENS[:-1]]


async def test_log_probabilities_that_are_not_served_are_none(tmp_path: Path) -> None:
    stage = told(tmp_path, logprob=None)
    assert stage.signed.to_json()["logprobs"] == 2
    chosen = [one for update in await stage.ask() if isinstance(update, Text) for one in update.chosen]
    assert [one.logprob for one in chosen] == [None, *[-2.5] * (len(TOKENS) - 1)]


NO_LOG_PROBABILITIES: dict[str, dict[str, Any]] = {
    "above zero": {"logprob": 0.25},
    "not a number": {"logprob": float("nan")},
    "infinite": {"logprob": float("-inf")},
    "huge": {"logprob": -(10**400)},
    "true": {"logprob": True},
    "text": {"logprob": "-1"},
    "no alternatives": {"top": None},
    "too few": {"top": [[0, -0.5]]},
    "more than asked for": {"top": [[0, -2.0], [1, -2.5], [2, -2.5]]},
    "more than anybody may ask for": {"top": [[number, -9.0] for number in range(21)]},
    "an alternative that is a number": {"top": [0, -0.5]},
    "an alternative of three": {"top": [[0, -0.5, 1], [1, -1.5]]},
    "outside the vocabulary": {"top": [[VOCABULARY, -0.5], [1, -1.5]]},
    "a fraction of a token": {"top": [[0.0, -0.5], [1, -1.5]]},
    "an alternative above zero": {"top": [[0, 0.5], [1, -1.5]]},
    "an alternative that is no number": {"top": [[0, -0.5], [1, float("nan")]]},
    "unsorted": {"top": [[1, -1.5], [0, -0.5]]},
    "a token twice": {"top": [[0, -0.5], [0, -1.5]]},
    "two values for the chosen token": {"top": [[TOKENS[0], -0.5], [1, -1.5]]},
    "likelier than the likeliest": {"logprob": -0.25},
    "more than certain": {"top": [[0, -0.25], [1, -0.5]]},
}


@pytest.mark.parametrize("fields", NO_LOG_PROBABILITIES.values(), ids=NO_LOG_PROBABILITIES)
async def test_log_probabilities_that_cannot_be_are_refused(fields: dict[str, Any], tmp_path: Path) -> None:
    stage = told(tmp_path, **fields)
    with pytest.raises(StreamError):
        await stage.ask()
    assert not any(isinstance(update, Text) for update in stage.updates)


async def test_settled_without_the_chain_is_not_believed(tmp_path: Path) -> None:
    stage = honest(tmp_path, None)  # committed on chain, not decided
    with pytest.raises(ProofError, match="the task is settled, and the chain does not"):
        await stage.ask()
    assert stage.receipts.all()[0].outcome is None


async def test_a_chain_node_that_is_away_accuses_nobody(tmp_path: Path) -> None:
    stage = honest(tmp_path, None)
    stage.follower.failure = ChainUnavailable("away", "http://x", "wait")
    with pytest.raises(FollowTimeout):
        await stage.ask()


async def test_another_answer_on_chain_is_found_at_the_commit(tmp_path: Path) -> None:
    stage = honest(tmp_path)
    stage.follower.put(stage.signed, record(stage.signed, [*TOKENS[:-2], 1, END]))
    with pytest.raises(ProofError, match="not the one that was sent"):
        await stage.ask()
    assert [update.step for update in stage.updates if isinstance(update, Posted)] == ["opened"]


async def test_another_length_on_chain_is_found(tmp_path: Path) -> None:
    stage = honest(tmp_path)
    right = record(stage.signed, TOKENS)
    progress = replace(right.task.progress, positions=right.task.progress.positions + 1)
    stage.follower.put(stage.signed, replace(right, task=replace(right.task, progress=progress)))
    with pytest.raises(ProofError, match="another length"):
        await stage.ask()


async def test_another_layer_split_on_chain_is_found(tmp_path: Path) -> None:
    stage = honest(tmp_path)
    stage.follower.put(stage.signed, record(stage.signed, TOKENS, ends=(2,)))
    with pytest.raises(ProofError, match="other terms"):
        await stage.ask()


@pytest.mark.parametrize("outcome", [Outcome.ABORTED, Outcome.EXPIRED])
async def test_a_task_closed_without_an_answer_is_no_forgery(outcome: Outcome, tmp_path: Path) -> None:
    signed = signed_order()
    lines = [assigned_line(signed), {"type": "settled", "tx": TRANSACTION, "gas": 0, "outcome": "accepted"}]
    stage = client_stage(tmp_path, lines, signed, record(signed, None, outcome))
    assert (await stage.ask())[-1] == Verdict(outcome.name.lower(), 0)


FAILED = {"type": "failed", "code": "node_failed", "message": "no\x1b[2J node", "charged": False, "retry_free": True}


async def test_a_failure_is_told_with_what_the_chain_holds(tmp_path: Path) -> None:
    signed = signed_order()
    for on_chain, says in (
        (None, "you were not charged"),
        (record(signed, None), "still holds"),
        (record(signed, None, Outcome.ABORTED), "closed the task as aborted; you paid 0 wei"),
        (record(signed, TOKENS, Outcome.ACCEPTED), "accepted; you paid 0.00"),
    ):
        signed = signed_order() if on_chain is None else signed
        folder = tmp_path / says[:6].strip()
        stage = client_stage(folder, [assigned_line(signed), FAILED], signed, on_chain)
        with pytest.raises(SchedulerRefused) as raised:
            await stage.ask()
        assert says in raised.value.remedy
        assert "\x1b" not in raised.value.what
        assert stage.receipts.all()[0].failure == raised.value.what


async def test_a_failure_that_only_a_node_tells_is_no_proof_that_nothing_is_charged(tmp_path: Path) -> None:
    signed = signed_order()
    stage = client_stage(tmp_path, [assigned_line(signed), FAILED], signed, None, mode="direct")
    with pytest.raises(SchedulerRefused) as raised:
        await stage.ask()
    assert "not charged" not in raised.value.remedy
    assert "until the order's deadline" in raised.value.remedy


@pytest.mark.parametrize("cut", [0, 1, 5, -4, -2])
async def test_a_lost_stream_names_the_task_and_keeps_what_came(cut: int, tmp_path: Path) -> None:
    stage = honest(tmp_path)
    stage.api.lines = stage.api.lines[:cut]
    with pytest.raises(StreamError, match="before the verdict") as raised:
        await stage.ask()
    assert raised.value.value == "0x" + stage.signed.task_id.hex()
    assert "--answer" in raised.value.remedy
    kept = stage.receipts.all()[0]
    came = [line["id"] for line in stage.api.lines if line["type"] == "token"]
    assert kept.tokens == tuple(came)


async def test_an_unreachable_scheduler_leaves_a_receipt(tmp_path: Path) -> None:
    stage = honest(tmp_path)
    stage.api.lines = [SchedulerUnreachable("away", "x", "y")]
    with pytest.raises(SchedulerUnreachable):
        await stage.ask()
    assert stage.receipts.all()[0].failure == "away"


async def test_a_silent_stream_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "TOKEN_SILENCE_SECONDS", 0.01)
    stage = honest(tmp_path)
    stage.api.lines = [*stage.api.lines[:4], None]
    with pytest.raises(StreamError, match="said nothing for"):
        await stage.ask()
    assert len(stage.receipts.all()[0].tokens) == 2


async def test_an_interrupted_question_keeps_its_receipt(tmp_path: Path) -> None:
    stage = honest(tmp_path)
    stage.api.lines = [*stage.api.lines[:4], None]
    running = asyncio.create_task(stage.ask())
    async with asyncio.timeout(60):
        while len([update for update in stage.updates if isinstance(update, Text)]) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(stage.receipts.all()[0].tokens) == 2
    assert stage.api.closed
