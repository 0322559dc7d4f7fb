"""Calls and reads of contracts/organisations/Organisations.sol."""

from __future__ import annotations

from collections.abc import Sequence

from troth.protocol.bindings import ORGANISATIONS
from troth.protocol.bindings.structs import converter
from troth.protocol.calls import Call, View, calldata
from troth.protocol.organisations import Presence
from troth.protocol.types import Address, Hash32, Segment


def reputation() -> View[Address]:
    """The Reputation whose epochs count."""
    return View("reputation", _data("reputation"), converter(Address), ORGANISATIONS)


def total() -> View[int]:
    """Credits that were ever made."""
    return View("total", _data("total"), int, ORGANISATIONS)


def post(epoch: int, nodes: Sequence[Presence]) -> Call:
    """Credit what nodes served in the epoch that ended last."""
    return Call("post", _data("post", epoch, list(nodes)))


def deploy(execution_class: Hash32, replicas: int, epochs: int, node: Address, source: str) -> Call:
    """Set credits aside for a model; ``node`` is a trusted one of the sender, ``source`` 256 bytes at most."""
    return Call("deploy", _data("deploy", execution_class, replicas, epochs, node, source))


def host(deployment: int, node: Address, layers: Segment) -> Call:
    """A node hosts these layers of a deployment, from the next epoch on."""
    return Call("host", _data("host", deployment, node, layers.first, layers.end))


def leave(node: Address) -> Call:
    """A node hosts its deployment no longer; this epoch is not paid."""
    return Call("leave", _data("leave", node))


def dismiss(node: Address) -> Call:
    """A deployment's owner sends a node away; this epoch is not paid."""
    return Call("dismiss", _data("dismiss", node))


def stop(deployment: int) -> Call:
    """This epoch is a deployment's last one."""
    return Call("stop", _data("stop", deployment))


def reclaim(deployment: int) -> Call:
    """What a deployment did not spend goes back to its owner."""
    return Call("reclaim", _data("reclaim", deployment))


def _data(function: str, *arguments: object) -> bytes:
    return calldata(ORGANISATIONS, function, *arguments)
