"""What the chain says of an order's answer after its end: cases over it step by step, and whether its leaf fell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from troth.client.orders.evidence import served_of
from troth.client.orders.journal import OrderRecord
from troth.protocol.market import events as on
from troth.protocol.market.messages import DOUBTS, case_id, summons_id
from troth.protocol.market.proceedings import CaseKind, SummonsKind
from troth.protocol.market.state import CaseRecord, State
from troth.protocol.types import Hash32

_STEPS = {
    on.CaseOpened: "opened",
    on.ReviewersDrawn: "drawn",
    on.ReviewsCommitted: "committed",
    on.CaseSeeded: "seeded",
    on.CaseRestarted: "second round",
    on.CaseDecided: "decided",
}
"""Events of a case that its client is told of."""


@dataclass(frozen=True, slots=True)
class FollowedCase:
    """A case over one segment; ``steps`` with their blocks, ``outcome`` empty while it goes on."""

    case_id: Hash32
    segment: int
    kind: CaseKind
    bond: int
    opener: str
    steps: tuple[tuple[str, int], ...]
    outcome: str

    @classmethod
    def of(cls, record: CaseRecord) -> FollowedCase:
        """As the chain shows it."""
        state = record.state
        steps = [(_STEPS[type(event)], event.meta.block) for event in record.events if type(event) in _STEPS]
        outcome = "" if record.outcome is None else record.outcome.name.lower().replace("_", " ")
        return cls(record.case_id, state.segment, state.kind, state.bond, state.opener, tuple(steps), outcome)

    def to_json(self) -> dict[str, Any]:
        """As programs read it."""
        return {
            "case": "0x" + self.case_id.hex(),
            "segment": self.segment,
            "kind": self.kind.name.lower(),
            "opener": self.opener,
            "bond_units": str(self.bond),
            "steps": [{"step": step, "block": block} for step, block in self.steps],
            "outcome": self.outcome or None,
        }

    @property
    def words(self) -> str:
        """One line."""
        told = ", ".join(f"{step} in block {block}" for step, block in self.steps) or "open"
        return f"0x{self.case_id.hex()[:10]} {told}{': ' + self.outcome if self.outcome else ''}"


def cases_of(entry: OrderRecord, state: State) -> tuple[FollowedCase, ...]:
    """All cases over an order's results, by segment."""
    return tuple(_cases(entry, state))


def _cases(entry: OrderRecord, state: State) -> Iterator[FollowedCase]:
    served = served_of(entry)
    for segment in range(0 if served is None else len(served.given)):
        for place in (segment, DOUBTS + segment):
            record = state.cases.get(case_id(entry.identifier, place))
            if record is not None:
                yield FollowedCase.of(record)


def fell(state: State, entry: OrderRecord) -> bool:
    """Whether the chain voids an order's leaf: in court, by a summons that nobody answered, by a conviction."""
    submission, served = entry.submission, served_of(entry)
    if state.is_voided(entry.identifier, 255):
        return True
    places = [(SummonsKind.RESULTS, 0)]
    places += [(SummonsKind.CHECK, segment) for segment in range(0 if served is None else len(served.given))]
    summoned = [state.summons.get(summons_id(entry.identifier, *place)) for place in places]
    if any(record is not None and record.answered is False for record in summoned):
        return True
    if submission is None:
        return False
    reference = submission.order.message.reference_block
    parties = (submission.tab.payee, *(served.admitted.nodes if served is not None else ()))
    return any(state.is_void(one, reference) for one in parties)
