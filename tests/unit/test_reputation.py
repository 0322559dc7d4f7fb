"""Scores, punishment, sharing among an owner's nodes, and the fold of the contract's events."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troth.chain.keystore import Key
from troth.node.inspection.status import reputation_told
from troth.protocol.errors import InvalidField
from troth.protocol.hashing import keccak256
from troth.protocol.logs import LogMeta
from troth.protocol.reputation import (
    ONE,
    UNRATED,
    ReputationRules,
    Standing,
    leader_by,
    list_hash,
    newcomer,
    paper_rules,
    prompt_commitment,
    prompt_root,
    rated,
    shared_scores,
)
from troth.protocol.reputation_events import (
    BondReturned,
    EpochSettled,
    NodeRated,
    RaterEnrolled,
    RaterExpelled,
    RaterLeft,
    ReputationDeployed,
    ReputationState,
    SharedReputation,
)
from troth.protocol.types import ZERO_ADDRESS, ZERO_HASH, Address, Hash32, address_to_bytes

META = LogMeta(1, 0, ZERO_HASH, ZERO_HASH)
RULES = paper_rules(1800, 10**18)
credits_ = st.integers(0, ONE)


def account(number: int) -> Address:
    return Key.from_secret(keccak256(b"reputation %d" % number)).address


OWNER, OTHER = account(100), account(101)
NODES = sorted((account(number) for number in range(4)), key=address_to_bytes)


def after(credit: int, epochs: int, rules: ReputationRules = RULES, *, capped: bool = True) -> Standing:
    standing = newcomer(rules, OWNER)
    for epoch in range(epochs):
        standing = rated(standing, credit, epoch, rules, capped=capped)
    return standing


def rating(node: Address, credit: int, epoch: int, state: ReputationState, owner: Address = OWNER) -> NodeRated:
    standing = rated(state.standings.get(node) or newcomer(RULES, owner), credit, epoch, RULES)
    return NodeRated(node, owner, epoch, credit, credit == 0, standing.score, standing.abnormal, META)


def deployed() -> ReputationState:
    return ReputationState().after(ReputationDeployed(account(7), account(8), RULES, 5, META))


# -- scores ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("credit", "score"), [(947, 947), (877, 274), (600, 187), (250, 78)])
def test_after_35_epochs_steady_credits_are_high_scores_or_below_the_bar(credit: int, score: int) -> None:
    found = after(credit * 10**6, 35).score
    assert found == pytest.approx(score * 10**6, abs=10**6)
    assert (found >= RULES.bar) == (credit == 947)


def test_the_papers_coefficient_rewards_few_abnormal_credits() -> None:
    """With γ = 1/2 and W = 3, two abnormal credits: (W + 1) / (W + 4 + 2) = 0.44; with α, β = 0.6, 0.4 that is more."""
    rules = replace(RULES, keep=6 * ONE // 10, take=4 * ONE // 10, window=3, sensitivity=2)
    assert after(ONE // 2, 2, rules, capped=False).score > after(ONE // 2, 2, rules).score


@given(st.lists(st.tuples(credits_, credits_), max_size=12))
def test_a_better_credit_is_never_a_worse_score(pairs: list[tuple[int, int]]) -> None:
    low = high = newcomer(RULES, OWNER)
    for epoch, pair in enumerate(pairs):
        low, high = rated(low, min(pair), epoch, RULES), rated(high, max(pair), epoch, RULES)
        assert 0 <= low.score <= high.score <= ONE
        assert high.abnormal & ~low.abnormal == 0


@pytest.mark.slow
@given(st.lists(credits_, max_size=12))
def test_the_window_forgets(credits: list[int]) -> None:
    standing = newcomer(RULES, OWNER)
    for epoch, credit in enumerate([*credits, *[ONE] * RULES.window]):
        standing = rated(standing, credit, epoch, RULES)
    assert standing.abnormal == 0


def test_a_bad_node_pulls_its_owners_others_and_is_not_lifted_by_them() -> None:
    scores = {NODES[0]: 950, NODES[1]: 150, NODES[2]: 900}
    owners = {NODES[0]: OWNER, NODES[1]: OWNER, NODES[2]: OTHER}
    standings = {node: Standing(score, 0, 1, 1, owners[node]) for node, score in scores.items()}
    assert shared_scores(standings) == {NODES[0]: 550, NODES[1]: 150, NODES[2]: 900}


# -- members and lists -------------------------------------------------------------------------------------------------


@given(st.integers(1, 32))
def test_silence_counts_from_more_than_a_third(members: int) -> None:
    """As Reputation.sol counts, from the number of signatures that members need."""
    needed = (2 * members // 3 + 1 + 1) // 2
    assert 3 * needed > members
    assert 3 * (needed - 1) <= members


def test_who_leaves_changes_no_other_members_rank() -> None:
    state = deployed()
    for number in range(6):
        state = state.after(RaterEnrolled(account(number), account(50 + number), 1, 2, 1, META))
    members = [account(number) for number in range(6)]
    assert leader_by(state.raters, members, 0, bytes(32)) == ZERO_ADDRESS
    for draw in range(20):
        randomness = keccak256(bytes([draw]))
        leader = leader_by(state.raters, members, 1, randomness)
        gone = next(member for member in members if member != leader)
        left = state.after(RaterLeft(gone, 1, 99, META))
        assert leader_by(left.raters, members, 1, randomness) == leader
        assert leader_by(state.raters, [one for one in members if one != leader], 1, randomness) != leader


def test_a_list_is_ascending_and_hides_its_prompts() -> None:
    salts = [bytes([number]) * 32 for number in range(2)]
    hidden = [prompt_commitment(salt, "the same") for salt in salts]
    assert hidden[0] != hidden[1]
    root = prompt_root(hidden)
    assert root != prompt_root(hidden[::-1])
    assert list_hash(NODES, root) != list_hash(NODES[:3], root)
    for wrong in (NODES[::-1], [NODES[0], NODES[0]], [account(number) for number in range(257)]):
        with pytest.raises(InvalidField):
            list_hash(wrong, root)
    with pytest.raises(InvalidField):
        prompt_commitment(b"short", "x")


# -- the fold ----------------------------------------------------------------------------------------------------------


def test_a_score_that_does_not_follow_is_refused() -> None:
    state = deployed()
    event = rating(NODES[0], 900_000_000, 1, state)
    assert state.after(event).standings[NODES[0]].score == event.score
    for wrong in (replace(event, score=event.score + 1), replace(event, abnormal=1), replace(event, credit=1)):
        with pytest.raises(InvalidField, match="does not follow"):
            state.after(wrong)
    with pytest.raises(InvalidField, match="before the contract"):
        ReputationState().after(event)
    twice = state.after(event)
    with pytest.raises(InvalidField):
        twice.after(event)


def test_epochs_and_members_go_forward() -> None:
    settled = EpochSettled(3, account(0), ZERO_HASH, Hash32(b"\1" * 32), 5, True, META)
    state = deployed().after(settled)
    assert (state.through, state.leader, state.next_list) == (4, account(0), settled.next_list)
    with pytest.raises(InvalidField, match="in order"):
        state.after(settled)
    with pytest.raises(InvalidField, match="not enrolled"):
        state.after(RaterExpelled(account(0), 3, 10, 1, account(1), META))
    enrolled = state.after(RaterEnrolled(account(0), account(50), 1, 2, 4, META))
    assert enrolled.raters[account(0)].counts(4)
    assert not enrolled.raters[account(0)].counts(3)
    assert enrolled.after(RaterExpelled(account(0), 3, 10, 1, account(1), META)).expelled == {account(0)}
    assert not enrolled.after(BondReturned(account(0), account(50), 10, META)).raters


# -- what a node makes of it -------------------------------------------------------------------------------------------


def test_a_group_trusts_whom_the_committee_trusts() -> None:
    states = [ReputationState()]
    word = SharedReputation(lambda: states[-1])
    assert word(NODES[0]) == UNRATED
    states.append(deployed())
    assert word(NODES[0]) == 0.4, "a newcomer begins at the bar"
    for epoch in range(2):
        states.append(states[-1].after(rating(NODES[0], ONE, epoch, states[-1])))
        states.append(states[-1].after(rating(NODES[1], 0, epoch, states[-1], OTHER)))
    assert word(NODES[0]) == states[-1].standings[NODES[0]].score / ONE > 0.8
    assert word(NODES[1]) == 0.0
    for epoch in range(2, 9):
        states.append(states[-1].after(rating(NODES[1], ONE, epoch, states[-1], OTHER)))
    assert word(NODES[1]) > 0.9, "it climbs again"


def test_a_node_is_told_why_it_takes_no_work() -> None:
    state = deployed()
    assert reputation_told(state, NODES[0])["takes_work"] is True
    state = state.after(rating(NODES[0], 0, 1, state))
    told = reputation_told(state, NODES[0])
    assert told["takes_work"] is False
    assert "it was silent" in told["why"]
    assert "1 of the last 5 were below 0.9" in told["why"]
    state = state.after(rating(NODES[1], ONE, 1, state))
    shared = reputation_told(state, NODES[1])
    assert "its owner's other nodes pull it from 0.76 to 0.46" in shared["why"]
