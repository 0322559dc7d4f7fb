"""What an entry reads of a client's order: whose cache its prompt may be in, and the key to its answer.

All else is between client and scheduler, and travels as it came.
"""

from __future__ import annotations

from dataclasses import dataclass

from troth.node.errors import IntakeRefused
from troth.protocol.errors import ProtocolError
from troth.protocol.logprobs import ALTERNATIVES_LIMIT, NO_LOGPROBS
from troth.protocol.market import canonical, messages
from troth.protocol.market.bodies import SUBMISSION_LIMIT, Submission
from troth.protocol.request import from_canonical_bytes
from troth.protocol.typed_data import Domain
from troth.protocol.types import Hash32


@dataclass(frozen=True, slots=True)
class EnteredOrder:
    """A client's order as an entry needs it, and its bytes as they came.

    `logprobs`: alternatives with log probabilities that were asked for, NO_LOGPROBS for none of it.
    """

    body: bytes
    order_id: Hash32
    execution_class: Hash32
    prompt_tokens: tuple[int, ...]
    max_tokens: int
    salt: Hash32
    logprobs: int


def read_order(body: bytes, domain: Domain) -> EnteredOrder:
    """The order in the body of POST /v1/orders; raises IntakeRefused."""
    try:
        sent = canonical.decode(Submission, body, SUBMISSION_LIMIT)
        request = from_canonical_bytes(sent.request)
        order_id = messages.order_id(sent.order.message, domain)
    except ProtocolError as error:
        # Its value may be the prompt.
        raise IntakeRefused("bad_request", 400, "The order cannot be read", error.what, error.remedy) from error
    logprobs = NO_LOGPROBS if sent.logprobs is None else max(0, min(sent.logprobs, ALTERNATIVES_LIMIT))
    named = sent.order.message.execution_class
    return EnteredOrder(body, order_id, named, request.prompt_tokens, request.max_tokens, sent.salt, logprobs)
