"""What the `doctor` commands find, and how they print it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple


class Finding(NamedTuple):
    """One line: which check, whether it passed, what was seen, how to fix it."""

    check: str
    ok: bool
    seen: str
    fix: str


def rendered(findings: Sequence[Finding], as_json: bool) -> str:
    """All of them as JSON, or a line each, with the fix below what failed."""
    if as_json:
        return json.dumps([finding._asdict() for finding in findings])
    return "\n".join(_line(finding) for finding in findings)


def _line(finding: Finding) -> str:
    if finding.ok:
        return f"ok   {finding.check:<9} {finding.seen}"
    return f"FAIL {finding.check:<9} {finding.seen}\n     fix: {finding.fix}"
