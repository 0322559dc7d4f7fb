"""What an audit says: frozen data, and the exit code that follows from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum

from troth.protocol.logs import LogMeta
from troth.protocol.types import Address, Hash32


class FindingKind(Enum):
    """What a finding means."""

    CHEATED = "party"
    """A party was proven wrong, late, silent or lying; its role, address and slash are named."""
    MISMATCH = "mismatch"
    """The chain's record differs from its recomputation: contract, bindings or node are wrong."""
    INCONCLUSIVE = "inconclusive"
    """The evidence decides neither way."""
    INCOMPLETE = "incomplete"
    """The check itself could not be carried out."""
    OBSERVED = "observation"
    """No violation, and none that is suspected; somebody may want to know it all the same. The exit code stays."""


class ExitCode(IntEnum):
    """What a script reads. Where several apply, the first of 3, 1, 4, 0 counts."""

    CLEAN = 0
    VIOLATION = 1
    USAGE = 2
    COULD_NOT_COMPLETE = 3
    INCONCLUSIVE = 4


PRECEDENCE = (ExitCode.COULD_NOT_COMPLETE, ExitCode.VIOLATION, ExitCode.INCONCLUSIVE)

_EXIT_CODES = {
    FindingKind.CHEATED: ExitCode.VIOLATION,
    FindingKind.MISMATCH: ExitCode.VIOLATION,
    FindingKind.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    FindingKind.INCOMPLETE: ExitCode.COULD_NOT_COMPLETE,
    FindingKind.OBSERVED: ExitCode.CLEAN,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not in order. ``amount`` in wei, taken or due; ``evidence`` is what to look at, by name.

    ``task_id`` names what the check looked at: an order, a group, a tab, a case, a claim. ``action`` names the call
    that acts on it, where anybody can. What changes from block to block belongs in ``evidence``: a watcher shows a
    finding again when its ``message`` is another.
    """

    check: str
    kind: FindingKind
    message: str
    task_id: Hash32 | None = None
    segment: int | None = None
    party: Address | None = None
    role: str | None = None
    amount: int | None = None
    place: LogMeta | None = None
    evidence: tuple[tuple[str, str], ...] = ()
    action: str | None = None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check of one task (or of the whole event stream, ``task_id`` None): in order if there are no findings."""

    task_id: Hash32 | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All results of one numbered check."""

    number: str
    title: str
    results: tuple[CheckResult, ...]

    @property
    def ok(self) -> int:
        """Results without findings, observations aside."""
        return sum(all(one.kind is FindingKind.OBSERVED for one in result.findings) for result in self.results)

    @property
    def violations(self) -> int:
        """Results with a violation."""
        return sum(
            any(finding.kind in (FindingKind.CHEATED, FindingKind.MISMATCH) for finding in r.findings)
            for r in self.results
        )

    @property
    def inconclusive(self) -> int:
        """Results with neither a violation nor a clean bill."""
        return len(self.results) - self.ok - self.violations


@dataclass(frozen=True, slots=True)
class AuditReport:
    """A whole audit. ``not_checked`` names what no finding here speaks about, ``subject`` what ``tasks`` are."""

    chain_id: int
    contract: Address
    first_block: int
    last_block: int
    last_block_hash: Hash32
    tasks: tuple[Hash32, ...]
    checks: tuple[CheckReport, ...]
    not_checked: tuple[str, ...]
    subject: str = "task"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, in the order of the checks."""
        return tuple(finding for check in self.checks for result in check.results for finding in result.findings)

    @property
    def exit_code(self) -> ExitCode:
        """The gravest of the findings' codes."""
        codes = {_EXIT_CODES[finding.kind] for finding in self.findings}
        return next((code for code in PRECEDENCE if code in codes), ExitCode.CLEAN)


Reproduce = Callable[[Finding], str]
