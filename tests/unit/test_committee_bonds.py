"""Who may have a destination listed: by role, stake and leaving, as the market's folded events say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.order_market import SCHEDULER, state_of
from support.tabs_stage import PARAMETERS, execution_class_of

from troth.committee.directory.market_bonds import is_bonded
from troth.protocol.market.state import State, account_id, with_pot
from troth.protocol.market.types import PotKind
from troth.protocol.types import Address, address_from_bytes

NODE, STRANGER = (address_from_bytes(bytes([number]) * 20) for number in (7, 8))
CLASS = execution_class_of()
LEAST = {SCHEDULER: PARAMETERS.scheduler_stake, NODE: CLASS.seat}
KINDS = {SCHEDULER: "scheduler", NODE: "node"}


def staked(operator: Address, stake: int) -> State:
    return with_pot(state_of([NODE], CLASS, (2,)), PotKind.STAKE, account_id(operator), stake)


@pytest.mark.parametrize("operator", [SCHEDULER, NODE])
def test_a_party_is_bonded_in_its_role_with_the_stake_that_is_asked(operator: Address) -> None:
    least, kind = LEAST[operator], KINDS[operator]
    assert is_bonded(staked(operator, least), operator, kind)
    assert not is_bonded(staked(operator, least - 1), operator, kind)
    for other in ("scheduler", "node", "relay"):
        assert is_bonded(staked(operator, least), operator, other) == (other == kind)
    assert not is_bonded(staked(operator, least), STRANGER, kind)


@pytest.mark.parametrize("operator", [SCHEDULER, NODE])
def test_who_leaves_is_not_bonded_any_more(operator: Address) -> None:
    state = staked(operator, LEAST[operator])
    leaving = replace(state.parties[operator], exit_block=5)
    gone = replace(state, parties=state.parties.set(operator, leaving))
    assert not is_bonded(gone, operator, KINDS[operator])


def test_nobody_is_bonded_before_the_chain_was_followed() -> None:
    assert not is_bonded(State(), SCHEDULER, "scheduler")
    state = staked(SCHEDULER, LEAST[SCHEDULER])
    assert not is_bonded(replace(state, deployed=None), SCHEDULER, "scheduler")


def test_stake_that_a_case_has_locked_does_not_count() -> None:
    state = staked(NODE, CLASS.seat - 1)
    assert not is_bonded(with_pot(state, PotKind.LOCKED, account_id(NODE), CLASS.seat), NODE, "node")
