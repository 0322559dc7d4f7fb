"""What a request does to logits before its temperature and top_p: penalties, biases, and the mask of a grammar.

For every token of the text, in this order, in float64::

    value = logit
    value = value / repetition where value > 0, else value x repetition      tokens of the prompt or of the text so far
    value = value + (bias - presence - frequency x count) / 1,000,000        tokens with a bias, or of the text so far
    tokens that the grammar's mask forbids are left out

The numerator is a whole number of millionths, so it has no rounding; ``count`` is how often the token stands in the
text so far, ``presence`` counts where that is at least once. What follows, the nucleus and the noise, is over the
tokens that are left. Canonical bytes of transforms, integers big-endian, texts UTF-8 with their length::

    written 4 ‖ presence 4, signed ‖ frequency 4, signed ‖ repetition 4 ‖ count 4 ‖ (token 4 ‖ bias 4, signed) each
    ‖ grammar: 0, or 1 ‖ rules ‖ schema ‖ before ‖ between ‖ after ‖ other ‖ most 4
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from troth.protocol.errors import InvalidRequest
from troth.protocol.grammar import FRAME_LIMIT, SCHEMA_LIMIT, Grammar

MILLION = 1_000_000
PENALTY_LIMIT = 2 * MILLION
"""Largest presence or frequency penalty, either sign, as in OpenAI's interface."""
REPETITION_LIMIT = 2 * MILLION
"""Largest repetition penalty. None is below 1: dividing by less would enlarge rounding, and honest nodes be refused."""
BIAS_LIMIT = 100 * MILLION
"""Largest bias, either sign, as in OpenAI's interface: at -100 a token is as good as forbidden."""
BIASES_LIMIT = 1_024
"""Tokens with a bias."""

_NUMBERS = struct.Struct(">IiiII")
_BIAS = struct.Struct(">Ii")
_LENGTH = struct.Struct(">I")
_REMEDY = "Change the request."


def _require(name: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise InvalidRequest(f"A {name} is a whole number from {low} to {high}", value, _REMEDY)


@dataclass(frozen=True, slots=True)
class Transforms:
    """Numbers in millionths; ``biases`` are pairs of token and bias, tokens rising strictly, none of them 0.

    ``written``: how many of the prompt's last tokens are text that was already written under these transforms, which
    then goes on. Raises InvalidRequest outside the limits.
    """

    presence: int = 0
    frequency: int = 0
    repetition: int = MILLION
    biases: tuple[tuple[int, int], ...] = ()
    grammar: Grammar | None = None
    written: int = 0

    def __post_init__(self) -> None:
        _require("presence penalty", self.presence, -PENALTY_LIMIT, PENALTY_LIMIT)
        _require("frequency penalty", self.frequency, -PENALTY_LIMIT, PENALTY_LIMIT)
        _require("repetition penalty", self.repetition, MILLION, REPETITION_LIMIT)
        _require("number of biases", len(self.biases), 0, BIASES_LIMIT)
        _require("number of written tokens", self.written, 0, (1 << 32) - 1)
        for token, bias in self.biases:
            _require("token with a bias", token, 0, (1 << 32) - 1)
            _require("bias", bias, -BIAS_LIMIT, BIAS_LIMIT)
            if not bias:
                raise InvalidRequest("A bias is not 0", token, "Leave it out.")
        if any(left[0] >= right[0] for left, right in zip(self.biases, self.biases[1:], strict=False)):
            raise InvalidRequest("Tokens with a bias must rise strictly", len(self.biases), "Sort them.")
        if self.written and not self.any:
            raise InvalidRequest("Written tokens matter to transforms, and there are none", self.written, _REMEDY)

    @property
    def penalises(self) -> bool:
        """Whether any number is changed."""
        return bool(self.presence or self.frequency or self.biases) or self.repetition != MILLION

    @property
    def any(self) -> bool:
        """Whether there is anything to do."""
        return self.penalises or self.grammar is not None


NO_TRANSFORMS = Transforms()


def transforms_to_bytes(transforms: Transforms) -> bytes:
    """The one encoding; layout in the module's docstring."""
    head = _NUMBERS.pack(
        transforms.written,
        transforms.presence,
        transforms.frequency,
        transforms.repetition,
        len(transforms.biases),
    )
    biases = b"".join(_BIAS.pack(token, bias) for token, bias in transforms.biases)
    grammar = transforms.grammar
    if grammar is None:
        return head + biases + b"\x00"
    texts = (grammar.rules, grammar.schema, grammar.before, grammar.between, grammar.after, grammar.other)
    packed = b"".join(_LENGTH.pack(len(data)) + data for data in (text.encode() for text in texts))
    return head + biases + b"\x01" + packed + _LENGTH.pack(grammar.most)


def transforms_from_bytes(data: bytes) -> Transforms:
    """Inverse of ``transforms_to_bytes``; raises InvalidRequest unless ``data`` is exactly one encoding."""
    try:
        written, presence, frequency, repetition, count = _NUMBERS.unpack_from(data)
        if count > BIASES_LIMIT:
            raise InvalidRequest(f"At most {BIASES_LIMIT} tokens have a bias", count, _REMEDY)
        start, end = _NUMBERS.size, _NUMBERS.size + _BIAS.size * count
        biases = tuple(_BIAS.iter_unpack(data[start:end]))
        marked, rest = data[end], data[end + 1 :]
        if len(biases) != count or marked > 1 or (not marked and rest):
            raise InvalidRequest("These bytes are no transforms", len(data), _REMEDY)
        grammar = _grammar_of(rest) if marked else None
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidRequest("These bytes are no transforms", len(data), "Send the whole encoding.") from error
    return Transforms(presence, frequency, repetition, biases, grammar, written)


def _grammar_of(data: bytes) -> Grammar:
    texts = []
    for limit in (FRAME_LIMIT, SCHEMA_LIMIT, FRAME_LIMIT, FRAME_LIMIT, FRAME_LIMIT, SCHEMA_LIMIT):
        (size,) = _LENGTH.unpack_from(data)
        if size > limit or len(data) < _LENGTH.size + size:
            raise InvalidRequest("A grammar's text exceeds its limit or the bytes sent", size, _REMEDY)
        texts.append(data[_LENGTH.size : _LENGTH.size + size].decode())
        data = data[_LENGTH.size + size :]
    if len(data) != _LENGTH.size:
        raise InvalidRequest("A grammar has more or fewer bytes", len(data), "Send the whole encoding.")
    rules, schema, before, between, after, other = texts
    return Grammar(schema, before, between, after, _LENGTH.unpack(data)[0], other, rules)
