"""The benchmark of graphics cards, as far as it runs without one: it ends in time, and says what it lacks."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks import gpu
from benchmarks.gpu import Deadline, luggage, measure

pytestmark = pytest.mark.torch


def test_a_part_begins_nothing_after_its_time() -> None:
    now = 0.0
    deadline = Deadline(480.0, lambda: now)
    assert deadline.allows("one")
    now = 480.0
    assert not deadline.allows("two")
    assert not deadline.allows("three")
    (figure,) = deadline.note("kernels")
    assert (figure.value, figure.reach, figure.note) == (2, 0, "two, three")


@pytest.mark.slow
def test_a_part_that_cannot_run_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "PARTS", ("kernels", "choice"))
    monkeypatch.setitem(sys.modules, "vllm", None)
    figures = {figure.name: figure for figure in measure(["--tiny", "--device", "cpu"])}
    assert "kernels was not measured" in figures
    assert figures["tokens that differ from the protocol's rule"].value == 0
    assert figures["tokens that differ from the protocol's rule"].note.startswith("400 comparisons on cpu")


def test_kernels_are_vllms_own_files_and_the_rest_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "installed" / "vllm"
    for name in (*luggage.KERNELS, luggage.MODE[0]):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(f"# {name}\nclass Other:\n    pass\n\n\nclass KVQuantMode:\n    NONE = 0\n")
    found: Any = type("Found", (), {"submodule_search_locations": [str(source)]})()
    monkeypatch.setattr(luggage.importlib.util, "find_spec", lambda name: found)
    luggage.pack_kernels(tmp_path / "packed")
    for name in luggage.KERNELS:
        assert (tmp_path / "packed" / "vllm" / name).read_text() == (source / name).read_text()
    mode = (tmp_path / "packed" / "vllm" / luggage.MODE[0]).read_text()
    assert "NONE = 0" in mode
    assert "Other" not in mode
    for name, text in luggage.STANDINS.items():
        ast.parse(text, name)
        assert (tmp_path / "packed" / "vllm" / name).read_text() == text
    monkeypatch.setattr(luggage.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="vLLM is not installed"):
        luggage.pack_kernels(tmp_path / "packed")
