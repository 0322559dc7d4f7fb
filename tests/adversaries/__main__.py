"""Play every adversary and print the table: `python -m adversaries [--rows NAME,NAME] [--kind KIND] …`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from adversaries.money import Accountant
from adversaries.network import KINDS, network
from adversaries.playbook import SCRIPTS
from adversaries.registry import PLAYED, Row
from adversaries.table import HEADER, markdown, row
from adversaries.trial import Finding, play

Report = Callable[[Finding], None]


def report(found: Finding) -> None:
    """Print a row as soon as it is known, and what contradicts the registry."""
    said = f" {found.said[:200]!r}" if found.said else ""
    print(row(found), f"[{found.wall:.1f} s]{said}", file=sys.stderr, flush=True)
    for what in found.broken:
        print(f"  NOT AS STATED: {what}", file=sys.stderr, flush=True)


async def play_all(folder: Path, rows: Sequence[Row], say: Report = report) -> list[Finding]:
    """All networks at once, on each of them one row after the other; findings in the rows' order."""
    kinds = sorted({one.kind for one in rows})
    shares = [[one for one in rows if one.kind == kind] for kind in kinds]
    played = await asyncio.gather(*(play_kind(folder, *one, say) for one in zip(kinds, shares, strict=True)))
    found = {one.row.name: one for findings in played for one in findings}
    return [found[one.name] for one in rows]


async def play_kind(folder: Path, kind: str, rows: Sequence[Row], say: Report = report) -> list[Finding]:
    """The rows of one network."""
    findings: list[Finding] = []
    async with network(folder / kind, kind) as made:
        accountant = Accountant(made)
        for one in rows:
            findings.append(await play(made, accountant, one, SCRIPTS[one.script] if one.script else None))
            say(findings[-1])
    return findings


def chosen_rows(names: str) -> list[Row]:
    """Rows by their names with commas between them; ValueError for what is none. A name may hold a comma itself."""
    known, found, left = {one.name: one for one in PLAYED}, list[Row](), names.split(",")
    while left:
        for count in range(len(left), 0, -1):
            name = ",".join(left[:count]).strip()
            if name in known:
                found.append(known[name])
                left = left[count:]
                break
        else:
            raise ValueError(f"no row is called {left[0].strip()!r}: see tests/adversaries/registry.py")
    return found


def main() -> int:
    """0 if every adversary ended as the registry says, and nobody honest lost a wei."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", help="only these adversaries, with commas between them")
    parser.add_argument("--reduced", action="store_true", help="only those that `make test` plays")
    parser.add_argument("--kind", choices=tuple(KINDS), help="only those of one network")
    parser.add_argument("--keep", type=Path, help="leave the networks' files there")
    parser.add_argument("--output", type=Path, help="write the table there; default: standard output")
    chosen = parser.parse_args()
    wanted = [one for one in PLAYED if one.reduced or not chosen.reduced]
    if chosen.rows:
        named = chosen_rows(chosen.rows)
        wanted = [one for one in wanted if one in named]
    wanted = [one for one in wanted if chosen.kind in {None, one.kind}]
    begun = time.monotonic()
    print(HEADER, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        findings = asyncio.run(play_all(chosen.keep or Path(folder), wanted))
    failures = sum(bool(found.broken) for found in findings)
    if chosen.output:
        chosen.output.write_text(markdown(findings))
    else:
        print(markdown(findings), end="")
    print(f"{len(findings)} adversaries, {failures} not as stated, {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
