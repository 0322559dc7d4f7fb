"""What the gateway answers when it does not answer, in OpenAI's form.

GatewayRefusal (a ClientError)
├── InvalidParameter        400 a field is missing, of the wrong kind or out of bounds
│   └── Unsupported         400 a field whose meaning would be lost in silence
├── KeyRefused              401 no API key, or another one
├── PageRefused             403 a browser page, or a Host that is not this machine
├── NotFound                404 no such model, receipt or path
├── WrongMethod             405 the path is there, and takes another method
├── TooLarge                413 the body
├── TooSlow                 408 the body did not come in time
├── TooMany                 429 every place is taken; Retry-After says when to come back
├── PaymentRequired         402 balance, --max-cost or --budget do not cover the request
├── AnswerRejected          502 the chain did not accept the answer
├── NotReady                503 there is no session at a scheduler now
├── HopFailed               502, 503, 504 scheduler, chain or a hop of the overlay failed
└── Unexpected              500 an error that the gateway does not know
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from troth.client.errors import ClientError

RETRY_AFTER = 5
"""Seconds until a place may be free."""

RETRY_SECONDS = 2
"""After which a scheduler that was busy, or out of reach, may be asked again."""


class GatewayRefusal(ClientError):
    """Base: an HTTP status, and the four fields of OpenAI's error object.

    Args:
        what, value, remedy: as in every ClientError.
        code: the word that programs compare.
        param: the request's field, if one is at fault.
        troth: what else the caller should know, as JSON; always a dict in the body.
    """

    status: ClassVar[int] = 400
    kind: ClassVar[str] = "invalid_request_error"
    default_code: ClassVar[str] = "invalid_value"

    def __init__(
        self,
        what: str,
        value: object = "",
        remedy: str = "",
        *,
        code: str = "",
        param: str | None = None,
        troth: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(what, value, remedy)
        self.code = code or self.default_code
        self.param = param
        self.troth = troth or {}

    @property
    def http_status(self) -> int:
        """Status of the answer."""
        return self.status

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer besides its type."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """Body of the answer, and the data of a stream's last event."""
        shown = f" ({self.value})" if self.value != "" else ""
        message = f"{self.what}{shown}. {self.remedy}".strip()
        details = {"remedy": self.remedy, **self.troth}
        return {
            "error": {
                "message": message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
                "troth": details,
            }
        }


class InvalidParameter(GatewayRefusal):
    """A field is missing, of the wrong kind or out of bounds."""


class Unsupported(InvalidParameter):
    """A field whose meaning would be lost if it were accepted."""

    default_code = "unsupported_value"


class KeyRefused(GatewayRefusal):
    """No API key, or another one."""

    status = 401
    default_code = "invalid_api_key"


class PageRefused(GatewayRefusal):
    """A browser page asks, or the Host is not a name of this machine."""

    status = 403
    default_code = "forbidden"


class NotFound(GatewayRefusal):
    """No such model, receipt or path."""

    status = 404
    default_code = "not_found"


class WrongMethod(GatewayRefusal):
    """The path is there, and takes another method."""

    status = 405
    default_code = "method_not_allowed"


class TooLarge(GatewayRefusal):
    """The body has too many bytes."""

    status = 413
    default_code = "request_too_large"


class TooSlow(GatewayRefusal):
    """The body did not come in time."""

    status = 408
    default_code = "request_timeout"

    @property
    def headers(self) -> dict[str, str]:
        return {"connection": "close"}


class TooMany(GatewayRefusal):
    """Every place is taken; nothing was ordered."""

    status = 429
    kind = "rate_limit_error"
    default_code = "rate_limit_exceeded"

    def __init__(self, what: str, value: object) -> None:
        super().__init__(what, value, f"Try again in {RETRY_AFTER} s.", troth={"charged": False, "retry_free": True})

    @property
    def headers(self) -> dict[str, str]:
        return {"retry-after": str(RETRY_AFTER)}


class PaymentRequired(GatewayRefusal):
    """Balance, --max-cost or --budget do not cover the request; nothing was ordered."""

    status = 402
    kind = "insufficient_quota"
    default_code = "insufficient_balance"


@dataclass(frozen=True, slots=True)
class FailureCost:
    """What a failure means for the wallet. `charged` is True, False or "unknown"; a retry is a new order."""

    charged: bool | str
    tasks: tuple[str, ...] = field(default=())

    @property
    def retry_free(self) -> bool:
        """Whether asking again can cost no more than asking once."""
        return self.charged is False

    def to_json(self) -> dict[str, Any]:
        """The fields of an error's `troth` object."""
        found: dict[str, Any] = {"charged": self.charged, "retry_free": self.retry_free}
        if self.tasks:
            found |= {"task": self.tasks[0], "tasks": list(self.tasks)}
        return found


class _WithMoney(GatewayRefusal):
    kind = "api_error"

    def __init__(self, what: str, value: object, remedy: str, money: FailureCost, code: str = "", **troth: Any) -> None:
        super().__init__(what, value, remedy, code=code, troth={**troth, **money.to_json()})
        self.money = money

    @property
    def headers(self) -> dict[str, str]:
        # openai-python repeats a request after any 5xx by itself, unless it is told that this is not free.
        found = {} if self.money.retry_free else {"x-should-retry": "false"}
        return found | ({"x-troth-task": ",".join(self.money.tasks)} if self.money.tasks else {})


class AnswerRejected(_WithMoney):
    """The chain decided, and did not accept the answer."""

    status = 502
    default_code = "answer_rejected"


class NotReady(GatewayRefusal):
    """There is no session at a scheduler now; nothing was ordered."""

    status = 503
    kind = "api_error"
    default_code = "not_ready"

    def __init__(self, what: str, value: object, remedy: str, hop: str) -> None:
        super().__init__(what, value, remedy, troth={"hop": hop, "charged": False, "retry_free": True})


class HopFailed(_WithMoney):
    """Scheduler, chain, a node or a hop of the overlay failed; `hop` is the class of what failed."""

    default_code = "hop_failed"

    def __init__(
        self, what: str, value: object, remedy: str, money: FailureCost, *, hop: str, status: int, code: str
    ) -> None:
        super().__init__(what, value, remedy, money, code, hop=hop)
        self.hop = hop
        self._status = status

    @property
    def headers(self) -> dict[str, str]:
        waits = self._status == 503 and self.money.retry_free
        return super().headers | ({"retry-after": str(RETRY_SECONDS)} if waits else {})

    @property
    def http_status(self) -> int:
        return self._status


class Unexpected(GatewayRefusal):
    """An error that the gateway does not know; nothing is known of money either."""

    status = 500
    kind = "server_error"
    default_code = "internal_error"

    @property
    def headers(self) -> dict[str, str]:
        return {"x-should-retry": "false"}
