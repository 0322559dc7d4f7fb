"""Tokens to text while they stream, never showing half a character.

One token may carry part of a UTF-8 character, and some tokenizers add or drop a space depending on the token before. So
each step decodes a short window with and without the new token and shows what was added, once it is whole.
"""

from __future__ import annotations

from typing import Protocol

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
LONGEST_HOLD = 16
"""Tokens held back at most. No character takes more than four bytes; text that never completes is broken text."""


class TokenDecoder(Protocol):
    """The one method of `tokenizers.Tokenizer` that is needed here."""

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        """Text of the tokens."""


class Detokenizer:
    """Feeds on token ids, returns the text that became certain; `flush` returns what is left at the end."""

    def __init__(self, decoder: TokenDecoder) -> None:
        self._decoder = decoder
        self._context: list[int] = []
        self._pending: list[int] = []

    def feed(self, token: int) -> str:
        """Add one token and return the text that is now complete, perhaps nothing."""
        self._pending.append(token)
        text = self._added()
        if (not text or text.endswith(REPLACEMENT)) and len(self._pending) < LONGEST_HOLD:
            return ""
        self._settle()
        return text

    def flush(self) -> str:
        """The end of the text, with a replacement character where the model stopped inside a character."""
        text = self._added()
        self._settle()
        return text

    def _added(self) -> str:
        before = self._decoder.decode(self._context)
        after = self._decoder.decode(self._context + self._pending)
        return after[len(before) :]

    def _settle(self) -> None:
        # The tokens just shown are the context in which the next ones are decoded.
        if self._pending:
            self._context, self._pending = self._pending, []
