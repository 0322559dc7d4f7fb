"""Draws equal a model that searches everything, are proportional to seats, and their hints answer every look-up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.market_scene import Scene, group_of, hash_of, owner_of

from troth.protocol.hashing import abi_keccak
from troth.protocol.market import draws, prices
from troth.protocol.market.draws import GroupHistory
from troth.protocol.market.errors import InvalidDrawRequest
from troth.protocol.market.types import Ask, DrawRequest, GroupEntry
from troth.protocol.types import Address, address_from_bytes

CAP, SEASONING = 10, 100
NAMES = [address_from_bytes(bytes([0xA0, number] * 10)) for number in range(12)]
REQUEST = DrawRequest(hash_of("class"), 0, 12, 500, hash_of("seed"), 3, False, False, (), Ask())

entries = st.builds(
    GroupEntry,
    operator=st.sampled_from(NAMES),
    from_block=st.integers(1, 900),
    since=st.integers(1, 500),
    seats=st.integers(0, CAP),
    settled=st.integers(0, CAP),
)
histories = st.lists(entries, min_size=1, max_size=4, unique_by=lambda entry: entry.from_block)


@st.composite
def groups(draw: st.DrawFn) -> GroupHistory:
    places = draw(st.lists(histories, min_size=1, max_size=8))
    first = {"from_block": 1, "seats": CAP, "settled": CAP}
    ordered = tuple(
        (GroupEntry(NAMES[index], since=1, **first), *sorted(place, key=lambda one: one.from_block))
        for index, place in enumerate(places)
    )
    blocks = sorted(draw(st.sets(st.integers(1, 900), max_size=9)) | {1})
    sizes = tuple((block, draw(st.integers(1, len(places)))) for block in blocks)
    asks = {
        name: ((1, Ask(*[draw(st.integers(1, 5))] * 3)), (draw(st.integers(2, 900)), Ask(9, 9, 9))) for name in NAMES
    }
    owners = {name: NAMES[index // 2] for index, name in enumerate(NAMES)}
    return GroupHistory(sizes, ordered, owners, asks, {NAMES[0]: draw(st.integers(0, 12_000))})


def _naive(request: DrawRequest, group: GroupHistory) -> Iterator[Address]:
    """The rule of DrawRequest, word by word, over the state at its block."""
    block = request.block_number
    size = [size for start, size in group.sizes if start <= block][-1]
    taken: list[Address] = []
    for number in range(256 + 128 * request.count):
        drawn = int.from_bytes(abi_keccak(["bytes32", "uint256"], [request.seed, number]))
        entry = [entry for entry in group.places[(drawn >> 128) % size] if entry.from_block <= block][-1]
        seats = entry.seats
        if request.seasoned and block < entry.since + SEASONING:
            seats = min(seats, entry.settled)
        if (drawn % 2**128) % (CAP * 10_000) >= seats * min(group.weights.get(entry.operator, 10_000), 10_000):
            continue
        if group.owners[entry.operator] in request.excluded or (request.distinct and entry.operator in taken):
            continue
        ask = [ask for start, ask in group.asks[entry.operator] if start <= block][-1]
        if request.distinct and ask.prompt > request.bound.prompt:
            continue
        taken.append(entry.operator)
        yield entry.operator


requests = st.builds(
    lambda seed, count, seasoned, distinct, excluded, most: replace(
        REQUEST,
        seed=hash_of(seed),
        count=count,
        seasoned=seasoned,
        distinct=distinct,
        excluded=tuple(excluded),
        bound=Ask(most, most, most),
    ),
    st.text(max_size=4),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
    st.sets(st.sampled_from(NAMES[:6:2]), max_size=2),
    st.integers(0, 9),
)


@pytest.mark.slow
@settings(max_examples=150)
@given(requests, groups())
def test_a_draw_is_what_the_rule_says(request: DrawRequest, group: GroupHistory) -> None:
    expected = []
    for operator in _naive(request, group):
        expected.append(operator)
        if len(expected) == request.count:
            break
    try:
        drawn = draws.draw(request, group, seat_cap=CAP, seasoning=SEASONING)
    except InvalidDrawRequest:
        drawn = draws.DrawnSeats((), b"")
    assert list(drawn.operators) == (expected if len(expected) == request.count else [])
    if not drawn.operators:
        return
    assert sum(drawn.seats.values()) == request.count
    assert len(drawn.hints) % 4 == 0
    # A hint is the block with which a later word begins: always after the draw's block.
    blocks = [int.from_bytes(drawn.hints[at : at + 4]) for at in range(0, len(drawn.hints), 4)]
    assert all(block > request.block_number for block in blocks)


@pytest.mark.slow
@given(groups())
def test_what_changes_later_does_not_change_a_draw(group: GroupHistory) -> None:
    later = replace(
        group,
        sizes=(*group.sizes, (901, 1)),
        places=tuple((*place, GroupEntry(NAMES[-1], 901, 901, CAP, 0)) for place in group.places),
        asks={name: (*asks, (901, Ask())) for name, asks in group.asks.items()},
    )
    try:
        before = draws.draw(REQUEST, group, seat_cap=CAP, seasoning=SEASONING)
    except InvalidDrawRequest:
        return
    after = draws.draw(REQUEST, later, seat_cap=CAP, seasoning=SEASONING)
    assert after.operators == before.operators
    # Every entry that was looked at is found by a hint now.
    assert len(after.hints) >= 4 * REQUEST.count


def test_draws_are_proportional_to_seats_and_not_to_addresses() -> None:
    seats = (10, 5, 4, 1)
    places = tuple((GroupEntry(NAMES[index], 1, 1, count, 0),) for index, count in enumerate(seats))
    group = GroupHistory(((1, 4),), places, dict.fromkeys(NAMES, NAMES[0]))
    seen: Counter[Address] = Counter()
    for number in range(400):
        request = replace(REQUEST, seed=hash_of(f"proportion {number}"), count=10)
        seen.update(draws.draw(request, group, seat_cap=CAP, seasoning=SEASONING).operators)
    for index, count in enumerate(seats):
        # Four standard deviations of a binomial with 4,000 trials.
        share = count / 20
        assert abs(seen[NAMES[index]] - 4_000 * share) < 4 * (4_000 * share * (1 - share)) ** 0.5


def test_sizes_share_words_of_four_so_that_a_hint_names_the_next_word() -> None:
    sizes = tuple((block, 2) for block in range(10, 100, 10))  # words begin at 10, 50 and 90
    group = GroupHistory(sizes, ((GroupEntry(NAMES[0], 1, 1, CAP, 0),),) * 2, dict.fromkeys(NAMES, NAMES[0]))
    for block, hint in ((10, 50), (49, 50), (50, 90), (89, 90), (90, None), (500, None)):
        drawn = draws.draw(replace(REQUEST, block_number=block), group, seat_cap=CAP, seasoning=SEASONING)
        assert drawn.hints == (b"" if hint is None else hint.to_bytes(4))


def test_a_draw_that_finds_too_little_says_so() -> None:
    group = group_of(range(3))
    with pytest.raises(InvalidDrawRequest, match="empty"):
        draws.draw(replace(REQUEST, block_number=0), group, seat_cap=CAP, seasoning=SEASONING)
    wanted = replace(REQUEST, count=4, distinct=True, bound=Ask(10**9, 10**9, 10**9))
    with pytest.raises(InvalidDrawRequest, match="Only 3 of 4 seats were found in 768 tries"):
        draws.draw(wanted, group, seat_cap=CAP, seasoning=SEASONING)
    everyone = tuple(owner_of(number) for number in range(3))
    with pytest.raises(InvalidDrawRequest, match="Only 0"):
        draws.draw(replace(REQUEST, excluded=everyone), group, seat_cap=CAP, seasoning=SEASONING)


def test_a_bound_of_nothing_takes_only_who_asks_nothing() -> None:
    group = group_of(range(3))
    with pytest.raises(InvalidDrawRequest):
        draws.draw(replace(REQUEST, distinct=True), group, seat_cap=CAP, seasoning=SEASONING)
    free = group_of(range(3), asks=Ask(0, 0, 0))
    drawn = draws.draw(replace(REQUEST, distinct=True), replace(free, asks={}), seat_cap=CAP, seasoning=SEASONING)
    assert len(set(drawn.operators)) == 3


def test_young_seats_do_not_judge_and_suspended_ones_serve_nobody() -> None:
    young = GroupHistory(((1, 1),), ((GroupEntry(NAMES[0], 1, 450, CAP, 0),),), {NAMES[0]: NAMES[0]})
    assert draws.draw(REQUEST, young, seat_cap=CAP, seasoning=SEASONING).operators == (NAMES[0],) * 3
    with pytest.raises(InvalidDrawRequest):
        draws.draw(replace(REQUEST, seasoned=True), young, seat_cap=CAP, seasoning=SEASONING)
    assert draws.draw(replace(REQUEST, seasoned=True), young, seat_cap=CAP, seasoning=50).operators
    suspended = replace(young, places=((GroupEntry(NAMES[0], 1, 1, 0, CAP),),))
    for seasoned in (False, True):
        with pytest.raises(InvalidDrawRequest):
            draws.draw(replace(REQUEST, seasoned=seasoned), suspended, seat_cap=CAP, seasoning=SEASONING)


def test_the_three_draws_differ_in_who_may_be_drawn() -> None:
    scene = Scene()
    order, view = scene.order, scene.view
    span = view.segments(order)[0]
    served = draws.inferencers_request(order, view.rules, span, hash_of("seed"))
    assert (served.count, served.distinct, served.seasoned) == (2, True, False)
    assert served.bound == prices.bound(order, 12, 12) == Ask(800_000_000, 80_000_000, 1_600_000_000)
    checking = draws.verifiers_request(order, view.rules, span, hash_of("seed"), NAMES[:1])
    judging = draws.reviewers_request(order, view.rules, span, hash_of("seed"), NAMES[:2])
    assert (checking.count, checking.distinct, checking.seasoned, checking.excluded) == (3, False, True, (NAMES[0],))
    assert (judging.count, judging.block_number) == (15, order.reference_block)
    assert draws.offers_checks(view.groups[0], view.rules, view.block)
    assert not draws.offers_checks(group_of(range(8)), view.rules, view.block)
