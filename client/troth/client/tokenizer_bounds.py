"""What a stranger's tokenizer.json may do to a text, looked at before the tokenizers package sees it.

Steps that replace letters by more letters, one after the other, double a text thirty times, and a table that claims to
be larger than it is ends the process. Neither raises anything that could be caught.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from troth.client.errors import ModelUnavailable

MOST_GROWTH = 256
"""Times that a text may become longer by all replacements together; those of real models keep its length."""
MOST_PREPENDED = 1000
"""Characters that are put before a text, or before each of its words."""
STEPS = ("normalizer", "pre_tokenizer", "decoder")
REMEDY = "Use another model."


def require_bounded(tokenizer: str) -> None:
    """Raise ModelUnavailable where a text could grow without bound, or a table is not as large as it says.

    Also where a name is there twice: two readers may take two different values.
    """
    told = json.loads(tokenizer, object_pairs_hook=_without_doubles)
    if not isinstance(told, dict):
        raise ModelUnavailable("The model's tokenizer is no object", type(told).__name__, REMEDY)
    for name in STEPS:
        growth, prepended = 1.0, 0
        for step in _steps(told.get(name)):
            growth *= _growth(step)
            prepended += len(str(step.get("prepend") or step.get("replacement") or ""))
            _require_table(step.get("precompiled_charsmap"))
        if growth > MOST_GROWTH or prepended > MOST_PREPENDED:
            what = f"The model's {name} makes texts longer without end"
            raise ModelUnavailable(what, f"{growth:.3g} times and {prepended} characters", REMEDY)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name is there twice")
    return made


def _steps(part: Any) -> Iterator[Mapping[str, Any]]:
    """Every object inside, in whatever sequences."""
    if isinstance(part, dict):
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _steps(inner)


def _growth(step: Mapping[str, Any]) -> float:
    if step.get("type") != "Replace":
        return 1.0
    pattern, content = step.get("pattern"), len(str(step.get("content", "")))
    plain = pattern.get("String") if isinstance(pattern, dict) else pattern
    # An expression, and an empty text, may be found before every letter.
    return max(1.0, content / len(plain)) if isinstance(plain, str) and plain else 1.0 + content


def _require_table(charsmap: Any) -> None:
    if not isinstance(charsmap, str):
        return
    table = base64.b64decode(charsmap)
    size = int.from_bytes(table[:4], "little")
    if not 4 <= size <= len(table) - 4 or size % 4:
        raise ModelUnavailable("The tokenizer's table of letters is not as large as it says", size, REMEDY)
