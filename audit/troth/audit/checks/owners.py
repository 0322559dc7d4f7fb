"""M21: no owner holds so much of a group that it alone is often drawn for a majority of a check's verifiers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from troth.audit.report import CheckResult, Finding, FindingKind
from troth.audit.subject import AuditCheck, AuditSubject
from troth.protocol.market.draws import GroupHistory, offers_checks, seats_by_owner
from troth.protocol.market.state import Party
from troth.protocol.market.views import rules_in
from troth.protocol.organisations import groups_within
from troth.protocol.types import Hash32

NUMBER = "M21"
SHARE = 3
"""An owner may hold one part in so many of a group's seasoned seats."""


def _owners(subject: AuditSubject) -> Iterator[CheckResult]:
    """One result for each group that offers checks; the shipped client orders nothing from the others."""
    state, block = subject.history.state, subject.block
    for identifier in sorted(state.sizes):
        group = state.group(identifier)
        members = group.members_at(block)
        if not members:
            continue
        party = state.parties[members[0].operator]
        if offers_checks(group, rules_in(state, party.execution_class), block):
            yield CheckResult(identifier, tuple(_large(subject, identifier, group, party)))


def _large(subject: AuditSubject, identifier: Hash32, group: GroupHistory, member: Party) -> Iterator[Finding]:
    seats = seats_by_owner(group, subject.block, subject.evidence.parameters.seasoning)
    nodes = Counter(group.owners[entry.operator] for entry in group.members_at(subject.block))
    total, definition = seats.total(), subject.history.state.classes[member.execution_class]
    for owner, held in sorted(seats.items()):
        if SHARE * held > total:
            # The figures stand in the evidence: a watcher shows a finding again when its message changes.
            yield Finding(
                NUMBER,
                FindingKind.OBSERVED,
                "One owner holds more than a third of the seats from which a group's verifiers are drawn",
                identifier,
                party=owner,
                role="owner",
                evidence=(
                    ("class", definition.name),
                    ("layers", _layers(identifier, member)),
                    ("seasoned seats", f"{held} of {total}"),
                    ("nodes", f"{nodes[owner]} of {nodes.total()}"),
                ),
            )


def _layers(group: Hash32, member: Party) -> str:
    """The group's layers; unknown where its member hosts others, which M4 finds."""
    within = {} if member.hosted is None else groups_within(member.execution_class, member.hosted)
    segment = within.get(group)
    return "unknown" if segment is None else f"[{segment.first}, {segment.end})"


CHECKS = (AuditCheck(NUMBER, "No owner has more than a third", _owners),)
