"""Chat templates as models ship them, rendered in a sandbox.

A template is text that somebody registered, so it runs in Jinja's immutable sandbox, with only the names that templates
of Hugging Face models use: `raise_exception`, `strftime_now`, `tojson`, loop controls and the `generation` tag.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from troth.client.errors import ModelUnavailable
from troth.client.untrusted import bounded_recursion

LARGEST_TEMPLATE = 256 * 1024
LARGEST_OUTPUT = 4 * 1024 * 1024
"""Characters of a rendered conversation; a template may loop, and no served context is near this."""
DEEPEST_CALL = 32
REMEMBERED = 8
"""Templates whose compiled form is kept: compiling takes longer than rendering, and each question renders."""

_FAILURES = (
    TemplateError,
    ArithmeticError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    RecursionError,
    MemoryError,
)

Message = Mapping[str, Any]
"""{"role": "system" | "user" | "assistant" | "tool", "content": text}, and "tool_calls" of an assistant's calls."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """Without powers, and with products only of numbers: `"x" * 10**10` would take all memory at once."""

    intercepted_binops = frozenset({"*", "**"})
    depth = 0

    def call(self, context: Context, called: Any, /, *arguments: Any, **named: Any) -> Any:
        # A macro that calls itself overflows the C stack, which ends the process rather than the template.
        self.depth += 1
        if self.depth > DEEPEST_CALL:
            raise TemplateError(f"it nests more than {DEEPEST_CALL} calls")
        try:
            return super().call(context, called, *arguments, **named)
        finally:
            self.depth -= 1

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*" and isinstance(left, int | float) and isinstance(right, int | float):
            return left * right
        raise TemplateError("a template may multiply numbers, and nothing else")


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's text for training; when rendering, its body passes through."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _tojson(value: Any, indent: int | None = None) -> str:
    # Not Jinja's own filter: that one escapes HTML, which no model was trained on.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _environment() -> _Sandbox:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols])
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    environment.filters["tojson"] = _tojson
    return environment


@lru_cache(REMEMBERED)
def _compiled(template: str) -> Template:
    return _environment().from_string(template)


def render(
    template: str,
    messages: Sequence[Message],
    special_tokens: Mapping[str, str],
    tools: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Render a conversation into the prompt text, ending where the assistant is to speak.

    `special_tokens` holds bos_token, eos_token and pad_token where the model has them; `tools` is for templates that
    show them, in OpenAI's form.
    Raises ModelUnavailable when the template is too large or fails on this conversation.
    """
    if len(template) > LARGEST_TEMPLATE:
        raise ModelUnavailable("The chat template is too large", f"{len(template)} characters", "Use another model.")
    try:
        with bounded_recursion():
            given = {"messages": list(messages), "tools": list(tools) or None}
            pieces = _compiled(template).generate(**given, add_generation_prompt=True, **special_tokens)
            return _joined(pieces)
    except _FAILURES as error:
        raise ModelUnavailable(
            "The model's chat template does not accept this conversation",
            f"{type(error).__name__}: {error}",
            "Ask differently (some models allow no system message), or use another model.",
        ) from error


def _joined(pieces: Iterable[str]) -> str:
    text, size = [], 0
    for piece in pieces:
        text.append(piece)
        size += len(piece)
        if size > LARGEST_OUTPUT:
            raise TemplateError(f"it writes more than {LARGEST_OUTPUT} characters")
    return "".join(text)
