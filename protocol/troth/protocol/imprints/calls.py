"""Creation and calls of contracts/imprints/Imprints.sol, and what a proof is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from troth.protocol.bindings import IMPRINTS, named, read_resource
from troth.protocol.bindings.structs import converter, encode_parameters
from troth.protocol.calls import Call, View, calldata
from troth.protocol.logs import EventLog, LogMeta, decoder
from troth.protocol.market.signed import Result, SignedOrder, VrfProof
from troth.protocol.market.token_proofs import ShownRequest, ShownToken
from troth.protocol.market.types import NO_ADDRESS, Bytes, ExecutionClass, Parameters
from troth.protocol.types import Address, Hash32, ModelDescriptor, Uint32

KEY_WORDS = 24


@dataclass(frozen=True, slots=True)
class ImprintKey:
    """What checks proofs over rows of so many columns: alpha, beta, gamma, delta, and a point for 1 and each of the
    four inputs; imaginary parts first."""

    columns: Uint32
    words: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ImprintProof:
    """All that convicts; ``signature`` is the node's over Imprints(result, imprints), ``points`` are the proof."""

    order: SignedOrder
    execution_class: ExecutionClass
    model: ModelDescriptor
    mark: int
    result: Result
    request: ShownRequest
    draw: VrfProof
    token: ShownToken
    rival: Uint32
    imprints: Hash32
    signature: Bytes
    imprint: int
    siblings: tuple[Hash32, ...]
    points: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ImprintKeyAdded:
    """A key that a new Imprints took; ``hash``: keccak256 of its words."""

    columns: int
    hash: Hash32
    meta: LogMeta


def key_added(log: EventLog) -> ImprintKeyAdded | None:
    """What a log says of a key; None for another event. Raises InvalidField for a broken one."""
    event = named("event", IMPRINTS)["ImprintKeyAdded"]
    return decoder(ImprintKeyAdded, event).event(log) if log.topics and log.topics[0] == event.topic else None


def imprints_creation(factory: Address, parameters: Parameters, keys: Sequence[ImprintKey]) -> Call:
    """What creates the Imprints of a deployment to come: the one that ``factory`` makes by these parameters with the
    new contract as ``prover``; the deployment's Proofs is asked about other evidence."""
    code = bytes.fromhex(read_resource(f"{IMPRINTS}.bytecode.json")["bytecode"].removeprefix("0x"))
    inputs = named("constructor", IMPRINTS)["constructor"].inputs
    return Call(
        "deployment of Imprints", code + encode_parameters(inputs, [factory, parameters, NO_ADDRESS, list(keys)])
    )


def evidence_of(proof: ImprintProof, recipient: Address) -> bytes:
    """What ``convict`` takes: calldata of ``beaten``."""
    return calldata(IMPRINTS, "beaten", proof, recipient)


def convict(evidence: bytes) -> Call:
    """Show it to Evidence; the evidence's recipient is paid."""
    return Call("convict", calldata(IMPRINTS, "convict", evidence))


def beaten(proof: ImprintProof, recipient: Address) -> View[tuple[Address, int, Hash32]]:
    """Who is convicted, of which block's order, by which subject."""

    def read(party: str, block: int, subject: bytes) -> tuple[Address, int, Hash32]:
        return converter(Address)(party), block, Hash32(subject)

    return View("beaten", evidence_of(proof, recipient), read, IMPRINTS)


def key_of(columns: int) -> View[bytes]:
    """The words of a key."""
    return View("keyOf", calldata(IMPRINTS, "keyOf", columns), bytes, IMPRINTS)
