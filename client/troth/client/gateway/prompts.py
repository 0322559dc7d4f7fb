"""From a prompt as it was sent to tokens, and what of it is shown before the answer."""

from __future__ import annotations

from troth.client.gateway.errors import InvalidRequest
from troth.client.gateway.request import Prompt, Wanted
from troth.client.language import Language
from troth.client.prompt import LARGEST_PROMPT


def tokens_of(language: Language, vocabulary: int, prompt: Prompt) -> tuple[int, ...]:
    """A prompt's tokens; InvalidRequest where it is too long, or a token is none of the model's."""
    if isinstance(prompt, str):
        _require_size(len(prompt.encode()))
        return tuple(language.tokenizer.encode(prompt).ids)
    if isinstance(prompt, tuple) and all(isinstance(one, int) for one in prompt):
        tokens = tuple(one for one in prompt if isinstance(one, int))
        if any(token >= vocabulary for token in tokens):
            raise InvalidRequest(
                "A token is none of the model's", max(tokens), f"Use 0 to {vocabulary - 1}.", param="prompt"
            )
        return tokens
    messages = [message for message in prompt if not isinstance(message, int)]
    _require_size(sum(len(message["content"].encode()) for message in messages))
    return language.prompt_tokens(messages)


def _require_size(size: int) -> None:
    if size > LARGEST_PROMPT:
        raise InvalidRequest(
            "The prompt is too long",
            f"{size} bytes",
            f"Use at most {LARGEST_PROMPT} bytes.",
            code="context_length_exceeded",
        )


def echoed(language: Language, wanted: Wanted, prompt: Prompt, tokens: tuple[int, ...]) -> str:
    """What is shown before the answer."""
    if not wanted.echo:
        return ""
    return prompt if isinstance(prompt, str) else language.decode(list(tokens))
