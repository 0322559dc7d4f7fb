"""Runs the Python blocks of docs/reference/protocol.md from top to bottom as one program."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "protocol.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_block_of_the_document_runs() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) == text.count("```python")
    assert len(blocks) >= 10
    namespace: dict[str, object] = {}
    for block in blocks:
        # Blank lines in front keep the document's line numbers in a traceback.
        source = "\n" * text.count("\n", 0, block.start(1)) + block.group(1)
        exec(compile(source, str(DOCUMENT), "exec"), namespace)
