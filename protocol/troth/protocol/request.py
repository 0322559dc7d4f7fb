"""The request a client orders: its one canonical encoding, and the salted hashes that stand for it on chain.

Canonical bytes (all integers big-endian)::

    version 1 byte ‖ class id 32 ‖ max_tokens 4, of which the highest bit: may_end_early ‖ temperature 4 ‖ top_p 4
    ‖ count 4 ‖ end tokens 4 each ‖ count 4 ‖ prompt tokens 4 each
    ‖ with version 3 and 4: top_k 4 ‖ min_p 4 ‖ with version 2 and 4: transforms

Versions 3 and 4 cut the likeliest tokens by top_k or min_p, versions 2 and 4 transform logits (`transforms`), and
version 1 does neither; what is there does something. Every field has one width and every list its count, so two
requests never share an encoding. A proof of a wrong token shows what stands before the end tokens (ADR 22), of which
the version says that tokens are cut (ADR 38).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from troth.protocol.errors import InvalidRequest
from troth.protocol.hashing import keccak256
from troth.protocol.transforms import NO_TRANSFORMS, Transforms, transforms_from_bytes, transforms_to_bytes
from troth.protocol.types import Hash32
from troth.protocol.weight_rows import tree_path, tree_root

VERSION, WITH_TRANSFORMS, WITH_CUTS, WITH_BOTH = 1, 2, 3, 4
"""First byte of canonical bytes; another value is another encoding, and old nodes refuse it instead of misreading."""
PROMPT_LIMIT = 131_072
"""Prompt tokens; bounds what a node buffers before it has seen a fee."""
TOKENS_LIMIT = 65_536
"""Output tokens of one request; bounds a trace and so the work that one signed order can ask for."""
END_TOKENS_LIMIT = 64
"""End tokens; a real vocabulary has a handful."""
TEMPERATURE_LIMIT = 2_000_000
"""Millionths; above 2 text is noise and the margin test loses its power."""
TOP_P_LIMIT = 1_000_000
"""Millionths; 1.0 switches the nucleus off."""
TOP_K_LIMIT = (1 << 32) - 1
"""Tokens; 0 leaves all of them, and so does the size of the vocabulary."""
MIN_P_LIMIT = 1_000_000
"""Millionths of the likeliest token's probability; 0 leaves all tokens, 1.0 those that are as likely."""

REQUEST_TAG = keccak256(b"troth/request/2")
OUTPUT_TAG = keccak256(b"troth/output/2")

_EARLY = 1 << 31
"""Beside max_tokens, which is far below it."""
_HEAD = struct.Struct(">B32sIII")
_COUNT = struct.Struct(">I")
_CUTS = struct.Struct(">II")
_LONGEST = _CUTS.size + _HEAD.size + 2 * _COUNT.size + 4 * (PROMPT_LIMIT + END_TOKENS_LIMIT)
_TRANSFORMS_LIMIT = 1 << 18
"""Bytes of transforms; they bound themselves below it."""


@dataclass(frozen=True, slots=True)
class Request:
    """Prompt and sampling; ``temperature``, ``top_p`` and ``min_p`` in millionths. Raises InvalidRequest outside the
    limits. How tokens are cut: `tokens.Sampling`.

    A grammar needs an end token: a text that has nowhere to go ends. ``may_end_early``: the text may end after any of
    its tokens, since its client may have said that it wants no more.
    """

    execution_class: Hash32
    prompt_tokens: tuple[int, ...]
    max_tokens: int
    temperature_millionths: int
    top_p_millionths: int
    end_tokens: tuple[int, ...]
    transforms: Transforms = NO_TRANSFORMS
    top_k: int = 0
    min_p_millionths: int = 0
    may_end_early: bool = False

    def __post_init__(self) -> None:
        if len(self.execution_class) != 32:
            raise InvalidRequest("A class id has 32 bytes", len(self.execution_class), "Pass the registered class id.")
        _require("prompt tokens", len(self.prompt_tokens), 1, PROMPT_LIMIT)
        _require("max_tokens", self.max_tokens, 1, TOKENS_LIMIT)
        _require("temperature_millionths", self.temperature_millionths, 0, TEMPERATURE_LIMIT)
        _require("top_p_millionths", self.top_p_millionths, 1, TOP_P_LIMIT)
        _require("top_k", self.top_k, 0, TOP_K_LIMIT)
        _require("min_p_millionths", self.min_p_millionths, 0, MIN_P_LIMIT)
        _require("end tokens", len(self.end_tokens), 0, END_TOKENS_LIMIT)
        _require_tokens("prompt_tokens", self.prompt_tokens)
        _require_tokens("end_tokens", self.end_tokens)
        if any(left >= right for left, right in zip(self.end_tokens, self.end_tokens[1:], strict=False)):
            raise InvalidRequest("End tokens must rise strictly", self.end_tokens, "Sort them and drop duplicates.")
        if self.transforms.grammar is not None and not self.end_tokens:
            raise InvalidRequest("A grammar needs an end token", self.end_tokens, "Name the model's.")
        _require("written tokens", self.transforms.written, 0, len(self.prompt_tokens))

    @property
    def keeps_all(self) -> bool:
        """Whether every token may be chosen: none of top_p, top_k and min_p leaves any out."""
        return self.top_p_millionths == TOP_P_LIMIT and not self._cuts

    @property
    def _cuts(self) -> bool:
        return bool(self.top_k or self.min_p_millionths)

    @property
    def version(self) -> int:
        """Of its canonical bytes."""
        if self._cuts:
            return WITH_BOTH if self.transforms.any else WITH_CUTS
        return WITH_TRANSFORMS if self.transforms.any else VERSION

    @property
    def highest_token(self) -> int:
        """The largest token id that it names."""
        return max(*self.prompt_tokens, *self.end_tokens, *(token for token, _ in self.transforms.biases), 0)

    @property
    def position_limit(self) -> int:
        """Rows of the longest trace this request can have: P + T - 1 (the last token has no state)."""
        return len(self.prompt_tokens) + self.max_tokens - 1


def _require(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequest(f"{name} must be an integer from {low} to {high}", value, "Change the request.")


def _require_tokens(name: str, tokens: tuple[int, ...]) -> None:
    if not isinstance(tokens, tuple) or any(type(token) is not int for token in tokens):
        raise InvalidRequest(f"{name} must be a tuple of integers", type(tokens).__name__, "Pass token ids.")
    if tokens and not (min(tokens) >= 0 and max(tokens) < 1 << 32):
        raise InvalidRequest(f"{name} must lie in 0 to 2**32 - 1", (min(tokens), max(tokens)), "Pass token ids.")


def tokens_to_words(tokens: Sequence[int]) -> bytes:
    """Tokens as big-endian uint32 words; raises InvalidRequest for a token outside uint32."""
    if any(not 0 <= token < 1 << 32 for token in tokens):
        raise InvalidRequest("A token id lies in 0 to 2**32 - 1", (min(tokens), max(tokens)), "Pass token ids.")
    return np.asarray(tokens, dtype=">u4").tobytes()


def tokens_in_words(words: bytes) -> tuple[int, ...]:
    """Inverse of ``tokens_to_words``."""
    return tuple(int(token) for token in np.frombuffer(words, ">u4"))


def canonical_bytes(request: Request) -> bytes:
    """The one encoding of ``request``; layout in the module's docstring."""
    version = request.version
    head = _HEAD.pack(
        version,
        request.execution_class,
        request.max_tokens | (_EARLY if request.may_end_early else 0),
        request.temperature_millionths,
        request.top_p_millionths,
    )
    ends, prompt = tokens_to_words(request.end_tokens), tokens_to_words(request.prompt_tokens)
    texts = _COUNT.pack(len(request.end_tokens)) + ends + _COUNT.pack(len(request.prompt_tokens)) + prompt
    cuts = _CUTS.pack(request.top_k, request.min_p_millionths) if version in {WITH_CUTS, WITH_BOTH} else b""
    transforms = transforms_to_bytes(request.transforms) if version in {WITH_TRANSFORMS, WITH_BOTH} else b""
    return head + texts + cuts + transforms


def from_canonical_bytes(data: bytes) -> Request:
    """Inverse of ``canonical_bytes``; raises InvalidRequest unless ``data`` is exactly one canonical request."""
    remedy = "Send what troth.protocol.request.canonical_bytes returns."
    if not _HEAD.size + 2 * _COUNT.size <= len(data) <= _LONGEST + _TRANSFORMS_LIMIT:
        raise InvalidRequest("Canonical bytes are too short or too long", len(data), remedy)
    version, execution_class, max_tokens, temperature, top_p = _HEAD.unpack_from(data)
    if not VERSION <= version <= WITH_BOTH:
        what = f"Only request versions {VERSION} to {WITH_BOTH} are known"
        raise InvalidRequest(what, version, "Upgrade the older side.")
    ends, offset = _read_tokens(data, _HEAD.size, END_TOKENS_LIMIT)
    prompt, offset = _read_tokens(data, offset, PROMPT_LIMIT)
    top_k, min_p, transforms = 0, 0, NO_TRANSFORMS
    if version in {WITH_CUTS, WITH_BOTH}:
        if len(data) < offset + _CUTS.size:
            raise InvalidRequest("Canonical bytes end before top_k and min_p", len(data), "Send the whole encoding.")
        top_k, min_p = _CUTS.unpack_from(data, offset)
        offset += _CUTS.size
    if version in {WITH_TRANSFORMS, WITH_BOTH}:
        transforms = transforms_from_bytes(data[offset:])
    elif offset != len(data):
        raise InvalidRequest("Bytes follow the end of the request", len(data) - offset, remedy)
    early, most = bool(max_tokens & _EARLY), max_tokens & ~_EARLY
    choices = (temperature, top_p, ends, transforms, top_k, min_p)
    found = Request(Hash32(execution_class), prompt, most, *choices, early)
    if found.version != version:
        what = f"A request of version {version} has something to cut or to transform by"
        raise InvalidRequest(what, version, f"Send version {found.version}.")
    return found


def _read_tokens(data: bytes, offset: int, limit: int) -> tuple[tuple[int, ...], int]:
    if len(data) < offset + _COUNT.size:
        raise InvalidRequest("Canonical bytes end before a token count", len(data), "Send the whole encoding.")
    (count,) = _COUNT.unpack_from(data, offset)
    start = offset + _COUNT.size
    if count > limit or start + 4 * count > len(data):
        raise InvalidRequest("A token count exceeds its limit or the bytes sent", count, "Send the whole encoding.")
    words = np.frombuffer(data, dtype=">u4", count=count, offset=start)
    return tuple(words.tolist()), start + 4 * count


def request_hash(request: Request, salt: Hash32) -> Hash32:
    """keccak256(tag ‖ terms ‖ blind); the salt in the blind keeps a short prompt from being guessed on chain."""
    terms, blind = request_terms(request, salt)
    return Hash32(keccak256(REQUEST_TAG + terms + blind))


def request_terms(request: Request, salt: Hash32) -> tuple[bytes, Hash32]:
    """What a proof shows of a request: its first 45 bytes, version to top_p, and keccak256(salt ‖ canonical bytes).

    How tokens are chosen can so be shown without the prompt.
    """
    data = canonical_bytes(request)
    return data[: _HEAD.size], Hash32(keccak256(_salt(salt) + data))


def output_hash(salt: Hash32, tokens: Sequence[int]) -> Hash32:
    """keccak256(tag ‖ uint32be(count) ‖ tree) over the generated tokens, prompt excluded and end token included.

    Leaves are keccak256(0x00 ‖ blind ‖ uint32be(token)), so that one token can be shown without the others.
    """
    leaves = _token_leaves(salt, tokens)
    tree = tree_root(leaves) if leaves else keccak256(_salt(salt))
    return Hash32(keccak256(OUTPUT_TAG + len(leaves).to_bytes(4, "big") + tree))


def token_blind(salt: Hash32, index: int) -> Hash32:
    """What hides one token of an answer: keccak256(salt ‖ uint32be(index))."""
    return Hash32(keccak256(_salt(salt) + index.to_bytes(4, "big")))


def token_path(salt: Hash32, tokens: Sequence[int], index: int) -> tuple[Hash32, ...]:
    """The siblings that open one token under the output hash."""
    return tree_path(_token_leaves(salt, tokens), index)


def token_leaf(blind: Hash32, token: int) -> bytes:
    """The leaf of a token in the tree of its answer."""
    return keccak256(b"\x00" + blind + token.to_bytes(4, "big"))


def _token_leaves(salt: Hash32, tokens: Sequence[int]) -> list[bytes]:
    # Raises for a token outside uint32.
    tokens_to_words(tokens)
    return [token_leaf(token_blind(salt, index), token) for index, token in enumerate(tokens)]


def _salt(salt: Hash32) -> bytes:
    if len(salt) != 32:
        raise InvalidRequest("A salt has 32 bytes", len(salt), "Draw it with secrets.token_bytes(32).")
    return salt
