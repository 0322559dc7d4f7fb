"""From the JSON of POST /v1/orders to typed values; every refusal is a BadRequest that names the field.

`logprobs` is a hint beside the request, in no hash and under no signature: it changes nothing that is paid for, signed
or verified, and scheduler or node may not serve it. Who could change it on the way could as well drop the order.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from troth.protocol.types import pack_ends
from troth.protocol.errors import ProtocolError
from troth.protocol.logprobs import ALTERNATIVES_LIMIT, NO_LOGPROBS
from troth.protocol.types import SEGMENTS_LIMIT, Address, Hash32, Order, to_address
from troth.scheduler.admission import SubmittedOrder, SubmittedRequest
from troth.scheduler.errors import BadRequest

_Hex32 = Annotated[str, msgspec.Meta(pattern="^0x[0-9a-fA-F]{64}$")]
_Hex65 = Annotated[str, msgspec.Meta(pattern="^0x[0-9a-fA-F]{130}$")]
_Wei = Annotated[str, msgspec.Meta(pattern="^(0|[1-9][0-9]{0,28})$")]
_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_End = Annotated[int, msgspec.Meta(ge=1, le=255)]
_Small = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
_Logprobs = Annotated[int, msgspec.Meta(ge=NO_LOGPROBS, le=ALTERNATIVES_LIMIT)]


class _Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    execution_class: _Hex32
    request_hash: _Hex32
    scheduler: str
    max_fee: _Wei
    deadline: _Whole
    reference_block: _Whole
    nonce: _Whole
    ends: Annotated[tuple[_End, ...], msgspec.Meta(min_length=1, max_length=SEGMENTS_LIMIT)]


class _Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    prompt_tokens: tuple[_Small, ...]
    max_tokens: _Small
    temperature_millionths: _Small
    top_p_millionths: _Small
    end_tokens: tuple[_Small, ...]


class _Submission(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    order: _Order
    signature: _Hex65
    request: _Request
    salt: _Hex32
    logprobs: _Logprobs = NO_LOGPROBS


class _Chosen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    operator: str | None


_DECODER = msgspec.json.Decoder(_Submission)
_CHOSEN = msgspec.json.Decoder(_Chosen)


def read_submission(body: bytes) -> SubmittedOrder:
    """The submitted order; raises BadRequest."""
    try:
        sent = _DECODER.decode(body)
        scheduler = to_address(sent.order.scheduler)
    except msgspec.MsgspecError as error:
        raise BadRequest(
            "The order cannot be read", error, "Send the JSON that docs/schedulers.md describes."
        ) from error
    except ProtocolError as error:
        raise BadRequest(error.what, error.value, error.remedy) from error
    order = Order(
        execution_class=_hash(sent.order.execution_class),
        request_hash=_hash(sent.order.request_hash),
        scheduler=scheduler,
        max_fee=int(sent.order.max_fee),
        deadline=sent.order.deadline,
        reference_block=sent.order.reference_block,
        nonce=sent.order.nonce,
        ends=pack_ends(sent.order.ends),
    )
    request = SubmittedRequest(
        sent.request.prompt_tokens,
        sent.request.max_tokens,
        sent.request.temperature_millionths,
        sent.request.top_p_millionths,
        sent.request.end_tokens,
    )
    return SubmittedOrder(order, bytes.fromhex(sent.signature[2:]), request, _hash(sent.salt), sent.logprobs)


def read_operator(body: bytes) -> Address | None:
    """The node that an entry chose, from {"operator": "0x…"}, or null for none; raises BadRequest."""
    try:
        named = _CHOSEN.decode(body).operator
        return None if named is None else to_address(named)
    except msgspec.MsgspecError as error:
        raise BadRequest("The choice cannot be read", error, 'Send {"operator": "0x…"} or null.') from error
    except ProtocolError as error:
        raise BadRequest(error.what, error.value, error.remedy) from error


def _hash(text: str) -> Hash32:
    return Hash32(bytes.fromhex(text[2:]))
