"""The lines of a scheduler's stream, as far as an entry reads them, and those that it writes itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from troth.node.errors import SchedulerAway
from troth.protocol.errors import ProtocolError
from troth.protocol.logprobs import NO_LOGPROBS, logprobs_from_bytes
from troth.protocol.types import Address, Hash32, to_address


class _Assigned(msgspec.Struct, frozen=True):
    task_id: Annotated[str, msgspec.Meta(pattern="^0x[0-9a-fA-F]{64}$")]
    parties: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A task of one segment and who may serve it, by the scheduler's word: the client checks the proof."""

    task_id: Hash32
    candidates: tuple[Address, ...]


def read_line(raw: bytes) -> dict[str, Any]:
    """A line's JSON object; raises SchedulerAway for anything else."""
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SchedulerAway("A line of the scheduler's stream is no JSON object", str(error)[:200]) from error


def read_assigned(line: dict[str, Any], candidates: int) -> Drawn | None:
    """Whom an "assigned" line names; None where it is of no direct task or cannot be read."""
    try:
        read = msgspec.convert(line, _Assigned)
        if len(read.parties) != 1:
            return None
        drawn = tuple(to_address(party) for party in read.parties[0][:candidates])
    except (msgspec.MsgspecError, ProtocolError):
        return None
    return Drawn(Hash32(bytes.fromhex(read.task_id[2:])), drawn)


def token_line(position: int, token: int, packed: bytes | None, asked: int, vocabulary: int) -> bytes:
    """A node's token as a line; log probabilities that cannot be are left out, nothing depends on them."""
    line: dict[str, object] = {"type": "token", "id": token, "position": position}
    if packed is not None and asked != NO_LOGPROBS:
        try:
            found = logprobs_from_bytes(packed, token, count=asked, vocabulary=vocabulary)
        except ProtocolError:
            return msgspec.json.encode(line)
        line |= {"logprob": found.chosen, "top": found.top}
    return msgspec.json.encode(line)
