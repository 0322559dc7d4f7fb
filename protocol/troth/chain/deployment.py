"""Deploy the contracts that the packaged bindings describe: Troth after its code for disputes and its libraries."""

from __future__ import annotations

from collections.abc import Sequence

from troth.chain import decoding
from troth.chain.adapter import RECEIPT_TIMEOUT, REQUEST_TIMEOUT, Chain
from troth.chain.errors import WrongChain
from troth.chain.keystore import Key
from troth.chain.records import Receipt, Simulation
from troth.chain.rpc import Rpc
from troth.chain.transactions import Transactions
from troth.protocol.bindings import COMMITTEE, named, read_resource
from troth.protocol.bindings.structs import encode_parameters
from troth.protocol.calls import Call
from troth.protocol.committee import Member
from troth.protocol.contract_types import Parameters
from troth.protocol.types import Address


async def deploy(
    url: str,
    parameters: Parameters,
    key: Key,
    *,
    request_timeout: float = REQUEST_TIMEOUT,
    receipt_timeout: float = RECEIPT_TIMEOUT,
) -> tuple[Chain, Receipt]:
    """Deploy from ``key``; the connected chain and the receipt of the contract's own creation.

    Raises ChainRejected if the constructor refuses the parameters, ChainUnavailable if the node does not answer.
    """
    rpc = Rpc(url, timeout=request_timeout)
    try:
        chain_id = decoding.quantity(await rpc.request("eth_chainId"))
        transactions = Transactions(rpc, chain_id)
        packaged = read_resource("troth.bytecode.json")
        libraries = {}
        for name, bytecode in packaged["libraries"].items():
            created = await _create(transactions, f"library {name}", _unhex(bytecode), key, receipt_timeout)
            libraries[name] = _address_of(created)
        inputs = named("constructor")["constructor"].inputs
        disputes = _unhex(packaged["reviewPath"]) + encode_parameters(inputs[:1], [parameters])
        created = await _create(transactions, "deployment of ReviewPath", disputes, key, receipt_timeout)
        code = _linked(packaged["bytecode"], packaged["references"], libraries)
        arguments = encode_parameters(inputs, [parameters, _address_of(created)])
        receipt = await _create(transactions, "deployment of Troth", code + arguments, key, receipt_timeout)
    except BaseException:
        await rpc.close()
        raise
    return Chain(rpc, chain_id, _address_of(receipt)), receipt


def committee_creation(members: Sequence[Member]) -> Call:
    """What creates a Committee with these first members (1 to 32)."""
    code = _unhex(read_resource("committee.bytecode.json")["bytecode"])
    inputs = named("constructor", COMMITTEE)["constructor"].inputs
    return Call("deployment of Committee", code + encode_parameters(inputs, [list(members)]))


async def submit(
    url: str, call: Call, key: Key, to: Address | None = None, *, receipt_timeout: float = RECEIPT_TIMEOUT
) -> Receipt:
    """Send a creation, or a call of a contract that is not Troth, and wait; its events are left out of the receipt.

    Raises ChainRejected if the contract refuses it.
    """
    rpc = Rpc(url, timeout=REQUEST_TIMEOUT)
    try:
        transactions = Transactions(rpc, decoding.quantity(await rpc.request("eth_chainId")))
        transaction = await transactions.send(call, key, to, None)
        return await transactions.wait(transaction, None, 1, receipt_timeout)
    finally:
        await rpc.close()


async def estimate_creation(url: str, creation: Call, sender: Address) -> Simulation:
    """What a creation would cost, without sending it."""
    rpc = Rpc(url, timeout=REQUEST_TIMEOUT)
    try:
        transactions = Transactions(rpc, decoding.quantity(await rpc.request("eth_chainId")))
        fees, gas = await transactions.fees(), await transactions.estimate(creation, sender, None)
    finally:
        await rpc.close()
    return Simulation(creation.function, sender, 0, gas, gas * fees.maximum, None)


async def _create(transactions: Transactions, what: str, code: bytes, key: Key, timeout: float) -> Receipt:
    transaction = await transactions.send(Call(what, code), key, None)
    return await transactions.wait(transaction, None, 1, timeout)


def _address_of(receipt: Receipt) -> Address:
    if receipt.created is None:
        raise WrongChain("The receipt of a creation names no contract", receipt.transaction.hex(), "Use another node.")
    return receipt.created


def _linked(bytecode: str, references: list[dict[str, int | str]], libraries: dict[str, Address]) -> bytes:
    """Bytecode with each library's address in its places; ``start`` counts bytes."""
    digits = list(bytecode.removeprefix("0x"))
    for reference in references:
        start, length = 2 * int(reference["start"]), 2 * int(reference["length"])
        digits[start : start + length] = libraries[str(reference["library"])].removeprefix("0x").lower()
    return bytes.fromhex("".join(digits))


def _unhex(digits: str) -> bytes:
    return bytes.fromhex(digits.removeprefix("0x"))
