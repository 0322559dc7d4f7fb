"""Chat templates as models ship them, rendered in a sandbox.

A template is text that somebody registered, so it runs in Jinja's immutable sandbox, with only the names that templates
of Hugging Face models use: `raise_exception`, `strftime_now`, `tojson`, loop controls and the `generation` tag.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, Sequence, Sized, ValuesView
from datetime import datetime
from functools import lru_cache, wraps
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from troth.client.errors import ModelUnavailable
from troth.client.untrusted import bounded_recursion

LARGEST_TEMPLATE = 256 * 1024
LARGEST_OUTPUT = 4 * 1024 * 1024
"""Characters of a rendered conversation; a template may loop, and no served context is near this."""
DEEPEST_CALL = 32
MOST_STEPS = 500_000
"""Turns of loops and calls of one rendering, half a second; a thousand messages take some ten thousand."""
MOST_SECONDS = 5.0
"""Processor time of one rendering, which takes milliseconds: what a step costs depends on what it is given."""
MOST_MADE = 64 * LARGEST_OUTPUT
"""Characters of all texts that one rendering makes, kept or not, and eight for each member of its lists."""
MEMBER = 8
"""Characters that a member of a list counts as."""
SMALL, MOST_KNOWN = 64, 50_000
"""Weight of a list that is rather counted anew than remembered, and how many are remembered."""
LARGEST_INDENT = 64
LARGEST_NUMBER = 1 << 64
LONG_PIECE = 64
"""Characters of the template itself, from which on they count each time that they are written."""
MOST_PARTS = 100_000
"""Into which a list may be cut."""
USELESS = frozenset({"pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr"})
"""Filters that no model's template uses, and whose time grows faster than the text, or whose result is chance."""
REMEMBERED = 8
"""Templates whose compiled form is kept: compiling takes longer than rendering, and each question renders."""

_LISTS = (list, tuple, dict, KeysView, ValuesView, ItemsView)
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


class _Nameless(Namespace):
    """`namespace(…)`. Shown by its attributes, one that holds two others that hold two others would be endless."""

    def __repr__(self) -> str:
        return "<Namespace>"


class _Sandbox(ImmutableSandboxedEnvironment):
    """Without powers, with products only of numbers (`"x" * 10**10` would take all memory at once), and with an end.

    Every turn of a loop, every call and every comparison is a step. Text is put together by `put_together`, which stops
    one that doubles itself, and so does `counted` with lists: of sixty that hold the one before twice, the text is
    without end.
    """

    intercepted_binops = frozenset({"*", "**", "+", "%"})
    depth = 0
    steps = 0
    made = 0
    ends = 0.0

    def begin(self) -> None:
        """A rendering begins."""
        self.depth = self.steps = self.made = 0
        self.ends = time.thread_time() + MOST_SECONDS
        self.weights: dict[int, tuple[Any, int]] = {}

    def step(self, value: Any = None) -> Any:
        """Count one, and give back the value; raises TemplateError where it is one too many."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TemplateError(f"it takes more than {MOST_STEPS} steps")
        if time.thread_time() > self.ends:
            raise TemplateError(f"it takes longer than {MOST_SECONDS:g} seconds")
        return value

    def put_together(self, *parts: Any) -> str:
        """What `~` makes of parts."""
        return str(self.counted(_joined(str(part) for part in parts)))

    def counted(self, value: Any) -> Any:
        """A value that was made; raises TemplateError where it, or all together, are too many."""
        if isinstance(value, (str, *_LISTS)):
            self.made += len(value) if isinstance(value, str) else MEMBER * len(value)
            if self.made > MOST_MADE:
                raise TemplateError(f"it makes texts of more than {MOST_MADE} characters")
            if self.weight(value) > LARGEST_OUTPUT:
                raise TemplateError(f"it puts together more than {LARGEST_OUTPUT} characters or members")
        return value

    def weight(self, value: Any) -> int:
        """Characters of a value as text, about: what a list holds twice counts twice."""
        if isinstance(value, str):
            return len(value)
        if not isinstance(value, _LISTS):
            return 0
        if known := self.weights.get(id(value)):
            return known[1]
        parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        weight = sum(MEMBER + self.weight(part) for part in parts)
        if weight > SMALL:
            if len(self.weights) > MOST_KNOWN:
                self.weights.clear()
            # With the value itself, so that nothing else gets its id. No template can change one.
            self.weights[id(value)] = value, weight
        return weight

    def getattr(self, obj: Any, attribute: str) -> Any:
        """An attribute; filters ask for those of all members of a list."""
        return self.step(super().getattr(obj, attribute))

    def getitem(self, obj: Any, argument: Any) -> Any:
        """A member, as `getattr`."""
        return self.step(super().getitem(obj, argument))

    def _generate(self, source: nodes.Template, *arguments: Any, **named: Any) -> str:
        for loop in source.find_all(nodes.For):
            loop.body.insert(0, nodes.ExprStmt(_asked("step", lineno=loop.lineno), lineno=loop.lineno))
            if loop.test is not None:
                loop.test = _asked("step", loop.test, lineno=loop.lineno)
        self._watch(source)
        return super()._generate(source, *arguments, **named)

    def _watch(self, node: nodes.Node) -> None:
        for name, value in node.iter_fields():
            if isinstance(value, list):
                setattr(node, name, [self._watched(part) for part in value])
            else:
                setattr(node, name, self._watched(value))

    def _watched(self, value: Any) -> Any:
        if not isinstance(value, nodes.Node):
            return value
        self._watch(value)
        match value:
            case nodes.Concat():
                return _asked("put_together", *value.nodes, lineno=value.lineno)
            case nodes.Getitem(arg=nodes.Slice()):
                return _asked("counted", value, lineno=value.lineno)
            case nodes.List() | nodes.Tuple(ctx="load") | nodes.Dict():
                return _asked("counted", value, lineno=value.lineno)
            case nodes.Compare():
                return _asked("step", value, lineno=value.lineno)
            case nodes.Output():
                value.nodes = [self._written(part) for part in value.nodes]
        return value

    @staticmethod
    def _written(part: nodes.Expr) -> nodes.Expr:
        """What is written, short pieces of the template itself as they are; in a block, it is kept and not shown."""
        if not isinstance(part, nodes.TemplateData):
            return _asked("counted", part, lineno=part.lineno)
        return part if len(part.data) <= LONG_PIECE else _asked("counted", nodes.Const(part.data), lineno=part.lineno)

    def call(self, context: Context, called: Any, /, *arguments: Any, **named: Any) -> Any:
        self.step()
        _require_sizes(*arguments, *named.values())
        # A macro has them all as one list.
        self.counted(arguments)
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
        self.step()
        if isinstance(left, int | float) and isinstance(right, int | float) and operator != "**":
            if max(abs(left), abs(right)) > LARGEST_NUMBER:
                raise TemplateError(f"it computes with numbers above {LARGEST_NUMBER}")
            return super().call_binop(context, operator, left, right)
        if operator == "+":
            if isinstance(left, Sized) and isinstance(right, Sized) and len(left) + len(right) > LARGEST_OUTPUT:
                raise TemplateError(f"it puts together more than {LARGEST_OUTPUT} characters or members")
            return self.counted(left + right)
        raise TemplateError("a template may multiply numbers, and nothing else")


def _asked(name: str, *given: Any, lineno: int) -> nodes.Call:
    """A call of the sandbox's own method."""
    return nodes.Call(nodes.EnvironmentAttribute(name), list(given), [], None, None, lineno=lineno)


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
        case "join":
            times = len(text) if isinstance(text, Sized) else 0
            if given and isinstance(given[0], Sized):
                times, most = max(times, 1), max(most, 1)
        case "batch" | "slice":
            times = LARGEST_OUTPUT // MOST_PARTS
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
        environment.step()
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
    del environment.globals["lipsum"]
    environment.globals["namespace"] = _Nameless
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    filters = environment.filters | {"tojson": _tojson}
    environment.filters = {
        name: _bounded(environment, name, one) for name, one in filters.items() if name not in USELESS
    }
    tests: dict[str, Any] = environment.tests
    environment.tests = {name: _bounded(environment, name, one) for name, one in tests.items()}
    return environment


def _compiled(template: str) -> Template:
    kept = _kept(template)
    kept.environment.begin()  # type: ignore[attr-defined]
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
