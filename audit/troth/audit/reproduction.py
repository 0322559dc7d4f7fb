"""The command that shows a finding again: the same check, of the same task, up to the same block."""

from __future__ import annotations

import shlex
from pathlib import Path

from troth.audit.checks import EQUIVOCATION
from troth.audit.report import Finding, Reproduce
from troth.chain.errors import without_credentials
from troth.protocol.types import Address


def from_node(rpc: str, contract: Address, start: int, last: int) -> Reproduce:
    """Commands that ask a node. A URL with a path or a password stays out of the report."""
    shown = rpc if without_credentials(rpc) == rpc.rstrip("/") else '"$TROTH_RPC"'
    ending = f"--start-block {start} --to-block {last} --rpc {shown} --contract {contract}"

    def command(finding: Finding) -> str:
        task = _task(finding)
        place = "chain" if task is None else f"task {task}"
        return f"troth audit {place} --check {finding.check} {ending}"

    return command


def from_bundle(path: Path) -> Reproduce:
    """Commands that read the bundle."""

    def command(finding: Finding) -> str:
        task = _task(finding)
        selected = "" if task is None else f" --task {task}"
        return f"troth audit verify {shlex.quote(str(path))}{selected} --check {finding.check}"

    return command


def _task(finding: Finding) -> str | None:
    """The task to name; rows can contradict each other for an order that was never opened, which is no task."""
    if finding.task_id is None or finding.check == EQUIVOCATION[0]:
        return None
    return "0x" + finding.task_id.hex()
