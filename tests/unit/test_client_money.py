"""Amounts: exact in, exact out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troth.client.errors import AmountError
from troth.client.tabs.asset import LARGEST, Asset
from troth.client.terminal import format_amount
from troth.protocol.market.types import NO_ADDRESS

parse_amount = Asset(NO_ADDRESS).parse


@pytest.mark.parametrize(
    ("text", "wei"),
    [
        ("0.05", 5 * 10**16),
        ("0.05ether", 5 * 10**16),
        ("1 ETH", 10**18),
        ("20gwei", 20 * 10**9),
        ("0.000000001gwei", 1),
        ("1000wei", 1000),
        (" 1wei ", 1),
        (f"{LARGEST}wei", LARGEST),
        ("10000000000.000000000000000001", 10**28 + 1),
    ],
)
def test_amounts_are_read_exactly(text: str, wei: int) -> None:
    assert parse_amount(text) == wei


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "+1",
        "1e3",
        "1,5",
        "0",
        "0wei",
        "0.5wei",
        "0.0000000001gwei",
        "1 dollar",
        ".5",
        "1.",
        "nan",
        "inf",
        "١wei",
        "9" * 41,
        f"{LARGEST + 1}wei",
        "1_000wei",
        "0x10wei",
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(AmountError):
        parse_amount(text)


@given(st.integers(1, LARGEST))
def test_what_is_shown_reads_back_as_the_same_amount(wei: int) -> None:
    assert parse_amount(format_amount(wei)) == wei
