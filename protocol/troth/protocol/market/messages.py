"""What parties sign (EIP-712), and every hash that is made of it: the rules of the contracts' library ``Messages``.

All messages are flat, so that a struct hash is keccak256(abi.encode(type hash, message)). The domain is that of the
Bank: name "Troth", version "2". A digest is what is signed; an order's digest is its id everywhere, so that chain,
deployment and asset are part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from troth.protocol import typed_data
from troth.protocol.errors import InvalidField, InvalidSignature
from troth.protocol.hashing import keccak256
from troth.protocol.market.proceedings import SummonsKind
from troth.protocol.market.signed import Opinion, Order, Result, Signature, Verdict, Word
from troth.protocol.market.types import Tab
from troth.protocol.types import Address, Hash32, Segment, address_to_bytes, segments_from_ends, to_hash32

VERSION = "2"
"""Of the EIP-712 domain: no signature of the directory's committee counts here, and none of the market's there."""

INFER_TAG = keccak256(b"troth/market/infer/1")
DRAW_TAG = keccak256(b"troth/market/draw/1")
CHECK_TAG = keccak256(b"troth/market/check/1")
COURT_TAG = keccak256(b"troth/market/court/1")
TILES_TAG = keccak256(b"troth/market/tiles/1")
HEARING_TAG = keccak256(b"troth/market/hearing/1")
OBJECTION_TAG = keccak256(b"troth/market/objection/1")

DOUBTS = 128
"""A doubt over segment s has the case id of segment 128 + s, so that no doubt keeps a rejection out of the court."""

_STATIC_WORDS = ("uint", "bool", "address", "bytes32")

Message = TypeVar("Message")
KeyCheck = Callable[[Address, Hash32, bytes], bool]
"""Whether a tab key signed a digest: a seam, since a key may be a contract that only the chain can ask (EIP-1271)."""
BY_ACCOUNT = (
    "Sign it with the tab key, which has to be an account: what a contract agrees to (EIP-1271) it may deny before it "
    "is redeemed."
)
"""What to do where a service takes no signature of a tab key."""


def market_domain(chain_id: int, bank: Address) -> typed_data.Domain:
    """The domain of every signature of a deployment: its Bank is the verifying contract."""
    return typed_data.Domain(chain_id, bank, VERSION)


@dataclass(frozen=True, slots=True)
class Signed(Generic[Message]):
    """A message and its signature."""

    message: Message
    signature: bytes

    def require(self, domain: typed_data.Domain, signer: Address) -> Message:
        """The message, if ``signer`` signed it; else raises InvalidSignature."""
        typed_data.require_signer(self.message, domain, self.signature, signer)
        return self.message


def sign(message: Message, domain: typed_data.Domain, secret: bytes) -> Signed[Message]:
    """``message`` with the signature of a secret key."""
    return Signed(message, typed_data.sign(message, domain, secret))


def signed_by_account(key: Address, digest: Hash32, signature: bytes) -> bool:
    """The check of a tab key that is an account; services take no other.

    The Bank takes a contract's word, too, and asks for it when a voucher is redeemed: the contract may have changed its
    mind by then, and what was served until then would be unpaid.
    """
    try:
        return typed_data.recover_digest(digest, signature) == key
    except InvalidSignature:
        return False


# ------------------------------------------------------------------------------------------------ abi.encode of structs


def abi_type(hint: Any) -> str:
    """Canonical ABI type of a field annotation: structs as tuples, enums as uint8."""
    if get_origin(hint) is tuple:
        return abi_type(get_args(hint)[0]) + "[]"
    if get_origin(hint) is not Annotated and isinstance(hint, type):
        if is_dataclass(hint):
            hints = get_type_hints(hint, include_extras=True)
            return f"({','.join(abi_type(hints[field.name]) for field in fields(hint))})"
        if issubclass(hint, IntEnum):
            return "uint8"
    return typed_data.solidity_type(hint)


def abi_encode(*structs: Any) -> bytes:
    """``abi.encode`` of structs; raises InvalidField where a value does not fit its Solidity type.

    Packed here since eth_abi pads a short bytes32 in silence, which would give another, valid-looking hash.
    """
    return _sequence([(type(struct), struct) for struct in structs])


def abi_encode_fields(struct: Any) -> bytes:
    """``abi.encode`` of a struct's fields, one argument each."""
    return _encode(type(struct), struct)


def state_hash(state: Any) -> Hash32:
    """keccak256(abi.encode(state)): what a contract keeps of a claim, a case, a summons, a class or a model."""
    return Hash32(keccak256(abi_encode(state)))


def _sequence(items: Sequence[tuple[Any, Any]]) -> bytes:
    """Heads, then tails, as for a tuple."""
    encoded = [(_is_dynamic(hint), _encode(hint, value)) for hint, value in items]
    offset = sum(32 if dynamic else len(data) for dynamic, data in encoded)
    heads, tails = [], []
    for dynamic, data in encoded:
        if dynamic:
            heads.append(offset.to_bytes(32))
            tails.append(data)
            offset += len(data)
        else:
            heads.append(data)
    return b"".join((*heads, *tails))


def _is_dynamic(hint: Any) -> bool:
    written = abi_type(hint)
    return "[]" in written or "string" in written or "bytes" in written.replace("bytes32", "")


def _encode(hint: Any, value: Any) -> bytes:
    if get_origin(hint) is tuple:
        item = get_args(hint)[0]
        return len(value).to_bytes(32) + _sequence([(item, one) for one in value])
    if get_origin(hint) is not Annotated and is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        return _sequence([(hints[field.name], getattr(value, field.name)) for field in fields(hint)])
    written = abi_type(hint)
    if written.startswith(_STATIC_WORDS):
        return typed_data.field_encoder(written)(value)
    data = typed_data.encode_text(value) if written == "string" else bytes(value)
    return len(data).to_bytes(32) + data + bytes(-len(data) % 32)


# --------------------------------------------------------------------------------------------------- ids and hashes


def signing_digest(message: Any, domain: typed_data.Domain) -> Hash32:
    """The 32 bytes that are signed."""
    return typed_data.digest(message, domain)


@lru_cache(maxsize=1 << 10)
def order_id(order: Order, domain: typed_data.Domain) -> Hash32:
    """The digest that the tab key signs; kept, since whoever serves an order asks for it a dozen times."""
    return typed_data.digest(order, domain)


@lru_cache(maxsize=1 << 14)
def tab_id(tab: Tab) -> Hash32:
    """keccak256(abi.encode(payer, payee, key)); kept, since every message of an order asks for it again."""
    return state_hash(tab)


def results_hash(results: Sequence[Result]) -> Hash32:
    """keccak256 over the struct hashes of all results, in order of segments: what a Draw names."""
    return results_hash_of([typed_data.struct_hash(result) for result in results])


def results_hash_of(hashes: Sequence[Hash32]) -> Hash32:
    """The same of results whose struct hashes are known."""
    return Hash32(keccak256(b"".join(hashes)))


def nodes_hash(nodes: Sequence[Address]) -> Hash32:
    """keccak256 over the inferencer of each segment, a word each: what an Admission names."""
    return Hash32(keccak256(b"".join(_account(node) for node in nodes)))


def case_id(order: Hash32, segment: int) -> Hash32:
    """One case per order and segment; a doubt counts the segment from DOUBTS on."""
    return Hash32(keccak256(to_hash32(order) + _number(segment)))


def summons_id(order: Hash32, kind: SummonsKind, segment: int) -> Hash32:
    """One summons of a kind per order and segment, ever."""
    return Hash32(keccak256(to_hash32(order) + _number(kind) + _number(segment)))


def objection_id(claim: Hash32, sequence: int) -> Hash32:
    """The bond that an objection to one number of a claim puts up."""
    return Hash32(keccak256(OBJECTION_TAG + to_hash32(claim) + _number(sequence)))


def hearing_id(case: Hash32, round_: int) -> Hash32:
    """One round of a case: what reviewers' commitments name, so that none of one round is worth anything in another."""
    return Hash32(keccak256(HEARING_TAG + to_hash32(case) + _number(round_)))


def trace_commitment(root: Hash32, salt: Hash32) -> Hash32:
    """keccak256(abi.encode(trace root, salt)): nobody guesses a trace from what its node signed."""
    return Hash32(keccak256(to_hash32(root) + to_hash32(salt)))


def verifier_commitment(order: Hash32, segment: int, verifier: Address, *, root: Hash32, salt: Hash32) -> Hash32:
    """What a verifier signs before it sees the node's rows; its address is in it, so that a copy opens for nobody."""
    words = (to_hash32(order), _number(segment), _account(verifier), to_hash32(root), to_hash32(salt))
    return Hash32(keccak256(b"".join(words)))


def review_commitment(
    hearing: Hash32, reviewer: Address, *, root: Hash32, opinion: Opinion, score: int, spread: int, salt: Hash32
) -> Hash32:
    """keccak256(abi.encode(hearing, reviewer, root, opinion, score, spread, salt)): what a reviewer signs."""
    numbers = b"".join(_number(value) for value in (opinion, score, spread))
    return Hash32(keccak256(to_hash32(hearing) + _account(reviewer) + to_hash32(root) + numbers + to_hash32(salt)))


def compact(signature: bytes) -> Signature:
    """A signature of 65 bytes in 64; raises InvalidField for another length or parity."""
    if len(signature) != 65 or signature[64] not in (27, 28):
        raise InvalidField("A signature is r, s, and 27 or 28", signature, "Take the signature of an account.")
    parity = (signature[64] - 27) << 7
    return Signature(Hash32(signature[:32]), Hash32(bytes([signature[32] | parity]) + signature[33:64]))


def word_of(verdict: Signed[Verdict]) -> Word:
    """A verdict as the answer of a summons shows it: order, segment and result are known there."""
    said = verdict.message
    return Word(said.commitment, said.opinion, said.locks, compact(verdict.signature))


def segment_count(ends: Hash32) -> int:
    """How many segments such ends name; raises InvalidField unless they rise and are zero after the last."""
    named = ends.rstrip(b"\0")
    if not named or any(before >= after for before, after in pairwise((0, *named))):
        raise InvalidField("Ends of segments rise, and are zero after the last", ends, "Check the layer split.")
    return len(named)


def layers_of(ends: Hash32, segment: int) -> Segment:
    """Layers of a segment; raises InvalidField for one that the ends do not name."""
    if not 0 <= segment < len(ends) or not ends[segment]:
        raise InvalidField("The ends name no such segment", segment, "Count segments from 0.")
    return Segment(ends[segment - 1] if segment else 0, ends[segment])


def segments_of(order: Order, layers: int) -> tuple[Segment, ...]:
    """The layer split that an order names; raises InvalidField unless it covers the model."""
    ends = order.ends.rstrip(b"\0")
    return segments_from_ends(tuple(ends), layers)


# -------------------------------------------------------------------------------------------- VRF inputs and seeds


def infer_alpha(order: Hash32) -> Hash32:
    """VRF input from which inferencers follow; ``order`` is the order's digest."""
    return Hash32(keccak256(INFER_TAG + to_hash32(order)))


def draw_alpha(order: Hash32) -> Hash32:
    """VRF input of the lottery."""
    return Hash32(keccak256(DRAW_TAG + to_hash32(order)))


def check_seed(order: Hash32, secret: Hash32, beta: Hash32, results: Hash32) -> Hash32:
    """From which a checked leaf's verifiers follow, one seed for all segments (``segment_seed``).

    The scheduler signed beta and results before it knew the client's secret, and the client committed to its secret
    before it knew them: neither alone picks verifiers, and one proof serves for lottery and verifiers.
    """
    words = (to_hash32(order), to_hash32(secret), to_hash32(beta), to_hash32(results))
    return Hash32(keccak256(CHECK_TAG + b"".join(words)))


def segment_seed(beta: Hash32, segment: int) -> Hash32:
    """Seed of a segment's draw, under the VRF's output for inferencers or under ``check_seed``."""
    return Hash32(keccak256(to_hash32(beta) + _number(segment)))


def court_seed(case: Hash32, round_: int, randao: Hash32) -> Hash32:
    """Seed of the draw of reviewers."""
    return Hash32(keccak256(COURT_TAG + to_hash32(case) + _number(round_) + to_hash32(randao)))


def tiles_seed(case: Hash32, commitments: Sequence[Hash32], randao: Hash32) -> Hash32:
    """Seed of a case's tiles."""
    committed = keccak256(b"".join(to_hash32(one) for one in commitments))
    return Hash32(keccak256(TILES_TAG + to_hash32(case) + committed + to_hash32(randao)))


def check_tiles_seed(second_secret: Hash32, commitments: Sequence[Hash32]) -> Hash32:
    """Seed of a check's tiles: the client's second secret, shown after every verifier has committed."""
    committed = b"".join(to_hash32(one) for one in commitments)
    return Hash32(keccak256(to_hash32(second_secret) + committed))


def _number(value: int) -> bytes:
    if not 0 <= value < 1 << 256:
        raise InvalidField("A word holds 0 to 2**256 - 1", value, "Check where the number is from.")
    return int(value).to_bytes(32)


def _account(address: Address) -> bytes:
    return bytes(12) + address_to_bytes(address)
