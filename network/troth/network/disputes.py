"""Whether a deployment's prover is the shipped Disputes, made for this deployment and no other.

Immutables are masked where code is compared, so the transaction that created the contract is read: the shipped code
with the factory, the parameters and the Steps that the file names could have left nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from troth.chain import decoding
from troth.chain.deployment import disputes_creation
from troth.chain.errors import RpcRefused, WrongChain
from troth.chain.rpc import Rpc
from troth.network.description import DisputesPlace, NetworkDescription
from troth.protocol.bindings import DISPUTES, NUMBERS, STEPS
from troth.protocol.calls import Call
from troth.protocol.disputes.calls import DisputesDeployed, decode_event
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.runtime_code import IMMUTABLE_BYTES, runtime_of
from troth.protocol.types import Address, Hash32, to_address

DISTRUST = "Put no money there: whoever made the prover may convict whom it likes."
Examined = tuple[bool | None, str, str]
"""Whether it holds, None where it could not be looked at; what was found; a remedy where it does not hold."""


async def disputes_deployed(rpc: Rpc, contract: Address) -> DisputesDeployed:
    """What a Disputes said when it was created; WrongChain where the node does not show it."""
    wanted = {"address": contract, "fromBlock": "0x0", "toBlock": "latest"}
    for found in decoding.logs(await rpc.request("eth_getLogs", wanted)):
        event = decode_event(found)
        if isinstance(event, DisputesDeployed):
            return event
    raise WrongChain(
        "The node does not show how this Disputes was created", contract, "Use a node that keeps old logs."
    )


def numbers_of(code: bytes) -> Address:
    """The Numbers that a Steps calls, by its code; NO_ADDRESS for any other code."""
    shipped = runtime_of(STEPS)
    if not shipped.fits(code):
        return NO_ADDRESS
    words = {code[start : start + IMMUTABLE_BYTES] for start in shipped.immutables}
    return to_address("0x" + words.pop()[-20:].hex()) if len(words) == 1 else NO_ADDRESS


async def examine(rpc: Rpc, network: NetworkDescription) -> Examined:
    """N12 of ``verifying``."""
    place, prover = network.disputes, network.parameters.prover
    if place is None:
        if prover == NO_ADDRESS:
            return True, "there is none beside Proofs: wrong tokens convict, wrong rows go to the court", ""
        return False, f"the file does not say what {prover} is", DISTRUST
    code = {one: decoding.data(await rpc.request("eth_getCode", one, "latest")) for one in _places(place)}
    shipped = dict(zip(_places(place), (DISPUTES, STEPS, NUMBERS), strict=True))
    wrong = [name for one, name in shipped.items() if not runtime_of(name).fits(code[one])]
    if wrong:
        return False, f"other code of {', '.join(wrong)}", DISTRUST
    if numbers_of(code[place.steps]) != place.numbers:
        return False, f"its Steps calls another contract than {place.numbers}", DISTRUST
    return await _creation(rpc, network, place)


def _places(place: DisputesPlace) -> tuple[Address, Address, Address]:
    return place.address, place.steps, place.numbers


async def _creation(rpc: Rpc, network: NetworkDescription, place: DisputesPlace) -> Examined:
    parameters = replace(network.parameters, prover=NO_ADDRESS)
    creation = disputes_creation(network.factory, parameters, place.steps)
    words = f"Disputes at {place.address}, with its Steps and Numbers"
    return await examine_creation(rpc, place.address, place.created_by, creation, words)


async def examine_creation(
    rpc: Rpc, contract: Address, created_by: Hash32 | None, creation: Call, words: str
) -> Examined:
    """Whether a plain transaction created a contract by exactly this call; ``words`` say what was found then."""
    if created_by is None:
        return None, "the file names no transaction that created it", "Ask the founder for a file that names it."
    name = decoding.hexadecimal(created_by)
    try:
        sent: Any = await rpc.request("eth_getTransactionByHash", name)
        receipt: Any = await rpc.request("eth_getTransactionReceipt", name)
    except RpcRefused as error:
        return None, f"the node refuses: {error.message}", "Use another node."
    if not isinstance(sent, dict) or not isinstance(receipt, dict):
        return None, f"the node does not know {name}", "Use a node that keeps old transactions."
    if decoding.receipt(receipt).created != contract or sent.get("to") is not None:
        return False, f"{name} created something else", DISTRUST
    if decoding.data(sent.get("input")) != creation.data:
        return False, "it was created with other code, or for another deployment", DISTRUST
    return True, words, ""
