"""From what went wrong with an order to what the caller is told: which hop failed, who is charged, is a retry free."""

from __future__ import annotations

import re

from troth.chain.errors import ChainError
from troth.client.delivered import causes, never_sent
from troth.client.errors import (
    ClientError,
    FeeTooHigh,
    InsufficientBalance,
    ModelUnavailable,
    OverlayFailed,
    PromptError,
    ProofError,
    ReceiptsUnreadable,
    SchedulerRefused,
    SchedulerUnreachable,
    StreamError,
    WrongSchedulerKey,
)
from troth.client.gateway.errors import (
    GatewayRefusal,
    HopFailed,
    InvalidRequest,
    Money,
    NotReady,
    PaymentRequired,
    Unsupported,
)
from troth.client.ordering import SignedOrder
from troth.client.session import Session
from troth.client.standing import standing_of
from troth.overlay.errors import ChannelTimeout, CircuitFailed, CircuitSilent

_OVERLOADED = {"busy", "group_too_small", "chain_unavailable", "other_split"}
_HOPS = {
    "node_failed": "inferencer",
    "no_candidate_left": "inferencer",
    "window_used_up": "inferencer",
    "quorum_missed": "verifier",
    "chain_unavailable": "chain",
}
_WORD = re.compile(r"[a-z_]+")


def refusal_before(error: ClientError, param: str) -> GatewayRefusal:
    """What is told when an order could not even be prepared: nothing was sent, nothing is charged."""
    if isinstance(error, GatewayRefusal):
        return error
    if isinstance(error, InsufficientBalance):
        return short_of(error.what, error.shortfall)
    if isinstance(error, FeeTooHigh):
        return PaymentRequired(error.what, error.value, error.remedy, code="cost_limit_exceeded", troth=_FREE)
    if isinstance(error, PromptError):
        return InvalidRequest(error.what, error.value, error.remedy, code="context_length_exceeded", param=param)
    if isinstance(error, ModelUnavailable):
        # What the template says may quote the conversation, so only that it refused is told.
        remedy = "Ask differently: some models take no system message, or want user and assistant in turn."
        return Unsupported("The model's chat template does not accept this conversation", "", remedy, param=param)
    if isinstance(error, ReceiptsUnreadable):
        return NotReady(error.what, error.value, error.remedy, "gateway")
    return _hop_failed(error, Money(False))


def chain_failed(error: ChainError) -> GatewayRefusal:
    """The chain could not be asked; nothing was sent."""
    return _hop_failed(error, Money(False))


def short_of(what: str, shortfall: int) -> PaymentRequired:
    """402 with the shortfall and the command that tops it up."""
    command = f"troth client deposit {shortfall}wei --broadcast"
    details = {"shortfall_wei": str(shortfall), "command": command, **_FREE}
    return PaymentRequired(what, f"{shortfall} wei short", f"Top up with `{command}`.", troth=details)


async def failure_of(session: Session, signed: SignedOrder, error: Exception, *, answered: bool) -> GatewayRefusal:
    """What is told of an order that was given up; `answered` says that the scheduler had begun to answer it."""
    task = "0x" + signed.task_id.hex()
    if isinstance(error, InsufficientBalance) and not answered:
        refusal = short_of(error.what, error.shortfall)
        refusal.troth["task"] = task
        if _is_hearsay(session):
            refusal.troth |= {"charged": await _charged(session, signed, error), "retry_free": False}
        return refusal
    certain = not answered and (never_sent(error) or (isinstance(error, SchedulerRefused) and not _is_hearsay(session)))
    charged = False if certain else await _charged(session, signed, error)
    return _hop_failed(error, Money(charged, (task,)), session.destination)


def _is_hearsay(session: Session) -> bool:
    """Whether a scheduler's refusal is only what a node says it said: a node that may be paid for the answer could give
    the order, and say that it was refused, so that it is given and paid once more."""
    return session.destination == "node"


async def _charged(session: Session, signed: SignedOrder, error: Exception) -> bool | str:
    try:
        state = await session.follower.catch_up()
    except ChainError:
        return "unknown"
    standing = standing_of(state, signed.task_id)
    if standing is None:
        # A scheduler that gave up says so; one that fell silent may open the task until its deadline.
        return False if isinstance(error, SchedulerRefused) and not _is_hearsay(session) else "unknown"
    return "unknown" if standing.outcome is None else standing.paid > 0


def _hop_failed(error: Exception, money: Money, destination: str = "scheduler") -> HopFailed:
    hop, status, code = _classified(error, destination)
    what, value = getattr(error, "what", "The request failed"), getattr(error, "value", type(error).__name__)
    remedy = getattr(error, "remedy", "") or "Try again."
    if money.charged == "unknown":
        remedy += " GET /v1/receipts and `troth client receipts` show how the task ends."
    return HopFailed(what, value or "", remedy, money, hop=hop, status=status, code=code)


def _classified(error: Exception, destination: str) -> tuple[str, int, str]:
    """The class of what failed, the HTTP status, and a word for programs; `destination` is whom requests go to."""
    silent = any(isinstance(one, CircuitSilent) for one in causes(error))
    if isinstance(error, OverlayFailed):
        return error.hop, 504 if silent else 502, "hop_failed"
    circuit = next((one for one in causes(error) if isinstance(one, CircuitFailed)), None)
    if circuit is not None:
        return circuit.hop, 504 if silent else 502, "hop_failed"
    if isinstance(error, ChainError):
        return "chain", 503, "chain_unavailable"
    if isinstance(error, ReceiptsUnreadable):
        return "gateway", 503, "receipts_unreadable"
    if isinstance(error, SchedulerRefused):
        # Also in direct mode its own word, which the node passed on.
        code = _scheduler_code(error)
        return _HOPS.get(code, "scheduler"), 503 if code in _OVERLOADED else 502, code
    if isinstance(error, WrongSchedulerKey):
        return destination, 502, f"wrong_{destination}_key"
    if isinstance(error, ProofError):
        return destination, 502, f"{destination}_contradicted"
    if any(isinstance(one, TimeoutError | ChannelTimeout) for one in causes(error)):
        return destination, 504, f"{destination}_timeout"
    if isinstance(error, SchedulerUnreachable):
        return destination, 503, f"{destination}_unreachable"
    return destination, 502, f"{destination}_stream_broken" if isinstance(error, StreamError) else "hop_failed"


def _scheduler_code(error: SchedulerRefused) -> str:
    """The scheduler's own word, which stands last in the error's value."""
    found = _WORD.findall(str(error.value))
    return found[-1] if found else "scheduler_refused"


_FREE = {"charged": False, "retry_free": True}
