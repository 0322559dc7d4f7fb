"""The JSON objects of both endpoints, as OpenAI's interface has them, log-probabilities included."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec

from troth.client.detokenizer import REPLACEMENT
from troth.client.gateway.choice import Delta, WholeChoice
from troth.client.gateway.completion import Completion
from troth.client.gateway.errors import GatewayRefusal
from troth.client.gateway.tool_calls import CallDelta, whole_calls
from troth.client.language import Language
from troth.client.orders.chosen import AnswerToken

_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")
DONE = b"data: [DONE]\n\n"


def chat_logprobs(language: Language, chosen: Sequence[AnswerToken]) -> dict[str, Any] | None:
    """`logprobs` of a chat choice or chunk; None where a node did not serve them."""
    if any(one.logprob is None for one in chosen):
        return None
    content = [
        _entry(language, one.token, one.logprob)
        | {"top_logprobs": [_entry(language, token, logprob) for token, logprob in one.top]}
        for one in chosen
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(language: Language, chosen: Sequence[AnswerToken], offset: int) -> dict[str, Any] | None:
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


def whole_amount(units: int, decimals: int) -> float:
    """An amount in whole coins or tokens: exact only up to a double's 15 digits, so that the units go beside it."""
    return float(Decimal(units) / Decimal(10) ** decimals)


def event(value: dict[str, Any], name: str = "") -> bytes:
    """One server-sent event."""
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + msgspec.json.encode(value) + b"\n\n"


def call_json(call: CallDelta) -> dict[str, Any]:
    """A whole call of a tool."""
    return {
        "id": call.identifier,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _call_piece(call: CallDelta) -> dict[str, Any]:
    if call.name:
        return {"index": call.index} | call_json(call)
    return {"index": call.index, "function": {"arguments": call.arguments}}


class ReplyShapes:
    """The objects of one completion; `base` is the gateway's own address, for the receipt's URL."""

    def __init__(self, completion: Completion, base: str) -> None:
        self._completion = completion
        self._base = base
        self._chat = completion.wanted.kind != "text"

    def whole(self, answers: Sequence[WholeChoice]) -> dict[str, Any]:
        """The answer in one object."""
        choices = [self._whole_choice(number, answer) for number, answer in enumerate(answers)]
        name = "chat.completion" if self._chat else "text_completion"
        return self._object(name, choices) | {"usage": self._usage(), "troth": self.troth()}

    def begun(self) -> Iterator[bytes]:
        """The first events of a stream: of each choice who speaks, or what is echoed."""
        for number, prefix in enumerate(self._completion.prefixes):
            if self._chat:
                yield event(self._chunk(number, {"role": "assistant", "content": ""}, None, None))
            elif prefix:
                yield event(self._chunk(number, prefix, None, None))

    def said(self, number: int, delta: Delta) -> Iterator[bytes]:
        """What more there is of a choice."""
        content: Any = {"content": delta.text} if self._chat else delta.text
        if delta.calls:
            said = {"content": delta.text} if delta.text else {}
            content = said | {"tool_calls": [_call_piece(call) for call in whole_calls(delta.calls)]}
        yield event(self._chunk(number, content, self._logprobs(number, delta.chosen, delta.offset), None))

    def closed(self, number: int, *, last: bool) -> Iterator[bytes]:
        """A choice has ended; the last one carries `troth` where no usage chunk follows."""
        reason = self._completion.choices[number].reason
        chunk = self._chunk(number, {} if self._chat else "", None, reason)
        if last and not self._completion.wanted.include_usage:
            chunk["troth"] = self.troth()
        yield event(chunk)

    def ended(self) -> Iterator[bytes]:
        """The end of a stream; what it took, for whoever asked for that."""
        if self._completion.wanted.include_usage:
            yield event(self._object(self._chunk_name, []) | {"usage": self._usage(), "troth": self.troth()})
        yield DONE

    def failed(self, refusal: GatewayRefusal) -> bytes:
        """The end of a stream that failed."""
        return event(refusal.to_json())

    def troth(self) -> dict[str, Any]:
        """Which orders, what they cost, how they are checked, where the receipt is."""
        completion = self._completion
        return {
            "task": completion.tasks[0],
            "tasks": list(completion.tasks),
            "cost_units": str(completion.cost),
            "asset": completion.asset.symbol,
            "receipt": f"{self._base}/v1/receipts/{completion.identifier}",
            "outcome": completion.outcome,
            "served_by": completion.served_by,
            "advice": completion.advice,
            "own_check": completion.own_check,
        }

    @property
    def _chunk_name(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _object(self, name: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        completion = self._completion
        return {
            "id": completion.identifier,
            "object": name,
            "created": completion.created,
            "model": completion.model,
            "system_fingerprint": None,
            "choices": choices,
        }

    def _chunk(self, number: int, content: Any, logprobs: Any, reason: str | None) -> dict[str, Any]:
        field = "delta" if self._chat else "text"
        choice = {"index": number, field: content, "logprobs": logprobs, "finish_reason": reason}
        chunk = self._object(self._chunk_name, [choice])
        return chunk | {"usage": None} if self._completion.wanted.include_usage else chunk

    def _whole_choice(self, number: int, answer: WholeChoice) -> dict[str, Any]:
        text = self._completion.prefixes[number] + answer.text
        content: dict[str, Any] = {"text": text}
        if self._chat:
            message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
            if answer.calls:
                message |= {"content": text or None, "tool_calls": [call_json(call) for call in answer.calls]}
            content = {"message": message}
        return {
            "index": number,
            **content,
            "logprobs": self._logprobs(number, answer.chosen, 0),
            "finish_reason": self._completion.choices[number].reason,
        }

    def _logprobs(self, number: int, chosen: Sequence[AnswerToken], offset: int) -> dict[str, Any] | None:
        if self._completion.wanted.logprobs < 0:
            return None
        language = self._completion.language
        if self._chat:
            return chat_logprobs(language, chosen)
        return completion_logprobs(language, chosen, offset + len(self._completion.prefixes[number]))

    def _usage(self) -> dict[str, Any]:
        completion, cost = self._completion, str(self._completion.cost)
        written = sum(choice.tokens for choice in completion.choices)
        return {
            "prompt_tokens": completion.prompt_tokens,
            "completion_tokens": written,
            "total_tokens": completion.prompt_tokens + written,
            "prompt_tokens_details": {"cached_tokens": completion.cached},
            "cost": whole_amount(completion.cost, completion.asset.decimals),
            "cost_units": cost,
            **({"cost_wei": cost} if completion.asset.is_coin else {}),
        }
