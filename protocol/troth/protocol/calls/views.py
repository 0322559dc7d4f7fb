"""Reads of the contract, for whoever does not fold events, and for the tests that hold the fold against it."""

from __future__ import annotations

from troth.protocol.bindings.structs import converter, from_abi
from troth.protocol.calls.call import View, calldata
from troth.protocol.contract_types import Account, HostedSlice, Parameters, Rules
from troth.protocol.settlement import Outcome
from troth.protocol.task import Task
from troth.protocol.types import Address, Hash32, Order

_address = converter(Address)


def account_of(operator: Address) -> View[Account]:
    """Stake, credit, exit block and role."""
    return View("accountOf", calldata("accountOf", operator), lambda values: from_abi(Account, values))


def owner_of(operator: Address) -> View[Address]:
    """The owner; the zero address if it was never registered."""
    return View("ownerOf", calldata("ownerOf", operator), _address)


def payout_of(operator: Address) -> View[Address]:
    """Where an operator is paid."""
    return View("payoutOf", calldata("payoutOf", operator), _address)


def slice_of(operator: Address) -> View[HostedSlice]:
    """Class and layers of a node, and when it may change them; an empty slice for any other address."""
    return View("sliceOf", calldata("sliceOf", operator), lambda *values: HostedSlice(Hash32(values[0]), *values[1:]))


def vrf_key_of(scheduler: Address) -> View[tuple[int, int]]:
    """The scheduler's P-256 key."""
    return View("vrfKeyOf", calldata("vrfKeyOf", scheduler), lambda x, y: (int(x), int(y)))


def member_at(group: Hash32, slot: int, block: int) -> View[Address]:
    """Member of a slot at a block; the zero address if the slot was empty."""
    return View("memberAt", calldata("memberAt", group, slot, block), _address)


def group_size_at(group: Hash32, block: int) -> View[int]:
    """Slots of a group, filled or empty, at a block."""
    return View("groupSizeAt", calldata("groupSizeAt", group, block), int)


def escrow_of(client: Address) -> View[int]:
    """Free balance in wei."""
    return View("escrowOf", calldata("escrowOf", client), int)


def layers_of(model: Hash32) -> View[int]:
    """Layers of a model; 0 if unknown."""
    return View("layersOf", calldata("layersOf", model), int)


def rules_of(execution_class: Hash32) -> View[Rules]:
    """What settlement knows of a class."""
    return View("rulesOf", calldata("rulesOf", execution_class), lambda values: from_abi(Rules, values))


def minimum_stake_of(execution_class: Hash32) -> View[int]:
    """Wei that a node needs."""
    return View("minimumStakeOf", calldata("minimumStakeOf", execution_class), int)


def fee_of(execution_class: Hash32, segments: int) -> View[int]:
    """Wei that a task costs."""
    return View("feeOf", calldata("feeOf", execution_class, segments), int)


def task_state(task_id: Hash32) -> View[Hash32]:
    """Hash of a live task, number of the outcome of an ended one, else zero."""
    return View("taskState", calldata("taskState", task_id), Hash32)


def outcome_of(task_id: Hash32) -> View[Outcome | None]:
    """How a task ended; None while it lives or if it was never opened."""
    return View("outcomeOf", calldata("outcomeOf", task_id), lambda number: Outcome(number) if number else None)


def task_id_of(order: Order) -> View[Hash32]:
    """The order's EIP-712 digest as the contract computes it."""
    return View("taskIdOf", calldata("taskIdOf", order), Hash32)


def state_hash(task: Task) -> View[Hash32]:
    """``task.task_hash`` as the contract computes it."""
    return View("stateHash", calldata("stateHash", task), Hash32)


def parameters_of() -> View[Parameters]:
    """What was fixed at deployment."""
    return View("parametersOf", calldata("parametersOf"), lambda values: from_abi(Parameters, values))


def domain_separator() -> View[Hash32]:
    """The contract's EIP-712 domain."""
    return View("domainSeparator", calldata("domainSeparator"), Hash32)
