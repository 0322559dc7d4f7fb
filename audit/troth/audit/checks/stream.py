"""M1 to M4 and M18: events fold to what getters say, money is conserved, identities hold, seats follow stake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from troth.audit.checks.fines import fines_of
from troth.audit.report import CheckResult, Finding, FindingKind
from troth.audit.subject import AuditCheck, AuditSubject, shown
from troth.protocol.market.addresses import contracts_of
from troth.protocol.market.events import CaseOpened, Claimed, EntryChanged, EntryLogged, Summoned
from troth.protocol.market.log_data import next_chain
from troth.protocol.market.messages import case_id, state_hash, tab_id
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import CaseKind
from troth.protocol.market.types import LATEST, NO_ADDRESS, PotKind, Role
from troth.protocol.organisations import groups_within
from troth.protocol.types import Address, Hash32


def _folds(subject: AuditSubject) -> Iterator[CheckResult]:
    findings = [
        Finding("M1", FindingKind.MISMATCH, one.message, place=one.place) for one in subject.history.contradictions
    ]
    for answer in subject.evidence.answers:
        if answer.answered != answer.expected:
            values = (("folded", shown(answer.expected)), ("on chain", shown(answer.answered)))
            what = f"The {answer.part} answers {answer.about} otherwise than its events say"
            findings.append(Finding("M1", FindingKind.MISMATCH, what, evidence=values))
    yield CheckResult(None, tuple(findings))


def _money(subject: AuditSubject) -> Iterator[CheckResult]:
    state, findings = subject.history.state, []
    booked = state.came_in - state.went_out
    if state.held() != booked:
        what = f"The pots hold {state.held()}, but {booked} came in and did not leave"
        findings.append(Finding("M2", FindingKind.MISMATCH, what))
    holdings = subject.evidence.holdings
    # Anyone can send an asset to any address, so that more than the pots hold proves nothing.
    if holdings is not None and holdings < state.held():
        what = f"The Bank holds {holdings} of the asset, its pots {state.held()}"
        findings.append(Finding("M2", FindingKind.MISMATCH, what, amount=state.held() - holdings))
    negative = [(kind, pot) for (kind, pot), balance in state.pots.items() if balance < 0]
    findings += [
        Finding("M2", FindingKind.MISMATCH, f"The pot {kind.name} {shown(pot)} is negative") for kind, pot in negative
    ]
    yield CheckResult(None, tuple(findings))


def _identities(subject: AuditSubject) -> Iterator[CheckResult]:
    """Names are hashes of what they name."""
    for what, named, actual in _named(subject):
        found: tuple[Finding, ...] = ()
        if named != actual:
            message = f"A {what} is called {shown(named)}, but hashes to {shown(actual)}"
            found = (Finding("M3", FindingKind.MISMATCH, message, named),)
        yield CheckResult(named, found)


def _named(subject: AuditSubject) -> Iterator[tuple[str, Hash32, Hash32]]:
    state = subject.history.state
    for model, descriptor in state.models.items():
        yield "model", model, state_hash(descriptor)
    for execution_class, definition in state.classes.items():
        yield "class", execution_class, state_hash(definition)
    for tab, record in state.tabs.items():
        yield "tab", tab, tab_id(record.tab)
    for opened, _ in subject.history.of(CaseOpened):
        # A doubt has a case of its own, so that it does not stand in the way of a rejection.
        place = opened.state.segment + (128 if opened.state.kind is CaseKind.DOUBT else 0)
        yield "case", opened.case_id, case_id(opened.order, place)
    for claimed, _ in subject.history.of(Claimed):
        yield "claim", claimed.claim_id, Hash32(state_hash(claimed.state)[:30] + bytes(2))
    for summoned, _ in subject.history.of(Summoned):
        yield "summons' order", summoned.order, summoned.state.order
    for logged, before in subject.history.of(EntryLogged):
        chain = next_chain(
            before.head_of(logged.scheduler)[1], logged.number, logged.root, logged.counts, logged.data_hash
        )
        yield "log entry's chain", logged.chain, chain


def _seats(subject: AuditSubject) -> Iterator[CheckResult]:
    """Nobody is drawn with more seats than its stake covers, or stands in a group twice or where it is none."""
    state = subject.history.state
    for group in sorted(state.sizes):
        members = state.members_at(group, LATEST)
        findings = [finding for entry in members for finding in _member(subject, group, entry.operator, entry.seats)]
        twice = [operator for operator, count in Counter(entry.operator for entry in members).items() if count > 1]
        findings += [Finding("M4", FindingKind.MISMATCH, "A node stands in a group twice", party=one) for one in twice]
        yield CheckResult(group, tuple(findings))
    for event, before in subject.history.of(EntryChanged):
        if event.entry.operator != NO_ADDRESS and event.place >= event.size:
            what = f"Place {event.place} lies beyond the group's {event.size} members"
            yield CheckResult(event.group, (Finding("M4", FindingKind.MISMATCH, what, event.group, place=event.meta),))
        elif abs(event.size - before.size_at(event.group, LATEST)) > 1:
            what = "A group grows and shrinks by one member at a time"
            yield CheckResult(event.group, (Finding("M4", FindingKind.MISMATCH, what, event.group, place=event.meta),))


def _member(subject: AuditSubject, group: Hash32, operator: Address, seats: int) -> Iterator[Finding]:
    state = subject.history.state
    party = state.parties.get(operator)
    if party is None or party.role is not Role.NODE or party.hosted is None:
        yield Finding("M4", FindingKind.MISMATCH, "A group has a member that is no node", group, party=operator)
        return
    definition = state.classes[party.execution_class]
    stake = state.pot(PotKind.STAKE, operator) + state.pot(PotKind.LOCKED, operator)
    if seats > min(definition.seat_cap, stake // definition.seat):
        yield _uncovered(subject, group, operator, seats, stake)
    if group not in groups_within(party.execution_class, party.hosted):
        yield Finding(
            "M4", FindingKind.MISMATCH, "A node is a member for layers that it does not host", group, party=operator
        )


def _uncovered(subject: AuditSubject, group: Hash32, operator: Address, seats: int, stake: int) -> Finding:
    """More seats than the stake covers. What fines explain is no fault of the contract, and nobody's cheat."""
    state = subject.history.state
    definition = state.classes[state.parties[operator].execution_class]
    covered, missing = stake // definition.seat, seats * definition.seat - stake
    fines = () if seats > definition.seat_cap else fines_of(subject, operator)
    if sum(one.amount for one in fines) < missing:
        kind = FindingKind.MISMATCH
        message = f"The node is drawn with {seats} seats, its stake of {stake} covers {covered}"
    else:
        # Short by less than a seat, which any fine does, nobody is harmed. Seats that nothing covers should go.
        kind = FindingKind.OBSERVED if missing < definition.seat else FindingKind.INCONCLUSIVE
        why = "windows that it missed" if all(one.missed for one in fines) else "missed windows, or words that fell"
        message = f"After fines for {why} the node's stake covers {covered} of its {seats} seats; no cheat is proven"
    return Finding(
        "M4",
        kind,
        message,
        group,
        party=operator,
        role="node",
        evidence=tuple((f"fine {number}", one.words) for number, one in enumerate(fines, start=1)),
        action=f"Registry.evict({operator})",
    )


def _addresses(subject: AuditSubject) -> Iterator[CheckResult]:
    """Nobody put a false part behind a true name: all addresses follow from the factory and the parameters."""
    place = subject.evidence.place
    expected = contracts_of(place.factory, subject.evidence.parameters)
    findings = [
        Finding(
            "M18",
            FindingKind.MISMATCH,
            f"The {part.value} lies at {part.of(place.contracts)}, and the shipped code at {part.of(expected)}",
            party=part.of(place.contracts),
            action="use no contract whose code is not the shipped one",
        )
        for part in Part
        if part.of(place.contracts) != part.of(expected)
    ]
    yield CheckResult(None, tuple(findings))


CHECKS = (
    AuditCheck("M1", "Events fold to the getters", _folds),
    AuditCheck("M2", "Money is conserved", _money),
    AuditCheck("M3", "Names are hashes", _identities),
    AuditCheck("M4", "Seats follow stake", _seats),
    AuditCheck("M18", "The shipped code lies at its addresses", _addresses),
)
