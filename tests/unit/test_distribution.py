"""Which worker of several runs which file of tests, and which of them the inner loop runs."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.distribution import LONGEST, FillingScheduling, is_filler

ROOT = Path(__file__).parents[2]
NETWORKS = ["tests/contracts/test_a.py", "tests/integration/test_b.py", LONGEST[0]]
QUICK = ["tests/property/test_c.py", "tests/unit/test_d.py", "tests/unit/test_e.py"]


class Worker:
    """A worker that notes what it is sent."""

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.sent: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def run(files: list[str], workers: int, fillers: int) -> list[list[str]]:
    """The files that each worker ran, where all are equally fast. Three tests are in each: fewer are sent ahead."""
    tests = [f"{file}::test_{number}" for file in files for number in range(3)]
    config: Any = SimpleNamespace(option=SimpleNamespace(loadscopereorder=False))
    config.getvalue = {"tx": ["popen"] * workers}.get
    scheduling = FillingScheduling(config, None, fillers)
    assert scheduling.numnodes == workers
    nodes: list[Any] = [Worker(number) for number in range(workers)]
    for node in nodes:
        scheduling.add_node(node)
        scheduling.add_node_collection(node, tests)
    scheduling.schedule()
    done = dict.fromkeys(range(workers), 0)
    while scheduling.has_pending:
        for number, node in enumerate(nodes):
            if done[number] < len(node.sent):
                scheduling.mark_test_complete(node, node.sent[done[number]])
                done[number] += 1
    return [list(dict.fromkeys(tests[index].split("::")[0] for index in node.sent)) for node in nodes]


def test_fillers_run_quick_folders_alone_and_the_others_networks_first() -> None:
    first, second, filler = run([*NETWORKS, *QUICK], 3, 1)
    assert filler
    assert set(filler) <= set(QUICK)
    assert first[0] == LONGEST[0]
    assert {first[0], second[0]} <= set(NETWORKS)
    assert sorted([*first, *second, *filler]) == sorted([*NETWORKS, *QUICK])


@pytest.mark.parametrize("files", [NETWORKS, QUICK, [*QUICK, *NETWORKS]])
@pytest.mark.parametrize(("workers", "fillers"), [(2, 0), (2, 1), (3, 1), (3, 2), (4, 1)])
def test_every_file_is_run_once_whatever_there_is(files: list[str], workers: int, fillers: int) -> None:
    ran = [file for worker in run(files, workers, fillers) for file in worker]
    assert sorted(ran) == sorted(files)


def test_the_last_workers_are_fillers_and_who_replaces_one_is_none() -> None:
    assert [is_filler(f"gw{number}", 4, 1) for number in range(5)] == [False, False, False, True, False]
    assert not is_filler("gw1", 2, 0)


def test_the_files_of_the_list_are_there() -> None:
    from conftest import ROOT

    assert not [file for file in LONGEST if not (ROOT / file).is_file()]


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Any:
    """scripts/python_tests, whose first run fails; ``runner.runs`` are the runs that it made."""
    loader = SourceFileLoader("python_tests", str(ROOT / "scripts" / "python_tests"))
    module = module_from_spec(spec_from_loader("python_tests", loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    module.runs = []

    def run(*arguments: str) -> int:
        module.runs.append(arguments)
        return int(len(module.runs) == 1)

    monkeypatch.setattr(module, "pytest", run)
    return module


@pytest.mark.parametrize(
    ("failures", "runs", "code"),
    [
        (["tests/integration/test_a.py::test_b"], 2, 0),
        (["tests/integration/test_a.py::test_b", "tests/unit/test_c.py::test_d"], 1, 1),
        (["tests/property/test_c.py::test_d"], 1, 1),
        ([f"tests/integration/test_a.py::test_{number}" for number in range(6)], 1, 1),
    ],
)
def test_networks_alone_have_a_second_run(
    runner: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failures: list[str],
    runs: int,
    code: int,
) -> None:
    monkeypatch.setattr(runner, "failed", lambda: failures)
    monkeypatch.setattr(runner, "FAILED", ROOT / "no such file")
    assert runner.main([]) == code
    assert len(runner.runs) == runs
    assert (runner.REASON in capsys.readouterr().out) == (runs == 2)


@pytest.mark.slow
def test_the_inner_loop_can_be_collected() -> None:
    """`make quick` refuses to run where a file that imports torch is not marked; `make test` would not notice that."""
    options = ("-m", "quick", "-n", "0", "-q", "--collect-only", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/unit", "tests/property"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
