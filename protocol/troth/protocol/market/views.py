"""One party's view of the chain for one order, read from the folded state: what ``checks`` and ``life`` take."""

from __future__ import annotations

from collections.abc import Mapping

from troth.protocol.identifiers import group_id
from troth.protocol.market.checks import DRAW_AGE, OrderView
from troth.protocol.market.errors import InvalidOrder
from troth.protocol.market.messages import KeyCheck, market_domain, segments_of, signed_by_account, tab_id
from troth.protocol.market.prices import rules_of
from troth.protocol.market.signed import Order
from troth.protocol.market.state import Party, State, TabRecord
from troth.protocol.market.types import LATEST, ClaimState, ExecutionClass, Parameters, Role, Rules, Tab
from troth.protocol.types import Address, Hash32, ModelDescriptor, Segment


def strikes_due(record: TabRecord, state: State, block: int) -> tuple[tuple[ClaimState, int], ...]:
    """Numbers of claims on a tab that were asked for and not shown in time, in the order in which they are struck.

    With the first one the claim falls; by the others come back the deposits of all that was asked for beside it, those
    of claims that somebody else struck, too.
    """
    claim, found = record.claim, []
    if claim is not None:
        late = [number for number, one in claim.objections.items() if block > one.deadline]
        beside = [number for number in claim.objections if number not in late]
        found = [(claim.state, number) for number in (*late, *beside)] if late else []
    for struck in record.struck:
        found += [(struck.state, number) for number in state.held_objections(struck)]
    return tuple(found)


def first_reference_block(state: State, operator: Address, begun: int, block: int) -> int:
    """The oldest reference block of an order that a party takes whose records begin at block ``begun``; 0: any.

    A party that registered long before has lost its records, or was never started. Anybody who holds an order that it
    served could send it again, and convict the party by its second word. The same holds for a copy of yesterday, so
    records say at which block they were in use last. The party's chain node may be behind the one that it had. One that
    registered lately can have signed nothing of worth.
    """
    party = state.parties.get(operator)
    if party is None:
        return 0
    # Records of a chain that began anew begin at a block which that chain has yet to reach.
    begun = min(begun, block)
    return begun + DRAW_AGE if begun > party.registered.block + parameters_of(state).reference_age else 0


def class_of(state: State, class_id: Hash32) -> tuple[ExecutionClass, ModelDescriptor]:
    """A registered class and its model; raises InvalidOrder where it is unknown."""
    found = state.classes.get(class_id)
    model = None if found is None else state.models.get(found.model)
    if found is None or model is None:
        raise InvalidOrder("This execution class is not registered", class_id, "Use one that the registry knows.")
    return found, model


def rules_in(state: State, class_id: Hash32) -> Rules:
    """The rules of a registered class; raises InvalidOrder."""
    execution_class, model = class_of(state, class_id)
    return rules_of(execution_class, hidden_size=model.hidden_size, layers=model.layers)


def scheduler_of(state: State, operator: Address) -> Party:
    """A scheduler that may take orders; raises InvalidOrder where it is none, or is leaving."""
    party = registered_scheduler(state, operator)
    if party.exit_block:
        raise InvalidOrder("This scheduler is leaving and takes no orders", operator, "Order at another scheduler.")
    return party


def registered_scheduler(state: State, operator: Address) -> Party:
    """A scheduler, also one that is leaving: what it took it still owes. Raises InvalidOrder where it is none."""
    party = state.parties.get(operator)
    if party is None or party.role is not Role.SCHEDULER:
        raise InvalidOrder("This is no bonded scheduler", operator, "Use a scheduler that the registry knows.")
    return party


def parameters_of(state: State) -> Parameters:
    """The deployment's parameters; raises InvalidOrder before its first event was followed."""
    if state.deployed is None:
        raise InvalidOrder("The deployment's first event has not been followed", None, "Wait for the chain node.")
    return state.deployed.parameters


def hosts_of(state: State, identifier: Hash32) -> dict[Address, Party]:
    """Nodes that may be drawn now for the whole model of a class; none where the class is not registered."""
    known = state.classes.get(identifier)
    model = None if known is None else state.models.get(known.model)
    if model is None:
        return {}
    members = state.members_at(group_id(identifier, Segment(0, model.layers)), LATEST)
    parties = (state.parties.get(entry.operator) for entry in members if entry.seats)
    return {one.operator: one for one in parties if one is not None and not one.exit_block}


def view_of(
    state: State,
    order: Order,
    tab: Tab,
    *,
    chain_id: int,
    block: int,
    time: int,
    key_check: KeyCheck = signed_by_account,
    leaving: bool = False,
) -> OrderView:
    """The view of an order on ``tab`` at ``block``, Unix ``time``.

    ``leaving``: the order was taken before, so that its scheduler may be leaving by now.
    Raises InvalidOrder where class or scheduler are unknown; InvalidField where the layer split is none.
    """
    rules, parameters = rules_in(state, order.execution_class), parameters_of(state)
    assert state.deployed is not None
    segments = segments_of(order, rules.layers)
    scheduler = (registered_scheduler if leaving else scheduler_of)(state, tab.payee)
    return OrderView(
        domain=market_domain(chain_id, state.deployed.contracts.bank),
        execution_class=order.execution_class,
        rules=rules,
        vrf_key=scheduler.vrf_key,
        tab=tab,
        groups=tuple(state.group(group_id(order.execution_class, segment)) for segment in segments),
        block=block,
        time=time,
        lag=parameters.lag,
        seasoning=parameters.seasoning,
        reference_age=parameters.reference_age,
        tab_state=state.tab_state(tab_id(tab)),
        key_check=key_check,
    )


def silent_of(state: State, order: Hash32, segments: int) -> Mapping[int, tuple[Address, ...]]:
    """By segment, the nodes that a summons of its check proved silent."""
    found = {segment: state.silent_in_check(order, segment) for segment in range(segments)}
    return {segment: nodes for segment, nodes in found.items() if nodes}
