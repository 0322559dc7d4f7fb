"""Links of a killed process to its model's files go when the next one starts; those of the living stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from troth.node.models.holding import PREFIX, HeldFiles, sweep

HOLDING = """
import sys, time
from pathlib import Path
from troth.node.models.holding import HeldFiles
one = HeldFiles(Path(sys.argv[1]))
print(one.path, flush=True)
time.sleep(600)
"""


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where links are made, here and in processes that are begun."""
    folder = tmp_path / "links"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    return folder


@pytest.fixture
def another(model: Path, links: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the model's files."""
    process = subprocess.Popen([sys.executable, "-c", HOLDING, str(model)], stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait(timeout=60)


def path_of(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


def test_links_of_a_killed_process_go_when_the_next_one_starts(
    model: Path, links: Path, another: subprocess.Popen[str]
) -> None:
    left = path_of(another)
    another.send_signal(signal.SIGKILL)
    another.wait(timeout=60)
    assert (left / "config.json").is_symlink()
    mine = HeldFiles(model)
    assert list(links.iterdir()) == [mine.path]


def test_links_of_the_living_stay(model: Path, links: Path, another: subprocess.Popen[str]) -> None:
    theirs, mine = path_of(another), HeldFiles(model)
    sweep(links)
    assert set(links.iterdir()) == {theirs, mine.path}
    assert (theirs / "config.json").read_text() == (mine.path / "config.json").read_text() == "{}"


def test_what_is_no_folder_of_links_to_a_process_s_files_stays(links: Path, tmp_path: Path) -> None:
    ours, empty, elsewhere = (links / f"{PREFIX}{name}" for name in ("ours", "empty", "elsewhere"))
    for one in (ours, empty):
        one.mkdir()
    (ours / "config.json").write_text("a file")
    (target := tmp_path / "target").mkdir()
    (target / "config.json").symlink_to("/proc/999999999/fd/5")
    elsewhere.symlink_to(target)
    (links / f"{PREFIX}file").write_text("")
    sweep(links)
    assert (ours / "config.json").read_text() == "a file"
    assert empty.is_dir()
    assert os.path.lexists(target / "config.json")
