"""How the sources are built: no function over 60 lines, no module over 500, no class name twice, constants above what
uses them, and folders that say what belongs there."""

from __future__ import annotations

import ast

import pytest
from support.sources import (
    BESIDE,
    PACKAGES,
    Source,
    circles,
    class_places,
    functions,
    imports,
    is_error_base,
    late_constants,
    only_for_tests,
    sources,
)

pytestmark = pytest.mark.slow  # it reads and parses a quarter of a million lines

LONGEST_FUNCTION, LONGEST_MODULE = 60, 500


@pytest.fixture(scope="module")
def everything() -> tuple[Source, ...]:
    return sources(*PACKAGES, *BESIDE)


def test_every_folder_is_read(everything: tuple[Source, ...]) -> None:
    assert {source.name.split("/")[0] for source in everything} == {*PACKAGES, *BESIDE}
    assert "scripts/house" in {source.name for source in everything}


def test_no_function_is_longer_than_a_screen(everything: tuple[Source, ...]) -> None:
    found = [
        f"{source.name}:{first} {name} has {size} lines"
        for source in everything
        for name, first, size in functions(source)
        if size > LONGEST_FUNCTION
    ]
    assert not found, "\n".join(found)


def test_no_module_is_longer_than_its_concept(everything: tuple[Source, ...]) -> None:
    found = [f"{source.name} has {source.lines} lines" for source in everything if source.lines > LONGEST_MODULE]
    assert not found, "\n".join(found)


def test_constants_stand_above_classes_and_functions() -> None:
    """Below them stands only what needs one of them. A test's own table may stand beside the test that it is for."""
    text = "def f(): ...\nA = f()\nB = 1\n\nC = A\nD: g = 2\nclass g: ...\nE = 3\n\nF: g = 4\nG, H = 5, 6\n"
    assert late_constants(ast.parse(text)) == [("E", 8)]
    found = [
        f"{source.name}:{line} {name}"
        for source in sources(*PACKAGES, *(folder for folder in BESIDE if folder != "tests"), "tests/support")
        for name, line in late_constants(source.tree)
    ]
    assert not found, "\n".join(found)


def test_no_class_name_is_defined_twice() -> None:
    assert {name: where for name, where in class_places().items() if len(where) > 1} == {}


def test_every_public_error_says_what_happened_and_what_to_do() -> None:
    """Python's own classes say neither: whoever catches TrothError would let such an error through."""
    found = [
        f"{source.name}:{node.lineno} {node.name}"
        for source in sources(*PACKAGES)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef) and is_error_base(node)
    ]
    assert not found, "\n".join(found)


def test_no_pattern_of_a_message_lets_a_lines_end_through(everything: tuple[Source, ...]) -> None:
    """A dollar sign fits before a last line's end, too; msgspec searches."""
    found = [
        f"{source.name}:{node.lineno} {node.value.value}"
        for source in everything
        for node in ast.walk(source.tree)
        if isinstance(node, ast.keyword) and node.arg == "pattern" and isinstance(node.value, ast.Constant)
        if str(node.value.value).endswith("$")
    ]
    assert not found, "\n".join(found)


def test_who_catches_what_bytes_cannot_be_read_for_catches_bytes_that_are_no_text() -> None:
    """msgspec raises Python's own UnicodeDecodeError for them, none of its errors: a peer that sends them would end
    whatever reads its answer."""
    found = [
        f"{source.name}:{handler.lineno}"
        for source in sources(*PACKAGES)
        for handler in ast.walk(source.tree)
        if isinstance(handler, ast.ExceptHandler) and handler.type is not None
        if "msgspec." in (caught := ast.unparse(handler.type))
        if not {"UnicodeDecodeError", "ValueError", "Exception"} & set(caught.strip("()").split(", "))
    ]
    assert not found, "\n".join(found)


def test_no_modules_import_one_another() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert circles(imports()) == []


def test_what_only_tests_use_is_not_in_the_wheel() -> None:
    """It lies in tests/support; what others use all the same is named in ``FOR_OTHERS``, with the reason."""
    assert only_for_tests() == []


def test_every_folder_says_what_belongs_there() -> None:
    packages = [source for source in sources(*PACKAGES) if source.is_package]
    folders = {source.name.rpartition("/")[0] for source in sources(*PACKAGES)}
    namespaces = {f"{package}/troth" for package in PACKAGES}
    assert folders - namespaces == {source.name.rpartition("/")[0] for source in packages}
    silent = [source.name for source in packages if not ast.get_docstring(source.tree)]
    assert not silent, "\n".join(silent)
