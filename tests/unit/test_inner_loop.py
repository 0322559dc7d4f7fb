"""`make quick`: what it collects, and that a file which imports torch is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # it collects hundreds of files
ROOT = Path(__file__).resolve().parents[2]


def inner_loop(*given: str, python_path: str = "") -> subprocess.CompletedProcess[str]:
    """What pytest says of the inner loop."""
    command = [sys.executable, "-m", "pytest", "-m", "quick", "-q", "-p", "no:cacheprovider", *given]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = python_path
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=600)


def test_nothing_in_the_inner_loop_imports_torch() -> None:
    found = inner_loop("--collect-only", "tests/unit", "tests/property")
    assert found.returncode == 0, found.stdout[-3000:]
    assert "tests/unit/test_amounts.py::" in found.stdout


@pytest.mark.parametrize(("mark", "code"), [("", 1), ("pytestmark = pytest.mark.torch\n", 5)])
def test_a_file_that_imports_torch_is_named_unless_it_is_marked(tmp_path: Path, mark: str, code: int) -> None:
    (tmp_path / "torch.py").write_text("", encoding="utf-8")
    text = f"import pytest\nimport torch\n\n{mark}\ndef test_it():\n    pass\n"
    (tmp_path / "test_brings_torch.py").write_text(text, encoding="utf-8")
    python_path = os.pathsep.join((str(tmp_path), *(str(ROOT / name) for name in ("tests", "scripts", "bench"))))
    given = ("-c", "pyproject.toml", "--rootdir", str(ROOT), "-p", "conftest", "-n", "2", str(tmp_path))
    found = inner_loop(*given, python_path=python_path)
    assert found.returncode == code, found.stdout
    assert ("test_brings_torch.py" in found.stdout and "imported torch" in found.stdout) == (not mark)
