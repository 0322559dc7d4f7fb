"""What a doctor writes on a terminal, where strangers say part of it: every scheduler is asked for its word."""

from __future__ import annotations

import json

import pytest

from troth.transport.health import HealthFinding, tell

FALSE = "it drew it\x1b[2J\x1b[1;1H\nok   work     all is well\r\x9b2K\u202e"


@pytest.mark.parametrize("ok", [True, False])
def test_no_word_of_a_scheduler_steers_the_terminal_or_begins_a_line(ok: bool) -> None:
    written: list[str] = []
    tell([HealthFinding("work", ok, FALSE, f"Do as they say.{FALSE}")], False, written.append)
    lines = "\n".join(written).split("\n")
    assert [line[:4] for line in lines] == (["ok  "] if ok else ["FAIL", "    "])
    assert all(line.isprintable() for line in lines)


def test_programs_are_told_every_character() -> None:
    written: list[str] = []
    tell([HealthFinding("work", False, FALSE, "")], True, written.append)
    assert json.loads(written[0])[0]["seen"] == FALSE
