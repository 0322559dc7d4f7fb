"""EIP-712 typed data over flat dataclasses: hash, sign, recover.

An encoder per dataclass is derived once, so that a row costs a few microseconds to hash; the differential test
compares every message with eth_account. Signatures are 65 bytes r ‖ s ‖ v with v 27 or 28 and s in the lower half of
the curve order, the only form that the contract's ECDSA library accepts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from coincurve import PrivateKey, PublicKey

from troth.protocol.errors import InvalidField, InvalidSignature
from troth.protocol.hashing import keccak256
from troth.protocol.types import Address, Hash32, Solidity, address_from_bytes, address_to_bytes

CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
_DOMAIN_TYPE = b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"

_FieldEncoder = Callable[[Any], bytes]
_Plan = tuple[bytes, tuple[tuple[str, _FieldEncoder], ...]]
_PLANS: dict[type, _Plan] = {}


@dataclass(frozen=True, slots=True)
class Domain:
    """Where a signature counts: one contract on one chain; ``version`` "1" is the committee's, "2" the market's."""

    chain_id: int
    contract: Address
    version: str = "1"


def solidity_type(annotation: object) -> str:
    """Solidity type of a field annotation; raises TypeError where EIP-712 messages of Troth have no such field."""
    if get_origin(annotation) is Annotated:
        for extra in get_args(annotation)[1:]:
            if isinstance(extra, Solidity):
                return extra.name
    known: dict[object, str] = {bool: "bool", str: "string", Hash32: "bytes32", Address: "address"}
    if annotation not in known:
        raise TypeError(f"{annotation!r} has no Solidity type; annotate the field with troth.protocol.types")
    return known[annotation]


def camel_case(name: str) -> str:
    """``row_hash`` to ``rowHash``: Python's field names in the contract's spelling."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _encode_uint(bits: int) -> _FieldEncoder:
    limit = 1 << bits

    def encode(value: Any) -> bytes:
        if type(value) is not int and (isinstance(value, bool) or not isinstance(value, int)):
            raise InvalidField(f"A uint{bits} field holds an integer", value, "Pass a plain int.")
        if not 0 <= value < limit:
            raise InvalidField(f"A uint{bits} field holds 0 to 2**{bits} - 1", value, "Check where the number is from.")
        return value.to_bytes(32, "big")

    return encode


def _encode_bytes32(value: Any) -> bytes:
    if type(value) is not bytes or len(value) != 32:
        raise InvalidField("A bytes32 field holds exactly 32 bytes", value, "Pass the full digest.")
    return value


def _encode_bool(value: Any) -> bytes:
    if type(value) is not bool:
        raise InvalidField("A bool field holds True or False", value, "Pass a bool.")
    return value.to_bytes(32, "big")


def _encode_address(value: Any) -> bytes:
    return bytes(12) + address_to_bytes(value)


def encode_text(value: Any) -> bytes:
    """UTF-8 bytes of a string field; raises InvalidField for another type or a lone surrogate."""
    if type(value) is not str:
        raise InvalidField("A string field holds text", value, "Pass a str.")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidField("A string field holds valid Unicode", value, "Remove the lone surrogate.") from error


def _encode_string(value: Any) -> bytes:
    return keccak256(encode_text(value))


_ENCODERS: dict[str, _FieldEncoder] = {
    "bytes32": _encode_bytes32,
    "bool": _encode_bool,
    "address": _encode_address,
    "string": _encode_string,
}


def field_encoder(name: str) -> _FieldEncoder:
    """Encoder of one 32-byte word for a Solidity type (a string as its hash); it raises InvalidField."""
    if name.startswith("uint"):
        return _encode_uint(int(name[4:]))
    return _ENCODERS[name]


def _fields(message_type: type) -> tuple[Field[Any], ...]:
    if not is_dataclass(message_type):
        raise TypeError(f"{message_type!r} is no dataclass of troth.protocol.types")
    return fields(message_type)


def type_string(message_type: type) -> str:
    """``encodeType`` of EIP-712 for a dataclass, e.g. ``Consent(address owner,address operator)``."""
    hints = get_type_hints(message_type, include_extras=True)
    members = [f"{solidity_type(hints[field.name])} {camel_case(field.name)}" for field in _fields(message_type)]
    return f"{message_type.__name__}({','.join(members)})"


def type_hash(message_type: type) -> bytes:
    """keccak256 of the type string."""
    return keccak256(type_string(message_type).encode("ascii"))


def _plan(message_type: type) -> _Plan:
    """Type hash and field encoders, derived once per dataclass: hashing a row must cost microseconds."""
    plan = _PLANS.get(message_type)
    if plan is None:
        hints = get_type_hints(message_type, include_extras=True)
        encoders = [(field.name, field_encoder(solidity_type(hints[field.name]))) for field in _fields(message_type)]
        plan = _PLANS[message_type] = (type_hash(message_type), tuple(encoders))
    return plan


def type_hash_of(message_type: type) -> bytes:
    """``type_hash``, derived once per dataclass."""
    return _plan(message_type)[0]


def struct_hash(message: Any) -> Hash32:
    """``hashStruct`` of EIP-712; raises InvalidField where a value does not fit its Solidity type."""
    prefix, encoders = _plan(type(message))
    parts = [prefix]
    for name, encode in encoders:
        parts.append(encode(getattr(message, name)))
    return Hash32(keccak256(b"".join(parts)))


@lru_cache(maxsize=64)
def domain_separator(domain: Domain) -> bytes:
    """Hash of the EIP-712 domain {name "Troth", version, chain id, contract}."""
    return keccak256(
        keccak256(_DOMAIN_TYPE)
        + keccak256(b"Troth")
        + keccak256(encode_text(domain.version))
        + _encode_uint(256)(domain.chain_id)
        + _encode_address(domain.contract)
    )


def digest(message: Any, domain: Domain) -> Hash32:
    """The 32 bytes that are signed: keccak256(0x1901 ‖ domain separator ‖ struct hash)."""
    return Hash32(keccak256(b"\x19\x01" + domain_separator(domain) + struct_hash(message)))


@lru_cache(maxsize=32)
def _private_key(secret: bytes) -> PrivateKey:
    """A key derives its public points when it is made, which takes longer than a signature: the last few are kept."""
    if len(secret) != 32 or not 0 < int.from_bytes(secret, "big") < CURVE_ORDER:
        what = "A secp256k1 secret is 32 bytes, above zero and below the curve order"
        raise InvalidField(what, f"{len(secret)} bytes", "Take the key from a keystore.")
    return PrivateKey(secret)


def address_of(secret: bytes) -> Address:
    """Account of a secp256k1 secret key."""
    return _address(_private_key(secret).public_key)


def _address(key: PublicKey) -> Address:
    return address_from_bytes(keccak256(key.format(compressed=False)[1:])[12:])


def sign(message: Any, domain: Domain, secret: bytes) -> bytes:
    """65-byte signature of ``message`` (RFC 6979 nonce, low s)."""
    return sign_digest(digest(message, domain), secret)


def sign_digest(message_digest: bytes, secret: bytes) -> bytes:
    """The same over 32 bytes of another domain, such as a token's permit."""
    signature: bytes = _private_key(secret).sign_recoverable(message_digest, hasher=None)
    return signature[:64] + bytes((27 + signature[64],))


def recover(message: Any, domain: Domain, signature: bytes) -> Address:
    """Signer of ``message``; raises InvalidSignature for any signature that the contract would refuse."""
    return recover_digest(digest(message, domain), signature)


def recovered_key(message_digest: bytes, signature: bytes) -> bytes:
    """The compressed public key, 33 bytes, that signed a digest; raises InvalidSignature as ``recover`` does."""
    key: bytes = _recovered(message_digest, signature).format()
    return key


def recover_digest(message_digest: bytes, signature: bytes) -> Address:
    """Signer of a 32-byte digest; raises InvalidSignature as ``recover`` does."""
    return _address(_recovered(message_digest, signature))


def _recovered(message_digest: bytes, signature: bytes) -> PublicKey:
    remedy = "Sign the message again with troth.protocol.typed_data.sign."
    if len(signature) != 65:
        raise InvalidSignature("A signature has 65 bytes: r, s, v", f"{len(signature)} bytes", remedy)
    if signature[64] not in (27, 28):
        raise InvalidSignature("The last byte of a signature is 27 or 28", signature[64], remedy)
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
    if not 0 < s <= CURVE_ORDER // 2:
        raise InvalidSignature("s must lie in the lower half of the curve order", hex(s), remedy)
    if not 0 < r < CURVE_ORDER:
        raise InvalidSignature("r must lie between 1 and the curve order", hex(r), remedy)
    try:
        recoverable = bytes(signature[:64]) + bytes((signature[64] - 27,))
        return PublicKey.from_signature_and_message(recoverable, message_digest, hasher=None)
    except ValueError as error:
        raise InvalidSignature("No public key fits the signature", signature, remedy) from error


def require_signer(message: Any, domain: Domain, signature: bytes, expected: Address) -> None:
    """Raise InvalidSignature unless ``expected`` signed ``message``."""
    signer = recover(message, domain, signature)
    if signer != expected:
        what = f"{type(message).__name__} was signed by {signer}, not by {expected}"
        remedy = "It was altered on its way, or another key signed: get it again from whom it came."
        raise InvalidSignature(what, signature, remedy)
