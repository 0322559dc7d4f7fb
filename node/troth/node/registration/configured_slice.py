"""Another slice or endpoint in node.toml, and nothing else: comments and all other lines stay as the operator wrote
them."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from troth.node.configuration import FILE, NodeConfiguration, load
from troth.node.errors import ConfigError, NodeError
from troth.overlay.sessions.entry_section import OverlayEntry, shared_place
from troth.protocol.types import Address, Segment
from troth.transport.strict_toml import quoted

_BODY = r"\s*(#.*)?\n(?P<body>(?:(?!\s*\[).*\n?)*)"
_TABLE = re.compile(r"^\s*\[node\]" + _BODY, re.MULTILINE)
_LISTEN = re.compile(r"^\s*\[listen\]" + _BODY, re.MULTILINE)
_OVERLAY = re.compile(r"^\s*\[overlay\]" + _BODY, re.MULTILINE)
_OWN_PORT = re.compile(r"^[ \t]*(address|host|port)[ \t]*=.*\n?", re.MULTILINE)
_TUNNEL = re.compile(r"^[ \t]*\[tunnel\]" + _BODY, re.MULTILINE)
_SLICE = re.compile(r'^(\s*slice\s*=\s*)("[^"\n]*"|\'[^\'\n]*\')', re.MULTILINE)
_ENDPOINT = re.compile(r'^(\s*endpoint\s*=\s*)("[^"\n]*"|\'[^\'\n]*\')', re.MULTILINE)
_SEGMENTS = re.compile(r"^(\s*segments\s*=\s*)\[[^\[\]]*\]", re.MULTILINE)


def text_of(segment: Segment) -> str:
    """Layers as the file and the command line have them, such as 0:15."""
    return f"{segment.first}:{segment.end}"


def write_slice(folder: Path, hosted: Segment, segments: Sequence[Segment]) -> None:
    """Have node.toml say another slice, in one step: a reader sees the old file or the new one.

    Raises:
        ConfigError: the file is written in a way that cannot be changed without risk; it is as it was before.
    """
    before = load(folder)
    listed = ", ".join(f'"{text_of(segment)}"' for segment in segments)
    changed = _changed(_text(folder), f'"{text_of(hosted)}"', f"[{listed}]")
    remedy = f'Set node.slice = "{text_of(hosted)}" and node.segments = [{listed}] by hand.'
    _put(folder, changed, replace(before, slice=hosted, segments=tuple(segments)), remedy)


def write_endpoint(folder: Path, endpoint: str, lender: Address | None) -> None:
    """Have node.toml say another endpoint, and which scheduler lends it, in one step.

    Behind a tunnel there is one port, so an entry of the overlay shares it from then on.

    Raises:
        ConfigError: as ``write_slice`` does.
    """
    before, text = load(folder), _text(folder)
    listen = _LISTEN.search(text)
    if listen is not None:
        body = _ENDPOINT.sub(lambda found: found[1] + quoted(endpoint), listen["body"], count=1)
        text = text[: listen.start("body")] + body + text[listen.end("body") :]
    overlay = _OVERLAY.search(text)
    if overlay is not None and lender is not None:
        text = text[: overlay.start("body")] + _OWN_PORT.sub("", overlay["body"]) + text[overlay.end("body") :]
    tunnel = _TUNNEL.search(text)
    if tunnel is not None:
        text = text[: tunnel.start()] + text[tunnel.end() :]
    if lender is not None:
        text = f"{text.rstrip()}\n\n[tunnel]\nscheduler = {quoted(lender)}\n"
    tables = f'listen.endpoint = "{endpoint}"' + (f' and tunnel.scheduler = "{lender}"' if lender else "")
    expected = replace(before, endpoint=endpoint, tunnel=lender, overlay=_entry(before, endpoint, lender))
    _put(folder, text, expected, f"Set {tables} by hand.")


def _entry(before: NodeConfiguration, endpoint: str, lender: Address | None) -> OverlayEntry | None:
    """The node's entry once it is reached at another endpoint."""
    entry = before.overlay
    if entry is None or (lender is None and not entry.shares):
        return entry
    return replace(entry, host="", port=0, address=shared_place(endpoint, ConfigError))


def _text(folder: Path) -> str:
    return (folder / FILE).read_text(encoding="utf-8")


def _put(folder: Path, changed: str, expected: NodeConfiguration, remedy: str) -> None:
    """Replace the file in one step, once the new text was read and means just what is expected."""
    path = folder / FILE
    with tempfile.TemporaryDirectory(dir=folder, prefix=".node-toml-") as scratch:
        candidate = Path(scratch) / FILE
        candidate.touch(mode=0o600)
        candidate.write_text(changed, encoding="utf-8")
        candidate.chmod(path.stat().st_mode & 0o777)
        if not _says(candidate.parent, replace(expected, folder=candidate.parent), expected.operator_keystore):
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
