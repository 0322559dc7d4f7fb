"""What a watcher prints while its looks fail: each reason once, and once that they do not fail any more."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from troth.audit.report import ExitCode
from troth.audit.watching.terminal import Printer

LOOK: Any = SimpleNamespace(report=SimpleNamespace(exit_code=ExitCode.CLEAN, last_block=9), fresh=(), gone=())
OUTCOMES = ("away", "away", "full", None, None, "away")


def printed(as_json: bool, capsys: pytest.CaptureFixture[str]) -> list[str]:
    told: Any = None
    printer = Printer(told, as_json)
    for why in OUTCOMES:
        if why is None:
            printer.look(LOOK)
        else:
            printer.failed(OSError(why))
        assert printer.code is (ExitCode.CLEAN if why is None else ExitCode.COULD_NOT_COMPLETE)
    return capsys.readouterr().out.splitlines()


def test_a_reason_that_lasts_is_printed_once_and_its_end_too(capsys: pytest.CaptureFixture[str]) -> None:
    failed = "this look failed, the next may not: "
    assert printed(False, capsys) == [
        f"{failed}away",
        f"{failed}full",
        "looks do not fail any more",
        f"{failed}away",
    ]


def test_programs_get_a_line_for_each_look(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.loads(line) for line in printed(True, capsys)]
    assert [one.get("error") for one in lines] == list(OUTCOMES)
