"""Texts such as people type, long enough for long windows, as the tokens of a model."""

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
TEXTS = (
    TEXT,
    "Bread rises because yeast eats sugar and breathes out gas, which the dough holds in small bubbles. Flour and "
    "water make gluten, a net of proteins that stretches as the bubbles grow. Salt slows the yeast and makes the net "
    "stronger. When the loaf enters the oven the gas expands at once, the crust sets, and after half an hour the "
    "inside is firm. A loaf that is cut while hot is gummy, since steam is still moving through it.",
    "def merge(left, right):\n    result = []\n    i = j = 0\n    while i < len(left) and j < len(right):\n"
    "        if left[i] <= right[j]:\n            result.append(left[i])\n            i += 1\n        else:\n"
    "            result.append(right[j])\n            j += 1\n    return result + left[i:] + right[j:]\n",
    "My dear aunt, we came home on Tuesday after nine days at the coast. It rained on seven of them, and the children "
    "built a harbour out of wet sand which the tide took every night. Peter lost a shoe and found two others. The "
    "landlady sends her regards, and asks whether you still have the recipe for plum cake that her mother wrote down "
    "for you before the war. Write soon, and keep warm. Yours, Anna.",
)
"""Prose, code and a letter, of about as many."""


def tokens_of(folder: ModelFolder, text: str) -> tuple[int, ...]:
    from tokenizers import Tokenizer

    return tuple(Tokenizer.from_str(folder.tokenizer_json.decode()).encode(text, add_special_tokens=False).ids)
