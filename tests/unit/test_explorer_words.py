"""How pages write money and strangers' words."""

from __future__ import annotations

import pytest
from support.market_scene import TAB

from troth.explorer import rows, words


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (0, "0 ether"),
        (130, "130 wei"),
        (99_999, "99,999 wei"),
        (126_160_044_643, "126.16 gwei"),
        (579_949_768_407_725_344, "0.57995 ether"),
        (12 * 10**18, "12 ether"),
        (4_000_000, "0.004 gwei"),
    ],
)
def test_money_is_written_in_the_unit_that_fits(amount: int, shown: str) -> None:
    assert words.Money("")(f"{amount:030d}") == shown


def test_money_of_a_token_keeps_its_unit() -> None:
    assert words.Money(TAB.payee)(1_234) == "1,234 units"
    assert words.Money("").price(300_000_000) == "0.0003 gwei"
    assert words.Money("").price(500) == "0.5 wei"


def test_signs_that_deceive_the_eye_are_left_out() -> None:
    assert rows.plain("https://a\u202eexample\u200b\x00.org" + "x" * 200, 30) == "https://aexample.orgxxxxxxx"
