"""A token that another one beats, shown from what its node signed: the rules of the contract ``Proofs``.

The proof opens one token of the answer, the state that it was chosen from, and two rows of the head under the model's
weights root. Both logits are integers (``exact_numbers``), the noise follows from the order and the scheduler's VRF
(``public_noise``). The token falls where its rival is ahead by more than any honest machine can be wrong: then whoever
computed honestly from this state cannot have chosen it. Where the request leaves tokens out (top_p, or by its version
top_k or min_p), the rival must be the likelier one, too: all three leave the likeliest tokens, so that it is left
wherever the token is, and nothing need be shown of how many they leave.
"""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol import typed_data, vrf
from troth.protocol.errors import InvalidNumbers, InvalidOpening, InvalidProof
from troth.protocol.exact_numbers import ExactLogits, NumberFormat, exact_logits
from troth.protocol.hashing import abi_keccak, keccak256
from troth.protocol.market import checks, messages
from troth.protocol.market.calls import argument, build, read_call
from troth.protocol.market.errors import NotEvidence
from troth.protocol.market.heads import MARK, head_of
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.signed import Result, Row, SignedOrder, VrfProof
from troth.protocol.market.types import Bytes, Contracts, ExecutionClass
from troth.protocol.public_noise import BITS, gumbel
from troth.protocol.request import OUTPUT_TAG, REQUEST_TAG, VERSION, WITH_CUTS, token_leaf
from troth.protocol.tensors import Dtype
from troth.protocol.tokens import noise_seed
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32, ModelDescriptor, Uint8, Uint32
from troth.protocol.weight_rows import model_hash, root_of_path, row_leaf, tensor_hash

TERMS_BYTES = 45
MILLION = 1_000_000
LEAST_SLACK_BITS = 24
"""2**-24 at least: above what float64 loses in the noise, and float32 below its smallest normal number."""
FORMATS = {"F32": NumberFormat.FLOAT32, "BF16": NumberFormat.BFLOAT16}


@dataclass(frozen=True, slots=True)
class ShownRequest:
    """How tokens are chosen: the first 45 bytes of the canonical request, and what hides the rest."""

    head: Bytes
    blind: Hash32


@dataclass(frozen=True, slots=True)
class ShownToken:
    """One token under the output hash."""

    index: Uint32
    token: Uint32
    blind: Hash32
    siblings: tuple[Hash32, ...]


@dataclass(frozen=True, slots=True)
class ShownRow:
    """The row that a token was chosen from; ``read`` is what it was computed from, where it binds that; else 0."""

    head_salt: Hash32
    previous: Hash32
    read: Uint32
    row: Bytes
    later: tuple[Hash32, ...]


@dataclass(frozen=True, slots=True)
class HeadMatrix:
    """The head's tensor and the way from it to the weights root; ``quantisation`` is the hash of the settings."""

    name: str
    dtype: str
    rows: Uint32
    quantisation: Hash32
    tensors: Uint32
    place: Uint32
    siblings: tuple[Hash32, ...]


@dataclass(frozen=True, slots=True)
class ShownWeights:
    """One row of the head."""

    row: Bytes
    siblings: tuple[Hash32, ...]


@dataclass(frozen=True, slots=True)
class TokenProof:
    """All that convicts; ``draw`` is empty at temperature 0. Sums are in units of 2**-``unit_bits``."""

    order: SignedOrder
    execution_class: ExecutionClass
    model: ModelDescriptor
    result: Result
    signature: Bytes
    request: ShownRequest
    draw: VrfProof
    token: ShownToken
    state: ShownRow
    rival: Uint32
    head: HeadMatrix
    claimed: ShownWeights
    better: ShownWeights
    unit_bits: Uint8


@dataclass(frozen=True, slots=True)
class ProvenFault:
    """Who is convicted, in which order's block, by which signature; the values that ``Proofs`` gives back."""

    party: Address
    offence_block: int
    subject: Hash32


def encode(proof: TokenProof, contracts: Contracts) -> bytes:
    """What ``Evidence.convictByProof`` takes."""
    return build(contracts, Part.PROOFS, "wrongToken", proof).call.data


def decode(data: bytes) -> TokenProof:
    """Inverse of ``encode``; raises InvalidField for other bytes."""
    return argument(read_call(Part.PROOFS, data), "proof", TokenProof)


def subject_of(found: ProvenFault) -> Hash32:
    """What Evidence convicts once: keccak256(abi.encode(Fault.ByProof, signature's struct hash))."""
    return Hash32(abi_keccak(["uint8", "bytes32"], [int(Fault.BY_PROOF), found.subject]))


def judge(proof: TokenProof, domain: Domain, vrf_key: tuple[int, int]) -> ProvenFault:
    """Whom a proof convicts; ``vrf_key`` is that of the order's scheduler. Raises NotEvidence where it does not."""
    order = messages.order_id(proof.order.order, domain)
    party = typed_data.recover(proof.result, domain, proof.signature)
    segments = messages.segment_count(proof.order.order.ends)
    _require((proof.result.order, proof.result.segment) == (order, segments - 1), "The result is of another place")
    _require(
        messages.state_hash(proof.execution_class) == proof.order.order.execution_class, "The order is of another class"
    )
    _require(messages.state_hash(proof.model) == proof.execution_class.model, "The class is of another model")
    named = head_of(proof.execution_class.name)
    _require(
        bool(named) and proof.execution_class.name.endswith(MARK + proof.head.name), "The class names no such head"
    )
    temperature, cut = _terms(proof)
    try:
        _require_token(proof)
        _require_state(proof, order, binds_token=segments == 1)
        _require_head(proof)
        _require_beaten(proof, order, temperature, vrf_key, cut=cut)
    except (InvalidOpening, InvalidNumbers, InvalidProof) as error:
        raise NotEvidence(error.what, error.value, error.remedy) from error
    return ProvenFault(party, proof.order.order.reference_block, typed_data.struct_hash(proof.result))


def lead_of(found: ExactLogits, unit: int, *, rounded: bool) -> tuple[int, int]:
    """By how much the rival's logit is the larger one, and what honest machines may differ by; in units of 2**-unit."""
    return found.others - found.own, (1 << (unit - LEAST_SLACK_BITS)) + found.slack(rounded=rounded)


def noise_lead(seed: Hash32, position: int, pair: tuple[int, int], temperature: int, unit: int) -> int:
    """By how much the noise of the second token of a pair is the larger one, times the temperature in millionths; in
    units of 2**-unit."""
    token, rival = pair
    lead = (gumbel(seed, position, rival) - gumbel(seed, position, token)) * temperature
    # Solidity's division rounds towards zero.
    whole = lead // MILLION if lead >= 0 else -(-lead // MILLION)
    return whole >> (BITS - unit)


def position_of(result: Result, index: int) -> int:
    """The row that a token of an answer was chosen from."""
    return result.prompt + result.cached + index - 1


def state_format(definition: ExecutionClass) -> NumberFormat:
    """How a class' rows hold numbers."""
    return NumberFormat.FLOAT32 if definition.dtype == Dtype.FLOAT32 else NumberFormat.BFLOAT16


def weight_format(dtype: str) -> NumberFormat:
    """How a head's file holds numbers; raises NotEvidence where no proof reads them."""
    found = FORMATS.get(dtype)
    if found is None:
        raise NotEvidence("The head holds numbers that no proof reads", dtype, "Bring the answer to the court.")
    return found


def _terms(proof: TokenProof) -> tuple[int, bool]:
    head, order = proof.request.head, proof.order.order
    _require(keccak256(REQUEST_TAG + head + proof.request.blind) == order.request_hash, "This is not what was ordered")
    _require(len(head) == TERMS_BYTES and head[1:33] == order.execution_class, "These are not the terms of a request")
    _require(head[0] in {VERSION, WITH_CUTS}, "The request transforms logits, which no proof weighs")
    temperature, top_p = int.from_bytes(head[37:41]), int.from_bytes(head[41:45])
    return temperature, temperature != 0 and (top_p < MILLION or head[0] == WITH_CUTS)


def _require_token(proof: TokenProof) -> None:
    shown, written = proof.token, proof.result.written
    leaf = token_leaf(shown.blind, shown.token)
    tree = root_of_path(leaf, shown.index, written, shown.siblings)
    named = keccak256(OUTPUT_TAG + written.to_bytes(4, "big") + tree)
    _require(named == proof.result.output_hash, "The answer holds no such token")


def _require_state(proof: TokenProof, order: Hash32, *, binds_token: bool) -> None:
    state, result = proof.state, proof.result
    _require(len(state.later) == result.written - 1 - proof.token.index, "The chain has another length")
    position = position_of(result, proof.token.index)
    _require(position >= 0, "No row chooses this token")
    bound = state.read.to_bytes(4, "big") if binds_token else b""
    link = state.previous
    for at, row_hash in enumerate((Hash32(keccak256(bound + state.row)), *state.later)):
        link = typed_data.struct_hash(Row(order, result.segment, position + at, row_hash, link))
    _require(checks.head(order, state.head_salt, link) == result.output_head, "The node signed another row")


def _require_head(proof: TokenProof) -> None:
    head, vocabulary = proof.head, proof.model.vocabulary
    _require(proof.rival < vocabulary, "The rival is outside of the vocabulary")
    roots = set()
    for place, shown in ((proof.token.token, proof.claimed), (proof.rival, proof.better)):
        roots.add(root_of_path(row_leaf(head.name, place, shown.row), place, head.rows, shown.siblings))
    _require(len(roots) == 1, "The rows are of two tensors")
    shape = (head.rows, proof.model.hidden_size)
    tensor = tensor_hash(head.name, head.dtype, shape, head.rows, roots.pop())
    found = model_hash(head.quantisation, head.tensors, root_of_path(tensor, head.place, head.tensors, head.siblings))
    _require(found == proof.model.weights_root, "These are not the model's weights")


def _require_beaten(proof: TokenProof, order: Hash32, temperature: int, vrf_key: tuple[int, int], *, cut: bool) -> None:
    definition = proof.execution_class
    kind, weights = state_format(definition), (proof.claimed.row, proof.better.row)
    rounded = definition.dtype != Dtype.FLOAT32
    _require(len(proof.state.row) == proof.model.hidden_size * kind.width, "The row has another width")
    unit, kinds = proof.unit_bits, (kind, weight_format(proof.head.dtype))
    found = exact_logits(proof.state.row, kinds[0], weights, kinds[1], rounded=rounded, unit=unit)
    if not found.is_state:
        # Such a row chooses nothing, and no honest node signs one.
        return
    likelier, slack = lead_of(found, unit, rounded=rounded)
    ahead = likelier
    if temperature:
        beta = Hash32(vrf.verify(vrf_key, messages.infer_alpha(order), proof.draw.proof))
        position, pair = position_of(proof.result, proof.token.index), (proof.token.token, proof.rival)
        ahead += noise_lead(noise_seed(order, beta), position, pair, temperature, unit)
    _require(ahead > slack and (not cut or likelier > slack), "The token stands: its rival is not ahead")


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise NotEvidence(what, None, "Compare the proof with what was signed.")
