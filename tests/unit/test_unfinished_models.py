"""What a killed import left: the next one of that name removes it, and nothing that somebody works in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from troth.node.models.unfinished import unfinished

HOLDS = """
import sys, time
from pathlib import Path
from troth.node.models.unfinished import unfinished
with unfinished(Path(sys.argv[1]), "tiny") as folder:
    (folder / "half").write_text("of a model")
    print(folder, flush=True)
    time.sleep(600)
"""


def working(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(parent)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


@pytest.mark.slow
def test_what_a_killed_process_left_is_removed_and_what_is_worked_in_stays(tmp_path: Path) -> None:
    dead, left = working(tmp_path)
    alive, kept = working(tmp_path)
    try:
        with unfinished(tmp_path, "tiny"):
            assert (left / "half").exists(), "its process lives"
        dead.kill()
        dead.wait()
        assert (left / "half").exists()
        with unfinished(tmp_path, "tin"), unfinished(tmp_path, "other"):
            assert left.exists(), "another name's is not touched"
        with unfinished(tmp_path, "tiny"):
            assert not left.exists()
            assert (kept / "half").exists()
    finally:
        for one in (dead, alive):
            one.kill()
            one.communicate()


def test_nothing_stays_when_it_ends_and_a_renamed_folder_does(tmp_path: Path) -> None:
    with unfinished(tmp_path, "tiny") as folder:
        folder.rename(tmp_path / "tiny")
    with pytest.raises(ValueError, match="disk"), unfinished(tmp_path, "tiny"):
        raise ValueError("disk")
    assert [one.name for one in tmp_path.iterdir()] == ["tiny"]


def test_a_link_of_that_name_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / ".tiny.unfinished-link").symlink_to(tmp_path / "precious")
    with unfinished(tmp_path / "models", "tiny"):
        pass
    assert (tmp_path / "precious").is_dir()
