"""Grammars and transforms: their one encoding, their bounds, and masks that are a pure function of what was written."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.byte_language import END, LANGUAGE, VOCABULARY, tokenizer

from troth.protocol import masks
from troth.protocol.errors import InvalidGrammar, InvalidRequest, InvalidTokens
from troth.protocol.grammar import ANY_OBJECT, PARTS_LIMIT, SCHEMA_LIMIT, Grammar
from troth.protocol.margins import margin
from troth.protocol.masks import TextRules
from troth.protocol.request import PROMPT_LIMIT, Request, canonical_bytes, from_canonical_bytes
from troth.protocol.tokens import MARGIN_CLIP, Sampling, choose
from troth.protocol.transforms import MILLION, NO_TRANSFORMS, Transforms
from troth.protocol.types import ZERO_HASH

TEXT = tokenizer().to_str()
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def grammar(schema: Any, **frame: Any) -> Grammar:
    return Grammar(json.dumps(schema), **frame)


def request(transforms: Transforms, prompt: tuple[int, ...] = (1, 2, 3), end: int = END) -> Request:
    return Request(ZERO_HASH, prompt, 400, 0, MILLION, (end,), transforms)


def rules(schema: Any, **frame: Any) -> TextRules:
    return TextRules(request(Transforms(grammar=grammar(schema, **frame))), VOCABULARY, TEXT)


def wander(found: TextRules, seed: int, limit: int = 4000) -> str:
    """A text of allowed tokens alone; ends are taken where they may be, and brackets and quotes often."""
    chance, tokens = random.Random(seed), []
    closing = [LANGUAGE.tokenizer.encode(letter, add_special_tokens=False).ids[0] for letter in ']}"']
    while len(tokens) < limit:
        allowed = found.row().allowed
        assert allowed is not None
        wished = [token for token in (END, *closing) if token in allowed]
        token = chance.choice(wished) if wished and chance.random() < 0.3 else int(chance.choice(allowed))
        if token == END:
            return LANGUAGE.decode(tokens)
        found.take(token)
        tokens.append(token)
    raise AssertionError("the grammar never ends")


@pytest.mark.parametrize("seed", range(6))
def test_whatever_a_mask_allows_follows_the_schema(seed: int) -> None:
    jsonschema.validate(json.loads(wander(rules(PERSON), seed)), PERSON)


@pytest.mark.parametrize("seed", range(4))
def test_a_frame_holds_its_values(seed: int) -> None:
    said = wander(rules(PERSON, before="<c>", between="</c>\n<c>", after="</c>", most=3), seed)
    values = said.removeprefix("<c>").removesuffix("</c>").split("</c>\n<c>")
    assert 1 <= len(values) <= 3
    for value in values:
        jsonschema.validate(json.loads(value), PERSON)


def test_a_mask_is_a_function_of_grammar_tokenizer_and_tokens() -> None:
    """Whoever goes on with a written text masks as who wrote it, and whoever judges it as who chose it."""
    one, text = rules(PERSON), LANGUAGE.tokenizer.encode('{"name": "Ada", "age": 36}', add_special_tokens=False).ids
    seen = one.along(text)
    half = len(text) // 2
    later = request(Transforms(grammar=grammar(PERSON), written=half), (1, 2, 3, *text[:half]))
    for rule, again in zip(seen[half:], TextRules(later, VOCABULARY, TEXT).along(text[half:]), strict=True):
        assert np.array_equal(rule.allowed, again.allowed)
    assert one.row().allowed.tolist() == [END]
    assert all(rule.place(token) is not None for rule, token in zip(seen, text, strict=True))


def test_a_forbidden_token_leaves_nothing_but_the_end() -> None:
    found = rules(PERSON)
    found.take(LANGUAGE.tokenizer.encode("x", add_special_tokens=False).ids[0])
    assert found.row().allowed.tolist() == [END]
    found.take(5)
    assert found.row().allowed.tolist() == [END]


def test_a_dead_end_ends_the_text() -> None:
    """A schema that nothing satisfies, and a limit that is met midway."""
    nothing = rules({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"})
    assert nothing.row().allowed.tolist() == [END]
    heavy = rules({"type": "string", "pattern": "^(a?){1000}a{1000}$"})
    for _ in range(20):
        allowed = heavy.row().allowed
        if allowed.tolist() == [END]:
            return
        heavy.take(int(allowed[-1]))
    raise AssertionError("the limit is never met")


def test_no_token_is_named_twice_and_none_beyond_the_vocabulary() -> None:
    with pytest.raises(InvalidTokens):
        TextRules(request(Transforms(biases=((VOCABULARY, 1),))), VOCABULARY, "")
    with pytest.raises(InvalidTokens):
        TextRules(request(Transforms(presence=1)), VOCABULARY, "").take(VOCABULARY)


# ------------------------------------------------------------------------------------------------------------- hostile


def chain(length: int) -> dict[str, Any]:
    """References one below the other: the compiler recurses, and 1,500 of them overflow an ordinary stack."""
    below = {f"a{number}": {"type": "array", "items": {"$ref": f"#/$defs/a{number + 1}"}} for number in range(length)}
    return {"$defs": below | {f"a{length}": {"type": "string"}}, "$ref": "#/$defs/a0"}


HOSTILE: dict[str, Any] = {
    "too deep": {"items": json.loads("[" * 70 + "]" * 70)},
    "many references": chain(1_500),
    "many parts": {"anyOf": [{"type": "string"}] * (PARTS_LIMIT + 1)},
    "an intersection": {"allOf": [{"type": "string", "pattern": f".*{number}.*"} for number in range(30)]},
    "by references": {"$ref": "#/$defs/a", "pattern": "a", "$defs": {"a": {"type": "string", "pattern": "b"}}},
    "a large divisor": {"type": "integer", "multipleOf": 99_999_989},
    "a long pattern": {"type": "string", "pattern": "(a|b)" * 100},
    "many patterns": {"anyOf": [{"type": "string", "pattern": str(number)} for number in range(17)]},
    "many values": {"enum": [str(number) for number in range(1_001)]},
    "negation": {"not": {"type": "string"}},
    "a foreign reference": {"$ref": "https://example.org/schema.json"},
    "parameters of the compiler": {"type": "object", "x-guidance": {"lenient": True}},
    "no schema": ["type", "object"],
    "properties of a number": {"properties": 7},
    "not a number": {"minimum": float("nan")},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_could_take_long_is_refused_before_it_is_compiled(name: str) -> None:
    began = time.perf_counter()
    with pytest.raises(InvalidGrammar) as refused:
        grammar(HOSTILE[name])
    assert refused.value.what
    assert time.perf_counter() - began < 1


HEAVY: dict[str, Any] = {
    "as many references as there may be": chain(330),
    "nested repetition": {"type": "string", "pattern": "^((((a{1,100}){1,100}){1,100}){1,100}){1,100}$"},
    "many states": {"type": "string", "pattern": "^(a|b|c|d){0,60}e(a|b|c|d){0,60}$", "maxLength": 3000},
    "all properties": {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(900)}},
    "a billion letters": {"type": "string", "minLength": 10**9, "maxLength": 10**9},
    "a million items": {"type": "array", "items": {"type": "string"}, "minItems": 10**6, "maxItems": 10**6},
    "an intersection with lengths": {"type": "string", "pattern": "^(.{0,1000}x){0,1000}$", "minLength": 3},
    "a huge range": {"type": "integer", "minimum": -(10**300), "maximum": 10**300},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HEAVY)
def test_what_is_within_the_bounds_takes_no_time(name: str) -> None:
    """Compiled or refused, and 40 masks: each bounded in steps."""
    began, chance = time.perf_counter(), random.Random(1)
    try:
        found = rules(HEAVY[name])
    except InvalidGrammar:
        assert time.perf_counter() - began < 10
        return
    for _ in range(40):
        found.take(int(chance.choice(found.row().allowed)))
    assert time.perf_counter() - began < 20


def test_other_rules_and_other_compilers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidGrammar, match="other-1/1"):
        rules(PERSON, rules="other-1/1")
    monkeypatch.setattr(masks, "COMPILER", ("llguidance", "9.9.9"))
    with pytest.raises(InvalidGrammar, match=r"9\.9\.9"):
        rules(PERSON)


def test_a_tokenizer_is_never_looked_for() -> None:
    """Its text could be the name of a file, or of a model in a hub."""
    for text in ("", "gpt2", "/etc/passwd", "{}"):
        with pytest.raises(InvalidGrammar):
            TextRules(request(Transforms(grammar=Grammar(ANY_OBJECT))), VOCABULARY, text)


# ------------------------------------------------------------------------------------------------------------ encoding

NUMBERS = st.builds(
    Transforms,
    presence=st.integers(-2 * MILLION, 2 * MILLION),
    frequency=st.integers(-2 * MILLION, 2 * MILLION),
    repetition=st.integers(MILLION, 2 * MILLION),
    biases=st.dictionaries(st.integers(0, 2**32 - 1), st.integers(1, 100 * MILLION), max_size=5).map(
        lambda found: tuple(sorted(found.items()))
    ),
    grammar=st.none()
    | st.builds(
        Grammar,
        st.just(ANY_OBJECT),
        st.text("<ä>\n", max_size=5),
        most=st.integers(1, 16),
        other=st.sampled_from(["", ANY_OBJECT]),
    ),
)


@given(NUMBERS, st.integers(0, 3))
def test_a_request_with_transforms_has_one_encoding(made: Transforms, written: int) -> None:
    whole = request(replace(made, written=written) if made.any else made)
    data = canonical_bytes(whole)
    assert data[0] == (2 if made.any else 1)
    assert from_canonical_bytes(data) == whole
    if made.any:
        with pytest.raises(InvalidRequest):
            from_canonical_bytes(data + b"\0")
        with pytest.raises(InvalidRequest):
            from_canonical_bytes(data[:-1])


@given(st.binary(max_size=200))
def test_junk_behind_the_prompt_is_no_transform(junk: bytes) -> None:
    plain = canonical_bytes(request(NO_TRANSFORMS))
    try:
        found = from_canonical_bytes(b"\x02" + plain[1:] + junk)
    except InvalidRequest:
        return
    assert canonical_bytes(found) == b"\x02" + plain[1:] + junk


def test_nothing_to_transform_has_no_second_encoding() -> None:
    plain = canonical_bytes(request(NO_TRANSFORMS))
    with pytest.raises(InvalidRequest, match="version 1"):
        from_canonical_bytes(b"\x02" + plain[1:] + bytes(12) + MILLION.to_bytes(4) + bytes(5))
    with pytest.raises(InvalidRequest):
        Transforms(written=1)


@pytest.mark.parametrize(
    "change",
    [
        {"presence": 2 * MILLION + 1}, {"frequency": True}, {"repetition": MILLION - 1}, {"repetition": 1.1},
        {"biases": ((3, 0),)}, {"biases": ((3, 1), (3, 2))}, {"biases": ((4, 1), (3, 1))}, {"biases": ((1, 10**9),)},
        {"biases": tuple((token, 1) for token in range(1_025))},
    ],
    ids=str,
)  # fmt: skip
def test_transforms_have_limits(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        Transforms(**change)


def test_the_longest_request_fits_a_frame() -> None:
    """`wire_market.RequestSize` names at most a mebibyte."""
    longest = json.dumps({"type": "object", "title": "x" * (SCHEMA_LIMIT - 40)})
    full = Grammar(longest, "ä" * 128, "b" * 256, "c" * 256, 16, longest)
    made = Transforms(biases=tuple((token, 1) for token in range(1_024)), grammar=full)
    whole = replace(request(made, (7,) * PROMPT_LIMIT), end_tokens=tuple(range(64)))
    data = canonical_bytes(whole)
    assert from_canonical_bytes(data) == whole
    assert len(data) < 1 << 20
    for change in ({"before": "ä" * 129}, {"schema": longest + " " * 64}, {"after": "\ud800"}, {"before": "\0"}):
        with pytest.raises(InvalidGrammar):
            replace(full, **change)


def test_a_grammar_needs_an_end_and_written_tokens_a_prompt() -> None:
    with pytest.raises(InvalidRequest, match="end token"):
        Request(ZERO_HASH, (1,), 5, 0, MILLION, (), Transforms(grammar=Grammar(ANY_OBJECT)))
    with pytest.raises(InvalidRequest, match="written"):
        request(Transforms(presence=1, written=4))


# ------------------------------------------------------------------------------------------------------------- numbers


def test_penalties_and_biases_in_their_order() -> None:
    """Repetition for prompt and text, then whole millionths for the text alone; the golden numbers are by hand."""
    asked = Transforms(presence=300_000, frequency=200_000, repetition=1_250_000, biases=((4, -500_000), (7, MILLION)))
    found = TextRules(request(asked, end=0), 8, "")
    found.take_all([4, 4, 5])
    logits = np.array([1.0, 2.0, -2.0, 0.5, 3.0, -1.0, 4.0, 0.0], dtype=np.float32)
    expected = [1.0, 2.0 / 1.25, -2.0 * 1.25, 0.5 / 1.25, 3.0 / 1.25 - 1.2, -1.25 - 0.5, 4.0, 1.0]
    assert found.row().apply(logits).tolist() == pytest.approx(expected, abs=1e-15)
    assert found.row().apply(logits).dtype == np.float64


def test_a_margin_is_in_the_models_logits_and_infinite_where_it_is_forbidden() -> None:
    rule = replace(
        TextRules(request(Transforms(repetition=2 * MILLION), end=0), 8, "").row(),
        allowed=np.array([1, 2, 6], np.int64),
    )
    logits = np.array([9.0, -1.0, -1.5, 9.0, 9.0, 9.0, -2.5, 9.0], dtype=np.float32)
    greedy = Sampling(0.0, 1.0)
    assert choose(logits, greedy, None, rule) == 1
    # Tokens 1 and 2 stand in the prompt: -2 and -3 after the penalty, which doubled what separates them.
    assert margin(logits, 2, greedy, None, rule) == pytest.approx(0.5)
    assert margin(logits, 0, greedy, None, rule) == float("inf")
    assert margin(logits * 10, 6, greedy, None, rule) == MARGIN_CLIP
