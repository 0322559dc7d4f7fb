"""What tests ask contracts beside the market to compare with their folds, and no party asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from troth.protocol.bindings import COMMITTEE, ORGANISATIONS, REPUTATION
from troth.protocol.bindings.structs import converter
from troth.protocol.calls import View, calldata
from troth.protocol.organisations import Hosting
from troth.protocol.reputation import Rater, Standing
from troth.protocol.types import Address, Hash32, Solidity, Uint16, Uint32, Uint64

Uint128 = Annotated[int, Solidity("uint128")]


@dataclass(frozen=True, slots=True)
class HostedModel:
    """An organisation's model on others' machines; the fields are explained at the contract's struct."""

    owner: Address
    execution_class: Hash32
    replicas: Uint16
    layers: Uint16
    hosted: Uint32
    first: Uint64
    end: Uint64
    layer_bytes: Uint128
    reserve: Uint128


def domain_separator() -> View[Hash32]:
    """The EIP-712 domain of a Committee, or of a Reputation."""
    return View("domainSeparator", calldata(COMMITTEE, "domainSeparator"), Hash32, COMMITTEE)


def threshold() -> View[int]:
    """How many signatures make a list or a change."""
    return View("threshold", calldata(COMMITTEE, "threshold"), int, COMMITTEE)


def is_member(operator: Address) -> View[bool]:
    """Whether an operator belongs to the committee."""
    return View("isMember", calldata(COMMITTEE, "isMember", operator), bool, COMMITTEE)


def balance_of(owner: Address) -> View[int]:
    """Credits that an owner has and has not set aside."""
    return View("balanceOf", calldata(ORGANISATIONS, "balanceOf", owner), int, ORGANISATIONS)


def deployment_of(number: int) -> View[HostedModel]:
    """A deployment; without an owner if it is none."""
    return View("deploymentOf", calldata(ORGANISATIONS, "deploymentOf", number), converter(HostedModel), ORGANISATIONS)


def hosting_of(node: Address) -> View[Hosting]:
    """What a node hosts, or hosted last."""
    return View("hostingOf", calldata(ORGANISATIONS, "hostingOf", node), converter(Hosting), ORGANISATIONS)


def posted_through(node: Address) -> View[int]:
    """One more than the last epoch for which a node was credited."""
    return View("postedThrough", calldata(ORGANISATIONS, "postedThrough", node), int, ORGANISATIONS)


def cost_of(execution_class: Hash32, replicas: int, epochs: int) -> View[int]:
    """What a deployment costs."""
    return View("costOf", calldata(ORGANISATIONS, "costOf", execution_class, replicas, epochs), int, ORGANISATIONS)


def leader_of(epoch: int, randomness: bytes) -> View[Address]:
    """Who leads an epoch by this randomness."""
    return View("leaderBy", calldata(REPUTATION, "leaderBy", epoch, randomness), converter(Address), REPUTATION)


def standing_of(node: Address) -> View[Standing]:
    """How a node stands."""
    return View("standingOf", calldata(REPUTATION, "standingOf", node), converter(Standing), REPUTATION)


def rater_of(operator: Address) -> View[Rater]:
    """A bonded member; without owner if it is none."""
    return View("raterOf", calldata(REPUTATION, "raterOf", operator), converter(Rater), REPUTATION)
