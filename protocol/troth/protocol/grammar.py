"""The grammar of a text: a JSON schema in a frame of literal text, bounded before anything compiles it.

It is part of the canonical request, so that whoever writes and whoever verifies masks the same tokens (`masks`). What
is allowed is less than JSON Schema: a compiler of regular expressions can be made to work for hours, or to overflow its
stack, by a few hundred bytes. The bounds below were found by trying (``tests/unit/test_grammar.py``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from troth.protocol.errors import InvalidGrammar

MASK_RULES = "llguidance-1.7.6/1"
"""Names what computes masks, its version, and the limits in `masks`: another one may mask other tokens, so nodes of one
order have to agree on it. A request with another name is refused by who does not have it."""
SCHEMA_LIMIT = 64 * 1024
"""Bytes of a schema in UTF-8: with the longest prompt a request stays below what a frame's header can name."""
FRAME_LIMIT = 256
"""Bytes of each piece of the frame."""
ITEMS_LIMIT = 16
"""Most values of one text: calls of tools, as a rule."""
DEPTH_LIMIT = 64
"""JSON nested in JSON."""
PARTS_LIMIT = 1_000
"""Objects in a schema, so as many steps as references can lead down: the compiler recurses."""
ENUM_LIMIT = 1_000
"""Values of all enumerations together."""
PATTERNS_LIMIT = 16
"""Regular expressions in a schema."""
PATTERN_LIMIT = 256
"""Characters of one; an automaton can be exponentially larger."""
MULTIPLE_LIMIT = 1_000
"""Largest divisor, decimal point aside: an automaton has a state for each remainder."""

ANNOTATIONS = frozenset(
    {
        "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator",
        "$schema", "$comment", "$defs", "definitions", "strict",
    }
)  # fmt: skip
"""Keywords that change no mask, and those under which definitions are kept."""
CONSTRAINTS = frozenset(
    {
        "type", "properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems",
        "enum", "const", "pattern", "format", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum",
        "exclusiveMaximum", "multipleOf",
    }
)  # fmt: skip
COMBINATORS = frozenset({"$ref", "anyOf", "oneOf", "allOf"})
"""Stand alone, but for annotations: beside constraints they would be intersections of automata."""
ANY_OBJECT = '{"type":"object"}'
"""What "some JSON object" means."""

_RULES = re.compile(r"[a-z0-9./-]{1,32}")
_REMEDY = "Use a simpler schema; docs/how-to/gateway.md says which keywords are kept."


@dataclass(frozen=True, slots=True)
class Grammar:
    """``before`` item (``between`` item)* ``after``, each item JSON that follows ``schema``, ``most`` items at most.

    ``other`` is a second schema that the whole text may follow instead, so that a model calls a tool or answers; empty:
    none. JSON is written on one line, with one space after each comma and colon and none elsewhere. ``rules`` names how
    masks are computed. Raises InvalidGrammar outside the bounds; whether it compiles, `masks.compiled` says.
    """

    schema: str
    before: str = ""
    between: str = ""
    after: str = ""
    most: int = 1
    other: str = ""
    rules: str = MASK_RULES

    def __post_init__(self) -> None:
        if not isinstance(self.rules, str) or not _RULES.fullmatch(self.rules):
            _refuse("The name of the mask's rules is none", self.rules)
        for name, piece in (("before", self.before), ("between", self.between), ("after", self.after)):
            _require_text(name, piece, FRAME_LIMIT)
        if type(self.most) is not int or not 1 <= self.most <= ITEMS_LIMIT:
            _refuse(f"A text has 1 to {ITEMS_LIMIT} values", self.most)
        for name, schema in (("schema", self.schema), ("other schema", self.other)):
            _require_text(name, schema, SCHEMA_LIMIT)
        require_bounded(self.schema)
        if self.other:
            require_bounded(self.other)

    @property
    def lark(self) -> str:
        """The grammar as llguidance reads it."""
        more = f" ({_literal(self.between)} item){{0,{self.most - 1}}}" if self.most > 1 else ""
        start = f"start: {_literal(self.before)} item{more} {_literal(self.after)}"
        if not self.other:
            return f"{start}\nitem: %json {_compact(self.schema)}\n"
        return f"{start} | other\nitem: %json {_compact(self.schema)}\nother: %json {_compact(self.other)}\n"


def _compact(schema: str) -> str:
    """A schema with what says how its JSON is written."""
    value = json.loads(schema)
    found = {} if value is True else dict(value)
    found["x-guidance"] = {
        "whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "coerce_one_of": True,
    }  # fmt: skip
    return json.dumps(found)


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""


def _require_text(name: str, text: object, limit: int) -> None:
    if not isinstance(text, str) or "\x00" in text:
        _refuse(f"A grammar's {name} is no text", type(text).__name__)
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidGrammar(f"A grammar's {name} is no Unicode", error.start, "Encode it as UTF-8.") from error
    if size > limit:
        _refuse(f"A grammar's {name} has at most {limit} bytes", size)


def require_bounded(schema: str) -> None:
    """Raise InvalidGrammar for a schema that is none, or that may take long to compile or to mask by."""
    _require_shallow(schema)
    try:
        value = json.loads(schema, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InvalidGrammar("The schema is not JSON", str(error)[:80], "Send a JSON Schema object.") from error
    if value is not True and not isinstance(value, dict):
        _refuse("A schema is a JSON object", type(value).__name__)
    counts = _SchemaSize()
    for part, place in _parts(value, "#"):
        counts.add(part, place)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _require_shallow(text: str) -> None:
    depth, inside, escaped = 0, False, False
    for letter in text:
        if escaped:
            escaped = False
        elif inside:
            escaped, inside = letter == "\\", letter != '"'
        elif letter == '"':
            inside = True
        elif letter in "[{":
            depth += 1
            if depth > DEPTH_LIMIT:
                _refuse(f"A schema nests at most {DEPTH_LIMIT} deep", depth)
        elif letter in "]}":
            depth -= 1


class _SchemaSize:
    """What adds up over a whole schema."""

    def __init__(self) -> None:
        self._parts = self._values = self._patterns = 0

    def add(self, part: Mapping[str, Any], place: str) -> None:
        self._parts += 1
        _require(self._parts <= PARTS_LIMIT, f"A schema has at most {PARTS_LIMIT} parts", place)
        unknown = sorted(set(part) - ANNOTATIONS - CONSTRAINTS - COMBINATORS)
        _require(not unknown, f"The keyword {unknown[:1]} cannot be kept", place)
        _require_alone(part, place)
        values = part.get("enum", [])
        _require(isinstance(values, list), "An enum is a list", place)
        self._values += len(values)
        _require(self._values <= ENUM_LIMIT, f"All enums together have at most {ENUM_LIMIT} values", place)
        if "pattern" in part:
            self._patterns += 1
            _require(self._patterns <= PATTERNS_LIMIT, f"A schema has at most {PATTERNS_LIMIT} patterns", place)
            pattern = part["pattern"]
            short = isinstance(pattern, str) and len(pattern) <= PATTERN_LIMIT
            _require(short, f"A pattern has at most {PATTERN_LIMIT} characters", place)
        if "multipleOf" in part:
            _require(_small(part["multipleOf"]), f"multipleOf has digits up to {MULTIPLE_LIMIT} only", place)


def _require_alone(part: Mapping[str, Any], place: str) -> None:
    combined = set(part) & COMBINATORS
    if not combined:
        return
    others = sorted(set(part) - ANNOTATIONS - combined)
    _require(len(combined) == 1 and not others, f"{min(combined)} stands alone, without {others[:1]}", place)
    if "allOf" in part:
        single = isinstance(part["allOf"], list) and len(part["allOf"]) == 1
        _require(single, "allOf has one member: intersections are not computed", place)
    if "$ref" in part:
        target = part["$ref"]
        _require(isinstance(target, str) and target.startswith("#"), "A $ref points into the schema itself", place)


def _small(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return False
    digits = repr(value).rstrip("0") if isinstance(value, float) else str(value)
    plain = digits.replace(".", "")
    return plain.isdigit() and int(plain) <= MULTIPLE_LIMIT


def _parts(value: Any, place: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Every schema inside a schema, itself first. Values of enumerations, constants and examples are none."""
    if not isinstance(value, dict):
        _require(isinstance(value, bool), "A schema is an object", place)
        return
    yield value, place
    for name in ("properties", "$defs", "definitions"):
        inner = value.get(name, {})
        _require(isinstance(inner, dict), f"{name} is an object", place)
        for key, one in inner.items():
            yield from _parts(one, f"{place}/{name}/{key}")
    for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
        several = value.get(name, [])
        _require(isinstance(several, list), f"{name} is a list", place)
        for number, one in enumerate(several):
            yield from _parts(one, f"{place}/{name}/{number}")
    for name in ("items", "additionalProperties"):
        if name in value:
            yield from _parts(value[name], f"{place}/{name}")


def _require(condition: bool, what: str, place: str) -> None:
    if not condition:
        _refuse(what, place[:80])


def _refuse(what: str, value: object) -> NoReturn:
    raise InvalidGrammar(what, value, _REMEDY)
