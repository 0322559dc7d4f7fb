"""Which scheduler and class, at what price: from the chain; and what is refused before an order is signed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.client_stage import (
    CLASS,
    CLIENT,
    DOMAIN,
    ENDS,
    META,
    OFFER,
    RULES,
    SCHEDULER,
    UNIT,
    base_state,
    member,
    signed_order,
)

from troth.client.choices import Choices
from troth.client.configuration import Configuration
from troth.client.errors import (
    ConfigurationError,
    FeeTooHigh,
    InsufficientBalance,
    ModelUnavailable,
    PromptError,
)
from troth.client.market import find_class, find_scheduler, offer_of
from troth.client.ordering import require_affordable, require_room
from troth.protocol.contract_types import Account, Role
from troth.protocol.identifiers import task_id
from troth.protocol.request import request_hash
from troth.protocol.state import Node, State
from troth.protocol.typed_data import recover
from troth.protocol.types import ZERO_HASH, Hash32, Segment

ANY = Configuration("0x" + "cc" * 20)
OTHER = replace(SCHEDULER, operator=member(1))
STAKED = Account(RULES.minimum_stake, role=Role.NODE)


def bonded(state: State, *, stake: int = 10, exit_block: int = 0) -> State:
    account = Account(stake=stake, exit_block=exit_block)
    return replace(state, accounts=state.accounts.with_item(SCHEDULER.operator, account))


def with_node(state: State, node: Node, account: Account = STAKED) -> State:
    return replace(
        state,
        nodes=state.nodes.with_item(node.operator, node),
        accounts=state.accounts.with_item(node.operator, account),
    )


def test_the_only_bonded_scheduler_is_taken_without_being_named() -> None:
    assert find_scheduler(bonded(base_state()), ANY) == SCHEDULER


@pytest.mark.parametrize(
    "state", [base_state(), bonded(base_state(), exit_block=9), bonded(base_state(), stake=0), State()]
)
def test_a_scheduler_without_a_stake_is_not_used(state: State) -> None:
    with pytest.raises(ConfigurationError, match="no such scheduler"):
        find_scheduler(state, ANY)


def test_of_several_schedulers_one_must_be_named() -> None:
    state = bonded(base_state())
    state = replace(
        state,
        schedulers=state.schedulers.with_item(OTHER.operator, OTHER),
        accounts=state.accounts.with_item(OTHER.operator, Account(stake=1)),
    )
    with pytest.raises(ConfigurationError, match=SCHEDULER.operator):
        find_scheduler(state, ANY)
    assert find_scheduler(state, replace(ANY, scheduler=OTHER.operator.lower())) == OTHER
    with pytest.raises(ConfigurationError):
        find_scheduler(state, replace(ANY, scheduler=member(2)))


def test_a_class_must_be_served_and_on_chain() -> None:
    state, unknown = base_state(), Hash32(b"\x01" * 32)
    assert find_class(state, ANY, {CLASS: ENDS, unknown: ENDS}) == CLASS
    with pytest.raises(ModelUnavailable):
        find_class(state, ANY, {unknown: ENDS})
    with pytest.raises(ModelUnavailable):
        find_class(state, replace(ANY, execution_class="0x" + unknown.hex()), {CLASS: ENDS})
    with pytest.raises(ModelUnavailable):
        offer_of(state, SCHEDULER, unknown, ENDS)


def test_the_fee_is_recomputed_and_not_the_schedulers_word() -> None:
    assert offer_of(base_state(), SCHEDULER, CLASS, ENDS).fee == UNIT * 6 * ((1 + RULES.verifiers) * 2 + 1)


@pytest.mark.parametrize("ends", [(), (1,), (2, 1), (1, 1, 2), (3,), (0, 2)])
def test_an_impossible_split_of_the_layers_is_refused_before_anything_is_signed(ends: tuple[int, ...]) -> None:
    with pytest.raises(ModelUnavailable):
        offer_of(base_state(), SCHEDULER, CLASS, ends)


def test_a_split_that_most_hosts_do_not_serve_is_refused() -> None:
    """A scheduler could otherwise draw from a group that is all its own."""
    state = base_state()
    for number in range(12):
        operator = member(100 + number)
        node = Node(operator, operator, operator, CLASS, Segment(0, 2), "https://127.0.0.1:1", ZERO_HASH, META)
        state = with_node(state, node)
    assert offer_of(state, SCHEDULER, CLASS, ENDS).ends == ENDS
    with pytest.raises(ModelUnavailable, match="12 nodes that host"):
        offer_of(state, SCHEDULER, CLASS, (2,))
    one_more = replace(node, operator=member(99))
    with pytest.raises(ModelUnavailable, match="only 6 serve"):
        offer_of(with_node(state, one_more), SCHEDULER, CLASS, ENDS)
    for gone in (
        Account(),  # who has withdrawn has no account any more
        Account(RULES.minimum_stake, exit_block=9, role=Role.NODE),
        Account(RULES.minimum_stake - 1, role=Role.NODE),
    ):
        # Else a stake that is back with its owner, or lost, would count against every offer for ever.
        assert offer_of(with_node(state, one_more, gone), SCHEDULER, CLASS, ENDS).ends == ENDS


def test_a_shortfall_says_by_how_much_and_how_to_top_up() -> None:
    require_affordable(OFFER, OFFER.fee, Choices())
    with pytest.raises(InsufficientBalance) as raised:
        require_affordable(OFFER, OFFER.fee - 7, Choices())
    assert raised.value.value == "7 wei short"
    assert "troth client deposit 7wei --broadcast" in raised.value.remedy


def test_max_cost_is_the_most_it_costs() -> None:
    require_affordable(OFFER, 10**18, Choices(max_cost=OFFER.fee))
    with pytest.raises(FeeTooHigh):
        require_affordable(OFFER, 10**18, Choices(max_cost=OFFER.fee - 1))


def test_prompt_and_answer_must_fit_the_context() -> None:
    require_room((1, 2, 3), Choices(7), 10)
    require_room((1, 2, 3), Choices(7), 0)
    with pytest.raises(PromptError, match="1 too many"):
        require_room((1, 2, 3), Choices(8), 10)
    with pytest.raises(PromptError, match="no tokens"):
        require_room((), Choices(1), 10)


def test_an_order_is_signed_by_the_wallet_for_this_request_and_never_the_same_twice() -> None:
    one, two = signed_order(), signed_order()
    assert recover(one.order, DOMAIN, one.signature) == CLIENT.address
    assert one.task_id == task_id(one.order, DOMAIN)
    assert one.order.request_hash == request_hash(one.request, one.salt)
    assert one.order.max_fee == OFFER.fee
    assert (one.salt, one.order.nonce, one.task_id) != (two.salt, two.order.nonce, two.task_id)
    assert one.salt != two.salt
    assert one.order.nonce != two.order.nonce
