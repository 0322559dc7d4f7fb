"""A refusal as an HTTP answer: in OpenAI's form, and where Anthropic's clients ask in theirs."""

from __future__ import annotations

import re
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
_ELSEWHERE = (
    (r"responses/[^/]+/cancel",
     "Nothing runs in the background. End the connection: the answer ends there, and so does what it costs."),
    (r"responses/[^/]+/(input_items|compact)|responses/(input_tokens|compact)|conversations(/.*)?",
     "Only responses are kept: GET /v1/responses/ID has one, and previous_response_id goes on from it."),
    (r"chat/completions/.+", "Chats are not kept. GET /v1/receipts/ID tells what became of one."),
    (r"audio/.*|images/.*|videos(/.*)?|realtime(/.*)?", "The models here read and write text alone."),
    (r"(files|uploads|batches|vector_stores|containers|skills)(/.*)?",
     "Nothing is stored here. Send texts with the question; --concurrent says how many questions run at a time."),
    (r"(assistants|threads|chatkit)(/.*)?", "Use POST /v1/responses with previous_response_id."),
    (r"moderations|fine_tuning/.*|fine-tunes(/.*)?|evals(/.*)?|organization/.*", "Ask it of a service that has it."),
)  # fmt: skip
"""What OpenAI's interface has and this one has not, by the path below /v1, and what to do instead."""
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
    elif instead := _instead(path):
        return NotFound("The gateway does not have this part of OpenAI's interface", shown, instead, code="unknown_url")
    return NotFound("There is nothing here", shown, remedy, code="unknown_url")


def _instead(path: str) -> str:
    """What to do instead of what OpenAI's interface has here; empty for a path of nobody's."""
    below = path.removeprefix("/v1/").rstrip("/")
    known = path.startswith("/v1/")
    return next((remedy for pattern, remedy in _ELSEWHERE if known and re.fullmatch(pattern, below)), "")


def unknown_error(error: Exception) -> GatewayRefusal:
    """Of what should not have happened."""
    return Unexpected("The gateway stopped on an error that it does not know", type(error).__name__, "Report it.")
