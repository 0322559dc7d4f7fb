"""What every check of a deployment looks at, and how a check says what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from troth.audit.evidence.history import History
from troth.audit.evidence.inputs import Unavailable
from troth.audit.evidence.types import AuditEvidence
from troth.audit.report import CheckReport, CheckResult, Finding, FindingKind
from troth.protocol.errors import ProtocolError
from troth.protocol.logs import LogMeta
from troth.protocol.types import Hash32


@dataclass(frozen=True, slots=True)
class AuditSubject:
    """A deployment's record and its folded past."""

    evidence: AuditEvidence
    history: History

    @property
    def block(self) -> int:
        """The last block that was read."""
        return self.evidence.last.number


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """A numbered check; ``examine`` gives one result for each thing that it looked at."""

    number: str
    title: str
    examine: Callable[[AuditSubject], Iterable[CheckResult]]

    def report(self, subject: AuditSubject) -> CheckReport:
        """All results; what nobody foresaw in a malformed record is INCOMPLETE, and no reason to lose other checks."""
        results: list[CheckResult] = []
        try:
            results.extend(self.examine(subject))
        except (ProtocolError, ValueError, LookupError, ArithmeticError, TypeError) as error:
            what = f"The check could not be carried out: {type(error).__name__}: {error}"
            results.append(CheckResult(None, (Finding(self.number, FindingKind.INCOMPLETE, what),)))
        return CheckReport(self.number, self.title, tuple(results))


def unavailable(number: str, why: Unavailable, place: LogMeta, subject: Hash32 | None = None) -> Finding:
    """The finding for a call that cannot be read: a violation where the transaction cannot have emitted the log."""
    kind = FindingKind.MISMATCH if why.impossible else FindingKind.INCONCLUSIVE
    return Finding(number, kind, f"The call behind the event cannot be read: {why.reason}", subject, place=place)


def differing(pairs: Iterable[tuple[str, object, object]]) -> Iterator[tuple[str, str, str]]:
    """Names with both values, where what is recorded is not what is recomputed."""
    for name, recorded, expected in pairs:
        if recorded != expected:
            yield name, shown(recorded), shown(expected)


def shown(value: object) -> str:
    """A value in a finding."""
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, tuple | list):
        return f"[{', '.join(shown(one) for one in value)}]"
    return str(value)
