"""The project's Python files, read but not run: what `test_sources.py` holds and what `scripts/house` counts."""

from __future__ import annotations

import ast
import builtins
import re
import tomllib
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
FOR_TESTS = "testnet"
"""The package on whose networks tests, benchmarks and the demo run: what it has may be for tests alone."""
FOR_OTHERS = {
    "lapse": "what Court.sol does with money in the one way that no party computes beforehand",
    "dispute_of": "the getter of Disputes.sol, whose every other function has its call beside it",
    "ENDED": "what that getter says of a dispute that is over",
    "imprints_creation": "an Imprints is deployed by hand, before the market whose prover it is",
}
"""What stays in the wheel though only tests use it here, and why."""
ERROR = "TrothError"
"""The base of all errors, and their format."""
BUILTIN = {name for name, one in vars(builtins).items() if isinstance(one, type) and issubclass(one, Exception)}


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


def late_constants(tree: ast.Module) -> list[tuple[str, int]]:
    """Name and line of each constant that stands below a class or a function, though it needs nothing from there.

    A constant that is built from a name of its own module, or typed with one, stands below that name. A run of
    constants without an empty line stays together where one of them does so.
    """
    found, defined = list[tuple[str, int]](), set[str]()
    for run in _runs(tree.body):
        names = {node.id for one in run for node in ast.walk(one) if isinstance(node, ast.Name)}
        bound = {name for one in run for name in _bound(one)}
        if isinstance(run[0], ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or (defined and names & defined):
            defined |= bound
        elif defined and all(isinstance(one, ast.Assign | ast.AnnAssign) for one in run):
            found += [(name, one.lineno) for one in run for name in _bound(one)]
    return found


def _runs(body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Statements of a module without its strings: constants that stand together as one, all others one by one."""
    run, end = list[ast.stmt](), 0
    for one in body:
        is_text = isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
        together = one.lineno == end + 1 and all(isinstance(two, ast.Assign | ast.AnnAssign) for two in (*run, one))
        if run and not together and not is_text:
            yield run
            run = []
        if not is_text:
            run.append(one)
        end = one.end_lineno or 0
    if run:
        yield run


def _bound(node: ast.stmt) -> set[str]:
    """Names that a statement of a module gives a meaning."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def is_error_base(node: ast.ClassDef) -> bool:
    """Whether a public error stands on Python's own classes alone."""
    bases = {ast.unparse(base) for base in node.bases}
    return not node.name.startswith("_") and node.name != ERROR and bool(bases) and bases <= BUILTIN


def only_for_tests() -> list[str]:
    """Functions, classes and constants of the wheel's modules that nobody uses but tests.

    What scripts, benchmarks and blocks of documents use counts as used, and so does a name in a text, by which a module
    may be loaded; a docstring is none. So do commands, which typer keeps by their decorators.
    """
    packages = [source for source in sources(*PACKAGES) if not source.name.startswith(FOR_TESTS)]
    users = [*sources(*PACKAGES), *sources("scripts", "bench"), *_blocks()]
    used = {name for source in users for name in _used(source)} | _entry_points()
    return [
        f"{source.name}:{node.lineno} {name}"
        for source in packages
        for name, node in _defined(source.tree)
        if not {(source.module, name), ("", name)} & used and not _is_kept(node) and name not in FOR_OTHERS
    ]


def _blocks() -> Iterator[Source]:
    """The Python of documents, which a test runs."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = "".join(re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL))
        yield Source(str(path.relative_to(ROOT)), text, ast.parse(text))


def _defined(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """What a module defines at its top."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((one.id, node) for one in targets if isinstance(one, ast.Name) and not one.id.startswith("__"))


def _is_kept(node: ast.stmt) -> bool:
    """Whether a decorator keeps it: a command's, or a page's."""
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) for one in node.decorator_list
    )


def _used(source: Source) -> Iterator[tuple[str, str]]:
    """Module and name of what a file uses; without the module where a text names it."""
    modules, attributes, names = set[str](), set[str](), defaultdict[str, list[int]](list)
    texts = {id(one) for one in _docstrings(source.tree)}
    for node in ast.walk(source.tree):
        match node:
            case ast.Import():
                modules |= {one.name for one in node.names}
            case ast.ImportFrom(module=str(module)):
                yield from ((module, one.name) for one in node.names)
                modules |= {f"{module}.{one.name}" for one in node.names}
            case ast.Attribute():
                attributes.add(node.attr)
            case ast.Name(ctx=ast.Load()):
                names[node.id].append(node.lineno)
            case ast.Constant(value=str(text)) if id(node) not in texts and (text.isidentifier() or "troth." in text):
                modules.add(text)
                yield from (("", word) for word in re.findall(r"[A-Za-z_]\w*", text))
    yield from ((module, name) for module in modules for name in attributes)
    for name, node in _defined(source.tree):
        if any(not node.lineno <= line <= (node.end_lineno or line) for line in names[name]):
            yield source.module, name


def _docstrings(tree: ast.Module) -> Iterator[ast.expr]:
    for node in [tree, *statements(tree)]:
        body = getattr(node, "body", None)
        for one in body if isinstance(body, list) else []:
            if isinstance(one, ast.Expr):
                yield one.value


def _entry_points() -> set[tuple[str, str]]:
    """What `pyproject.toml` names: the commands."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [*project["scripts"].values(), *project["entry-points"]["troth.commands"].values()]
    return {(module, name) for module, _, name in (one.partition(":") for one in named)}
