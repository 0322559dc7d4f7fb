"""A report as one JSON object. Wei are decimal strings; bytes are 0x-hex."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from troth.audit.report import CheckReport, Finding, Report, Reproduce

VERSION = 1


def to_json(report: Report, reproduce: Reproduce, more: Mapping[str, Any]) -> str:
    """The report, with what else its source has to say under its own keys."""
    return json.dumps(
        {
            "version": VERSION,
            "chain_id": report.chain_id,
            "contract": report.contract,
            "first_block": report.first_block,
            "last_block": report.last_block,
            "last_block_hash": _hex(report.last_block_hash),
            "tasks": [_hex(task) for task in report.tasks],
            "checks": [_check(check) for check in report.checks],
            "findings": [finding_json(finding, reproduce) for finding in report.findings],
            "not_checked": list(report.not_checked),
            "verdict": report.exit_code.name.lower(),
            "exit_code": int(report.exit_code),
            **more,
        },
        indent=2,
    )


def _check(check: CheckReport) -> dict[str, Any]:
    return {
        "number": check.number,
        "title": check.title,
        "ok": check.ok,
        "violations": check.violations,
        "inconclusive": check.inconclusive,
    }


def finding_json(finding: Finding, reproduce: Reproduce) -> dict[str, Any]:
    """One finding as an object."""
    return {
        "check": finding.check,
        "kind": finding.kind.value,
        "message": finding.message,
        "task": None if finding.task_id is None else _hex(finding.task_id),
        "segment": finding.segment,
        "party": finding.party,
        "role": finding.role,
        "amount_wei": None if finding.amount is None else str(finding.amount),
        "block": None if finding.place is None else finding.place.block,
        "transaction": None if finding.place is None else _hex(finding.place.transaction),
        "evidence": dict(finding.evidence),
        "action": finding.action,
        "reproduce": reproduce(finding),
    }


def _hex(raw: bytes) -> str:
    return "0x" + raw.hex()
