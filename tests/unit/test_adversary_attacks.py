"""No attack that the specification of the market names, and no fault of the plan, is left without a row or a test."""

from __future__ import annotations

import re

import pytest
from adversaries.attacks import ATTACKS, FOUND, NAMED, Attack
from adversaries.faults import FAULTS, WORDS
from adversaries.registry import PLAYED
from unit.test_adversary_registry import require_test

BETWEEN = re.compile(r"[\s,;.]*(or |and )?")
"""What may stand between two attacks in a list of them."""


def test_every_rule_that_did_not_hold_is_mapped() -> None:
    assert [one.words for one in ATTACKS[: len(FOUND)]] == list(FOUND)


@pytest.mark.parametrize(
    ("text", "mapped"), [(NAMED, ATTACKS[len(FOUND) :]), (WORDS, FAULTS)], ids=["attacks", "faults"]
)
def test_every_word_of_a_list_is_mapped(text: str, mapped: tuple[Attack, ...]) -> None:
    """Walked from its first word to its last: between two attacks there is nothing but what separates them."""
    place = 0
    for one in mapped:
        found = text.find(one.words, place)
        assert found >= 0, f"{one.words!r} is not in the list, or not in its order"
        assert BETWEEN.fullmatch(text[place:found]), f"nobody plays {text[place:found]!r}"
        place = found + len(one.words)
    assert text[place:] == "."


@pytest.mark.parametrize("attack", [*ATTACKS, *FAULTS], ids=lambda attack: attack.words[:60])
def test_the_rows_and_tests_that_are_named_exist(attack: Attack) -> None:
    assert attack.rows or (attack.tests and attack.reason), "neither played nor shown with a reason"
    assert set(attack.rows) - {one.name for one in PLAYED} == set()
    for test in attack.tests:
        require_test(test)
