"""The lines of a scheduler's stream, as far as an entry reads them, and those that it writes itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from troth.node.errors import SchedulerAway
from troth.protocol.errors import ProtocolError
from troth.protocol.logprobs import NO_LOGPROBS, logprobs_from_bytes
from troth.protocol.market import bodies
from troth.protocol.market.bodies import Admitted, Checking, Committed, Results, Verdicts
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Result, TraceCommitment, Verdict
from troth.protocol.tokens import Finish
from troth.protocol.types import Address


def read_line(raw: bytes) -> dict[str, Any]:
    """A line's JSON object; raises SchedulerAway for anything else."""
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SchedulerAway("A line of the scheduler's stream is no JSON object", str(error)[:200]) from error


def node_of(line: dict[str, Any]) -> Address | None:
    """Whom an "admitted" line names to serve the whole model, by the scheduler's word: the client checks the proof.

    None for an order of several segments, and for a line that cannot be read.
    """
    try:
        nodes = bodies.read_part(Admitted, line).nodes
    except ProtocolError:
        return None
    return nodes[0] if len(nodes) == 1 else None


def verifiers_of(line: dict[str, Any]) -> tuple[Address, ...]:
    """Whom a "checking" line names for the only segment, each once in the order of first seats; else nobody."""
    try:
        segments = bodies.read_part(Checking, line).segments
    except ProtocolError:
        return ()
    return tuple(dict.fromkeys(segments[0])) if len(segments) == 1 else ()


def token_line(position: int, token: int, packed: bytes | None, asked: int, vocabulary: int) -> bytes:
    """A node's token as a line; log probabilities that cannot be are left out, nothing depends on them."""
    line: dict[str, object] = {"type": "token", "position": position, "id": token}
    if packed is not None and asked != NO_LOGPROBS:
        try:
            found = logprobs_from_bytes(packed, token, count=asked, vocabulary=vocabulary)
        except ProtocolError:
            return msgspec.json.encode(line)
        line["logprobs"] = {"logprob": found.chosen, "top": [[one, value] for one, value in found.top]}
    return msgspec.json.encode(line)


def said_line(written: int, signature: bytes) -> bytes:
    """The node's signature over all tokens so far."""
    return msgspec.json.encode({"type": "said", "written": written, "signature": "0x" + signature.hex()})


def results_line(finished: Finish | None, result: Signed[Result]) -> bytes:
    """The node's result, in the scheduler's words."""
    return bodies.line("results", Results("end" if finished == "stop" else "length", (result,)))


def committed_line(commitments: Sequence[Signed[TraceCommitment]]) -> bytes:
    """What the verifiers of the only segment committed to."""
    return bodies.line("committed", Committed(0, tuple(commitments)))


def verdicts_line(verdicts: Sequence[Signed[Verdict]]) -> bytes:
    """What verifiers of the only segment say."""
    return bodies.line("verdicts", Verdicts(0, tuple(verdicts)))
