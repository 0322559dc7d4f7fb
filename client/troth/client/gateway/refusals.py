"""A refusal as an HTTP answer: in OpenAI's form, and where Anthropic's clients ask in theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from troth.client.gateway.errors import GatewayRefusal, InvalidParameter, NotFound, Unexpected, WrongMethod

MESSAGES = "/v1/messages"
"""Where Anthropic's clients ask; what begins so is theirs."""

_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}
"""Anthropic's word for an error, by the HTTP status; any other below 500 is an invalid request."""
_SERVED = ("chat/completions", "completions", "responses", "embeddings", "models", "messages")
"""Paths below /v1 that clients ask for."""


def anthropic_form(body: Mapping[str, Any], status: int) -> dict[str, Any]:
    """The same error as Anthropic's clients read it: `type` at the top, and their own word inside."""
    kind = _ANTHROPIC.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": body["error"] | {"type": kind}}


def answer_of(refusal: GatewayRefusal, path: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """What is answered on a path; ``headers`` beside those of the refusal."""
    body, status = refusal.to_json(), refusal.http_status
    found = anthropic_form(body, status) if path.startswith(MESSAGES) else body
    return JSONResponse(found, status, refusal.headers | dict(headers or {}))


def nothing_here(error: HTTPException, path: str, method: str) -> GatewayRefusal:
    """Of a path or a method that is not served, with the usual mistake in an address where it is one."""
    shown = path[:80]
    if error.status_code == 405:
        allowed = dict(error.headers or {}).get("Allow", "")
        return WrongMethod(f"This path does not take {method[:16]}", shown, f"Use {allowed or 'another method'}.")
    if error.status_code != 404:
        return InvalidParameter(str(error.detail), shown, "See docs/how-to/gateway.md.")
    remedy = "See docs/how-to/gateway.md."
    if path.startswith("/v1/v1/"):
        remedy = "The client adds /v1 by itself: give it the gateway's address without /v1."
    elif path.strip("/") in _SERVED:
        remedy = "Give the client the gateway's address with /v1 at its end."
    return NotFound("There is nothing here", shown, remedy, code="unknown_url")


def unknown_error(error: Exception) -> GatewayRefusal:
    """Of what should not have happened."""
    return Unexpected("The gateway stopped on an error that it does not know", type(error).__name__, "Report it.")
