"""The market's Solidity libraries against the Python rules, on a real EVM."""

from __future__ import annotations

import random
from dataclasses import fields
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from troth.protocol import typed_data
from troth.protocol.bindings.structs import to_abi
from troth.protocol.hashing import keccak256
from troth.protocol.market import lottery, messages, prices
from troth.protocol.market.types import (
    Admission,
    Draw,
    Inclusion,
    Order,
    Promise,
    Result,
    ReviewCommitment,
    Row,
    Rules,
    Tab,
    TraceCommitment,
    Verdict,
    Voucher,
)
from troth.protocol.types import Address, Hash32, address_from_bytes

pytestmark = [pytest.mark.chain, pytest.mark.slow]

ROUNDS = 25


def filled(kind: Any, source: random.Random) -> Any:
    """A struct of random values, now and then the largest of their types or zero."""
    hints = get_type_hints(kind, include_extras=True)
    return kind(*(_value(hints[field.name], source) for field in fields(kind)))


def _value(hint: Any, source: random.Random) -> Any:
    if hint is Hash32:
        return Hash32(source.randbytes(32))
    if hint is Address:
        return address_from_bytes(source.randbytes(20))
    if hint is bool:
        return source.random() < 0.5
    assert get_origin(hint) is not None, hint
    bits = int(get_args(hint)[1].name.removeprefix("uint"))
    return source.choice((0, 2**bits - 1, source.randrange(2**bits), source.randrange(2**bits)))


def priced(source: random.Random) -> tuple[Order, Rules, Promise, Result, int]:
    """An order with what it is priced by; segments of a model with at least as many layers."""
    rules = filled(Rules, source)
    return filled(Order, source), rules, filled(Promise, source), filled(Result, source), source.randint(1, 32)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_digests_are_equal(market_harness: Any, seed: int) -> None:
    source = random.Random(seed)
    domain = typed_data.Domain(source.randrange(2**32), address_from_bytes(source.randbytes(20)), messages.VERSION)
    separator = typed_data.domain_separator(domain)
    for call, kinds in (
        (market_harness.functions.digests, (Order, Voucher, Promise, Result, Verdict)),
        (
            market_harness.functions.smallDigests,
            (Admission, Row, Draw, TraceCommitment, Inclusion, ReviewCommitment),
        ),
    ):
        made = [filled(kind, source) for kind in kinds]
        found = call(separator, *(to_abi(message) for message in made)).call()
        assert [Hash32(one) for one in found] == [typed_data.digest(message, domain) for message in made]


def test_the_domain_is_the_bank(market_harness: Any) -> None:
    bank = address_from_bytes(b"\x0b" * 20)
    chain_id = market_harness.w3.eth.chain_id
    expected = typed_data.domain_separator(messages.market_domain(chain_id, bank))
    assert market_harness.functions.separator(bank).call() == expected


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_ids_and_seeds_are_equal(market_harness: Any, seed: int) -> None:
    source = random.Random(seed)
    order, secret, results = (Hash32(source.randbytes(32)) for _ in range(3))
    commitments = [Hash32(source.randbytes(32)) for _ in range(source.randint(0, 15))]
    nodes = [address_from_bytes(source.randbytes(20)) for _ in range(source.randint(0, 5))]
    made = [filled(Result, source) for _ in range(source.randint(0, 4))]
    tab = filled(Tab, source)
    assert market_harness.functions.tabId(to_abi(tab)).call() == messages.tab_id(tab)
    assert market_harness.functions.seeds(order, secret, results, commitments).call() == [
        messages.infer_alpha(order),
        messages.draw_alpha(order),
        messages.check_seed(order, secret, commitments[0] if commitments else secret, results),
        messages.segment_seed(secret, 3),
        messages.court_seed(order, 1, secret),
        messages.tiles_seed(order, commitments, secret),
    ]
    hashes = [typed_data.struct_hash(result) for result in made]
    assert market_harness.functions.sets(hashes, nodes).call() == [
        messages.results_hash(made),
        messages.nodes_hash(nodes),
    ]


@pytest.mark.parametrize("rate", [0, 1, 50_000, 500_000, 999_999, 1_000_000, 2**32 - 1])
def test_lotteries_are_equal(market_harness: Any, rate: int) -> None:
    for seed in range(ROUNDS):
        secret, beta = Hash32(keccak256(seed.to_bytes(32))), Hash32(keccak256(rate.to_bytes(32)))
        assert market_harness.functions.hits(secret, beta, rate).call() == lottery.hits(secret, beta, rate)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_prices_are_equal(market_harness: Any, seed: int) -> None:
    source = random.Random(seed)
    order, rules, promise, result, segments = priced(source)
    found = market_harness.functions.fee(to_abi(order), to_abi(rules), segments, to_abi(result)).call()
    assert found == prices.fee(order, rules, segments, result)
    if rules.layers == 0:
        return
    width = source.randint(1, rules.layers)
    unit, reward, worth, bound = market_harness.functions.pay(
        to_abi(order), to_abi(rules), to_abi(promise), to_abi(result), width
    ).call()
    count = prices.positions(result)
    assert unit == prices.unit(rules, count)
    assert reward == prices.check_reward(rules, count)
    assert worth == prices.promise_worth(promise, result)
    if order.node_share <= 10_000:
        assert tuple(bound) == tuple(to_abi(prices.bound(order, width, rules.layers)))
