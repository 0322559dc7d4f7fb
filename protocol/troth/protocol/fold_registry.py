"""Registry events into the state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, assert_never

from troth.protocol.contract_types import REFERENCE_AGE, Account, Role
from troth.protocol.errors import InvalidField
from troth.protocol.events import (
    ClassRegistered,
    Deregistered,
    EndpointChanged,
    Evicted,
    ModelRegistered,
    NodeRegistered,
    PayoutChanged,
    RegistryEvent,
    SchedulerRegistered,
    SliceChanged,
    SlotFilled,
    SlotVacated,
)
from troth.protocol.state import Group, Node, Occupancy, Scheduler, State
from troth.protocol.types import Address, Segment


def apply_registry(event: RegistryEvent, state: State) -> State:
    """The state after a registry event."""
    match event:
        case ModelRegistered():
            return replace(state, models=state.models.with_item(event.model, event.descriptor))
        case ClassRegistered():
            return replace(state, classes=state.classes.with_item(event.execution_class, event.definition))
        case NodeRegistered():
            return _node_registered(event, state)
        case SchedulerRegistered():
            return _scheduler_registered(event, state)
        case SlotFilled():
            return _slot_filled(event, state)
        case SlotVacated():
            return _slot_vacated(event, state)
        case SliceChanged():
            return _slice_changed(event, state)
        case EndpointChanged():
            return _party_changed(state, event.operator, endpoint=event.endpoint, tls_key_hash=event.tls_key_hash)
        case PayoutChanged():
            return _party_changed(state, event.operator, payout=event.new_payout)
        case Deregistered():
            account = replace(state.account(event.operator), exit_block=event.exit_block)
            return replace(state, accounts=state.accounts.with_item(event.operator, account))
        case Evicted():
            return state
        case _:
            assert_never(event)


def _node_registered(event: NodeRegistered, state: State) -> State:
    node = Node(
        operator=event.operator,
        owner=event.owner,
        payout=event.payout,
        execution_class=event.execution_class,
        slice=Segment(event.first, event.end),
        endpoint=event.endpoint,
        tls_key_hash=event.tls_key_hash,
        registered=event.meta,
    )
    state = replace(state, nodes=state.nodes.with_item(event.operator, node))
    return _admitted(state, event.operator, event.stake, Role.NODE)


def _scheduler_registered(event: SchedulerRegistered, state: State) -> State:
    scheduler = Scheduler(
        operator=event.operator,
        owner=event.owner,
        payout=event.payout,
        vrf_key=(event.vrf_x, event.vrf_y),
        endpoint=event.endpoint,
        tls_key_hash=event.tls_key_hash,
        registered=event.meta,
    )
    state = replace(state, schedulers=state.schedulers.with_item(event.operator, scheduler))
    return _admitted(state, event.operator, event.stake, Role.SCHEDULER)


def _admitted(state: State, operator: Address, stake: int, role: Role) -> State:
    """Credit may have come before the registration and stays."""
    account = Account(stake, state.account(operator).credit, 0, role)
    return replace(state, accounts=state.accounts.with_item(operator, account))


def _slot_filled(event: SlotFilled, state: State) -> State:
    group = state.groups.get(event.group) or Group(event.execution_class, Segment(event.first, event.end))
    if event.slot > len(group.slots):
        raise InvalidField(
            "A group grows by one slot at a time", event.slot, "A log is missing; follow the chain anew."
        )
    occupancy = Occupancy(event.operator, event.from_block)
    history = (*group.slots[event.slot], occupancy) if event.slot < len(group.slots) else (occupancy,)
    return _with_slot(state, event, group, history)


def _slot_vacated(event: SlotVacated, state: State) -> State:
    group = state.groups.get(event.group)
    if group is None or event.slot >= len(group.slots) or group.slots[event.slot][-1].operator != event.operator:
        raise InvalidField("The operator is in no such slot", event, "A log is missing; follow the chain anew.")
    *before, latest = group.slots[event.slot]
    return _with_slot(state, event, group, (*before, replace(latest, to_block=event.to_block)))


def _slice_changed(event: SliceChanged, state: State) -> State:
    node = state.nodes.get(event.operator)
    if node is None:
        raise InvalidField("The operator is no node", event.operator, "A log is missing; follow the chain anew.")
    moved = replace(node, slice=Segment(event.first, event.end), kept_until=event.meta.block + REFERENCE_AGE)
    return replace(state, nodes=state.nodes.with_item(event.operator, moved))


def _with_slot(state: State, event: SlotFilled | SlotVacated, group: Group, history: tuple[Occupancy, ...]) -> State:
    slots = (*group.slots[: event.slot], history, *group.slots[event.slot + 1 :])
    return replace(state, groups=state.groups.with_item(event.group, replace(group, slots=slots)))


def _party_changed(state: State, operator: Address, **changes: Any) -> State:
    """A node or scheduler with some fields replaced."""
    node, scheduler = state.nodes.get(operator), state.schedulers.get(operator)
    if node is not None:
        return replace(state, nodes=state.nodes.with_item(operator, replace(node, **changes)))
    if scheduler is not None:
        return replace(state, schedulers=state.schedulers.with_item(operator, replace(scheduler, **changes)))
    raise InvalidField("The operator was never registered", operator, "A log is missing; follow the chain anew.")
