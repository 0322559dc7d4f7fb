"""Commands that texts show, in documents and in the program's own words, and what is wrong with one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer

from troth.command.plugins import SHORT, load, plugins
from troth.command.root import app

FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
# The command `llm` has one called troth, too, by our plugin.
SHOWN = re.compile(r"(?<!llm)(?:^|[ (|&`])troth ((?:[^\\\n]|\\\n)*)", re.MULTILINE)


def command_lines(text: str) -> Iterator[str]:
    """What stands behind `troth` where code shows it as a command, comments left out."""
    fenced = [re.sub(r"(?m) # .*$", "", block) for block in FENCED.findall(text)]
    indented = re.findall(r"(?m)^    .*$", FENCED.sub("", text))
    inline = [" ".join(one.split()) for one in INLINE.findall(FENCED.sub("", text))]
    for code in (*fenced, *indented, *(one for one in inline if one.startswith("troth "))):
        yield from (one.replace("\\\n", " ") for one in SHOWN.findall(code))


def wrong_in(line: str) -> str:
    """What is wrong with a shown command: a word that is no command, or an option that it does not have; else empty."""
    words = line.split()
    words = [*SHORT[words[0]][0], *words[1:]] if words[:1] and words[0] in SHORT else words
    commands = [root()]
    while words and not words[0].startswith(("-", '"', "'")):
        below = {name: one for command in commands for name, one in members(command).items()}
        if not below:
            break
        named = list(below) if words[0] == "…" else words[0].strip(".,;:)").split("|")
        if any(name not in below for name in named):
            return f"no command '{words[0]}' in: troth {line}"
        commands = [below[name] for name in named]
        words = words[1:]
    options = {one for command in commands for each in command.params for one in (*each.opts, *each.secondary_opts)}
    shown = {one for word in words for one in re.findall(r"^\[?(--[a-z][a-z-]*)", word)}
    lacking = shown - options - {"--help"}
    return f"no option {sorted(lacking)} in: troth {line}" if lacking else ""


@cache
def root() -> Any:
    """`troth` with all of its sub-commands loaded."""
    found = typer.main.get_command(app)
    found.commands.update({name: load(point) for name, point in plugins().items()})  # type: ignore[attr-defined]
    return found


def members(command: Any) -> dict[str, Any]:
    return dict(getattr(command, "commands", {}))


def shown_in_texts(source: str) -> Iterator[str]:
    """Commands in backticks in a program's texts: its errors with their remedies, its help, its docstrings."""
    for node in ast.walk(ast.parse(source)):
        text = ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
        for code in (" ".join(one.split()) for one in INLINE.findall(text)):
            if code.startswith("troth ") and not code.startswith(("troth …", "troth GROUP", "troth audit …")):
                yield from SHOWN.findall(code)
