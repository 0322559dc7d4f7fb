"""Play every adversary and print the table: `python -m adversaries [--reduced] [--output FILE] [NAME …]`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from adversaries.expectations import broken
from adversaries.registry import PLAYED
from adversaries.stage import adversary_stage
from adversaries.table import HEADER, markdown, row
from adversaries.trial import Finding, play_all


def report(found: Finding) -> None:
    """Print a row as soon as it is known, and what contradicts the registry."""
    print(row(found), file=sys.stderr, flush=True)
    for what in broken(found):
        print(f"  NOT AS STATED: {what}", file=sys.stderr, flush=True)


def main() -> int:
    """0 if every adversary was caught, or not caught, as the registry says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these adversaries")
    parser.add_argument("--reduced", action="store_true", help="leave the slow ones out")
    parser.add_argument("--output", type=Path, help="write the table there; default: standard output")
    chosen = parser.parse_args()
    wanted = [
        one for one in PLAYED if (not chosen.names or one.name in chosen.names) and (one.reduced or not chosen.reduced)
    ]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, adversary_stage(Path(folder)) as stage:
        print(f"network up after {time.monotonic() - begun:.0f} s", file=sys.stderr)
        print(HEADER, file=sys.stderr)
        findings = asyncio.run(play_all(stage, wanted, report=report))
    failures = sum(bool(broken(found)) for found in findings)
    if chosen.output:
        chosen.output.write_text(markdown(findings))
    else:
        print(markdown(findings), end="")
    print(f"{len(findings)} adversaries, {failures} not as stated, {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
