"""Programs that are forked from a loaded server are processes like any other: exit codes, signals, streams, an end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from troth.testnet import cli, forked
from troth.testnet.errors import ProcessDied
from troth.testnet.processes import ProcessGroup

pytestmark = pytest.mark.slow
SECONDS = 60.0


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.run(python(code, *arguments), os.environ | {"OF_A_TEST": "yes"}, SECONDS)


def test_arguments_variables_streams_and_code_are_its_own() -> None:
    code = "import os, sys; print(sys.argv, os.environ['OF_A_TEST']); print('no', file=sys.stderr); sys.exit(3)"
    done = run(code, "a", "b c")
    assert (done.returncode, done.stdout, done.stderr) == (3, "['-c', 'a', 'b c'] yes\n", "no\n")
    assert "OF_A_TEST" not in os.environ


def test_it_may_start_processes_of_its_own() -> None:
    """As vLLM does, in a new interpreter."""
    code = "import multiprocessing as m; p = m.get_context('spawn').Process(target=print, args=('child',)); p.start()"
    done = run(f"{code}; p.join(); print(p.exitcode)")
    assert (done.returncode, done.stdout) == (0, "child\n0\n"), done.stderr


def test_an_exception_is_told_as_python_tells_it() -> None:
    done = run("raise ValueError('of a test')")
    assert done.returncode == 1
    assert "ValueError: of a test" in done.stderr


def test_a_command_of_troth_is_what_a_user_calls(tmp_path: Path) -> None:
    done = forked.run(cli.command("--version"), cli.environment(tmp_path / "password"), SECONDS)
    assert (done.returncode, done.stdout[:6]) == (0, "troth ")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_ends_it(number: int, tmp_path: Path) -> None:
    code = "import time; print('here', flush=True); time.sleep(600)"
    group = ProcessGroup(tmp_path)
    child = group.start("sleeper", python(code))
    while not child.tail():
        time.sleep(0.01)
    with pytest.raises(subprocess.TimeoutExpired):
        child.process.wait(0.01)
    child.process.send_signal(number)
    assert child.process.wait(SECONDS) == -number
    assert not child.alive
    child.process.kill()


def test_what_takes_too_long_is_gone(tmp_path: Path) -> None:
    code = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run(python(code), os.environ, 3.0)
    number = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + SECONDS
    while Path(f"/proc/{number}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{number}").exists()


def test_no_process_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    """Not even where nothing could be tidied up."""
    place = tmp_path / "pid"
    sleeper = f"import os, time; open({str(place)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    parent = (
        "import os, signal, sys, time; from pathlib import Path; from troth.testnet import forked\n"
        f"forked.PRELOADED.clear(); place = Path({str(place)!r})\n"
        f"forked.start([sys.executable, '-c', {sleeper!r}], os.environ, place.with_name('log'))\n"
        "while not (place.exists() and place.read_text()): time.sleep(0.01)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(python(parent), check=False, timeout=SECONDS)
    assert done.returncode == -signal.SIGKILL
    number, deadline = int(place.read_text()), time.monotonic() + SECONDS
    while _lives(number) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _lives(number)


def _lives(number: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{number}/status").read_text()
    except OSError:
        return False


def test_a_signal_to_the_parents_group_leaves_the_forked_to_the_parent(tmp_path: Path) -> None:
    """`timeout` and Ctrl-C signal a group: a parent that handles it finds its server and its programs running, and can
    stop each and wait for it."""
    sleeper = "import time; print('here', flush=True); time.sleep(600)"
    parent = (
        "import os, signal, sys, time; from pathlib import Path; from troth.testnet.processes import ProcessGroup\n"
        "from troth.testnet import forked; forked.PRELOADED.remove('troth.testnet.preloading')\n"
        "os.setpgid(0, 0); signal.signal(signal.SIGTERM, lambda *_: None)\n"
        f"child = ProcessGroup(Path({str(tmp_path)!r})).start('sleeper', [sys.executable, '-c', {sleeper!r}])\n"
        "while not child.tail(): time.sleep(0.01)\n"
        "os.killpg(0, signal.SIGTERM); time.sleep(0.5)\n"
        "print(child.alive); child.stop(); print(child.process.returncode)\n"
    )
    done = subprocess.run(python(parent), check=False, timeout=4 * SECONDS, capture_output=True, text=True)
    assert done.stdout.split() == ["True", str(-signal.SIGTERM)], done.stderr


def test_the_servers_own_end_leaves_nothing_frozen() -> None:
    """Libraries with classes of C++ print, on the terminal of a demo, whatever nobody freed."""
    looks = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count()))"
    server = f"{looks}; import troth.testnet.preloading; assert gc.get_freeze_count()"
    done = subprocess.run(python(server), check=False, timeout=4 * SECONDS, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_a_command_that_fails_says_its_error_as_a_user_reads_it(tmp_path: Path) -> None:
    password = tmp_path / "password"
    with pytest.raises(ProcessDied) as failed:
        cli.run(password, "model", "import", tmp_path / "nowhere", "--home", tmp_path)
    assert "It said: " in failed.value.remedy
    assert str(tmp_path / "nowhere") in failed.value.remedy
    assert "{" not in failed.value.remedy
