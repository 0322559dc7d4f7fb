"""From what went wrong with a question to what the caller is told: who is charged, is a retry free."""

from __future__ import annotations

from typing import Any

from troth.chain.errors import ChainError
from troth.client.errors import (
    ClientError,
    ContextTooShort,
    FeeTooHigh,
    ModelUnavailable,
    OverlayFailed,
    OwnModelUnusable,
    PromptError,
    ReceiptsUnreadable,
)
from troth.client.gateway.errors import (
    FailureCost,
    GatewayRefusal,
    HopFailed,
    InvalidParameter,
    NotReady,
    PaymentRequired,
    Unsupported,
)
from troth.client.orders.failing import (
    AnswerChanged,
    OrderContradicted,
    OrderFailed,
    OrderStale,
    OrderStalled,
    OrderUnseen,
    StateUnknown,
)
from troth.client.orders.session import FAILURES
from troth.client.tabs.errors import NoTab, StoreUnusable, TabBehind, TabShort
from troth.transport.errors import CircuitFailed

NODE_FAILED = "node_failed"
"""A scheduler's word for an order whose node failed."""
FREE: dict[str, Any] = {"charged": False, "retry_free": True}


def short_of(what: str, shortfall: int, tab: str = "") -> PaymentRequired:
    """402 with the shortfall and the command that tops the tab up."""
    name = f" {tab[:12]}" if tab else ""
    command = f"troth client top-up{name} {shortfall}units --broadcast"
    details = {"shortfall_units": str(shortfall), "command": command, "tab": tab, **FREE}
    return PaymentRequired(what, f"{shortfall} units short", f"Top up with `{command}`.", troth=details)


def refusal_of(error: Exception, orders: tuple[str, ...] = (), param: str | None = None) -> GatewayRefusal:
    """What is told of a question that was given up."""
    if isinstance(error, GatewayRefusal):
        return error
    if isinstance(error, TabShort) or (isinstance(error, OrderFailed) and error.shortfall):
        return short_of(error.what, error.shortfall, error.tab)
    if isinstance(error, NoTab):
        command = "troth client open AMOUNT --broadcast"
        return PaymentRequired(error.what, error.value, error.remedy, code="no_tab", troth={"command": command, **FREE})
    if isinstance(error, FeeTooHigh):
        return PaymentRequired(error.what, error.value, error.remedy, code="cost_limit_exceeded", troth=FREE)
    if isinstance(error, ContextTooShort):
        limit = "max_output_tokens" if param == "input" else "max_tokens"
        remedy = f"Send a shorter prompt, or a smaller {limit}: {error.missing} less in all."
        what, shown = f"Prompt and {limit} need {error.needed} positions", f"the model has {error.context}"
        return InvalidParameter(what, shown, remedy, code="context_length_exceeded", param=param)
    if isinstance(error, PromptError):
        return InvalidParameter(error.what, error.value, error.remedy, code="context_length_exceeded", param=param)
    if isinstance(error, OwnModelUnusable):
        return Unsupported(error.what, error.value, error.remedy, param="troth.check")
    if isinstance(error, ModelUnavailable):
        remedy = "Ask differently: some models take no system message, or want user and assistant in turn."
        return Unsupported(error.what, "", remedy, param=param)
    if isinstance(error, StoreUnusable | TabBehind | ReceiptsUnreadable):
        return NotReady(error.what, error.value, error.remedy, "gateway")
    return _hop_failed(error, orders)


def _hop_failed(error: Exception, orders: tuple[str, ...]) -> HopFailed:
    hop, status, code, charged = _classified(error)
    what = error.what if isinstance(error, ClientError | ChainError) else "The request failed"
    value = error.value if isinstance(error, ClientError | ChainError) else type(error).__name__
    remedy = getattr(error, "remedy", "") or "Try again."
    return HopFailed(what, value or "", remedy, FailureCost(charged, orders), hop=hop, status=status, code=code)


def _classified(error: Exception) -> tuple[str, int, str, bool | str]:
    """The hop that failed, the HTTP status, a word for programs, and who is charged."""
    if isinstance(error, AnswerChanged):
        return "node", 502, "answer_changed", "unknown"
    if isinstance(error, StateUnknown):
        return "scheduler", 502, "state_not_shown", True
    if isinstance(error, OrderContradicted):
        return "scheduler", 502, "scheduler_contradicted", False
    if isinstance(error, OrderUnseen):
        return "chain", 504, "chain_behind", "unknown"
    if isinstance(error, OrderStale):
        return "chain", 503, "chain_behind", False
    if isinstance(error, OrderStalled):
        return "scheduler", 504, "scheduler_timeout", "unknown"
    if isinstance(error, OrderFailed):
        return "node" if error.value == NODE_FAILED else "scheduler", 503, "order_failed", False
    if isinstance(error, ChainError):
        return "chain", 503, "chain_unavailable", False
    if isinstance(error, OverlayFailed | CircuitFailed):
        return error.hop, 502, "hop_failed", False
    if isinstance(error, FAILURES):
        return "scheduler", 503, "scheduler_unreachable", False
    return "gateway", 500, "unforeseen", "unknown"
