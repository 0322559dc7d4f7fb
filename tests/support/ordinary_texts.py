"""A text such as people type, long enough for long windows, as the tokens of a model."""

from __future__ import annotations

from troth.node.models.folder import ModelFolder

TEXT = (
    "A lock lifts a ship between two waters of unlike height. The ship enters the chamber, the gates behind it are "
    "shut, and valves in the upper gates let water in until both are level. Then the upper gates are opened, and the "
    "ship goes on its way, while the next one that comes down is let in from above and sinks with the water below it. "
    "Nobody pumps anything: the upper water alone does the work, and what is lost at each passage runs down to the "
    "sea. So a canal needs a lake at its highest point, or a stream that fills it."
)
"""Of SmolLM2 some 110 tokens."""


def tokens_of(folder: ModelFolder, text: str) -> tuple[int, ...]:
    from tokenizers import Tokenizer

    return tuple(Tokenizer.from_str(folder.tokenizer_json.decode()).encode(text, add_special_tokens=False).ids)
