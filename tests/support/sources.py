"""The project's Python files, read but not run: what `test_sources.py` holds and what `scripts/house` counts."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import networkx

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "protocol", "transport", "network", "overlay", "routing", "node", "scheduler",
    "client", "command", "audit", "committee", "cases", "explorer", "testnet",
)  # fmt: skip
"""Folders of what the wheel installs."""
BESIDE = ("bench", "scripts", "tests")
"""Folders of what it does not."""
OPAQUE = {".venv", "__pycache__", "node_modules"}


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file; ``name`` is its path in the checkout."""

    name: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        """How long it is."""
        return self.text.count("\n")

    @property
    def is_package(self) -> bool:
        """Whether it says what a folder is."""
        return self.name.endswith("/__init__.py")

    @property
    def module(self) -> str:
        """The name by which it is imported, for files of the packages: without the folder that is no part of it."""
        parts = self.name.removesuffix(".py").removesuffix("/__init__").split("/")
        return ".".join(parts[1:])


@cache
def sources(*folders: str) -> tuple[Source, ...]:
    """All Python files below these folders, those without an ending too, if Python runs them."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*"))]
    return tuple(_read(path) for path in paths if not OPAQUE.intersection(path.parts) and _is_python(path))


@cache
def _read(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    return Source(str(path.relative_to(ROOT)), text, ast.parse(text))


def _is_python(path: Path) -> bool:
    if path.suffix or not path.is_file():
        return path.suffix == ".py"
    with path.open("rb") as file:
        return file.readline().startswith(b"#!") and b"python" in path.read_bytes()[:40]


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node, those of functions inside functions too; expressions are not looked into."""
    left = [tree]
    while left:
        node = left.pop()
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            inside = getattr(node, part, None)
            if isinstance(inside, list):
                left += inside
                yield from inside


def class_places() -> dict[str, list[str]]:
    """Where classes of the packages are defined, nested and private ones too, by their names."""
    found = defaultdict(list)
    for source in sources(*PACKAGES):
        for node in statements(source.tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{source.name}:{node.lineno}")
    return found


def imports() -> dict[str, set[str]]:
    """The modules of the packages that each of them imports, inside functions and for types alone, too."""
    modules = {source.module: source for source in sources(*PACKAGES)}
    found: dict[str, set[str]] = {}
    for name, source in modules.items():
        wanted = set()
        for node in statements(source.tree):
            if isinstance(node, ast.Import):
                wanted |= {one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inside = {f"{node.module}.{one.name}" for one in node.names}
                # What is imported from a package may be a module of it: then its `__init__` is not meant.
                wanted |= inside & modules.keys() or {node.module}
        found[name] = (wanted & modules.keys()) - {name}
    return found


def circles(imported: Mapping[str, set[str]]) -> list[list[str]]:
    """Modules that import one another, directly or by way of others: each circle sorted."""
    graph = networkx.DiGraph([(name, other) for name, others in imported.items() for other in others])
    return sorted(sorted(found) for found in networkx.strongly_connected_components(graph) if len(found) > 1)


def functions(source: Source) -> Iterator[tuple[str, int, int]]:
    """Name, first line and number of lines of each function, decorators and docstring included."""
    for node in statements(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min((one.lineno for one in node.decorator_list), default=node.lineno)
            yield node.name, first, (node.end_lineno or first) - first + 1
