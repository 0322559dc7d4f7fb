"""What an entry reads of a client's order: whose cache its prompt may be in, and the key to its answer.

All else is between client and scheduler, and travels as it came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from troth.node.errors import EntryRefused
from troth.protocol.hashing import keccak256
from troth.protocol.logprobs import ALTERNATIVES_LIMIT, NO_LOGPROBS
from troth.protocol.request import PROMPT_LIMIT, TOKENS_LIMIT
from troth.protocol.types import Hash32

_Hex32 = Annotated[str, msgspec.Meta(pattern="^0x[0-9a-fA-F]{64}$")]
_Token = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]


class _Order(msgspec.Struct, frozen=True):
    execution_class: _Hex32


class _Request(msgspec.Struct, frozen=True):
    prompt_tokens: Annotated[tuple[_Token, ...], msgspec.Meta(min_length=1, max_length=PROMPT_LIMIT)]
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=TOKENS_LIMIT)]


class _Body(msgspec.Struct, frozen=True):
    order: _Order
    request: _Request
    salt: _Hex32
    logprobs: Annotated[int, msgspec.Meta(ge=NO_LOGPROBS, le=ALTERNATIVES_LIMIT)] = NO_LOGPROBS


_DECODER = msgspec.json.Decoder(_Body)


@dataclass(frozen=True, slots=True)
class EnteredOrder:
    """A client's order as an entry needs it, and its bytes as they came.

    `logprobs`: alternatives with log probabilities that were asked for, NO_LOGPROBS for none of it.
    """

    body: bytes
    execution_class: Hash32
    prompt_tokens: tuple[int, ...]
    max_tokens: int
    salt: Hash32
    logprobs: int

    @property
    def salt_hash(self) -> bytes:
        """What another node is told of the salt."""
        return keccak256(self.salt)


def read_order(body: bytes) -> EnteredOrder:
    """The order in the body of POST /v1/orders; raises EntryRefused."""
    try:
        sent = _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        remedy = "Send the JSON that docs/schedulers.md describes."
        raise EntryRefused("bad_request", 400, "The order cannot be read", str(error)[:200], remedy) from error
    return EnteredOrder(
        body,
        Hash32(bytes.fromhex(sent.order.execution_class[2:])),
        sent.request.prompt_tokens,
        sent.request.max_tokens,
        Hash32(bytes.fromhex(sent.salt[2:])),
        sent.logprobs,
    )
