"""What the court took of a node's stake without a conviction: for a window that it missed, or a word that fell.

A fine leaves a node in its group with the seats that it had. So seats that a stake covers no more are nobody's lie
where fines explain what is missing, and no fault of the contract: anybody may have them taken away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from troth.audit.evidence.inputs import Unavailable, call_behind, value
from troth.audit.subject import AuditSubject
from troth.protocol.errors import ProtocolError
from troth.protocol.market import reveals
from troth.protocol.market.court_money import pot_of
from troth.protocol.market.events import CaseDecided, CaseRestarted, Convicted
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import CaseState, NodeReveal
from troth.protocol.market.signed import Opinion
from troth.protocol.market.state import State
from troth.protocol.market.types import PotKind
from troth.protocol.market.views import rules_in
from troth.protocol.types import ZERO_HASH, Address, Hash32


@dataclass(frozen=True, slots=True)
class Fine:
    """What one case took of a node's stake; ``missed``: for a window in which nothing came, None: that is not known."""

    case_id: Hash32
    amount: int
    missed: bool | None

    @property
    def words(self) -> str:
        """One line."""
        why = {True: "it missed a window", False: "its word fell", None: "fined"}[self.missed]
        return f"{why}: {self.amount} in case 0x{self.case_id.hex()}"


def fines_of(subject: AuditSubject, operator: Address) -> tuple[Fine, ...]:
    """All fines of a node, in the order of the chain; a conviction is none, and takes its seats by itself."""
    return tuple(_fines(subject, operator))


def _fines(subject: AuditSubject, operator: Address) -> Iterator[Fine]:
    history, stake = subject.history, pot_of(PotKind.STAKE, operator)
    convicted = {one.meta.transaction for one, _ in history.of(Convicted) if one.operator == operator}
    for event, _ in history.of(CaseDecided, CaseRestarted):
        if event.meta.transaction in convicted:
            continue
        moved = history.moved(event.meta.transaction, event.case_id)
        amount = sum(one.amount for one in moved if (one.from_kind, one.from_id) == stake and _is_fine(one.to_kind))
        if amount:
            before = history.before(event.meta.transaction)
            yield Fine(event.case_id, amount, _missed(subject, event, before, operator))


def _is_fine(target: PotKind) -> bool:
    """What is only locked is still the node's stake."""
    return target is not PotKind.LOCKED


def _missed(subject: AuditSubject, event: CaseDecided | CaseRestarted, before: State, operator: Address) -> bool | None:
    """Whether a reviewer's commitment or reveal did not come; None where the call cannot be read."""
    state = before.cases[event.case_id].state
    if operator not in state.reviewers:
        return False
    index = state.reviewers.index(operator)
    if not state.commitments or state.commitments[index] == ZERO_HASH:
        return True
    call = call_behind(subject.evidence, event.meta, Part.COURT, "decide", "conclude", "expire")
    if isinstance(call, Unavailable):
        return None
    if call.entry.name == "expire":
        return True
    try:
        node, packed = value(call, "node", NodeReveal), value(call, "reveals", bytes)
        shown = reveals.decode(packed, len(state.reviewers), _sample(before, state), node.tiles)
    except ProtocolError:
        return None
    return shown[index].opinion == Opinion.NONE


def _sample(before: State, state: CaseState) -> reveals.Sample:
    return reveals.Sample.of(rules_in(before, state.execution_class), state.rows)
