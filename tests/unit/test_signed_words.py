"""What a node signed, or opened, about an order: once, and within its bounds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.order_network import build

from troth.node.earning.database import NodeDatabase
from troth.node.errors import AlreadySigned
from troth.node.orders.words import COMMITMENT, OPENINGS, SignedWords
from troth.protocol.market import canonical
from troth.protocol.market.papers import Commitments
from troth.protocol.market.signed import TraceCommitment
from troth.protocol.types import Hash32
from troth.protocol.wire_market import Unveil

ORDER, OTHER = Hash32(b"\1" * 32), Hash32(b"\2" * 32)


def message(commitment: Hash32) -> TraceCommitment:
    return TraceCommitment(ORDER, 0, OTHER, commitment)


@pytest.fixture
def words(tmp_path: Path) -> SignedWords:
    return SignedWords(NodeDatabase(tmp_path / "market.sqlite"))


def test_what_was_signed_is_given_again_and_nothing_else_is_signed(words: SignedWords) -> None:
    first = words.sign_once((ORDER, 0), COMMITMENT, message(ORDER), lambda: b"a" * 65)
    assert words.sign_once((ORDER, 0), COMMITMENT, message(ORDER), lambda: b"b" * 65) == first
    with pytest.raises(AlreadySigned, match="another commitment"):
        words.sign_once((ORDER, 0), COMMITMENT, message(OTHER), lambda: b"a" * 65)
    assert words.find(ORDER, 0, COMMITMENT) == first


def test_a_trace_is_opened_for_so_many_sets_of_commitments_and_each_keeps_its_bytes(words: SignedWords) -> None:
    subjects = [bytes([number]) * 32 for number in range(OPENINGS + 1)]
    for subject in subjects[:OPENINGS]:
        assert words.keep_opening((ORDER, 0), subject, b"sealed") == b"sealed"
        assert words.keep_opening((ORDER, 0), subject, b"sealed again") == b"sealed"
    with pytest.raises(AlreadySigned, match="opened for other commitments"):
        words.keep_opening((ORDER, 0), subjects[OPENINGS], b"sealed")
    assert words.opening(ORDER, 0, subjects[OPENINGS]) is None
    assert words.keep_opening((ORDER, 1), subjects[OPENINGS], b"sealed") == b"sealed"


async def test_questions_that_come_at_once_open_no_more_than_one_after_the_other(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.serve()
    verifiers = tuple(network.drawn(ordered)[0].seats)
    shown = tuple([(await network.verify(ordered, 0, verifier))[0] for verifier in verifiers])
    papers = [network.check_papers(ordered, 0, paid) for paid in (None, *verifiers)]
    payloads = [
        canonical.encode(Commitments(ordered.secrets.tiles, shown[skipped:], check))
        for check in papers
        for skipped in (0, 1)
    ]
    assert len(payloads) > OPENINGS
    node = network.nodes[ordered.nodes[0]]
    asked = (node.ask(Unveil(ordered.order_id, 0, "infer", len(payload)), payload) for payload in payloads)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    opened = [one for one in answers if not isinstance(one, BaseException)]
    assert len(opened) == OPENINGS
    assert all(isinstance(one, AlreadySigned) for one in answers if isinstance(one, BaseException)), answers
