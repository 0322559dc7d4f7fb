"""The command that shows a finding again: the same check, of the same task, up to the same block."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from troth.audit.report import Finding
from troth.chain.errors import without_credentials
from troth.protocol.types import Address

Reproduce = Callable[[Finding], str]


def from_node(rpc: str, contract: Address, start: int, last: int) -> Reproduce:
    """Commands that ask a node. A URL with a path or a password stays out of the report."""
    shown = rpc if without_credentials(rpc) == rpc.rstrip("/") else '"$TROTH_RPC"'
    ending = f"--start-block {start} --to-block {last} --rpc {shown} --contract {contract}"

    def command(finding: Finding) -> str:
        place = "chain" if finding.task_id is None else f"task 0x{finding.task_id.hex()}"
        return f"troth audit {place} --check {finding.check} {ending}"

    return command


def from_bundle(path: Path) -> Reproduce:
    """Commands that read the bundle."""

    def command(finding: Finding) -> str:
        task = "" if finding.task_id is None else f" --task 0x{finding.task_id.hex()}"
        return f"troth audit verify {shlex.quote(str(path))}{task} --check {finding.check}"

    return command
