"""Another slice in node.toml, and nothing else: comments and every other line stay as the operator wrote them."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from troth.node.configuration import FILE, load
from troth.node.errors import ConfigError, NodeError
from troth.protocol.types import Segment

_TABLE = re.compile(r"^\s*\[node\]\s*(#.*)?\n(?P<body>(?:(?!\s*\[).*\n?)*)", re.MULTILINE)
_SLICE = re.compile(r'^(\s*slice\s*=\s*)("[^"\n]*"|\'[^\'\n]*\')', re.MULTILINE)
_SEGMENTS = re.compile(r"^(\s*segments\s*=\s*)\[[^\[\]]*\]", re.MULTILINE)


def text_of(segment: Segment) -> str:
    """Layers as the file and the command line have them, such as 0:15."""
    return f"{segment.first}:{segment.end}"


def write_slice(folder: Path, hosted: Segment, segments: Sequence[Segment]) -> None:
    """Have node.toml say another slice, in one step: a reader sees the old file or the new one.

    Raises:
        ConfigError: the file is written in a way that cannot be changed without risk; it is as it was before.
    """
    path, before = folder / FILE, load(folder)
    listed = ", ".join(f'"{text_of(segment)}"' for segment in segments)
    text = path.read_text(encoding="utf-8")
    changed = _changed(text, f'"{text_of(hosted)}"', f"[{listed}]")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".node-toml-") as scratch:
        candidate = Path(scratch) / FILE
        candidate.touch(mode=0o600)
        candidate.write_text(changed, encoding="utf-8")
        candidate.chmod(path.stat().st_mode & 0o777)
        expected = replace(before, slice=hosted, segments=tuple(segments))
        if not _says(candidate.parent, replace(expected, folder=candidate.parent), before.operator_keystore):
            remedy = f'Set node.slice = "{text_of(hosted)}" and node.segments = [{listed}] by hand.'
            raise ConfigError("node.toml could not be changed", str(path), remedy)
        with candidate.open("rb") as written:
            os.fsync(written.fileno())
        candidate.replace(path)


def _changed(text: str, hosted: str, segments: str) -> str:
    """The text with both values of its [node] table replaced; where it has no such lines they stay as they are."""
    table = _TABLE.search(text)
    if table is None:
        return text
    body = _SLICE.sub(lambda found: found[1] + hosted, table["body"], count=1)
    body = _SEGMENTS.sub(lambda found: found[1] + segments, body, count=1)
    return text[: table.start("body")] + body + text[table.end("body") :]


def _says(folder: Path, expected: object, keystore: Path) -> bool:
    """Whether the file in a folder means just this; paths in it are relative to the folder."""
    try:
        return replace(load(folder), operator_keystore=keystore) == expected
    except NodeError:
        return False
