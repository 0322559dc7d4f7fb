"""All documents: links lead somewhere, lines are short, and every command that is named exists with its options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.shown_commands import FENCED, INLINE, command_lines, wrong_in

ROOT = Path(__file__).parents[2]
WITH_DOCUMENTS = ("*.md", "docs/**/*.md", "scripts/**/*.md", "bench/*.md", "bench/research/**/*.md", "plugins/**/*.md")
DOCUMENTS = sorted(path for pattern in WITH_DOCUMENTS for path in ROOT.glob(pattern))
SOURCES = (
    *("protocol", "transport", "overlay", "routing", "node", "scheduler", "client", "command", "audit", "committee"),
    *("cases", "explorer", "network", "testnet", "contracts", "scripts", "bench/research", "tests"),
)
FOLDERS = {"tutorials", "how-to", "reference", "explanation"}
HISTORY = ("CHANGELOG.md", "docs/adr/")
"""These record what was, so that a command of theirs may be gone."""
NO_COMMANDS = {"s-ida"}
"""What stands behind `troth` in a label that keys are derived with (docs/reference/sida.md)."""
LONGEST = 120

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
URL = re.compile(r"https?://\S+")
MENTION = re.compile(r"(?<![\w/.-])(?:[\w-]+/)*[\w-]+\.md\b")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def outside_code(text: str) -> str:
    return INLINE.sub("", FENCED.sub("", text))


def anchors(text: str) -> set[str]:
    """The anchors that a forge makes of the headings."""
    heads = re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def broken_links(path: Path, text: str) -> Iterator[str]:
    for target in LINK.findall(outside_code(text)):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        if not found.exists() or (anchor and anchor not in anchors(found.read_text(encoding="utf-8"))):
            yield target


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_resolve(path: Path) -> None:
    assert list(broken_links(path, path.read_text(encoding="utf-8"))) == []


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A heading, here\n")
    page = tmp_path / "page.md"
    text = "[a](other.md) [b](other.md#a-heading-here) [c](other.md#none) [d](none.md) [e](https://x.org/none) `[f](g)`"
    assert list(broken_links(page, text)) == ["other.md#none", "none.md"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_lines_are_short(path: Path) -> None:
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    long = [number for number, line in lines if not line.lstrip().startswith("|") and len(URL.sub("", line)) > LONGEST]
    assert long == []


def test_every_page_has_its_folder_and_is_in_the_index() -> None:
    indexes = (ROOT / "docs" / "README.md", ROOT / "docs" / "reference" / "benchmarks" / "README.md")
    listed = {
        (index.parent / target.partition("#")[0]).resolve()
        for index in indexes
        for target in LINK.findall(index.read_text(encoding="utf-8"))
    }
    pages = [one for one in DOCUMENTS if one.is_relative_to(ROOT / "docs") and one.name != "README.md"]
    assert {one.parent.name for one in pages} == {*FOLDERS, "adr", "benchmarks", "docs"}
    assert [name_of(one) for one in pages if one not in listed and one.parent not in listed] == []


@pytest.mark.slow
def test_documents_that_are_named_exist() -> None:
    known = {name_of(one) for one in DOCUMENTS} | {one.name for one in DOCUMENTS}
    files = [one for folder in SOURCES for kind in ("py", "sol", "mjs") for one in (ROOT / folder).rglob(f"*.{kind}")]
    files = [one for one in files if one != Path(__file__)]
    texts = {one: one.read_text(encoding="utf-8") for one in (*files, *DOCUMENTS)}
    missing = {(name_of(path), name) for path, text in texts.items() for name in MENTION.findall(LINK.sub("", text))}
    assert sorted(one for one in missing if one[1] not in known and not one[0].startswith(HISTORY)) == []


@pytest.mark.parametrize("path", [one for one in DOCUMENTS if not name_of(one).startswith(HISTORY)], ids=name_of)
def test_commands_exist_with_their_options(path: Path) -> None:
    lines = [one for one in command_lines(path.read_text(encoding="utf-8")) if one.split()[:1] != []]
    lines = [one for one in lines if one.split()[0] not in NO_COMMANDS]
    assert [wrong for wrong in map(wrong_in, lines) if wrong] == []


def test_a_wrong_command_is_noticed() -> None:
    text = "`troth clinet ask` and `troth client ask --chekc 5%`, `troth client … --direct`, `troth client tabs|close`"
    said = [wrong_in(line) for line in command_lines(text)]
    assert [one.split(" in:")[0] for one in said] == ["no command 'clinet'", "no option ['--chekc']", "", ""]
    block = "```\ntroth client open 5usdc \\\n  --scheduler 0x… --brodcast   # sends it --really\n```\n"
    assert [wrong_in(line).split(" in:")[0] for line in command_lines(block)] == ["no option ['--brodcast']"]


FROM_AN_INDEX = re.compile(r"pip install (?:-\S+ )*['\"]?troth(?![\w./-]*\.whl)")


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if not name_of(path).startswith(HISTORY)], ids=name_of)
def test_nothing_is_promised_from_a_package_index(path: Path) -> None:
    """Troth is in none: it is installed from a checkout or a wheel."""
    assert FROM_AN_INDEX.findall(path.read_text(encoding="utf-8")) == []


def test_no_error_sends_anybody_to_a_package_index() -> None:
    packages = [ROOT / name for name in SOURCES if name not in {"tests", "contracts"}]
    files = [path for folder in packages for path in folder.rglob("*.py")]
    assert [name_of(path) for path in files if FROM_AN_INDEX.search(path.read_text(encoding="utf-8"))] == []


def test_a_promise_of_an_index_is_noticed() -> None:
    assert FROM_AN_INDEX.search("Run pip install 'troth[torch]' now")
    assert FROM_AN_INDEX.search("pip install --upgrade troth")
    assert not FROM_AN_INDEX.search("pip install '.[torch]'")
    assert not FROM_AN_INDEX.search("pip install ./dist/troth-0.1.0-py3-none-any.whl")
    assert not FROM_AN_INDEX.search("pip install troth-0.1.0-py3-none-any.whl")
