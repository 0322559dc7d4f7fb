"""Amounts: exact in, exact out; shown with units, and in a currency where a price is given."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from troth.node.models.execution_class import rough_class, shown
from troth.protocol.amounts import COIN, LARGEST, AmountError, Asset, AssetPrice, lines, price_text, readable
from troth.protocol.tensors import Dtype
from troth.protocol.types import ZERO_HASH, Address
from troth.transport import command_options

parse_amount = COIN.parse


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


@pytest.mark.slow
@given(st.integers(1, LARGEST))
def test_what_is_shown_reads_back_as_the_same_amount(wei: int) -> None:
    assert parse_amount(COIN.show(wei)) == wei


TOKEN = Asset(Address("0x" + "11" * 20), "usdc", 6)


@given(st.integers(1, LARGEST), st.integers(0, 24), st.sampled_from(["usdc", "Dai", "x"]))
def test_what_is_shown_of_a_token_reads_back(amount: int, decimals: int, symbol: str) -> None:
    asset = Asset(TOKEN.token, symbol, decimals)
    if decimals <= 18:
        assert asset.parse(asset.show(amount)) == amount
    assert asset.parse(f"{amount}units") == amount


@given(st.text(max_size=60))
def test_any_text_is_an_amount_or_an_error(text: str) -> None:
    for read in (COIN.parse, COIN.one_price, COIN.prices, TOKEN.parse, AssetPrice.parse):
        try:
            read(text)
        except AmountError:
            continue


@given(st.tuples(*[st.integers(0, 2**64 - 1)] * 3))
def test_plain_prices_are_what_is_signed(prices: tuple[int, int, int]) -> None:
    assert COIN.prices(",".join(map(str, prices))) == prices


def test_prices_with_a_unit_are_for_a_million() -> None:
    assert COIN.prices("0.3gwei, 300 ,0.6gwei") == (300_000_000_000, 300, 600_000_000_000)
    assert COIN.show_price(300_000_000_000) == "0.3 gwei a million".replace("0.3 gwei", COIN.show(300_000_000))
    assert TOKEN.prices("0.2usdc,0,2usdc") == (200_000_000, 0, 2_000_000_000)
    for wrong in ("1,2", "1,2,3,4", "1,2,-3", "1,2,x", f"1,2,{2**64}", "1,2," + "9" * 4400, "0.3dai,1,1"):
        with pytest.raises(AmountError):
            TOKEN.prices(wrong)


def test_no_token_is_paid_in_coins() -> None:
    for text in ("1ether", "1gwei", "1wei", "1eth"):
        with pytest.raises(AmountError):
            TOKEN.parse(text)


def test_a_price_is_exact_text_for_one_position() -> None:
    assert [price_text(price, 18) for price in (0, 640_000_000_000_000_000, 10**27, 1)] == [
        *("0", "0.00000000064", "1"),
        "0.000000000000000000000000001",
    ]
    assert (price_text(25 * 10**14, 6), price_text(7, 0)) == ("2.5", "0.000000007")


def test_a_price_is_shown_and_never_counted_with() -> None:
    price = AssetPrice.parse("3150.20eur")
    asset = Asset(COIN.token, price=price)
    assert asset.show(10**17) == "0.1 ether (315.02 EUR)"
    assert asset.show(14_648_437_500) == "14.6484375 gwei (0.000046 EUR)"
    assert asset.parse("0.1") == 10**17
    for wrong in ("", "eur", "3e5eur", "-1eur", "0eur", "1", "12345678901234eur", "١eur"):
        with pytest.raises(AmountError):
            AssetPrice.parse(wrong)


def test_names_carry_units_in_json_and_values_for_people() -> None:
    told = {
        "stake_units": "152605399176955076",
        "gas_money_wei": "5000000",
        "asks": {"0:2": {"written_units_per_billion": "600000000"}},
        "groups": [{"seats": 2, "since_block": 7}],
        "gas": 21000,
        "exit_block": None,
        "sent": False,
    }
    shown = readable(told)
    assert shown["stake"] == "0.152605399176955076 ether"
    assert shown["gas_money"] == "0.005 gwei"
    assert shown["asks"]["0:2"]["written"] == "600000 wei a million"
    text = "\n".join(lines(shown))
    assert "sent        no" in text
    assert "groups 1\n  seats" in text
    in_token = readable({**told, "asset": "usdc", "asset_decimals": 6}, AssetPrice.parse("0.9eur"))
    assert in_token["stake"] == "152605399176.955076 usdc (137344859259.26 EUR)"
    assert in_token["gas_money"] == "0.005 gwei", "what a token costs says nothing of the coin"


def test_the_price_comes_from_the_command_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from troth.command.root import app

    monkeypatch.setenv(command_options.PRICE_VARIABLE, "")
    assert command_options.asset_price() is None
    assert CliRunner().invoke(app, ["--price", "3000eur", "demo", "--help"]).exit_code == 0
    assert command_options.priced(COIN).show(10**18) == "1 ether (3000.00 EUR)"
    monkeypatch.setenv(command_options.PRICE_VARIABLE, "much")
    with pytest.raises(AmountError):
        command_options.asset_price()


def test_an_amount_that_is_not_known_loses_its_unit_too() -> None:
    assert readable({"per_1000_units": None, "gas_wei": None, "why": None}) == {
        "per_1000": None,
        "gas": None,
        "why": None,
    }


def test_a_class_is_shown_in_words_and_units() -> None:
    definition = rough_class(ZERO_HASH, Dtype.BFLOAT16, "a class", candidates=2)
    definition = replace(definition, least_check_rate=250_000, honest_share=6_050, second_cut=2_000_000, fee_cap=10**18)
    told = shown(definition)
    assert told["class"]["honest_share_per_ten_thousand"] == 6_050
    people = readable(told)["class"]
    wanted = {"dtype": "bfloat16", "least_check_rate": "25 %", "honest_share": "60.5 %", "second_cut": "2"}
    assert {name: people[name] for name in wanted} == wanted
    assert people["fee_cap"] == "1 ether"
    assert people["state_cut"] == f"{definition.state_cut / 1_000_000:g}"
    assert readable({"rate_per_million": 1})["rate"] == "0.0001 %"
