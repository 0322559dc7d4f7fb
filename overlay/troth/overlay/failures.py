"""From exceptions to the refusals that travel, and back."""

from __future__ import annotations

import re

import msgspec

from troth.overlay.errors import RemoteFailure
from troth.protocol.wire import Failure

_MESSAGE_LIMIT = 2000
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
INTERNAL = "internal"


def failure_of(error: BaseException) -> Failure:
    """The refusal that a peer gets for an exception.

    Errors of Troth's packages carry `what` and `remedy` and speak for themselves; of any other the peer learns only
    that it happened, since its text was not written for strangers.
    """
    what, remedy = getattr(error, "what", None), getattr(error, "remedy", None)
    if not isinstance(what, str) or not isinstance(remedy, str):
        return Failure(
            INTERNAL, "The request failed inside the node", "Try another node; this one has logged the cause."
        )
    value = getattr(error, "value", None)
    message = what if value is None else f"{what}: {value}"
    return Failure(_code(error), message[:_MESSAGE_LIMIT], remedy[:_MESSAGE_LIMIT])


def remote_failure(endpoint: str, failure: Failure) -> RemoteFailure:
    """The exception for a refusal from `endpoint`, whose words are a stranger's and may end up on a terminal."""
    return RemoteFailure(endpoint, failure.code, _printable(failure.message), _printable(failure.remedy))


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def encode_failure(failure: Failure) -> bytes:
    """JSON of a refusal, for answers outside the channel."""
    return msgspec.json.encode(failure)


def decode_failure(body: bytes) -> Failure | None:
    """The refusal in a JSON body, or None if the body is something else."""
    try:
        return msgspec.json.decode(body, type=Failure)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _code(error: BaseException) -> str:
    declared = getattr(error, "code", None)
    return declared if isinstance(declared, str) else _CAPITAL.sub("_", type(error).__name__).lower()
