"""Whether a deployment's prover is the shipped Imprints, made for this deployment and no other.

As of disputes, the transaction that created the contract is read. Its keys are those that the file names by their
hashes; whether the ceremony that made them can be believed is for operators to find out (docs/explanation/ceremony.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from troth.chain import decoding
from troth.chain.errors import RpcRefused
from troth.chain.rpc import Rpc
from troth.chain.transactions import message
from troth.network.description import ImprintsPlace, NetworkDescription
from troth.network.disputes import DISTRUST, Examined, examine_creation
from troth.protocol.bindings import IMPRINTS
from troth.protocol.calls import Call
from troth.protocol.hashing import keccak256
from troth.protocol.imprints import calls
from troth.protocol.imprints.calls import ImprintKey, imprints_creation
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.runtime_code import runtime_of
from troth.protocol.types import Address, Hash32

WORD = 32


async def imprints_place(rpc: Rpc, contract: Address, created_by: Hash32 | None) -> ImprintsPlace:
    """What an Imprints said of its keys when it was created."""
    wanted = {"address": contract, "fromBlock": "0x0", "toBlock": "latest"}
    added = (calls.key_added(log) for log in decoding.logs(await rpc.request("eth_getLogs", wanted)))
    return ImprintsPlace(contract, {one.columns: one.hash for one in added if one is not None}, created_by)


async def examine_imprints(rpc: Rpc, network: NetworkDescription, place: ImprintsPlace) -> Examined:
    """N12 of ``verifying``, where the prover is an Imprints."""
    code = decoding.data(await rpc.request("eth_getCode", place.address, "latest"))
    if not runtime_of(IMPRINTS).fits(code):
        return False, "other code of imprints", DISTRUST
    keys = [await _key(rpc, place.address, columns) for columns in place.keys]
    for (columns, expected), words in zip(place.keys.items(), keys, strict=True):
        if keccak256(words) != expected:
            return False, f"another key for rows of {columns} columns than the file names, or none", DISTRUST
    parameters = replace(network.parameters, prover=NO_ADDRESS)
    checking = [ImprintKey(columns, _numbers(words)) for columns, words in zip(place.keys, keys, strict=True)]
    creation = imprints_creation(network.factory, parameters, checking)
    widths = ", ".join(map(str, place.keys))
    found = f"Imprints at {place.address}, with keys for rows of {widths} columns: look at their ceremony"
    return await examine_creation(rpc, place.address, place.created_by, creation, found)


async def _key(rpc: Rpc, contract: Address, columns: int) -> bytes:
    """The words of a key; nothing where there is none."""
    view = calls.key_of(columns)
    try:
        answer: Any = await rpc.request("eth_call", message(Call(view.function, view.data), None, contract), "latest")
    except RpcRefused:
        return b""
    return view.result(decoding.data(answer))


def _numbers(words: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(words[at : at + WORD]) for at in range(0, len(words), WORD))
