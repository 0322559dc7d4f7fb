"""Key and lengths of a group: who hears alike comes to the same, and nobody makes the others change for ever."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from troth.node.group.agreement import (
    DOUBT,
    FREE_CHANGES,
    LONGEST,
    MOST_TURNS,
    PAUSE,
    REST,
    SETTLED,
    NamingAgreement,
    Shares,
)
from troth.node.group.sharing import LengthProposer
from troth.protocol.types import Address
from troth.routing.prefixes.members import SILENCE
from troth.routing.prefixes.naming import MOST_LENGTHS, Naming, packed
from troth.routing.prefixes.sentry import ROUND, SAMPLE

A, B, C, D = (Address(f"0x{number:040x}") for number in range(10, 14))
MANY = 10_000


def share(number: int) -> bytes:
    return bytes([number]) * 32


def look(agreement: NamingAgreement, alive: list[Address], now: float, *own: int) -> Naming | None:
    return agreement.look(own, alive, len(alive) + 1, now)


def settle(agreement: NamingAgreement, alive: list[Address], now: float) -> float:
    """Look each second until the names would have settled."""
    for _ in range(int(SETTLED) + 2):
        look(agreement, alive, now)
        now += 1
    return now


def tell(
    agreement: NamingAgreement, name: Address, number: int, now: float, *lengths: int, foreign: bool = False
) -> None:
    agreement.hear(name, share(number), lengths, now, foreign=foreign)


# The key


def test_the_key_is_the_share_of_the_lowest_address_that_is_alive() -> None:
    shares = Shares(B, share(2))
    assert shares.leader([], 0) == (B, share(2))
    shares.hear(C, share(3), 0)
    assert shares.leader([C], 0) == (B, share(2))
    shares.hear(A, share(1), 0)
    assert shares.leader([A, C], 0) == (A, share(1))
    assert shares.leader([C], 0) == (B, share(2))
    shares.keep([C])
    assert shares.leader([A, C], 0) == (B, share(2))


def test_upper_and_lower_digits_are_the_same_address() -> None:
    own, other = Address("0xB" + "0" * 39), Address("0xa" + "0" * 39)
    shares = Shares(own, share(2))
    shares.hear(other, share(1), 0)
    assert shares.leader([other], 0) == (other, share(1))


def _other_share(shares: Shares, turn: int, now: float) -> float:
    shares.hear(A, share(10 + turn), now)
    return now + 1


def _silence(shares: Shares, turn: int, now: float) -> float:
    shares.hear(A, share(1), now + SILENCE + 1)
    return now + SILENCE + 1


@pytest.mark.parametrize("turn", [_other_share, _silence])
def test_who_turns_too_often_is_not_followed_for_a_while(turn: Callable[[Shares, int, float], float]) -> None:
    shares, now = Shares(B, share(2)), 0.0
    shares.hear(A, share(1), now)
    for count in range(MOST_TURNS):
        now = turn(shares, count, now)
        assert shares.leader([A], now)[0] == A
    now = turn(shares, MOST_TURNS, now)
    assert shares.leader([A], now) == (B, share(2))
    assert shares.leader([A], now + REST)[0] == A


# Names


def test_members_that_hear_alike_come_to_the_same_names() -> None:
    one, two = NamingAgreement(A), NamingAgreement(B)
    assert one.naming.identity != two.naming.identity
    one.hear(B, two.share, (), 0, foreign=True)
    two.hear(A, one.share, (), 0, foreign=True)
    settle(one, [B], 0)
    settle(two, [A], 0)
    assert one.naming.identity == two.naming.identity


def test_names_differ_by_key_and_by_lengths() -> None:
    agreement = NamingAgreement(B)
    seen = {agreement.naming.identity}
    tell(agreement, A, 1, 0)
    now = settle(agreement, [A], 0)
    seen.add(agreement.naming.identity)
    tell(agreement, A, 1, now, 64)
    for second in range(5):
        look(agreement, [A], now + second, 64)
    seen.add(agreement.naming.identity)
    assert len(seen) == 3


def test_what_is_wanted_for_a_moment_changes_nothing() -> None:
    agreement = NamingAgreement(B)
    before = agreement.naming
    for second in range(60):
        tell(agreement, A, 1, second)
        assert look(agreement, [A] if second % 3 else [], second) is None
    assert agreement.naming is before


def test_no_length_comes_from_less_than_two_members_or_beyond_what_is_looked_at() -> None:
    for others in ([A], [A, C], [A, C, D]):
        agreement = NamingAgreement(B)
        for name in others:
            tell(agreement, name, 200, 0)
        tell(agreement, others[0], 200, 0, 64, 128)
        settle(agreement, others, 0)
        assert agreement.naming.chunking.lengths == ()
    agreement = NamingAgreement(B)
    for name in (A, C):
        tell(agreement, name, 200, 0, 64, LONGEST + 32, 2**32 - 1)
    settle(agreement, [A, C], 0)
    assert agreement.naming.chunking.lengths == (64, 32)


def test_the_largest_agreed_lengths_make_an_array_of_bounded_size() -> None:
    agreement = NamingAgreement(B)
    for name in (A, C):
        tell(agreement, name, 200, 0, *range(LONGEST - 15, LONGEST + 1))
    settle(agreement, [A, C], 0)
    assert 0 < len(agreement.naming.chunking.lengths) <= MOST_LENGTHS


def test_whatever_a_member_does_names_change_seldom() -> None:
    agreement, chance, changes = NamingAgreement(D), random.Random(1), []
    others = [A, B, C]
    for second in range(MANY):
        alive = [name for name in others if chance.random() < 0.9]
        for name in alive:
            tell(agreement, name, chance.randrange(3) if chance.random() < 0.1 else 200, second)
        # Two that agree on lengths, and change them as soon as they hold.
        lengths = (64,) if second // (int(SETTLED) + 2) % 2 else (96,)
        for name in (A, B):
            tell(agreement, name, 200, second, *lengths)
        if look(agreement, [*alive, A, B], second) is not None:
            changes.append(second)
    busiest = max(sum(start <= change < start + REST for change in changes) for start in range(0, MANY, 50))
    assert FREE_CHANGES < busiest <= FREE_CHANGES + 7
    assert len(changes) <= (FREE_CHANGES + 7) * (MANY / REST + 1)
    assert min(b - a for a, b in zip(changes[FREE_CHANGES:], changes[FREE_CHANGES + 1 :], strict=False)) >= SETTLED
    assert PAUSE * 2**6 > REST


class _Group:
    """Honest members, and A who tells each of them another share."""

    def __init__(self, names: list[Address]) -> None:
        self.members = {name: NamingAgreement(name) for name in names}

    def second(self, now: float) -> None:
        for name, agreement in self.members.items():
            others = {other: peer for other, peer in self.members.items() if other != name}
            for other, peer in others.items():
                foreign = peer.naming.identity != agreement.naming.identity
                agreement.hear(other, peer.share, (), now, foreign=foreign)
            agreement.hear(A, share(int(name, 16)), (), now, foreign=False)
            agreement.look((), [A, *others], len(others) + 2, now)

    @property
    def names(self) -> set[bytes]:
        return {agreement.naming.identity for agreement in self.members.values()}


def test_who_tells_each_another_share_is_left_out() -> None:
    group = _Group([B, C, D])
    for second in range(int(SETTLED) + 3):
        group.second(second)
    assert len(group.names) == 3
    for second in range(int(SETTLED) + 3, int(2 * (DOUBT + SETTLED)) + 5):
        group.second(second)
    assert len(group.names) == 1


# What is proposed


def test_lengths_are_proposed_once_the_sample_is_full_and_then_each_round() -> None:
    proposal, common = LengthProposer(random.Random(1)), list(range(64))
    for number in range(SAMPLE):
        assert proposal.lengths == ()
        proposal.note(packed([*common, *([1000 + number] * 64)]))
    assert proposal.lengths == (64,)
    for number in range(ROUND - 1):
        proposal.note(packed([5000 + number] * 32))
    assert proposal.lengths == (64,)
    proposal.note(packed([1]))
    assert proposal.lengths == ()
