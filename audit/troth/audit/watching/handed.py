"""M20: what evidence that was handed in allows now. The watcher acts on it where it was told to.

Without a word more it convicts, and brings what a majority of drawn verifiers rejected, up to a bond; whatever only a
client may bring, or may lose, is for a person to decide (`troth case`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from troth.audit.checks import HANDED
from troth.audit.report import CheckReport, CheckResult, Finding, FindingKind
from troth.cases import evidence as files
from troth.cases.assessing import Assessment, assess
from troth.cases.command import read_evidence
from troth.cases.courtroom import CallRefused
from troth.cases.errors import NothingToDo
from troth.cases.evidence import Evidence
from troth.cases.office import Office
from troth.cases.opening import WantedCase
from troth.protocol.errors import ProtocolError
from troth.protocol.market.state import State
from troth.protocol.types import Hash32

NUMBER, TITLE = HANDED
FILES_LIMIT = 1_000
"""Files of one folder that are looked at."""


def evidence_in(folder: Path) -> Iterator[tuple[Path, Evidence | ProtocolError]]:
    """Every file of a folder that has the name of evidence or of a receipt."""
    named = sorted(one for one in folder.iterdir() if one.suffix in {files.SUFFIX, ".receipt"})
    for path in named[:FILES_LIMIT]:
        try:
            yield path, read_evidence(path)
        except ProtocolError as error:
            yield path, error


def examine(folder: Path | None, state: State, block: int) -> CheckReport:
    """What each file allows in the next block."""
    results = []
    for path, held in evidence_in(folder) if folder is not None else ():
        if isinstance(held, ProtocolError):
            finding = Finding(NUMBER, FindingKind.INCONCLUSIVE, f"{path.name} holds no evidence: {held.what}")
            results.append(CheckResult(None, (finding,)))
            continue
        results.append(_result(path, held, state, block))
    return CheckReport(NUMBER, TITLE, tuple(results))


def _result(path: Path, held: Evidence, state: State, block: int) -> CheckResult:
    order: Hash32 | None = None if held.order is None or held.tab is None else held.order_id
    try:
        found = assess(held, state, block)
    except ProtocolError as error:
        what = f"{path.name} cannot be used here: {error.what}"
        return CheckResult(order, (Finding(NUMBER, FindingKind.INCONCLUSIVE, what, order),))
    return CheckResult(order, tuple(_findings(path, found, order)))


def _findings(path: Path, found: Assessment, order: Hash32 | None) -> Iterator[Finding]:
    for proof in found.convictions:
        party = proof.conviction.convict
        action = f"troth case convict {path.name}"
        yield Finding(NUMBER, FindingKind.CHEATED, f"{path.name}: {proof.words}", order, party=party, action=action)
    for bring in found.cases:
        if bring.openers:
            continue
        what = f"{path.name}: a majority of drawn verifiers rejects segment {bring.segment}, and nobody brought it"
        action = f"troth case open {path.name} --segment {bring.segment} --most-bond {bring.bond}"
        yield Finding(
            NUMBER, FindingKind.CHEATED, what, order, bring.segment, party=bring.node, role="node", action=action
        )
    for summon in found.summons:
        what = f"{path.name}: {summon.kind.name.lower()} of segment {summon.segment} are owed"
        action = f"troth case summon {path.name}, until block {summon.last_block}"
        yield Finding(
            NUMBER,
            FindingKind.INCONCLUSIVE,
            what,
            order,
            summon.segment,
            party=summon.scheduler,
            role="scheduler",
            action=action,
        )


async def act(folder: Path, office: Office) -> tuple[str, ...]:
    """Convict and bring what can be; what was done, in words."""
    done: list[str] = []
    for path, held in evidence_in(folder):
        if isinstance(held, ProtocolError):
            continue
        try:
            found = await office.opener.assess(held)
        except ProtocolError:
            continue
        for proof in found.convictions:
            try:
                mined = await office.opener.convict(proof)
                done.append(f"{path.name}: convicted in block {mined.block}: {proof.words}")
            except CallRefused:
                continue
        for bring in (one for one in found.cases if not one.openers and not one.lacks):
            wanted = WantedCase(bring.segment, bring.may_suspend, office.most_bond)
            try:
                case_id = await office.opener.bring(held, wanted, path.parent)
                done.append(f"{path.name}: case 0x{case_id.hex()} over segment {bring.segment} is open")
            except NothingToDo as error:
                done.append(f"{path.name}: {error}")
    return tuple(done)
