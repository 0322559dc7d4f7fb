"""What can go wrong between two parties, each with what happened, the offending value and what to do.

OverlayError
 ├─ IdentityUnusable        TLS key or certificate on disk cannot be used
 ├─ WrongTlsKey             the peer shows another TLS key than the registered one
 ├─ KeyInUse                another process serves with the keys of this one
 ├─ EnvelopeRefused         a message that is not believed
 │   ├─ MalformedEnvelope
 │   ├─ WrongSigner
 │   ├─ ClockSkew
 │   ├─ Replayed
 │   └─ NotAuthorised
 ├─ TunnelRefused           a scheduler lends this node no endpoint, or has taken it back
 ├─ RouterRefused           the router opens no port, or cannot be asked
 ├─ FrameTooLarge
 ├─ Overloaded              too many requests in flight, try again
 ├─ ChannelUnavailable      no connection, or it broke before the answer
 │   └─ ChannelTimeout
 ├─ RemoteFailure           the peer answered, and the answer is a refusal
 ├─ CellRefused             bytes on a link or in a circuit that are not believed
 │   ├─ MalformedCell
 │   ├─ CellTampered        a layer's tag does not fit: changed, replayed, reordered or lost before it
 │   └─ QuotaExceeded       more than the other end was granted
 ├─ HandshakeRefused        a relay could not prove that it holds its registered key
 ├─ UnknownDestination      a name that is in no directory of ours
 ├─ RelayMisconfigured      a relay's files cannot be used
 └─ CircuitFailed           a circuit ended; names the class of the hop that failed
     └─ CircuitSilent

Exceptions become the refusals that travel, and refusals exceptions again.
"""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from troth.protocol.errors import TrothError
from troth.protocol.struct_kinds import prepared
from troth.protocol.wire import Failure

_MESSAGE_LIMIT = 2000
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
INTERNAL = "internal"


class OverlayError(TrothError):
    """Base of this package's errors."""

    code: ClassVar[str] = "overlay"


class IdentityUnusable(OverlayError):
    """The TLS key or certificate file is missing, unreadable, or readable by others."""

    code = "identity_unusable"


class WrongTlsKey(OverlayError):
    """The peer's TLS public key does not hash to the value registered on chain."""

    code = "wrong_tls_key"


class KeyInUse(OverlayError):
    """Another process serves with the keys of this one; whoever starts processes tells it by the exit code."""

    code = "key_in_use"
    exit_code = 5


class SealBroken(OverlayError):
    """Something sealed cannot be opened with this key, or nothing can be sealed to it."""

    code = "seal_broken"


class EnvelopeRefused(OverlayError):
    """A message whose envelope is not believed; nothing of its content was looked at."""

    code = "envelope_refused"


class MalformedEnvelope(EnvelopeRefused):
    """The bytes are no envelope of this version."""

    code = "malformed_envelope"


class WrongSigner(EnvelopeRefused):
    """The signature does not come from the party that the connection belongs to."""

    code = "wrong_signer"


class ClockSkew(EnvelopeRefused):
    """The timestamp lies outside the allowed window; `seconds` is theirs minus ours."""

    code = "clock_skew"

    def __init__(self, seconds: int, allowed: int) -> None:
        direction = "ahead of" if seconds > 0 else "behind"
        super().__init__(
            f"The sender's clock is {abs(seconds)} s {direction} this machine's clock, {allowed} s are allowed",
            remedy="Synchronise both clocks (for example with chrony or systemd-timesyncd) and try again.",
        )
        self.seconds = seconds


class Replayed(EnvelopeRefused):
    """This message was seen before, or is too old to tell."""

    code = "replayed"


class NotAuthorised(EnvelopeRefused):
    """The sender proved who it is, and is not allowed in."""

    code = "not_authorised"


class TunnelRefused(OverlayError):
    """A node is lent no endpoint here, or another process of it has it."""

    code = "tunnel_refused"


class RouterRefused(OverlayError):
    """The router of this machine opens no port, or cannot be asked."""

    code = "router_refused"


class FrameTooLarge(OverlayError):
    """A message over the size that the peer accepts."""

    code = "frame_too_large"


class Overloaded(OverlayError):
    """Too many requests are in flight; the request was not started and may be sent again."""

    code = "overloaded"


class ChannelUnavailable(OverlayError):
    """There is no connection to the peer, or it broke before the answer came."""

    code = "channel_unavailable"


class ChannelTimeout(ChannelUnavailable):
    """The peer did not answer in time."""

    code = "channel_timeout"


class RemoteFailure(OverlayError):
    """The peer refused: its own code, message and remedy."""

    code = "remote_failure"

    def __init__(self, peer: str, remote_code: str, message: str, remedy: str) -> None:
        super().__init__(f"{peer} answered {remote_code}: {message}", remedy=remedy)
        self.remote_code = remote_code
        self.message = message


class CellRefused(OverlayError):
    """Bytes on a link or in a circuit that are not believed; what sent them is closed."""

    code = "cell_refused"


class MalformedCell(CellRefused):
    """Bytes that are no cell, or a cell whose content is none, of this version."""

    code = "malformed_cell"


class CellTampered(CellRefused):
    """The tag of layer `layer` (1 is nearest to the client) does not fit this cell at this place in the order."""

    code = "cell_tampered"

    def __init__(self, layer: int) -> None:
        super().__init__(
            f"The tag of layer {layer} does not fit",
            remedy="Nothing to correct here: a cell was changed, repeated, swapped or left out on its way.",
        )
        self.layer = layer


class QuotaExceeded(CellRefused):
    """The peer sent more than it was granted."""

    code = "quota_exceeded"


class HandshakeRefused(OverlayError):
    """The other end of a circuit set-up did not prove that it holds the registered key."""

    code = "handshake_refused"


class UnknownDestination(OverlayError):
    """A relay or a destination that no directory names; nobody is connected to."""

    code = "unknown_destination"


class RelayMisconfigured(OverlayError):
    """A relay's configuration, directory or handshake key cannot be used."""

    code = "relay_misconfigured"


class CircuitFailed(OverlayError):
    """A circuit ended before it was closed by its client.

    Args:
        hop: what failed: guard, middle, proxy, destination, or client (it was closed).
        position: of the failed hop, 1 is the guard; 0 where it cannot be told.
        reason: the word that the hop before it, or the client itself, found for it.
    """

    code = "circuit_failed"

    def __init__(self, hop: str, position: int, reason: str, remedy: str = "") -> None:
        super().__init__(
            f"The {hop} of the circuit failed: {reason}",
            remedy=remedy or "Build another circuit; leave this hop out, and the one before it if that happens again.",
        )
        self.hop = hop
        self.position = position
        self.reason = reason


class CircuitSilent(CircuitFailed):
    """Nothing came back in time, and the hops up to `position` - 1 are alive."""

    code = "circuit_silent"


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
    return RemoteFailure(endpoint, failure.code, visible(failure.message), visible(failure.remedy))


def visible(text: str) -> str:
    """A stranger's words without what steers a terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def encode_failure(failure: Failure) -> bytes:
    """JSON of a refusal, for answers outside the channel."""
    return msgspec.json.encode(failure)


def decode_failure(body: bytes) -> Failure | None:
    """The refusal in a JSON body, or None if the body is something else."""
    try:
        return msgspec.json.decode(body, type=prepared(Failure))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _code(error: BaseException) -> str:
    declared = getattr(error, "code", None)
    return declared if isinstance(declared, str) else _CAPITAL.sub("_", type(error).__name__).lower()
