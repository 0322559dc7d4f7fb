"""What a node says of its own answer, and what is said in its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.client_stage import DOMAIN, FakeApi, FakeFollower, record
from support.client_stage import LANGUAGE as SPEECH
from support.direct_client_stage import (
    ENDS,
    KEYS,
    NODES,
    OFFER,
    STRANGER,
    TOKENS,
    candidates,
    direct_lines,
    direct_order,
    served_line,
    verifiers,
    whole_state,
)

from troth.client.asking import Finished, Text, Update, Verdict, ask
from troth.client.errors import ProofError, StreamError
from troth.client.ordering import SignedOrder
from troth.client.receipts import Receipts
from troth.client.session import Session
from troth.protocol.request import output_hash
from troth.protocol.settlement import Outcome
from troth.protocol.typed_data import Domain, recover, sign
from troth.protocol.types import Hash32, Served

Line = dict[str, Any]


class Stage:
    """One order, and a stream for it."""

    def __init__(self, folder: Path, lines: Callable[[SignedOrder], list[Any]] = direct_lines) -> None:
        self.signed = direct_order()
        self.follower = FakeFollower(whole_state())
        self.follower.put(self.signed, record(self.signed, TOKENS, Outcome.ACCEPTED, ends=ENDS))
        self.receipts = Receipts(folder / "receipts.sqlite3", DOMAIN)

        class Chain:
            domain = DOMAIN

        api = FakeApi(lines(self.signed))
        self.session = Session(Chain(), self.follower, api, OFFER, SPEECH, self.receipts)  # type: ignore[arg-type]
        self.updates: list[Update] = []

    async def ask(self) -> list[Update]:
        async for update in ask(self.session, self.signed):
            self.updates.append(update)
        return self.updates


async def test_the_node_that_signed_is_told_with_the_end_and_kept_with_its_signature(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    updates = await stage.ask()
    node = candidates(stage.signed)[0]
    assert Finished("end", len(TOKENS), node) in updates
    assert updates[-1] == Verdict("accepted", stage.signed.fee)
    (kept,) = stage.receipts.all()
    assert kept.served_by == node
    word = Served(stage.signed.task_id, output_hash(stage.signed.salt, TOKENS))
    assert recover(word, DOMAIN, bytes.fromhex(str(kept.served_signature)[2:])) == node


async def test_any_candidate_may_have_served(tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda one: direct_lines(one, served=served_line(one, TOKENS, candidates(one)[1])))
    assert Finished("end", len(TOKENS), candidates(stage.signed)[1]) in await stage.ask()


async def test_nobody_need_sign(tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda one: direct_lines(one, served=None))
    updates = await stage.ask()
    assert Finished("end", len(TOKENS), None) in updates
    assert updates[-1] == Verdict("accepted", stage.signed.fee)
    assert stage.receipts.all()[0].served_by is None


def outsider(signed: SignedOrder) -> Line:
    (node, *_) = [node for node in NODES if node not in candidates(signed) + verifiers(signed)]
    return served_line(signed, TOKENS, node)


def foreign_domain(signed: SignedOrder) -> Line:
    word = Served(signed.task_id, output_hash(signed.salt, TOKENS))
    node = candidates(signed)[0]
    elsewhere = sign(word, Domain(DOMAIN.chain_id + 1, DOMAIN.contract), KEYS[node].secret)
    return {"type": "served", "node": node, "signature": "0x" + elsewhere.hex()}


def other_task(signed: SignedOrder) -> Line:
    node = candidates(signed)[0]
    word = Served(Hash32(b"\x01" * 32), output_hash(signed.salt, TOKENS))
    return {"type": "served", "node": node, "signature": "0x" + sign(word, DOMAIN, KEYS[node].secret).hex()}


def other_salt(signed: SignedOrder) -> Line:
    node = candidates(signed)[0]
    word = Served(signed.task_id, output_hash(Hash32(bytes(32)), TOKENS))
    return {"type": "served", "node": node, "signature": "0x" + sign(word, DOMAIN, KEYS[node].secret).hex()}


FALSE: dict[str, Callable[[SignedOrder], Line]] = {
    "forged by a stranger": lambda one: served_line(one, TOKENS, candidates(one)[0], by=STRANGER),
    "signed by the other candidate": lambda one: served_line(
        one, TOKENS, candidates(one)[0], by=KEYS[candidates(one)[1]]
    ),
    "a stranger's own": lambda one: served_line(one, TOKENS, STRANGER.address, by=STRANGER),
    "a verifier's own": lambda one: served_line(one, TOKENS, verifiers(one)[0]),
    "of a node that was not drawn": outsider,
    "of another answer": lambda one: served_line(one, TOKENS[:-1], candidates(one)[0]),
    "of another task": other_task,
    "under another salt": other_salt,
    "for another chain": foreign_domain,
    "no signature": lambda one: served_line(one, TOKENS, candidates(one)[0]) | {"signature": "0x" + "00" * 65},
}


@pytest.mark.parametrize("line", FALSE.values(), ids=FALSE)
async def test_a_false_word_ends_the_request(line: Callable[[SignedOrder], Line], tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda one: direct_lines(one, served=line(one)))
    with pytest.raises(ProofError):
        await stage.ask()
    assert not any(isinstance(update, Finished | Verdict) for update in stage.updates)
    (kept,) = stage.receipts.all()
    assert (kept.served_by, kept.served_signature) == (None, None)
    assert kept.failure is not None


@pytest.mark.parametrize(
    "fields",
    [{"node": 5}, {"node": "0x12"}, {"signature": None}, {"signature": "0x" + "00" * 64}, {"node": "0x" + "g" * 40}],
)
async def test_a_malformed_word_ends_the_request(fields: Line, tmp_path: Path) -> None:
    def lines(one: SignedOrder) -> list[Any]:
        return direct_lines(one, served=served_line(one, TOKENS, candidates(one)[0]) | fields)

    with pytest.raises(StreamError):
        await Stage(tmp_path, lines).ask()


def moved(signed: SignedOrder, place: int) -> list[Any]:
    """The word at another place: counted without it."""
    lines = direct_lines(signed)
    word = next(line for line in lines if line["type"] == "served")
    lines.remove(word)
    lines.insert(place, word)
    return lines


@pytest.mark.parametrize(
    ("place", "kind"),
    [(0, StreamError), (1, StreamError), (2, StreamError), (3, ProofError), (-3, StreamError)],
    ids=["before the draw", "before it is opened", "before the first token", "after one token", "after the end"],
)
async def test_a_word_at_the_wrong_place(place: int, kind: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(kind):
        await Stage(tmp_path, lambda one: moved(one, place)).ask()


async def test_two_words(tmp_path: Path) -> None:
    def lines(one: SignedOrder) -> list[Any]:
        found = direct_lines(one)
        place = next(number for number, line in enumerate(found) if line["type"] == "served")
        return [*found[:place], served_line(one, TOKENS, candidates(one)[1]), *found[place:]]

    with pytest.raises(StreamError, match="came twice"):
        await Stage(tmp_path, lines).ask()


async def test_tokens_after_the_word(tmp_path: Path) -> None:
    def lines(one: SignedOrder) -> list[Any]:
        found = direct_lines(one, served=None)
        place = next(number for number, line in enumerate(found) if line["type"] == "finished")
        early = served_line(one, TOKENS[:-1], candidates(one)[0])
        return [*found[: place - 1], early, *found[place - 1 :]]

    stage = Stage(tmp_path, lines)
    with pytest.raises(ProofError, match="goes on after"):
        await stage.ask()
    assert not any(isinstance(update, Text) and not update.text for update in stage.updates)


async def test_an_accomplice_s_signature_does_not_make_false_tokens_true(tmp_path: Path) -> None:
    """A drawn node signs what the entry made up: the chain has another answer, and the signature stays as evidence."""
    false = [*TOKENS[:-2], 1, TOKENS[-1]]
    stage = Stage(tmp_path, lambda one: direct_lines(one, false))
    with pytest.raises(ProofError, match="not the one that was sent"):
        await stage.ask()
    assert not any(isinstance(update, Verdict) for update in stage.updates)
    (kept,) = stage.receipts.all()
    word = Served(stage.signed.task_id, output_hash(stage.signed.salt, false))
    assert recover(word, DOMAIN, bytes.fromhex(str(kept.served_signature)[2:])) == kept.served_by
