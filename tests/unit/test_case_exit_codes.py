"""`troth case summon` and `convict`: 0 where something was done, 4 where the contracts refused all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from troth.cases import command
from troth.cases.command import NOTHING, CaseOptions, app
from troth.cases.courtroom import CallRefused
from troth.protocol.types import ZERO_ADDRESS

FOUND = SimpleNamespace(scheduler=ZERO_ADDRESS, segment=0, words="summon", conviction=SimpleNamespace(convict="0x1"))


class Opener:
    """One summons and one conviction are possible; the contracts take them or do not."""

    def __init__(self, taken: bool, ended: int) -> None:
        self.taken, self.ended = taken, ended

    async def end_summons(self) -> tuple[bytes, ...]:
        return (bytes(32),) * self.ended

    async def assess(self, _held: object) -> SimpleNamespace:
        return SimpleNamespace(summons=(FOUND,), convictions=(FOUND,))

    async def summon(self, *_arguments: object) -> SimpleNamespace:
        if not self.taken:
            raise CallRefused("summon", "TooLate", "it is too late")
        return SimpleNamespace(block=7)

    convict = summon


@pytest.mark.parametrize(
    ("wish", "taken", "ended", "code"),
    [
        ("summon", True, 0, 0),
        ("summon", False, 1, 0),
        ("summon", False, 0, NOTHING),
        ("convict", True, 0, 0),
        ("convict", False, 0, NOTHING),
    ],
)
def test_what_is_refused_is_not_done(
    wish: str, taken: bool, ended: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "evidence"
    file.touch()

    @asynccontextmanager
    async def office(*_arguments: object) -> AsyncIterator[Any]:
        yield SimpleNamespace(opener=Opener(taken, ended))

    monkeypatch.setattr(command, "open_office", office)
    monkeypatch.setattr(command, "read_evidence", lambda _path: None)
    monkeypatch.setattr(CaseOptions, "settings", lambda _self, **_: None)
    run = CliRunner().invoke(app, [wish, str(file), "--factory", ZERO_ADDRESS])
    assert run.exit_code == code, run.output
