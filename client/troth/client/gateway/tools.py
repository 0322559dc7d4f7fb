"""Tools that a model may call: what a request says of them, how the model is shown them, and how its calls are written.

A model whose chat template knows tools is shown them by it. Any other is shown them at the end of the system message,
in the words that Qwen's and Hermes' templates use, and calls and results stand in the conversation as text. Calls are
written in one of two dialects: ``<tool_call>`` around JSON with name and arguments, or, where the template says so, as
Llama 3 writes them: JSON with name and parameters, one call in an answer. A call that is required is forced by a
grammar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from troth.client.gateway.errors import InvalidParameter, Unsupported
from troth.client.gateway.request import A_LIST, ONE_OF_THESE, Fields, ToolWish, kind_of, read_text
from troth.client.template import Message
from troth.protocol.grammar import ITEMS_LIMIT, Grammar

MOST_TOOLS = 128
"""As in OpenAI's interface."""
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class CallDialect:
    """How a model writes calls: text before, between and after them, and the field that holds the arguments."""

    before: str
    between: str
    after: str
    arguments: str


TAGGED = CallDialect("<tool_call>\n", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>", "arguments")
LLAMA = CallDialect("", "", "", "parameters")


def dialect_of(template: str) -> CallDialect:
    """The dialect of a model, by its chat template."""
    plain = '"parameters":' in template and "<tool_call>" not in template
    return LLAMA if knows_tools(template) and plain else TAGGED


def knows_tools(template: str) -> bool:
    """Whether a chat template shows tools by itself."""
    return re.search(r"\btools\b", template) is not None


def read_tools(fields: Fields) -> ToolWish:
    """`tools`, `tool_choice` and `parallel_tool_calls` of a chat."""
    for name in ("functions", "function_call"):
        if fields.get(name) not in (None, [], "none", "auto"):
            raise Unsupported(f"'{name}' is the old form", "", "Use tools and tool_choice.", param=name)
    given = fields.get("tools") or []
    if not isinstance(given, list) or len(given) > MOST_TOOLS:
        shown = len(given) if isinstance(given, list) else kind_of(given)
        remedy = f"Send fewer: at most {MOST_TOOLS}." if isinstance(given, list) else A_LIST
        raise InvalidParameter(f"'tools' should be a list of at most {MOST_TOOLS}", shown, remedy, param="tools")
    tools = tuple(_tool(Fields(one, f"tools[{number}]")) for number, one in enumerate(given))
    names = [one["function"]["name"] for one in tools]
    if len(set(names)) < len(names):
        raise InvalidParameter("Two tools have one name", len(names), "Rename one.", param="tools")
    choice = _choice(fields.get("tool_choice"), names)
    parallel = fields.get("parallel_tool_calls") is None or fields.flag("parallel_tool_calls")
    return ToolWish(tools if choice != "none" else (), choice, parallel)


def _tool(fields: Fields) -> dict[str, Any]:
    if fields.text("type") != "function":
        what = "Only tools of type function can be called here"
        raise Unsupported(what, "", "Leave the others out.", param=fields.param("type"))
    inner = fields.inner("function")
    name = inner.text("name")
    if not _NAME.fullmatch(name):
        what = "A function's name has 1 to 64 letters, digits, dots, colons, dashes and underscores"
        raise InvalidParameter(what, len(name), "Rename it.", param=inner.param("name"))
    parameters = inner.get("parameters") or NO_ARGUMENTS
    if not isinstance(parameters, Mapping):
        place = inner.param("parameters")
        raise InvalidParameter("This should be a JSON schema", kind_of(parameters), "Send an object.", param=place)
    function = {"name": name, "description": inner.text("description", ""), "parameters": dict(parameters)}
    return {"type": "function", "function": function}


def _choice(value: Any, names: Sequence[str]) -> str:
    """auto, none, required, or "=" and a name."""
    if value is None:
        return "auto" if names else "none"
    if isinstance(value, Mapping):
        named = Fields(value, "tool_choice").inner("function").text("name")
        if named not in names:
            raise InvalidParameter("'tool_choice' names no tool", "", "Name one of 'tools'.", param="tool_choice")
        return "=" + named
    if value not in {"auto", "none", "required"}:
        what = "'tool_choice' should be auto, none, required, or name a function"
        raise InvalidParameter(what, "", ONE_OF_THESE, param="tool_choice")
    if value == "required" and not names:
        raise InvalidParameter("'tool_choice' requires a tool", 0, "Send 'tools'.", param="tool_choice")
    return str(value) if names else "none"


# --------------------------------------------------------------------------------------------------- history of a chat


def read_calls(fields: Fields) -> list[dict[str, Any]]:
    """`tool_calls` of an assistant's message, with arguments as objects: templates want them so."""
    given = fields.get("tool_calls")
    if not isinstance(given, list) or not 0 < len(given) <= MOST_TOOLS:
        place = fields.param("tool_calls")
        shown = len(given) if isinstance(given, list) else kind_of(given)
        what, remedy = f"This should be a list of 1 to {MOST_TOOLS}", "Send the calls that the model made."
        raise InvalidParameter(what, shown, remedy, param=place)
    return [_call(Fields(one, f"{fields.param('tool_calls')}[{number}]")) for number, one in enumerate(given)]


def _call(fields: Fields) -> dict[str, Any]:
    inner = fields.inner("function")
    place = inner.param("arguments")
    try:
        arguments = json.loads(read_text(inner.get("arguments"), place) or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidParameter("Arguments are JSON as text", "", "Send what the model wrote.", param=place) from error
    if not isinstance(arguments, dict):
        remedy = 'Send what the model wrote, or "{}".'
        raise InvalidParameter("Arguments are a JSON object as text", kind_of(arguments), remedy, param=place)
    function = {"name": inner.text("name"), "arguments": arguments}
    return {"id": fields.text("id", ""), "type": "function", "function": function}


# -------------------------------------------------------------------------------------------------- what the model sees


def shown(template: str, messages: Sequence[Message], wish: ToolWish) -> tuple[list[Message], list[Mapping[str, Any]]]:
    """The messages and tools that a chat template is given."""
    if knows_tools(template):
        return list(messages), list(wish.tools)
    told = [_as_text(message) for message in messages]
    if not wish.tools:
        return told, []
    if told and told[0]["role"] == "system":
        first = {"role": "system", "content": f"{told[0]['content']}\n\n{_words(wish.tools)}"}
        return [first, *told[1:]], []
    return [{"role": "system", "content": _words(wish.tools)}, *told], []


def _words(tools: Sequence[Mapping[str, Any]]) -> str:
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    return (
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n"
        f"<tools>\n{listed}\n</tools>\n\n"
        "For each function call, return a json object with function name and arguments within "
        "<tool_call></tool_call> XML tags:\n"
        '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    )


def _as_text(message: Message) -> Message:
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
    calls = message.get("tool_calls")
    if not calls:
        return message
    written = "\n".join(f"<tool_call>\n{_written(call)}\n</tool_call>" for call in calls)
    content = f"{message['content']}\n{written}" if message["content"] else written
    return {"role": message["role"], "content": content}


def _written(call: Mapping[str, Any]) -> str:
    function = call["function"]
    return json.dumps({"name": function["name"], "arguments": function["arguments"]}, ensure_ascii=False)


# ---------------------------------------------------------------------------------------------------- forced by grammar


def grammar_of(wish: ToolWish, template: str, form: Grammar | None = None) -> Grammar | None:
    """The grammar of calls, of a ``form`` that answers have, or of either; None where the model is free.

    Raises InvalidGrammar.
    """
    if not wish.tools or not (wish.forced or form):
        return form
    dialect = dialect_of(template)
    tools = [
        one["function"] for one in wish.tools if wish.choice in ("required", "auto", "=" + one["function"]["name"])
    ]
    definitions = {f"call{number}": _moved(one["parameters"], f"call{number}") for number, one in enumerate(tools)}
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": one["name"]}, dialect.arguments: {"$ref": f"#/$defs/call{number}"}},
            "required": ["name", dialect.arguments],
            "additionalProperties": False,
        }
        for number, one in enumerate(tools)
    ]
    schema = {"anyOf": calls, "$defs": definitions} if len(calls) > 1 else calls[0] | {"$defs": definitions}
    several = wish.parallel and not wish.choice.startswith("=") and bool(dialect.between)
    return Grammar(
        json.dumps(schema, ensure_ascii=False),
        dialect.before,
        dialect.between if several else "",
        dialect.after,
        ITEMS_LIMIT if several else 1,
        "" if wish.forced or form is None else form.schema,
    )


def _moved(part: Any, name: str) -> Any:
    """A schema whose references into itself lead to where it is put."""
    if isinstance(part, Mapping):
        target = part.get("$ref")
        found = {key: _moved(value, name) for key, value in part.items()}
        if isinstance(target, str) and target.startswith("#"):
            found["$ref"] = f"#/$defs/{name}{target[1:]}"
        return found
    return [_moved(one, name) for one in part] if isinstance(part, list) else part
