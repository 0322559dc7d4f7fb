"""Terms, policy, wishes, amounts, configuration: what is refused before anything is ordered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs
from support.toy_market import ASK, CLASS, CLASS_ID, FACTORY, TABLE, World
from support.toy_tab_scheduler import ToyScheduler
from support.toy_tab_stage import toy_stage
from unit.test_tabs_asking import ALWAYS, asked

from troth.client.choices import SamplingChoices
from troth.client.configuration import ClientConfiguration, load, save
from troth.client.errors import ConfigurationError, FeeTooHigh, ModelUnavailable, StreamError
from troth.client.home import Home
from troth.client.market_table import MarketTable
from troth.client.options import read_configuration
from troth.client.orders.building import request_of
from troth.client.orders.policy import require_worth
from troth.client.orders.terminal import price_limit, wish_of
from troth.client.orders.terms import CheckedOffer, offer_of, read_quotes, require_served, require_within
from troth.client.orders.wishes import CheckWish, PriceLimit
from troth.client.tabs import opening
from troth.protocol.amounts import COIN, AmountError, Asset
from troth.protocol.identifiers import group_id
from troth.protocol.market.types import NO_ADDRESS, Ask
from troth.protocol.request import Request
from troth.protocol.transforms import Transforms
from troth.protocol.types import ZERO_HASH, Segment

BLOCK = 999


def offer(world: World, **changes: Any) -> CheckedOffer:
    toy = ToyScheduler(world)
    toy.prices = changes
    (quote,) = read_quotes(toy.quotes())
    return offer_of(world.state, quote)


def with_asks(world: World, dear: int, ask: Ask) -> None:
    group = group_id(CLASS_ID, Segment(0, 2))
    asks = world.state.asks
    for entry in world.state.members_at(group, BLOCK)[:dear]:
        asks = asks.set((group, entry.operator), ((1, ask),))
    world.state = replace(world.state, asks=asks)


def test_prices_at_which_most_of_a_group_serves_are_taken() -> None:
    world = World()
    require_served(offer(world), world.state, BLOCK)
    with_asks(world, 11, Ask(2 * 10**9, 0, 0))
    require_served(offer(world), world.state, BLOCK)


def test_prices_at_which_only_friends_serve_are_refused() -> None:
    world = World()
    with_asks(world, 20, Ask(2 * 10**9, 0, 0))
    with pytest.raises(ModelUnavailable, match="Most stake"):
        require_served(offer(world), world.state, BLOCK)
    with_asks(world, 23, Ask(2 * 10**9, 0, 0))
    with pytest.raises(ModelUnavailable, match="Only 1 of 24"):
        require_served(offer(world), world.state, BLOCK)
    assert ASK.prompt < 10**9


@pytest.mark.parametrize(
    "changes", [{"check_price": "1"}, {"fee_cap": "9"}, {"ends": [1]}, {"class": "0x" + "77" * 32}]
)
def test_a_price_list_that_the_chain_does_not_bear_out_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ModelUnavailable):
        offer(World(), **changes)


@pytest.mark.parametrize(
    "changes", [{"prompt_price": "-1"}, {"prompt_price": 1.5}, {"ends": "2"}, {"node_share": 20_000},
     {"reputation": {"nodes": 3, "trusted": 4, "mean_thousandths": 900}}, {"reputation": {"nodes": 3}},
     {"deployed_by": "0x12"}, {"deployed_by": [{"owner": "0x12"}]}, {"deployed_by": ["0x" + "12" * 20]},
     {"deployed_by": [{"owner": "0x" + "12" * 20}] * 17}],
)  # fmt: skip
def test_a_malformed_price_list_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(StreamError):
        offer(World(), **changes)


def test_an_offer_tells_what_the_committee_says_of_its_nodes() -> None:
    world = World()
    assert offer(world).quote.reputation is None
    said = offer(world, reputation={"nodes": 9, "trusted": 8, "mean_thousandths": 943}).quote.reputation
    assert said is not None
    assert said.words == "8 of 9 nodes above the committee's bar, 0.94 on average"


def test_an_offer_tells_which_organisation_brought_it() -> None:
    world = World()
    assert offer(world).quote.deployed_by == ()
    owner = "0x" + "12" * 20
    assert offer(world, deployed_by=[{"owner": owner, "deployment": 1}]).quote.deployed_by == (owner,)


def test_a_class_below_the_policy_must_be_named_by_its_user() -> None:
    world = World()
    poor = structs.replace(TABLE, verifiers=4)
    with pytest.raises(ModelUnavailable, match="3 verifiers"):
        require_worth(offer(world), world.state, BLOCK, 100, poor, named=False)
    require_worth(offer(world), world.state, BLOCK, 100, poor, named=True)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"seats": 241}, "240 seasoned seats"),
        ({"outside": 8_000}, "largest owners hold 50 of 240"),
    ],
)
def test_a_group_below_the_policy_is_refused_even_if_its_class_was_named(table: dict[str, int], says: str) -> None:
    world = World()
    with pytest.raises(ModelUnavailable, match=says):
        require_worth(offer(world), world.state, BLOCK, 100, structs.replace(TABLE, **table), named=True)


def test_unseasoned_stake_counts_for_nothing() -> None:
    world = World()
    with pytest.raises(ModelUnavailable, match="0 seasoned seats"):
        require_worth(offer(world), world.state, BLOCK, 10_000, TABLE, named=True)


def test_the_shipped_policy_wants_what_the_market_says() -> None:
    shipped = MarketTable(FACTORY)
    assert (shipped.verifiers, shipped.reviewers, shipped.outside) == (3, 15, 8_000)


def test_prices_above_the_users_limit_are_refused() -> None:
    given = offer(World())
    require_within(given, PriceLimit(10**9, 2 * 10**9), COIN)
    for limit in (PriceLimit(10**9 - 1), PriceLimit(None, 2 * 10**9 - 1)):
        with pytest.raises(FeeTooHigh, match=r"cost [12] units per 10\^9|wei a million"):
            require_within(given, limit, COIN)


@pytest.mark.parametrize(
    ("text", "mode", "rate"),
    [
        ("5%", "lot", 50_000),
        ("0.5%", "lot", 5_000),
        ("always", "lot", 10**6),
        ("self", "self", 0),
        ("court", "court", 0),
    ],
)
def test_checks_are_read_as_they_are_written(text: str, mode: str, rate: int) -> None:
    assert CheckWish.read(text) == CheckWish(mode, rate)


@pytest.mark.parametrize("text", ["sometimes", "0%", "101%", "5", "-5%", "5 percent"])
def test_other_checks_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        CheckWish.read(text)


async def test_a_rate_below_the_class_is_raised_to_it(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await asked(stage, replace(ALWAYS, check=CheckWish.read("0.0001%")))
        submission = stage.session.journal.all()[0].submission
        assert submission is not None
        assert submission.order.message.check_rate == CLASS.least_check_rate == 2


USDC = Asset(NO_ADDRESS.replace("0x0", "0x1", 1), "usdc", 6)


@pytest.mark.parametrize(("text", "units"), [("1", 10**6), ("0.5usdc", 500_000), ("12units", 12), ("0.000001", 1)])
def test_amounts_of_an_asset_are_read_exactly(text: str, units: int) -> None:
    assert USDC.parse(text) == units


@pytest.mark.parametrize("text", ["", "0", "1ether", "0.0000001", "-1", "1e3", "9" * 30])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(AmountError):
        USDC.parse(text)


def test_limits_of_price_are_per_million_tokens() -> None:
    assert price_limit("0.5/2", USDC) == PriceLimit(500_000_000, 2_000_000_000)
    assert price_limit("1", USDC) == PriceLimit(10**9, 10**9)
    assert wish_of(SamplingChoices(), "always", ("0.1", ""), USDC).choices.max_cost == 100_000


def test_every_choice_of_a_command_reaches_the_order() -> None:
    choices = SamplingChoices(9, 700_000, 900_000, transforms=Transforms(presence=1), top_k=40, min_p_millionths=50_000)
    wish = wish_of(choices, "always", ("", ""), USDC)
    assert wish.choices == choices
    offer: Any = SimpleNamespace(class_id=ZERO_HASH)
    wanted = Request(
        ZERO_HASH, (5, 6), 9, 700_000, 900_000, (1, 2), Transforms(presence=1), 40, 50_000, may_end_early=True
    )
    assert request_of(offer, (5, 6), (2, 1, 2), wish) == wanted


def test_the_market_table_reads_back_and_names_what_is_wrong(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    whole = ClientConfiguration(MarketTable(FACTORY, FACTORY, 7, summons="0.01ether", stall=9))
    save(home.configuration, whole)
    assert load(home.configuration) == whole
    assert read_configuration(home, factory="0x" + "ab" * 20).market == structs.replace(
        whole.market, factory="0x" + "ab" * 20, bank=""
    )
    for text, says in (
        ('[market]\nfactory = "0x12"', "'factory'"),
        (f'[market]\nfactory = "{FACTORY}"\nkey = 1', "key"),
        (f'[market]\nfactory = "{FACTORY}"\nstall = 0', "stall"),
        (f'[market]\nfactory = "{FACTORY}"\nsummons = "much"', "'summons'"),
        ("market = 5", "market"),
    ):
        home.configuration.write_text(f"version = 1\n{text}\n")
        with pytest.raises(ConfigurationError, match=says):
            load(home.configuration)


@pytest.mark.parametrize(
    ("wei", "shown"), [(10**16, "value 0.01 ether (10000000000000000 wei)"), (0, "value 0 ether"), (7, "(7 wei)")]
)
def test_what_a_call_sends_is_shown_with_its_unit(wei: int, shown: str) -> None:
    call = {"function": "openTab", "to": "0xb", "value": str(wei), "data": "0x"}
    done = {"calls": [call], "transactions": [], "from": "0xa", "gas": 1}
    assert shown in opening.describe(done)


def test_an_order_names_a_block_as_old_as_its_scheduler_asks_for() -> None:
    world = World()
    assert offer(world).reference_block(100) == 99
    assert offer(world, settled_blocks=4).reference_block(100) == 95
    assert offer(world, settled_blocks=4).reference_block(3) == 0
    with pytest.raises(StreamError, match="from 0 to 32"):
        offer(world, settled_blocks=33)
