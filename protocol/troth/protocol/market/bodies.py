"""What a client and its scheduler send each other over HTTP, beside the papers of nodes.

Bodies are canonical JSON (``canonical``). A stream is a line of JSON for each step, its ``type`` beside the fields of
one of the types below; what a later version adds is passed over, and a number may stand as a number, since nothing is
hashed from a line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from troth.protocol.errors import InvalidField
from troth.protocol.market import canonical
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Admission, Draw, Inclusion, Order, Result, TraceCommitment, Verdict
from troth.protocol.market.types import Tab, Voucher
from troth.protocol.types import Address, Hash32, Uint64, address_to_bytes

SUBMISSION_LIMIT = 1 << 21
"""Bytes of an order with its request; the longest prompt has one million as hexadecimal digits."""
BODY_LIMIT = 1 << 16
"""Bytes of every other body of a client."""

Value = TypeVar("Value")


# ------------------------------------------------------------------------------------------------------------- bodies


@dataclass(frozen=True, slots=True)
class Submission:
    """An order with all that its scheduler needs; ``request`` is ``canonical_bytes``, ``salt`` the request's.

    ``logprobs``: alternatives to each token, or None for no log probabilities; a hint under no signature.
    """

    order: Signed[Order]
    tab: Tab
    voucher: Signed[Voucher]
    request: bytes
    salt: Hash32
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The payer's newest word on a tab, outside of an order."""

    tab: Tab
    voucher: Signed[Voucher]


@dataclass(frozen=True, slots=True)
class ShownSecret:
    """A secret of an order: the first one ends its lottery, the second one picks the tiles of its check."""

    secret: Hash32


@dataclass(frozen=True, slots=True)
class TabQuery:
    """What a tab key signs to hear what its scheduler holds of a tab; ``time`` in Unix seconds, within five minutes."""

    tab: Hash32
    time: Uint64


@dataclass(frozen=True, slots=True)
class Said:
    """What a node signs of an answer while it writes it: the salted hash of all tokens so far (``output_hash``).

    So nobody between node and client can show other tokens, not even for a moment. What is owed, and what convicts, is
    the result alone.
    """

    order: Hash32
    output_hash: Hash32


@dataclass(frozen=True, slots=True)
class Recovery:
    """A question for what is known of a tab, under the tab key's signature of TabQuery(tab, time)."""

    time: int
    signature: bytes


@dataclass(frozen=True, slots=True)
class OpenOrder:
    """An order that no voucher acknowledges yet, and how far it has come."""

    order: Signed[Order]
    admission: Signed[Admission] | None = None
    nodes: tuple[Address, ...] = ()
    infer_proof: bytes = b""
    results: tuple[Signed[Result], ...] = ()
    draw: Signed[Draw] | None = None
    draw_proof: bytes = b""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The best voucher of a tab that its scheduler holds, and the orders that it leaves open."""

    voucher: Signed[Voucher] | None
    orders: tuple[OpenOrder, ...]


# ---------------------------------------------------------------------------------------------------- lines of a stream


@dataclass(frozen=True, slots=True)
class Admitted:
    """``admitted``: who serves, and the proof that they were drawn."""

    admission: Signed[Admission]
    nodes: tuple[Address, ...]
    infer_proof: bytes


@dataclass(frozen=True, slots=True)
class Results:
    """``results``: the answer is whole, for ``reason`` "end" or "length"; each node's signed result."""

    reason: str
    results: tuple[Signed[Result], ...]


@dataclass(frozen=True, slots=True)
class Lottery:
    """``draw``: beta with its proof over exactly these results, and a promise of inclusion in the log."""

    draw: Signed[Draw]
    proof: bytes
    inclusion: Signed[Inclusion] | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """``failed``: the order has no results and costs nothing."""

    code: str
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Checking:
    """``checking``: the drawn verifiers of each segment, one per seat."""

    segments: tuple[tuple[Address, ...], ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """``committed``: what the verifiers of a segment committed to, in the order of their first seats."""

    segment: int
    commitments: tuple[Signed[TraceCommitment], ...]


@dataclass(frozen=True, slots=True)
class Verdicts:
    """``verdicts``: what the verifiers of a segment say."""

    segment: int
    verdicts: tuple[Signed[Verdict], ...]


def line(kind: str, value: Any) -> bytes:
    """A line of a stream, without its end."""
    return json.dumps({"type": kind, **canonical.to_json(value)}, separators=(",", ":")).encode("ascii")


def read_part(kind: type[Value], given: Mapping[str, Any]) -> Value:
    """The fields of a line as one of the types above; raises InvalidField where they are not."""
    known = {field.name: _texts(given.get(field.name)) for field in fields(kind)}  # type: ignore[arg-type]
    if "remedy" in known and known["remedy"] is None:
        known["remedy"] = ""
    try:
        read: Value = canonical.from_json(kind, known)
    except InvalidField:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidField(f"This is no {kind.__name__.lower()}", str(error)[:200], "Send all its fields.") from error
    return read


def opening_context(order: Hash32, segment: int, party: Address) -> bytes:
    """What an opening is sealed for: one party's, of one segment of one order."""
    return b"troth opening " + order + bytes([segment]) + address_to_bytes(party)


def _texts(value: Any) -> Any:
    """Numbers as canonical JSON has them."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return [_texts(one) for one in value]
    if isinstance(value, dict):
        return {name: _texts(one) for name, one in value.items()}
    return value
