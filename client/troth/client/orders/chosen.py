"""A token of an answer with its log probabilities, as a stream's line tells them.

They are the inferencer's word: nothing on chain is about them and no verifier looks at them. The client refuses what no
model can have found, no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from troth.client.errors import StreamError
from troth.client.untrusted import read_list, read_number, read_whole
from troth.protocol.errors import InvalidTokens
from troth.protocol.logprobs import ALTERNATIVES_LIMIT, LEAST_LOGPROB, NO_LOGPROBS, Logprobs, require_possible


@dataclass(frozen=True, slots=True)
class AnswerToken:
    """A token; its log probability, None where none was ordered or served; ids and log probabilities of the likeliest
    tokens in that place, likeliest first."""

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


def read_chosen(line: dict[str, Any], token: int, asked: int, vocabulary: int) -> AnswerToken:
    """What a line says of `token`, with `asked` alternatives ordered; StreamError where that cannot be true.

    Log probabilities that were not ordered are not looked at.
    """
    if asked == NO_LOGPROBS or line.get("logprob") is None:
        return AnswerToken(token)
    logprob = read_number(line.get("logprob"), LEAST_LOGPROB, 0)
    alternatives = read_list(line.get("top"), ALTERNATIVES_LIMIT)
    top = tuple(_alternative(value, vocabulary) for value in alternatives)
    try:
        require_possible(Logprobs(logprob, top), token, count=asked, vocabulary=vocabulary)
    except InvalidTokens as error:
        what = f"The scheduler sent log probabilities that cannot be: {error.what}"
        raise StreamError(what, error.value, "Use another scheduler.") from error
    return AnswerToken(token, logprob, top)


def _alternative(value: object, vocabulary: int) -> tuple[int, float]:
    pair = read_list(value, 2)
    if len(pair) != 2:
        raise StreamError("An alternative is a token and its log probability", len(pair), "Use another scheduler.")
    return read_whole(pair[0], 0, vocabulary - 1), read_number(pair[1], LEAST_LOGPROB, 0)
