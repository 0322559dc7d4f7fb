"""Writing another slice into node.toml: nothing else changes, and what cannot be changed safely is left alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from troth.node.configuration import FILE, NodeInitOptions, load, render
from troth.node.errors import ConfigError
from troth.node.registration.configured_slice import write_slice
from troth.protocol.types import Segment

TEXT = render(
    NodeInitOptions(
        rpc="http://127.0.0.1:8545", factory="0x5FbDB2315678afecb367f032d93F642f64180aa3",
        execution_class="0x" + "ab" * 32, model="slice = \"9:9\"", slice="0:15", segments=("0:15", "5:15"),
        host="127.0.0.1", port=9443, endpoint="https://127.0.0.1:9443", device="cpu", threads=1, start_block=7,
    )
)  # fmt: skip
HOSTED, SEGMENTS = Segment(15, 30), (Segment(15, 30), Segment(20, 25))
WRITTEN = '["15:30", "20:25"]'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ('slice = "0:15"\n', "slice='0:15'   # half of it\n"),
        ('segments = ["0:15", "5:15"]', 'segments = [\n  "0:15",  # all\n  "5:15",\n]  # two'),
        ("[node]\n", "  [node]  # layers\n# slice = nothing\n"),
        ("[keys]\n", "# segments = []\n[keys]\n"),
    ],
)
def test_only_the_slice_changes(tmp_path: Path, old: str, new: str) -> None:
    text = TEXT.replace(old, new, 1) if old else TEXT
    (tmp_path / FILE).write_text(text)
    (tmp_path / FILE).chmod(0o600)
    before = load(tmp_path)
    write_slice(tmp_path, HOSTED, SEGMENTS)
    assert load(tmp_path) == replace(before, slice=HOSTED, segments=SEGMENTS)
    lines = (tmp_path / FILE).read_text().splitlines()
    values = ("0:15", "5:15", "segments = [", "]  # two")
    kept = [line for line in text.splitlines() if not any(value in line for value in values)]
    assert [line for line in lines if line in kept] == kept
    assert WRITTEN in "\n".join(lines)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    write_slice(tmp_path, Segment(0, 15), (Segment(0, 15),))
    assert load(tmp_path) == replace(before, segments=(Segment(0, 15),))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('[node]\nclass = ', '[engine.extra]\n[node]\nclass = '),
        ('slice = "0:15"\n', '"slice" = "0:15"\n'),
        ('segments = ["0:15", "5:15"]', 'segments = [\n  "0:15",  # [all]\n  "5:15",\n]'),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_left_alone(tmp_path: Path, old: str, new: str) -> None:
    text = TEXT.replace(old, new, 1)
    (tmp_path / FILE).write_text(text)
    with pytest.raises(ConfigError):
        write_slice(tmp_path, HOSTED, SEGMENTS)
    assert (tmp_path / FILE).read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_slice_without_its_segments_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(TEXT)
    with pytest.raises(ConfigError):
        write_slice(tmp_path, HOSTED, (Segment(0, 2),))
    assert (tmp_path / FILE).read_text() == TEXT
