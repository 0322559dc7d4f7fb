"""Prompts in files that somebody has: texts with one a line, and chats or lists of prompts as JSON.

Of a chat the first thing that a person said is taken: what follows it belongs to an answer that nobody else knows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from troth.committee.corpus.texts import LARGEST, lines_of
from troth.committee.errors import MemberConfigurationInvalid

LARGEST_SOURCE = 16 * LARGEST
"""Bytes of a file."""
SUFFIXES = (".txt", ".json", ".jsonl")
"""Of files in a folder: one prompt a line; an array of prompts or chats; one prompt or chat a line, as JSON."""
TURNS = ("messages", "conversations", "conversation", "turns")
TYPED = ("prompt", "instruction", "question", "text", "content", "value")
"""Where records have a chat, and where what was typed."""
PEOPLE = {"user", "human"}
REMEDY = "Give texts with one prompt a line, or JSON of prompts or chats (docs/how-to/reputation.md)."


def prompts_in(sources: Sequence[Path]) -> Iterator[str]:
    """Every prompt of files, and of the files with one of ``SUFFIXES`` below folders.

    Raises:
        MemberConfigurationInvalid: a file that cannot be read, or a folder without any.
    """
    for source in sources:
        files = [source]
        if source.is_dir():
            files = sorted(path for path in source.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
        if not files:
            raise MemberConfigurationInvalid(f"There is no file with {', '.join(SUFFIXES)} here", source, REMEDY)
        for path in files:
            yield from _prompts(path)


def _prompts(path: Path) -> Iterator[str]:
    try:
        if path.stat().st_size > LARGEST_SOURCE:
            what = f"A file of prompts has at most {LARGEST_SOURCE} bytes"
            raise MemberConfigurationInvalid(what, path, "Cut it into several.")
        content = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise MemberConfigurationInvalid(f"The prompts cannot be read: {error}", path, REMEDY) from error
    kind = path.suffix.lower()
    if kind == ".jsonl":
        for number, line in enumerate(content.split("\n"), 1):
            if line.strip():
                yield from _typed(_parsed(line, path, number))
    elif kind == ".json":
        found = _parsed(content, path, 1)
        for record in found if isinstance(found, list) else [found]:
            yield from _typed(record)
    else:
        yield from lines_of(content)


def _parsed(text: str, path: Path, line: int) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        what = f"Line {line} or what follows it is no JSON: {error}"
        raise MemberConfigurationInvalid(what, path, REMEDY) from error


def _typed(record: object) -> Iterator[str]:
    """What somebody typed in a record: a text, a chat, or an object with one of them."""
    if isinstance(record, str):
        yield record
    elif isinstance(record, list):
        yield from _first_said(record)
    elif isinstance(record, dict):
        chat = next((record[name] for name in TURNS if isinstance(record.get(name), list)), None)
        if chat is not None:
            yield from _first_said(chat)
        else:
            yield from _text_of(record)


def _first_said(chat: Sequence[object]) -> Iterator[str]:
    for turn in chat:
        if isinstance(turn, dict) and (turn.get("role") or turn.get("from")) in PEOPLE:
            yield from _text_of(turn)
            return


def _text_of(record: dict[str, object]) -> Iterator[str]:
    yield from [text for name in TYPED if isinstance(text := record.get(name), str)][:1]
