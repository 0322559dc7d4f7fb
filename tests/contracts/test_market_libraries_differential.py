"""The market's Solidity libraries against the Python rules, on a real EVM."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from support.sound_classes import deters, rewards
from web3.exceptions import ContractLogicError

from troth.chain.headers import header_of
from troth.protocol import typed_data
from troth.protocol.bindings.structs import to_abi
from troth.protocol.errors import InvalidField
from troth.protocol.hashing import keccak256
from troth.protocol.market import claims, economy, lottery, messages, prices
from troth.protocol.market.errors import InvalidClaim
from troth.protocol.market.signed import (
    Admission,
    Draw,
    Inclusion,
    Order,
    Promise,
    Result,
    ReviewCommitment,
    Row,
    TraceCommitment,
    Verdict,
)
from troth.protocol.market.types import Claim, Rules, Tab, Voucher
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
    # Also of a node share beyond the whole.
    assert tuple(bound) == to_abi(prices.bound(order, width, rules.layers))


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_sum_trees_are_equal(market_harness: Any, seed: int) -> None:
    source = random.Random(seed)
    first = source.choice((1, source.randrange(1, 2**63)))
    last = first + source.choice((0, 1, source.randrange(300)))
    numbers = [first, last, *(number for number in range(first, last + 1) if source.random() < 0.7)]
    amounts = {number: source.choice((1, source.randrange(1, 2**80))) for number in numbers}
    tree, depth = claims.build(first, last, amounts), claims.depth_of(first, last)
    assert market_harness.functions.depthOf(first, last).call() == depth
    for number in {first, last, first + source.randrange(1 << depth)}:
        path, amount = tree.path(number), amounts.get(number, 0)
        asked = (first, last, number, amount, list(path.siblings), list(path.sums))
        assert market_harness.functions.climb(*asked).call() == [tree.root, tree.total]
        claim = Claim(first, last, 0, tree.total, tree.root)
        claims.verify_path(claim, number, amount, path)
        root, _ = market_harness.functions.climb(first, last, number, amount + 1, *asked[4:]).call()
        assert root != tree.root
        with pytest.raises(InvalidClaim):
            claims.verify_path(claim, number, amount + 1, path)


def test_sums_beyond_96_bits_and_other_depths_are_refused_by_both(market_harness: Any) -> None:
    path = claims.LeafPath((Hash32(b"\1" * 32),), (2**96 - 1,))
    for number, siblings, sums in ((2, path.siblings, path.sums), (2, (), ()), (2, path.siblings * 2, (1, 1))):
        with pytest.raises(ContractLogicError):
            market_harness.functions.climb(1, 2, number, 1, list(siblings), list(sums)).call()
        with pytest.raises(InvalidClaim):
            claims.verify_path(Claim(1, 2, 0, 1, Hash32(bytes(32))), number, 1, claims.LeafPath(siblings, sums))


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_the_economy_is_equal(market_harness: Any, seed: int) -> None:
    source = random.Random(seed)
    share, rate = source.choice((10_000, 5_001, source.randint(0, 10_000))), source.randint(0, 10**6)
    verifiers, reviewers = source.choice((1, 3, 5, 7)), source.choice((3, 5, 15, 31))
    least = source.randint(0, reviewers + 1)
    assert market_harness.functions.atLeast(reviewers, least, share).call() == economy.at_least(reviewers, least, share)
    chances = market_harness.functions.chances(rate, share, verifiers, reviewers).call()
    detection, conviction = economy.detection(rate, share, verifiers, reviewers), economy.conviction(share, reviewers)
    assert chances == [detection, conviction, economy.supermajority(reviewers)]
    gain, gas_price = source.randrange(1, 2**90), source.choice((0, 1, source.randrange(10**12)))
    tiles = source.choice((0, 1, 6))
    gas = economy.case_gas(reviewers, tiles)
    assert market_harness.functions.caseGas(reviewers, tiles).call() == gas
    limits = [source.randrange(1, 2**96)]
    if detection:
        limits.append(economy.least_penalty(gain, detection))
    if conviction:
        limits.append(economy.least_rewarding(conviction, gas, gas_price))
    for penalty in (limit + step for limit in limits for step in (-1, 0, 1) if limit + step >= 0):
        for chance in (detection, conviction):
            assert market_harness.functions.sound(penalty, gain, chance, gas, gas_price).call() == [
                deters(penalty, gain, chance),
                rewards(penalty, chance, gas, gas_price),
                economy.least_seat(penalty, gas, gas_price),
            ]


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_layer_splits_are_equal(market_harness: Any, seed: int) -> None:
    source = random.Random(seed)
    rising = bytes(sorted(source.sample(range(1, 256), source.choice((0, 1, 3, 32)))))
    for ends in (rising, source.randbytes(source.randint(0, 4)), rising[:2] + b"\0" + rising[2:31], rising[::-1]):
        padded = Hash32(ends[:32].ljust(32, b"\0"))
        asked = market_harness.functions.segmentCount(padded)
        count = _or_refused(lambda ends=padded: messages.segment_count(ends))
        assert _or_refused(asked.call) == count
        # Ends that do not rise are refused before, and name no group.
        for segment in (0, 1, 2, 31, 32) if count else ():
            span = _or_refused(lambda ends=padded, at=segment: tuple(to_abi(messages.layers_of(ends, at))))
            found = _or_refused(market_harness.functions.layersOf(padded, segment).call)
            assert (found if found is None else tuple(found)) == span


def _or_refused(call: Callable[[], Any]) -> Any:
    """What a call answers; None where it is refused."""
    try:
        return call()
    except (ContractLogicError, InvalidField):
        return None


def test_headers_of_real_blocks_are_read_as_they_are(market_harness: Any) -> None:
    provider = market_harness.w3.provider
    provider.make_request("anvil_mine", [hex(300)])
    for number in (1, 255, 256, 300):
        block = provider.make_request("eth_getBlockByNumber", [hex(number), False])["result"]
        raw = header_of(block)
        found, randao, block_hash = market_harness.functions.parse(raw.raw).call()
        assert (found, Hash32(randao), Hash32(block_hash)) == (raw.number, raw.randao, raw.hash)
        assert raw.number == number
        for broken in (raw.raw[:-1], raw.raw + b"\0", b"\xf8" + raw.raw[1:]):
            with pytest.raises(ContractLogicError):
                market_harness.functions.parse(broken).call()
