"""Weights, networks, regions: what an attacker who writes its own directory entry gains."""

from __future__ import annotations

import time
from collections import Counter
from random import Random

import pytest
from support.listings import DAY, NOW, listed, listing, shares_nothing

from troth.overlay.paths.choice import YOUNGEST, Crowd, RelaysInUse, choose, network_of, weights
from troth.overlay.paths.errors import NoDisjointPaths


def drawn_share(relays, wanted, draws: int = 20_000) -> float:
    """How often one of the names `wanted` is drawn."""
    crowd, random, nothing = Crowd(relays, NOW), Random(11), RelaysInUse()
    counts = Counter(crowd.draw(nothing, frozenset(), random).name in wanted for _ in range(draws))
    return counts[True] / draws


def test_a_boast_counts_as_four_medians() -> None:
    relays = [listed(number) for number in range(99)] + [listed(99, bandwidth=10**12)]
    assert weights(relays, NOW)[-1] == 4 * 1_000
    assert drawn_share(relays, {relays[-1].relay.name}) == pytest.approx(4 / 103, abs=0.005)


def test_a_fresh_crowd_takes_little_and_does_not_move_the_cap() -> None:
    honest = [listed(number, bandwidth=1_000) for number in range(100)]
    crowd = [listed(1_000 + number, bandwidth=10**9, age=0) for number in range(100)]
    share = drawn_share(honest + crowd, {one.relay.name for one in crowd})
    # 100 at the floor with four medians each, beside 100 that count fully.
    assert share == pytest.approx(4 * YOUNGEST / (1 + 4 * YOUNGEST), abs=0.01)


def test_a_crowd_of_slow_relays_does_not_flatten_the_fast_ones() -> None:
    honest = [listed(0, bandwidth=4_000), *(listed(number, bandwidth=1_000) for number in range(1, 50))]
    crowd = [listed(1_000 + number, bandwidth=1, age=0) for number in range(200)]
    assert weights(honest + crowd, NOW)[0] == 4_000


@pytest.mark.parametrize(
    ("age", "share"), [(-5 * DAY, YOUNGEST), (0, YOUNGEST), (3.5 * DAY, 0.5), (7 * DAY, 1), (70 * DAY, 1)]
)
def test_age_counts_up_to_a_week(age: float, share: float) -> None:
    assert weights([listed(1, age=int(age))], NOW) == [1_000 * share]


@pytest.mark.parametrize("bandwidth", [0, -5])
def test_a_relay_that_offers_nothing_does_not_break_the_draw(bandwidth: int) -> None:
    assert weights([listed(1, bandwidth=bandwidth)], NOW) == [1]


@pytest.mark.parametrize(
    "host",
    [
        "10.1.2.3",
        "10.1.255.9",
        "10.66051",
        "0x0a010203",
        "167838211",
        "012.1.2.3",
        "::ffff:10.1.2.3",
        "2002:0a01:0203::1",
        "10.1.2.3.",
    ],
)
def test_no_spelling_of_an_address_is_another_network(host: str) -> None:
    assert network_of(host) == "10.1.0.0/16"


def test_networks_of_other_kinds() -> None:
    assert network_of("2001:db8:1::1") == network_of("2001:db8:2::9%eth0") == "2001:db8::/32"
    assert network_of("::1") == "::/32"
    assert network_of("a.Relays.example.") == network_of("b.relays.EXAMPLE") == "relays.example"
    assert network_of("relay1") != network_of("relay2")


def test_one_operator_in_two_spellings_is_one() -> None:
    relays = [listed(1, operator="0xABCD"), listed(2, operator="0xabcd"), listed(3)]
    with pytest.raises(NoDisjointPaths, match="2 operators"):
        choose(Crowd(relays, NOW), [relays[0].relay], 1)


def test_operators_that_say_nothing_are_one() -> None:
    relays = [listed(1, operator=""), listed(2, operator=""), listed(3)]
    with pytest.raises(NoDisjointPaths):
        choose(Crowd(relays, NOW), [relays[2].relay], 1)


def test_a_region_is_used_only_when_it_is_a_crowd() -> None:
    relays = [listed(number, region="eu" if number % 2 else "us") for number in range(40)]
    guards = [relays[1].relay]
    large = Crowd(relays, NOW, region="eu", minimum=20)
    small = Crowd(relays, NOW, region="eu", minimum=21)
    assert large.regional
    assert not small.regional
    paths = choose(large, guards, 1, random=Random(3))
    assert all(relay.name[-1] % 2 for relay in paths[0])
    assert len(small.relays) == 40
    assert not Crowd(relays, NOW, region="eu").regional


def test_the_same_seed_gives_the_same_paths() -> None:
    relays = [listed(number) for number in range(60)]
    guards = [one.relay for one in relays[:8]]
    first, second = (choose(Crowd(relays, NOW), guards, 4, random=Random(5)) for _ in range(2))
    assert first == second != choose(Crowd(relays, NOW), guards, 4, random=Random(6))
    assert [path[0] for path in first] == guards[:4]


def test_other_guards_are_left_to_be_guards() -> None:
    relays = [listed(number) for number in range(60)]
    guards = [one.relay for one in relays[:8]]
    paths = choose(Crowd(relays, NOW), guards, 4, random=Random(5))
    assert not {relay.name for path in paths for relay in path[1:]} & {guard.name for guard in guards}


def test_a_guard_that_fits_is_found_behind_those_that_do_not() -> None:
    used = [(listed(1).relay, listed(2).relay, listed(3).relay)]
    relays = [listed(number) for number in range(1, 10)]
    paths = choose(Crowd(relays, NOW), [relays[0].relay, relays[4].relay], 1, used=used, random=Random(1))
    assert paths[0][0] == relays[4].relay
    assert shares_nothing([*paths, *used])


def test_the_error_counts_what_there_is() -> None:
    relays = [listed(number, operator=f"0x{number % 5}") for number in range(30)]
    with pytest.raises(NoDisjointPaths, match=r"30 relays of 5 operators in 30 networks .* 12 relays of as many"):
        choose(Crowd(relays, NOW), [one.relay for one in relays[:4]], 4)


def test_an_empty_list_is_an_error() -> None:
    with pytest.raises(NoDisjointPaths, match="0 relays"):
        choose(Crowd((), NOW), [], 1)


@pytest.mark.slow
def test_ten_thousand_relays_are_quick() -> None:
    relays = listing([listed(number) for number in range(10_000)]).relays
    crowd, guards = Crowd(relays, NOW), [one.relay for one in relays[:8]]
    began = time.perf_counter()
    for _ in range(20):
        choose(crowd, guards, 4)
    assert (time.perf_counter() - began) / 20 < 0.05


@pytest.mark.slow
def test_an_impossible_list_of_ten_thousand_does_not_stop_the_client() -> None:
    relays = [listed(number, operator=f"0x{number % 11}") for number in range(10_000)]
    began = time.perf_counter()
    with pytest.raises(NoDisjointPaths):
        choose(Crowd(relays, NOW), [one.relay for one in relays[:8]], 4)
    assert time.perf_counter() - began < 5
