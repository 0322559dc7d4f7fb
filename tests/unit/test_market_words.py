"""What a summons' answer shows of a verdict, how old an answer may be, and what a case permits to keep back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.market_scene import DOMAIN, Scene, hash_of, key_of, owner_of

from troth.protocol.errors import InvalidField
from troth.protocol.market import court, messages
from troth.protocol.market.life import may_withhold
from troth.protocol.market.messages import Signed, sign
from troth.protocol.market.proceedings import CaseState
from troth.protocol.market.shipped import DEMO, MAIN
from troth.protocol.market.signed import Opinion
from troth.protocol.typed_data import recover

SCENE = Scene()
JOURNEY = SCENE.checked()


def test_a_word_holds_what_a_verdict_says_beyond_its_place() -> None:
    assert JOURNEY.checks
    verifier, said = next(iter(JOURNEY.checks[0].verdicts.items()))
    word = messages.word_of(said)
    assert (word.commitment, word.opinion, word.locks) == (said.message.commitment, Opinion.ACCEPT, False)
    vs = int.from_bytes(word.signature.vs)
    s, parity = vs & (1 << 255) - 1, vs >> 255
    signature = word.signature.r + s.to_bytes(32) + bytes([27 + parity])
    assert signature == said.signature
    assert recover(said.message, DOMAIN, signature) == verifier


def test_both_parities_are_compact() -> None:
    assert JOURNEY.checks
    verifier, said = next(iter(JOURNEY.checks[0].verdicts.items()))
    tops = set()
    for number in range(16):
        other = sign(replace(said.message, commitment=hash_of(str(number))), DOMAIN, key_of(verifier))
        tops.add(messages.word_of(other).signature.vs[0] >> 7)
    assert tops == {0, 1}
    for signature in (b"", said.signature[:64], said.signature[:64] + b"\0"):
        with pytest.raises(InvalidField):
            messages.word_of(Signed(said.message, signature))


def test_the_court_hears_draws_as_long_as_the_last_answer_of_a_claim_that_waited_for_another() -> None:
    chosen = MAIN
    opening = chosen.lag + 15 * chosen.summons_window
    assert court.answer_age(chosen) == chosen.reference_age + opening + 2 * chosen.claim_delay + chosen.answer_window


def test_the_court_hears_no_draw_of_a_block_in_which_stake_may_have_left() -> None:
    assert court.answer_age(DEMO) == DEMO.unbonding - 4 - 1
    longer = replace(DEMO, unbonding=10 * DEMO.unbonding)
    assert court.answer_age(longer) > DEMO.unbonding


def test_only_a_case_that_suspends_permits_to_withhold_and_only_its_nodes_leaves() -> None:
    node, other = owner_of(1), owner_of(2)
    order, another = hash_of("order"), hash_of("another")
    plain = CaseState(segment=1, order=order, node=node)
    suspending = replace(plain, suspends=True)
    for case in (plain, suspending):
        assert may_withhold(case, order, node, 1)
        assert not may_withhold(case, order, other, 0)
        assert not may_withhold(case, another, other, 1)
    assert may_withhold(suspending, another, node, 0)
    assert not may_withhold(plain, another, node, 0)
