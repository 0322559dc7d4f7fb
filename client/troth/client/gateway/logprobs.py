"""Log-probabilities in OpenAI's two forms, from what the pipeline says of each token: the inferencer's word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from troth.client.chosen import Chosen
from troth.client.detokenizer import REPLACEMENT
from troth.client.language import Language

_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def chat_logprobs(language: Language, chosen: Sequence[Chosen]) -> dict[str, Any] | None:
    """`logprobs` of a chat choice or chunk; None where a node did not serve them."""
    if any(one.logprob is None for one in chosen):
        return None
    content = [
        _entry(language, one.token, one.logprob)
        | {"top_logprobs": [_entry(language, token, logprob) for token, logprob in one.top]}
        for one in chosen
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(language: Language, chosen: Sequence[Chosen], offset: int) -> dict[str, Any] | None:
    """`logprobs` of a completion, None where a node did not serve them; `offset` is where its first token begins."""
    if any(one.logprob is None for one in chosen):
        return None
    tokens = [token_text(language, one.token) for one in chosen]
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token)
    return {
        "tokens": tokens,
        "token_logprobs": [one.logprob for one in chosen],
        "top_logprobs": [_by_text(language, one.top) for one in chosen],
        "text_offset": offsets,
    }


def token_text(language: Language, token: int) -> str:
    """A token as text, with replacement characters for parts of a character."""
    return token_bytes(language, token).decode("utf-8", "replace")


def token_bytes(language: Language, token: int) -> bytes:
    """The UTF-8 bytes that a token stands for, perhaps part of a character; empty for an unknown one."""
    piece = language.tokenizer.id_to_token(token)
    if piece is None:
        return b""
    fallback = _FALLBACK.fullmatch(piece)
    if fallback is not None:
        return bytes([int(fallback[1], 16)])
    text = language.decode([token], skip_special_tokens=False)
    if REPLACEMENT not in text:
        return text.encode()
    table = _byte_letters()
    return bytes(table[letter] for letter in piece) if all(letter in table for letter in piece) else text.encode()


def _entry(language: Language, token: int, logprob: float | None) -> dict[str, Any]:
    found = token_bytes(language, token)
    return {"token": found.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(found)}


def _by_text(language: Language, top: Sequence[tuple[int, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for token, logprob in top:
        # Two tokens may read the same; the likelier comes first and stays.
        found.setdefault(token_text(language, token), logprob)
    return found


@lru_cache(maxsize=1)
def _byte_letters() -> dict[str, int]:
    """The letters by which byte-level tokenizers write bytes (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    return {chr(byte): byte for byte in plain} | {chr(256 + number): byte for number, byte in enumerate(others)}
