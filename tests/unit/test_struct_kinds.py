"""Threads that read a kind of file or message for the first time at once: msgspec alone ends the process then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

READ_AT_ONCE = """
import sys, threading
from pathlib import Path
import msgspec
from troth.protocol.struct_kinds import prepared
from troth.transport.strict_toml import Section, read_toml

sys.setswitchinterval(1e-6)
path = Path(sys.argv[1])
path.write_text("".join(f"[y{n}]\\nx0=1\\n" for n in range(10)))
for number in range(300):
    inner = msgspec.defstruct("Inner", [(f"x{n}", int, 0) for n in range(20)], bases=(Section,))
    outer = msgspec.defstruct("Outer", [(f"y{n}", inner) for n in range(10)], bases=(Section,))
    together, found = threading.Barrier(6), []

    def read():
        together.wait()
        if sys.argv[2] == "toml":
            found.append(read_toml(path, outer, ValueError, ""))
        else:
            found.append(msgspec.json.decode(b'{"x0": 1}', type=prepared(inner)))

    threads = [threading.Thread(target=read) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 6, number
"""


@pytest.mark.parametrize("form", ["toml", "json"])
def test_threads_may_read_a_kind_for_the_first_time_at_once(tmp_path: Path, form: str) -> None:
    """A network whose parts read their configurations in threads ended so, without a word."""
    given = [sys.executable, "-X", "faulthandler", "-c", READ_AT_ONCE, str(tmp_path / "file.toml"), form]
    done = subprocess.run(given, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[:300]
