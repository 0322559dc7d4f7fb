"""Chat templates as models ship them, rendered in a sandbox.

A template is text that somebody registered, so it runs in Jinja's immutable sandbox, with only the names that templates
of Hugging Face models use: `raise_exception`, `strftime_now`, `tojson`, loop controls and the `generation` tag.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from datetime import datetime
from functools import lru_cache, wraps
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
MOST_STEPS = 500_000
"""Turns of loops and calls of one rendering, half a second; a thousand messages take some ten thousand."""
MOST_MADE = 64 * LARGEST_OUTPUT
"""Characters of all texts that one rendering makes, kept or not, and eight for each member of its lists."""
LARGEST_INDENT = 64
REMEMBERED = 8
"""Templates whose compiled form is kept: compiling takes longer than rendering, and each question renders."""

_NUMBERS = re.compile(r"[0-9]+")
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
    """Without powers, with products only of numbers (`"x" * 10**10` would take all memory at once), and with an end.

    Every turn of a loop and every call is a step. Text is put together by `put_together`, which stops one that doubles
    itself.
    """

    intercepted_binops = frozenset({"*", "**", "+", "%"})
    depth = 0
    steps = 0
    made = 0

    def step(self) -> None:
        """Count one; raises TemplateError where it is one too many."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TemplateError(f"it takes more than {MOST_STEPS} steps")

    def put_together(self, *parts: Any) -> str:
        """What `~` makes of parts."""
        return str(self.counted(_joined(str(part) for part in parts)))

    def counted(self, value: Any) -> Any:
        """A value that was made; raises TemplateError where all together are too many."""
        if isinstance(value, str | list | tuple | dict):
            self.made += len(value) if isinstance(value, str) else 8 * len(value)
            if self.made > MOST_MADE:
                raise TemplateError(f"it makes texts of more than {MOST_MADE} characters")
        return value

    def _generate(self, source: nodes.Template, *arguments: Any, **named: Any) -> str:
        for loop in source.find_all(nodes.For):
            counted = nodes.Call(nodes.EnvironmentAttribute("step"), [], [], None, None)
            loop.body.insert(0, nodes.ExprStmt(counted, lineno=loop.lineno))
        self._replace_concatenations(source)
        return super()._generate(source, *arguments, **named)

    def _replace_concatenations(self, node: nodes.Node) -> None:
        for name, value in node.iter_fields():
            if isinstance(value, list):
                setattr(node, name, [self._without_concatenation(part) for part in value])
            else:
                setattr(node, name, self._without_concatenation(value))

    def _without_concatenation(self, value: Any) -> Any:
        if not isinstance(value, nodes.Node):
            return value
        self._replace_concatenations(value)
        if isinstance(value, nodes.Getitem) and isinstance(value.arg, nodes.Slice):
            return nodes.Call(nodes.EnvironmentAttribute("counted"), [value], [], None, None, lineno=value.lineno)
        if not isinstance(value, nodes.Concat):
            return value
        return nodes.Call(nodes.EnvironmentAttribute("put_together"), value.nodes, [], None, None, lineno=value.lineno)

    def call(self, context: Context, called: Any, /, *arguments: Any, **named: Any) -> Any:
        self.step()
        _require_sizes(*arguments, *named.values())
        # The sandbox wraps `format`.
        method = getattr(called, "__wrapped__", called)
        if isinstance(owner := getattr(method, "__self__", None), str):
            _require_growth(method.__name__, owner, *arguments, *named.values())
        # A macro that calls itself overflows the C stack, which ends the process rather than the template.
        self.depth += 1
        if self.depth > DEEPEST_CALL:
            raise TemplateError(f"it nests more than {DEEPEST_CALL} calls")
        try:
            return self.counted(super().call(context, called, *arguments, **named))
        finally:
            self.depth -= 1

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*" and isinstance(left, int | float) and isinstance(right, int | float):
            return left * right
        if operator == "%" and isinstance(left, int | float):
            return left % right
        if operator == "+":
            if isinstance(left, Sized) and isinstance(right, Sized) and len(left) + len(right) > LARGEST_OUTPUT:
                raise TemplateError(f"it puts together more than {LARGEST_OUTPUT} characters or members")
            return self.counted(left + right)
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


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if (indent or 0) > LARGEST_INDENT:
        raise TemplateError(f"it indents by more than {LARGEST_INDENT}")
    # Not Jinja's own filter: that one escapes HTML, which no model was trained on.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _require_sizes(*given: Any) -> None:
    if any(isinstance(one, int) and abs(one) > LARGEST_OUTPUT for one in given):
        raise TemplateError("it asks for a text, or a range, of enormous size")


def _require_growth(name: str, text: Any, *given: Any) -> None:
    """Raise TemplateError before a text is made that is many times as large as what it is made of."""
    most = max((len(one) if isinstance(one, Sized) else abs(one) for one in given if _has_size(one)), default=0)
    match name:
        case "replace" if len(given) > 1 and isinstance(text, str) and isinstance(given[0], str):
            times = text.count(given[0])
        case "indent" | "expandtabs":
            times = 1 + sum(str(text).count(letter) for letter in "\n\t\r\v\f")
        case "format" | "format_map":
            times = str(text).count("{") + str(text).count("%")
            most = max([most, *(int(number[:12]) for number in _NUMBERS.findall(str(text)))])
        case "translate":
            raise TemplateError("a template may not translate letters")
        case "join" | "wordwrap":
            times = len(text) if isinstance(text, Sized) else 0
            if name == "join" and given and isinstance(given[0], Sized):
                times, most = max(times, 1), max(most, 1)
        case _:
            return
    if times * most > LARGEST_OUTPUT:
        raise TemplateError(f"it makes a text of more than {LARGEST_OUTPUT} characters")


def _has_size(value: Any) -> bool:
    return isinstance(value, Sized | int)


def _bounded(environment: _Sandbox, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that makes nothing enormous."""
    # Some are given the environment or a context before the text.
    place = int(hasattr(function, "jinja_pass_arg"))

    @wraps(function)
    def bounded(*arguments: Any, **named: Any) -> Any:
        _require_sizes(*arguments, *named.values())
        given = list(arguments)
        if name == "join" and len(given) > place and not isinstance(given[place], Sized):
            given[place] = list(given[place])
        # In their order also where they are named.
        texts = [named[one] for one in ("old", "new") if one in named]
        _require_growth(name, *given[place:], *texts, *named.values())
        return environment.counted(function(*given, **named))

    return bounded


def _environment() -> _Sandbox:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols])
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    filters = environment.filters | {"tojson": _tojson}
    environment.filters = {name: _bounded(environment, name, one) for name, one in filters.items()}
    return environment


def _compiled(template: str) -> Template:
    kept = _kept(template)
    kept.environment.steps = kept.environment.made = 0  # type: ignore[attr-defined]
    return kept


@lru_cache(REMEMBERED)
def _kept(template: str) -> Template:
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
